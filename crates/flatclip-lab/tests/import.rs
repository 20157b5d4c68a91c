//! Features made elsewhere: import, evaluation, round trip with the export, and what is refused.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use flatclip::{Classifier, Error, Matrix, Model, TextFeatures, ViewFeatures};
use flatclip_lab::data::{self, Dataset, OpenOptions};
use flatclip_lab::eval::cache::{self, FeatureParts, Imported};
use flatclip_lab::report::{Run, find_runs, metrics_table};
use flatclip_lab::{EvaluateRequest, PromptChoice, SweepRequest, evaluate, sweep};
use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const SAMPLES: usize = 12;
const VIEWS: usize = 5;
const WIDTH: usize = 8;
const CLASSES: usize = 3;
const SHAPE: [usize; 3] = [SAMPLES, VIEWS, WIDTH];
const NUMBERS: usize = SAMPLES * VIEWS * WIDTH;

/// Numbers without a pattern.
fn numbers(count: usize, start: u32) -> Vec<f32> {
    let mut state = start;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

/// One array of a file that another program wrote.
struct Array {
    name: &'static str,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn floats(name: &'static str, shape: &[usize], values: &[f32]) -> Array {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Array { name, dtype: Dtype::F32, shape: shape.to_vec(), bytes }
}

/// An array of [`numbers`].
fn array(name: &'static str, shape: &[usize], start: u32) -> Array {
    floats(name, shape, &numbers(shape.iter().product(), start))
}

fn labels(values: &[i64]) -> Array {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Array { name: "labels", dtype: Dtype::I64, shape: vec![values.len()], bytes }
}

fn features() -> Array {
    array("features", &SHAPE, 1)
}

fn text() -> Array {
    array("text_features", &[CLASSES, WIDTH], 2)
}

fn some_labels() -> Array {
    labels(&(0..SAMPLES as i64).map(|index| index % CLASSES as i64).collect::<Vec<_>>())
}

fn scale() -> Array {
    floats("logit_scale", &[], &[50.0])
}

fn save(folder: &Path, arrays: &[Array], document: &str) -> PathBuf {
    let views = arrays.iter().map(|a| (a.name, TensorView::new(a.dtype, a.shape.clone(), &a.bytes).unwrap()));
    let metadata = HashMap::from([("flatclip".to_owned(), document.to_owned())]);
    let path = folder.join("features.safetensors");
    std::fs::write(&path, safetensors::serialize(views, Some(metadata)).unwrap()).unwrap();
    path
}

fn import(root: &Path, file: &Path, name: &str) -> flatclip::Result<Imported> {
    cache::import(root, FeatureParts::open(file)?.request(name.to_owned(), None, false)?, &())
}

fn request(out: &Path, methods: &[&str]) -> EvaluateRequest {
    EvaluateRequest {
        methods: methods.iter().map(|&name| name.to_owned()).collect(),
        prompt: PromptChoice::Imported,
        keep_probabilities: true,
        ..EvaluateRequest::new(out).unwrap()
    }
}

fn run(features: &Imported, request: &EvaluateRequest) -> flatclip::Result<Vec<flatclip_lab::EvaluatedRun>> {
    evaluate(request, features, std::slice::from_ref(features.dataset()), &())
}

#[test]
fn imported_features_are_answered_as_a_classifier_answers_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = save(dir.path(), &[features(), text(), some_labels(), scale()], r#"{"model": "my-vit"}"#);
    let found = import(dir.path(), &file, "mine").unwrap();
    assert_eq!((found.views(), found.width(), found.model()), (VIEWS, WIDTH, "my-vit"));
    // Cosines of random features are negative, which dlae refuses unless it computes as the authors' code does.
    let options = toml::from_str("dlae.compat = true").unwrap();
    let all = EvaluateRequest { options, ..request(&dir.path().join("runs"), &["all"]) };
    let runs = run(&found, &all).unwrap();
    let methods: Vec<&str> = runs.iter().map(|run| run.summary.method.as_str()).collect();
    assert!(methods.contains(&"zero") && methods.contains(&"tda") && methods.contains(&"transclip"), "{methods:?}");
    assert!(!methods.contains(&"tpt") && !methods.contains(&"stss"), "{methods:?}");
    assert!(runs.iter().all(|run| run.summary.failed == 0 && run.summary.samples == SAMPLES));

    let text = TextFeatures::new(Matrix::from_vec(CLASSES, WIDTH, numbers(CLASSES * WIDTH, 2)), 50.0).unwrap();
    let zero = Classifier::from_text_features(text).method("zero").build().unwrap();
    let all = numbers(NUMBERS, 1);
    let records = Run::read(&dir.path().join("runs/zero")).unwrap().records().unwrap();
    for (record, views) in records.iter().zip(all.chunks(VIEWS * WIDTH)) {
        let views = ViewFeatures::new(Matrix::from_vec(VIEWS, WIDTH, views.to_vec())).unwrap();
        assert_eq!(record.answer.as_ref().unwrap().prediction, zero.answer(&views).unwrap().index());
    }
    let read: Vec<Run> =
        find_runs(&[dir.path().join("runs")]).unwrap().iter().map(|path| Run::read(path).unwrap()).collect();
    assert_eq!((read[0].config.model.as_str(), read[0].config.views.policy.as_str()), ("my-vit", "imported"));
    assert_eq!(metrics_table(&read).rows.len(), runs.len());
}

#[test]
fn fewer_views_text_features_of_another_file_sweeps_and_banks() {
    let dir = tempfile::tempdir().unwrap();
    let bank = array("text_bank", &[4, CLASSES, WIDTH], 2);
    let file = save(dir.path(), &[features(), bank, some_labels(), scale()], "{}");
    let found = import(dir.path(), &file, "mine").unwrap();
    let runs = run(&found, &request(&dir.path().join("stss"), &["stss"])).unwrap();
    assert_eq!((runs[0].views, runs[0].summary.failed), (VIEWS, 0));

    let base = request(&dir.path().join("sweep"), &["zero"]);
    let axes = vec!["views=1,3".parse().unwrap(), "zero.fraction=0.2,1.0".parse().unwrap()];
    let swept = sweep(&SweepRequest { base, axes }, &found, std::slice::from_ref(found.dataset()), &()).unwrap();
    assert_eq!(swept[0].table.rows.len(), 4);

    let more = EvaluateRequest { views: Some(VIEWS + 1), ..request(&dir.path().join("more"), &["zero"]) };
    assert!(run(&found, &more).unwrap_err().to_string().contains("has 5 views"));
    let template = EvaluateRequest { prompt: EvaluateRequest::new("x").unwrap().prompt, ..base_of(&dir, "template") };
    assert!(run(&found, &template).unwrap_err().to_string().contains("text tower"));
    let narrow = flatclip::Prompt::features(Matrix::from_vec(CLASSES, 4, numbers(CLASSES * 4, 3))).unwrap();
    let narrow = EvaluateRequest { prompt: PromptChoice::One(narrow.into()), ..base_of(&dir, "narrow") };
    assert!(run(&found, &narrow).unwrap_err().to_string().contains("another model"));
    let tower = run(&found, &request(&dir.path().join("tpt"), &["tpt"])).unwrap_err();
    assert_eq!(tower.code(), "method.needs");
}

fn base_of(dir: &tempfile::TempDir, name: &str) -> EvaluateRequest {
    request(&dir.path().join(name), &["zero"])
}

#[test]
fn export_and_import_give_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let halves = numbers(NUMBERS, 1).iter().flat_map(|&value| half::f16::from_f32(value).to_le_bytes()).collect();
    let halves = Array { dtype: Dtype::F16, bytes: halves, ..features() };
    for (name, array) in [("single", features()), ("half", halves)] {
        let root = dir.path().join(name);
        std::fs::create_dir_all(&root).unwrap();
        let file = save(&root, &[array, text(), some_labels(), scale()], r#"{"classes": ["cat", "dog", "fish"]}"#);
        let first = import(&root, &file, "mine").unwrap();
        let (bytes, count) = cache::export(&root, first.id()).unwrap();
        assert_eq!(count, SAMPLES);
        let exported = root.join("exported.safetensors");
        std::fs::write(&exported, &bytes).unwrap();
        let again = import(&root.join("other"), &exported, "mine").unwrap();
        assert_eq!(again.digest(), first.digest(), "{name}");
        assert_eq!(again.dataset().classes, ["cat", "dog", "fish"]);
        assert!(cache::export(&root.join("other"), again.id()).unwrap().0 == bytes || name == "half");
        let values = safetensors::SafeTensors::deserialize(&bytes).unwrap().tensor("features").unwrap().data().to_vec();
        let expected = numbers(NUMBERS, 1).into_iter();
        let exact = |value: f32| if name == "half" { half::f16::from_f32(value).to_f32() } else { value };
        assert_eq!(values, expected.flat_map(|value| exact(value).to_le_bytes()).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn features_of_our_own_model_come_back_and_answer_alike() {
    let dir = tempfile::tempdir().unwrap();
    let (root, model) = (dir.path().join("cache"), Model::load("pocket").unwrap());
    let data: Dataset = data::open("pocket:sketch:test:20", &OpenOptions::default()).unwrap();
    let with_model = EvaluateRequest {
        methods: vec!["zero".into()],
        views: Some(8),
        cache: Some(root.clone()),
        ..EvaluateRequest::new(dir.path().join("model")).unwrap()
    };
    evaluate(&with_model, &model, std::slice::from_ref(&data), &()).unwrap();
    let id = cache::list(&root).unwrap().remove(0).id;
    let (bytes, _) = cache::export(&root, &id).unwrap();
    let file = dir.path().join("exported.safetensors");
    std::fs::write(&file, &bytes).unwrap();
    let prompt = flatclip::Prompt::templates(&[flatclip::Prompt::TEMPLATE]).unwrap();
    let parts = FeatureParts {
        text: Some(prompt.text_features(model.clip(), model.tokenizer(), &data.classes).unwrap()),
        logit_scale: Some(f64::from(model.logit_scale())),
        model: Some("pocket".into()),
        ..FeatureParts::open(&file).unwrap()
    };
    let found = cache::import(&root, parts.request("sketch".into(), Some(&data), false).unwrap(), &()).unwrap();
    let (again, _) = cache::export(&root, found.id()).unwrap();
    // Features of a model are in the order of their ids, imported ones in the order of the data set.
    let tensor = |bytes: &[u8], name: &str| {
        let all = safetensors::SafeTensors::deserialize(bytes).unwrap().tensor(name).unwrap().data().to_vec();
        let mut samples: Vec<Vec<u8>> = all.chunks(all.len() / 20).map(<[u8]>::to_vec).collect();
        samples.sort();
        samples
    };
    for name in ["features", "norms"] {
        assert_eq!(tensor(&bytes, name), tensor(&again, name), "{name}");
    }
    run(&found, &EvaluateRequest { keep_probabilities: false, ..base_of(&dir, "features") }).unwrap();
    let log = |run: &str| std::fs::read_to_string(dir.path().join(run).join("predictions.jsonl")).unwrap();
    assert_eq!(log("model"), log("features"));
}

#[test]
fn other_features_of_the_same_name_do_not_resume_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = save(dir.path(), &[features(), text(), some_labels(), scale()], "{}");
    let first = import(dir.path(), &file, "mine").unwrap();
    let half = EvaluateRequest { resume: true, ..base_of(&dir, "run") };
    run(&first, &half).unwrap();
    assert!(import(dir.path(), &file, "mine").unwrap_err().to_string().contains("exist already"));
    let others = array("features", &SHAPE, 9);
    let file = save(dir.path(), &[others, text(), some_labels(), scale()], "{}");
    let parts = FeatureParts::open(&file).unwrap();
    let second = cache::import(dir.path(), parts.request("mine".into(), None, true).unwrap(), &()).unwrap();
    assert_ne!(first.digest(), second.digest());
    assert_eq!(cache::list(dir.path()).unwrap().len(), 1, "the earlier ones are replaced");
    let refused = run(&second, &half).unwrap_err();
    assert!(refused.code() == "run.unusable" && refused.to_string().contains("weights"), "{refused}");
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut broken = numbers(NUMBERS, 1);
    broken[777 % NUMBERS] = f32::NAN;
    let doubles = Array { dtype: Dtype::F64, bytes: vec![1; NUMBERS * 8], ..features() };
    let ids = |last: &str| {
        let mut ids: Vec<String> = (0..SAMPLES).map(|index| format!("{index}.jpg")).collect();
        ids[SAMPLES - 1] = last.to_owned();
        serde_json::json!({ "ids": ids }).to_string()
    };
    let all = || vec![features(), text(), some_labels(), scale()];
    let with = |array: Array| {
        let mut arrays: Vec<Array> = all().into_iter().filter(|other| other.name != array.name).collect();
        arrays.push(array);
        arrays
    };
    // In the place of one of the same name.
    let replaced = [
        (floats("features", &SHAPE, &broken), "number.not-finite", "NaN"),
        (floats("features", &SHAPE, &vec![0.0; NUMBERS]), "number.not-finite", "zeros"),
        (doubles, "data.unusable", "found f64"),
        (floats("features", &[NUMBERS], &broken), "data.unusable", "[N, V, D]"),
        (array("text_features", &[CLASSES, 4], 2), "option.invalid", "another model"),
        (array("text_bank", &[2, CLASSES, WIDTH], 5), "option.invalid", "first part"),
        (labels(&[0, 1]), "option.invalid", "2 labels for 12"),
        (labels(&[3; SAMPLES]), "option.invalid", "label 3"),
        (labels(&[-1; SAMPLES]), "option.invalid", "label -1"),
        (floats("logit_scale", &[], &[4.6]), "option.invalid", "logarithm"),
        (floats("norms", &[SAMPLES, VIEWS], &[1.0; SAMPLES * VIEWS]), "option.invalid", "unit vector"),
    ];
    let replaced = replaced.map(|(array, code, words)| (with(array), "{}".to_owned(), code, words));
    let cases = [
        (all(), ids("0.jpg"), "option.invalid", "duplicate"),
        (all(), r#"{"ids": ["one"]}"#.into(), "option.invalid", "1 ids for 12"),
        (all(), r#"{"classes": ["one"]}"#.into(), "option.invalid", "3 text features for 1 classes"),
        (vec![features(), text(), scale()], "{}".into(), "option.invalid", "labels"),
        (vec![features(), text(), some_labels()], "{}".into(), "option.invalid", "logit_scale"),
        (vec![text(), some_labels(), scale()], "{}".into(), "option.invalid", "features"),
        (vec![scale()], "{}".into(), "data.unusable", "expected arrays"),
    ];
    for (arrays, document, code, words) in replaced.into_iter().chain(cases) {
        let file = save(dir.path(), &arrays, &document);
        let error = import(dir.path(), &file, "mine").unwrap_err();
        assert!(
            error.code() == code && error.to_string().contains(words),
            "{} {error}, expected {words}",
            error.code()
        );
        assert!(cache::list(dir.path()).unwrap().is_empty(), "{words}");
    }
    let folder = dir.path().join("features");
    assert_eq!(std::fs::read_dir(&folder).map_or(0, Iterator::count), 0, "nothing half written is left");
    let text_of_others = FeatureParts { model: Some("other".into()), ..FeatureParts::default() };
    let own = FeatureParts { model: Some("mine".into()), ..FeatureParts::default() };
    assert!(own.with(text_of_others).err().unwrap().to_string().contains("models"));
}

#[test]
fn the_samples_of_a_data_set_must_be_those_of_the_features() {
    let dir = tempfile::tempdir().unwrap();
    let data = data::open("pocket:sketch:test:12", &OpenOptions::default()).unwrap();
    let ids: Vec<&str> = data.samples.iter().map(|sample| sample.id.as_str()).collect();
    let classes = data.classes.len();
    let text = || array("text_features", &[classes, WIDTH], 2);
    let attempt = |ids: Option<Vec<&str>>, more: Vec<Array>| {
        let mut arrays = vec![features(), text(), scale()];
        arrays.extend(more);
        let document = ids.map_or_else(|| "{}".to_owned(), |ids| serde_json::json!({ "ids": ids }).to_string());
        let file = save(dir.path(), &arrays, &document);
        let parts = FeatureParts::open(&file).unwrap();
        cache::import(dir.path(), parts.request("mine".into(), Some(&data), true).unwrap(), &())
    };
    let message = |result: flatclip::Result<Imported>| result.unwrap_err().to_string();
    assert!(message(attempt(None, vec![])).contains("ids"));
    let mut other = ids.clone();
    other[3] = "nobody.png";
    assert!(message(attempt(Some(other), vec![])).contains("1 of 12 samples have no features"));
    let wrong: Vec<i64> = data.samples.iter().map(|sample| (sample.label as i64 + 1) % classes as i64).collect();
    assert!(message(attempt(Some(ids.clone()), vec![labels(&wrong)])).contains("with its features"));
    let mut reversed = ids.clone();
    reversed.reverse();
    let found = attempt(Some(reversed), vec![]).unwrap();
    assert_eq!(found.dataset().samples[0].id, ids[0], "the order is the data set's");
}

/// A header that claims 20 GB, over a file that has them only on paper, or not at all.
#[test]
fn a_claim_of_twenty_gigabytes_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let rows = 20_000_000_000usize / 4 / 512;
    let size = rows * 512 * 4;
    let header = format!(
        r#"{{"__metadata__":{{"flatclip":"{{\"logit_scale\":100,\"classes\":[\"a\",\"b\"]}}"}},"features":{{"dtype":"F32","shape":[{rows},512],"data_offsets":[0,{size}]}}}}"#
    );
    let path = dir.path().join("large.safetensors");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    let before = flatclip::resident_memory().0;
    assert_eq!(FeatureParts::open(&path).err().unwrap().code(), "data.unusable", "truncated");
    file.set_len(8 + header.len() as u64 + size as u64).unwrap();
    let text = Matrix::from_vec(2, 512, vec![1.0; 1024]);
    let parts = FeatureParts { text: Some(text), labels: Some(vec![0; rows]), ..FeatureParts::open(&path).unwrap() };
    let error = cache::import(dir.path(), parts.request("large".into(), None, false).unwrap(), &()).unwrap_err();
    assert!(matches!(error, Error::NotFinite { .. }), "{error}");
    let grown = flatclip::resident_memory().0.saturating_sub(before);
    // Ten million ids and labels, and nothing of the numbers.
    assert!(grown < 2_000_000_000, "{grown}");
}
