//! Whole tuning runs on the embedded model: what they promise, and how they fail.
#![allow(clippy::unwrap_used, reason = "what a test cannot do fails it")]

use flatclip::model::{
    Clip, ClipConfig, Context, ImageConfig, LoadOptions, Position, Precision, TextConfig, TextForm, VitForm,
};
use flatclip::prompt::{Affine, Prompt, PromptClassifier, PromptContent, Provenance, logits};
use flatclip::settings::parse_settings;
use flatclip::text::Tokenizer;
use flatclip::weights::Checkpoint;
use flatclip::{Hint, Model, Progress};
use flatclip_lab::data::few_shot::Sampler;
use flatclip_lab::data::{self, Dataset, Family, OpenOptions, Source, Split};
use flatclip_lab::tuners::{Batch, Coop, CoopConfig, Sapt, SaptConfig, TUNERS, TuneTask, Tuner as _, cross_entropy};
use flatclip_lab::{TuneRequest, TuneSummary, tune};
use flatclip_tensor::Matrix;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

static MODEL: LazyLock<Model> = LazyLock::new(|| Model::load("pocket").unwrap());

/// A few classes of drawn photos.
fn dataset(classes: usize) -> Dataset {
    let options = OpenOptions { split: Split::Train, ..OpenOptions::default() };
    let all = data::open("pocket:photo", &options).unwrap();
    all.restrict_classes(&(0..classes).collect::<Vec<_>>())
}

/// Settings are words between spaces.
fn request(method: &str, settings: &str) -> TuneRequest {
    TuneRequest {
        method: method.into(),
        shots: Some(3),
        checkpoint_every: 3,
        overrides: vec![parse_settings(&settings.split_whitespace().collect::<Vec<_>>()).unwrap()],
        ..TuneRequest::default()
    }
}

#[test]
fn contexts_are_learned_in_i16_where_it_is_fast_unless_told_otherwise() {
    let (folder, data) = (tempfile::tempdir().unwrap(), dataset(3));
    let named = |out: &Path| {
        let config: toml::Table = toml::from_str(&std::fs::read_to_string(out.join("config.toml")).unwrap()).unwrap();
        config.get("text_precision").map_or("f32".to_owned(), |name| name.as_str().unwrap().to_owned())
    };
    let learned = |method: &str, text_precision: Option<Precision>, name: &str| {
        let ask = TuneRequest { text_precision, ..request(method, "train.epochs=2 views.bank=1") };
        let out = folder.path().join(name);
        run_watched(&ask, &data, &out, false, 1).unwrap_err();
        let before = named(&out);
        // A resumed run keeps its precision, whatever the default is.
        let ask = TuneRequest { text_precision: None, ..ask };
        run_watched(&ask, &data, &out, true, usize::MAX).unwrap();
        assert_eq!(named(&out), before);
        before
    };
    let fast = Precision::auto_for_gradients().name();
    assert_eq!(learned("coop", None, "auto"), fast);
    assert_eq!(learned("coop", Some(Precision::F32), "exact"), "f32");
    assert_eq!(learned("coop", Some(Precision::I16), "fixed"), "i16");
    assert_eq!(learned("cocoop", None, "meta"), "f32");
    let exact = Model::builder("pocket").precision(Precision::F32).load(&()).unwrap();
    let ask = TuneRequest { out: folder.path().join("all"), ..request("coop", "train.epochs=1") };
    tune(&ask, &exact, &data, &()).unwrap();
    assert_eq!(named(&ask.out), "f32");
    // The weights of a loaded model may be gone: the default falls back to f32, an explicit choice is refused.
    let place = folder.path().join("model");
    std::fs::create_dir(&place).unwrap();
    for (name, bytes) in flatclip_pocket::model_files("pocket").unwrap() {
        std::fs::write(place.join(name), bytes).unwrap();
    }
    let loaded =
        Model::builder(place.display().to_string()).precision(Precision::I16).hash_cache(None).load(&()).unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    let ask = TuneRequest { out: folder.path().join("gone"), ..request("coop", "train.epochs=1") };
    tune(&ask, &loaded, &data, &()).unwrap();
    assert_eq!(named(&ask.out), "f32");
    let ask = TuneRequest { text_precision: Some(Precision::I16), out: folder.path().join("asked"), ..ask };
    assert!(tune(&ask, &loaded, &data, &()).unwrap_err().to_string().contains("model"));
    // A model from parts keeps its towers: the run records what was computed, another choice is refused.
    let parts = Clip::load(
        &Model::builder("pocket").open(&()).unwrap(),
        LoadOptions { precision: Precision::I16, ..LoadOptions::default() },
    );
    let parts = Model::from_parts("parts", parts.unwrap(), MODEL.tokenizer().clone());
    let ask = TuneRequest { text_precision: None, out: folder.path().join("parts"), ..ask };
    tune(&ask, &parts, &data, &()).unwrap();
    assert_eq!(named(&ask.out), "f32");
    let ask = TuneRequest { text_precision: Some(Precision::I16), out: folder.path().join("refused"), ..ask };
    assert!(tune(&ask, &parts, &data, &()).unwrap_err().to_string().contains("text_precision"));
    let shared = MODEL.with_text_precision(Precision::I16).unwrap();
    assert_eq!((shared.hash(), shared.clip().text_precision()), (MODEL.hash(), Precision::I16));
}

/// Cancels after a step of the training.
struct StopAfter {
    step: u64,
    stop: AtomicBool,
}

impl Progress for StopAfter {
    fn advance(&self, done: u64, status: &str) {
        if done == self.step && status.starts_with("loss") {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Runs with a watcher of steps that may cancel.
fn run_watched(
    request: &TuneRequest,
    dataset: &Dataset,
    out: &Path,
    resume: bool,
    stop_after: usize,
) -> flatclip::Result<TuneSummary> {
    let request = TuneRequest { out: out.to_path_buf(), resume, ..request.clone() };
    let watcher = StopAfter { step: stop_after as u64, stop: AtomicBool::new(false) };
    tune(&request, &MODEL, dataset, &watcher)
}

fn run(request: &TuneRequest, dataset: &Dataset, out: &Path) -> flatclip::Result<TuneSummary> {
    run_watched(request, dataset, out, false, usize::MAX)
}

/// All files of a run but the wall-clock times and the lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .filter(|(name, _)| name != "timing.jsonl" && name != ".lock")
        .collect()
}

#[test]
fn lambda_zero_is_coop_to_the_bit() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let (a, b) = (folder.path().join("sapt"), folder.path().join("coop"));
    run(&request("sapt", "sapt.weight=0 train.epochs=6 train.batch=4"), &data, &a).unwrap();
    run(&request("coop", "train.epochs=6 train.batch=4"), &data, &b).unwrap();
    assert_eq!(Prompt::load(&a).unwrap().content, Prompt::load(&b).unwrap().content);
    assert_eq!(metric(&a, "loss"), metric(&b, "loss"));
    let c = folder.path().join("sharp");
    run(&request("sapt", "train.epochs=6 train.batch=4"), &data, &c).unwrap();
    assert_ne!(Prompt::load(&a).unwrap().content, Prompt::load(&c).unwrap().content);
}

#[test]
fn a_stopped_and_resumed_run_ends_with_the_same_bytes() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let averages = ["train.average=swad train.swad_converge=2", "train.average=swad train.swad_rule=compat"];
    let tip = "tip-adapter.search=none views.fresh=true views.bank=1";
    let cases = [("sapt", "train.average=ema"), ("coop", averages[0]), ("coop", averages[1]), ("tip-adapter-f", tip)];
    for (case, (method, extra)) in cases.into_iter().enumerate() {
        let request = request(method, &format!("train.epochs=5 train.batch=4 {extra}"));
        let straight = folder.path().join(format!("{case}-straight"));
        run(&request, &data, &straight).unwrap();
        for stop_after in [1, 4, 7] {
            let out = folder.path().join(format!("{case}-{stop_after}"));
            let error = run_watched(&request, &data, &out, false, stop_after).unwrap_err();
            assert_eq!(error.code(), "interrupted", "{error}");
            assert!(!out.join("summary.json").exists());
            run_watched(&request, &data, &out, true, usize::MAX).unwrap();
            assert_eq!(files(&out), files(&straight), "{method} stopped after step {stop_after}");
        }
    }
}

/// A small ViT with random weights and CLIP's own vocabulary: the embedded model's image tower is a ResNet.
fn random_vit() -> Model {
    let image = ImageConfig::Vit { width: 64, layers: 2, heads: 1, patch: 16, mlp: 256, form: VitForm::CLIP };
    let (context_length, vocab, form) = (77, 49408, TextForm::CLIP);
    let text = Some(TextConfig { width: 64, layers: 2, heads: 1, context_length, vocab, mlp: 256, form });
    let pocket = Checkpoint::embedded("pocket").unwrap().unwrap().config().clone();
    let config = ClipConfig { embed_dim: 32, image_size: 32, image, text, ..pocket };
    let checkpoint = flatclip::weights::random_of(&config, 1);
    let clip = Clip::load(&checkpoint, LoadOptions::default()).unwrap();
    Model::from_parts("random", clip, Tokenizer::clip())
}

#[test]
fn every_tuner_leaves_a_prompt_that_classifies() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let vit = random_vit();
    for spec in TUNERS {
        let depth = if spec.name == "maple" { "maple.depth=2" } else { "" };
        let settings = format!("train.epochs=2 train.batch=4 views.bank=2 {depth}");
        let out = folder.path().join(spec.name);
        let model = if spec.vit { &vit } else { &*MODEL };
        let request = TuneRequest { out: out.clone(), ..request(spec.name, &settings) };
        let summary = tune(&request, model, &data, &()).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
        let (clip, tokenizer) = (model.clip(), model.tokenizer());
        let prompt = Prompt::load(&out).unwrap();
        assert_eq!(prompt.provenance.method, spec.name);
        assert_eq!(prompt.provenance.classes, data.classes);
        let classifier = PromptClassifier::new(&prompt, clip, tokenizer, &data.classes).unwrap();
        // Two images, whatever they are: their logits exist and are finite.
        let width = clip.embed_dim();
        let features = Matrix::from_vec(2, width, vec![(width as f32).powf(-0.5); 2 * width]);
        let logits = classifier.logits(&features).unwrap();
        assert_eq!((logits.rows(), logits.cols()), (2, 3), "{}", spec.name);
        assert!(logits.data().iter().all(|x| x.is_finite()), "{}", spec.name);
        assert_eq!(classifier.visual_prompts().len(), if spec.name == "maple" { 2 } else { 0 });
        assert_eq!(summary.images, 9);
    }
}

#[test]
fn maple_on_a_resnet_is_refused_before_the_directory_is_touched() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let out = folder.path().join("run");
    let error = run(&request("maple", ""), &data, &out).unwrap_err().to_string();
    assert!(error.contains("vision transformer") && error.contains("sapt"), "{error}");
    assert!(!out.exists());
}

#[test]
fn sapt_ends_flatter_than_coop_at_the_same_training_accuracy() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(8));
    let measure = |method: &str, extra: &str| {
        let mut ask = request(method, &format!("train.epochs=30 train.batch=16 train.lr=0.02 {extra}"));
        ask.shots = Some(8);
        run(&ask, &data, &folder.path().join(method)).unwrap().flatness.unwrap()
    };
    let (coop, sapt) = (measure("coop", "train.momentum=0.9"), measure("sapt", "sapt.radius=0.7"));
    println!("coop {coop:?}\nsapt {sapt:?}");
    assert!(sapt.sharpness < coop.sharpness, "{sapt:?} against {coop:?}");
    assert!((sapt.accuracy - coop.accuracy).abs() <= 0.02, "{sapt:?} against {coop:?}");
}

#[test]
fn tuning_lowers_the_loss_of_the_shots() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(4));
    let (clip, tokenizer) = (MODEL.clip(), MODEL.tokenizer());
    let summary = run(&request("coop", "train.epochs=30 train.batch=12"), &data, &folder.path().join("run")).unwrap();
    let zero_shot =
        Prompt::templates(&[Prompt::TEMPLATE]).unwrap().text_features(clip, tokenizer, &data.classes).unwrap();
    let bank = std::fs::read(folder.path().join("run/features.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bank).unwrap();
    let view = file.tensor("features").unwrap();
    let values: Vec<f32> = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let (views, width) = (view.shape()[1], view.shape()[2]);
    let first: Vec<f32> = values.chunks(views * width).flat_map(|image| image[..width].to_vec()).collect();
    let features = flatclip::model::Features::unit(Matrix::from_vec(12, width, first)).0;
    let labels: Vec<usize> = (0..12).map(|i| i / 3).collect();
    let before = cross_entropy(&logits(&features, &zero_shot, clip.logit_scale()), &labels).loss;
    assert!(summary.train.unwrap().loss < before, "{:?} against {before} before", summary.train);
}

#[test]
fn the_radius_is_chosen_on_held_out_images_and_the_table_is_kept() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let out = folder.path().join("run");
    let ask = TuneRequest { search: true, held_out: Some(2), ..request("sapt", "train.epochs=2 views.bank=1") };
    let summary = run(&ask, &data, &out).unwrap();
    let table: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("search.json")).unwrap()).unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 5);
    assert_eq!(table["held_out"], 6);
    assert_eq!(table["chosen"].as_f64(), summary.chosen_radius);
    let run: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let ids = |key: &str| run[key].as_array().unwrap().clone();
    assert!(ids("held_out").iter().all(|id| !ids("train").contains(id)));
}

/// The learned context of a run.
fn context(out: &Path) -> Vec<f32> {
    match Prompt::load(out).unwrap().content {
        PromptContent::Learned { context, .. } => context.data,
        other => panic!("{other:?}"),
    }
}

/// A number of every line of `metrics.jsonl`.
fn metric(folder: &Path, name: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()[name].as_f64().unwrap();
    text.lines().map(value).collect()
}

#[test]
fn swad_without_convergence_ends_with_the_mean_of_the_whole_trajectory() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let average = |name: &str| {
        let average = format!("train.average={name}");
        // Four evaluations cannot contain five without improvement; SWA from the first step on averages every step, too.
        let settings = "train.epochs=4 train.batch=4 train.lr=0.02 train.swad_converge=5 train.swa_start=0";
        let ask = TuneRequest { held_out: Some(2), ..request("coop", &format!("{settings} {average}")) };
        let out = folder.path().join(name);
        run(&ask, &data, &out).unwrap();
        context(&out)
    };
    let (swad, swa) = (average("swad"), average("swa"));
    let largest = swad.iter().zip(&swa).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-6, "{largest}");
}

#[test]
fn a_relative_radius_is_a_share_of_the_norm_of_each_group() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(4));
    for (norm, specific) in [("whole", false), ("per-token", false), ("per-class", true), ("per-token", true)] {
        let out = folder.path().join(format!("{norm}-{specific}"));
        let (norm, specific) = (format!("sapt.norm={norm}"), format!("sapt.class_specific={specific}"));
        let settings = "train.epochs=2 views.bank=1 sapt.radius=0.1 sapt.radius_unit=relative";
        let summary = run(&request("sapt", &format!("{settings} {norm} {specific}")), &data, &out).unwrap();
        for ratio in metric(&out, "epsilon_ratio") {
            assert!((ratio - 0.1).abs() < 1e-5, "{norm}, {specific}: {ratio}");
        }
        assert_eq!(summary.radius.unwrap().share, 0.1);
    }
    // The length of all groups together is what is reported: four classes of length 0.1 each.
    let settings = "train.epochs=1 views.bank=1 sapt.class_specific=true sapt.norm=per-class";
    let summary = run(&request("sapt", settings), &data, &folder.path().join("absolute")).unwrap();
    assert!((summary.radius.unwrap().length - 0.2).abs() < 1e-12, "{:?}", summary.radius);
}

#[test]
fn a_run_repeated_from_its_configuration_trains_with_the_radius_that_was_searched() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let [first, again, searched] = ["first", "again", "searched"].map(|name| folder.path().join(name));
    let settings = "train.epochs=3 train.batch=4 train.lr=0.05 views.bank=1 sapt.radius=0.2";
    let ask = TuneRequest { search: true, held_out: Some(2), ..request("sapt", settings) };
    let chosen = run(&ask, &data, &first).unwrap().chosen_radius.unwrap();
    let config: toml::Table = std::fs::read_to_string(first.join("config.toml")).unwrap().parse().unwrap();
    assert_eq!(config["sapt"]["radius"].as_float(), Some(chosen));

    // As the command line reads another run's configuration: its tables.
    let tables: toml::Table = config.into_iter().filter(|(_, value)| value.is_table()).collect();
    let repeat = TuneRequest { overrides: vec![tables.clone()], search: false, ..ask.clone() };
    run(&repeat, &data, &again).unwrap();
    assert_eq!(context(&again), context(&first));
    assert_eq!(files(&again)["metrics.jsonl"], files(&first)["metrics.jsonl"]);
    // Searched again, every byte is the same.
    run(&TuneRequest { overrides: vec![tables], ..ask.clone() }, &data, &searched).unwrap();
    assert_eq!(files(&searched), files(&first));
    // The run can still be resumed with what it was started with.
    assert_eq!(run_watched(&ask, &data, &first, true, usize::MAX).unwrap().chosen_radius, Some(chosen));
}

#[test]
fn fresh_views_train_the_keys_of_tip_adapter_on_new_crops() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let trained = |fresh: bool| {
        let out = folder.path().join(fresh.to_string());
        let fresh = format!("views.fresh={fresh}");
        // One view in the bank: without fresh ones every epoch sees the same features.
        let settings = format!("train.epochs=3 train.batch=9 train.lr=0 views.bank=1 tip-adapter.search=none {fresh}");
        run(&request("tip-adapter-f", &settings), &data, &out).unwrap();
        let keys = Prompt::load(&out).unwrap().content;
        (metric(&out, "loss"), keys)
    };
    let ((banked, keys), (fresh, same_keys)) = (trained(false), trained(true));
    assert_eq!(keys, same_keys, "the bank makes the keys");
    let distinct = |losses: &[f64]| losses.windows(2).filter(|pair| (pair[0] - pair[1]).abs() > 1e-3).count();
    assert_eq!((distinct(&banked), distinct(&fresh)), (0, 2), "{banked:?} {fresh:?}");
}

#[test]
fn steps_that_were_not_perturbed_report_no_radius() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    for (name, settings) in [("weight", "sapt.weight=0 train.epochs=1"), ("epochs", "views.bank=1 train.epochs=0")] {
        assert_eq!(run(&request("sapt", settings), &data, &folder.path().join(name)).unwrap().radius, None, "{name}");
    }
}

#[test]
fn the_python_sampler_on_imagenet_says_that_its_shots_are_not_those_of_coop() {
    #[derive(Default)]
    struct Warnings(std::sync::Mutex<Vec<String>>);
    impl Progress for Warnings {
        fn warn(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }
    let folder = TempDir::new().unwrap();
    for (family, warned) in [(Family::Imagenet, true), (Family::FineGrained, false)] {
        let data = Dataset { family, ..dataset(3) };
        let out = folder.path().join(format!("{family:?}"));
        let ask = TuneRequest { sampler: Sampler::Python, out, ..request("coop", "train.epochs=1 views.bank=1") };
        let warnings = Warnings::default();
        tune(&ask, &MODEL, &data, &warnings).unwrap();
        let said = warnings.0.into_inner().unwrap();
        assert_eq!(said.iter().any(|text| text.contains("not CoOp's")), warned, "{said:?}");
    }
}

#[test]
fn a_loss_that_is_not_finite_names_step_and_batch_and_keeps_the_checkpoint() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let out = folder.path().join("run");
    let ask = request("coop", "train.epochs=9 train.lr=1e38 train.warmup_epochs=2 train.batch=9");
    let error = run(&ask, &data, &out).unwrap_err();
    assert_eq!(error.code(), "number.not-finite", "{error}");
    let text = error.to_string();
    assert!(text.contains("step ") && text.contains("batch [") && text.contains("train.lr"), "{text}");
}

#[test]
fn unreadable_images_are_counted_and_tolerated_only_when_allowed() {
    let folder = TempDir::new().unwrap();
    let mut data = dataset(3);
    let broken = folder.path().join("broken.png");
    std::fs::write(&broken, b"not an image").unwrap();
    let list = folder.path().join("list.txt");
    let samples = &data.samples;
    let of_label = |label: usize| (0..samples.len()).filter(move |&i| samples[i].label == label).take(2);
    let picked: Vec<usize> = (0..3).flat_map(of_label).collect();
    data.samples[picked[0]].source = Source::File(broken);
    let ids: Vec<&str> = picked.iter().map(|&i| data.samples[i].id.as_str()).collect();
    std::fs::write(&list, ids.join("\n")).unwrap();
    let ask = TuneRequest { list: Some(list.display().to_string()), ..request("coop", "train.epochs=1") };
    let error = run(&ask, &data, &folder.path().join("a")).unwrap_err();
    assert!(error.hint() == Some(&Hint::AllowErrors(1)) && error.to_string().contains(ids[0]), "{error}");
    let allowed = TuneRequest { max_errors: 1, ..ask };
    let summary = run(&allowed, &data, &folder.path().join("b")).unwrap();
    assert_eq!((summary.images, summary.unreadable), (5, vec![ids[0].to_owned()]));
}

#[test]
fn a_second_run_in_the_same_directory_needs_resume_and_a_finished_one_is_left_alone() {
    let (folder, data) = (TempDir::new().unwrap(), dataset(3));
    let out = folder.path().join("run");
    let ask = request("coop", "train.epochs=1");
    let summary = run(&ask, &data, &out).unwrap();
    let before = files(&out);
    assert_eq!(run(&ask, &data, &out).unwrap_err().hint(), Some(&Hint::ResumeOrElsewhere));
    assert_eq!(run_watched(&ask, &data, &out, true, usize::MAX).unwrap(), summary);
    let other = request("coop", "train.epochs=2");
    assert!(run_watched(&other, &data, &out, true, usize::MAX).unwrap_err().to_string().contains("epochs"));
    assert_eq!(files(&out), before);
}

#[test]
fn prompts_for_other_models_are_refused_with_the_reason() {
    let (clip, tokenizer) = (MODEL.clip(), MODEL.tokenizer());
    let classes = dataset(2).classes;
    let made = |kind| Prompt::new(kind, Provenance::default());
    let wide = clip.text().unwrap().width() + 64;
    let prompt = made(PromptContent::Learned {
        context: Context::shared(2, wide, vec![0.1; 2 * wide]),
        words: String::new(),
        position: Position::End,
    });
    let error = prompt.text_features(clip, tokenizer, &classes).unwrap_err().to_string();
    assert!(error.contains(&format!("width {wide}")), "{error}");

    // The image tower of this model is a ResNet.
    let width = clip.text().unwrap().width();
    let maple = made(PromptContent::Maple {
        context: Context::shared(2, width, vec![0.1; 2 * width]),
        words: String::new(),
        tail: String::new(),
        deep: Vec::new(),
        projections: vec![Affine { weight: Matrix::zeros(8, width), bias: vec![0.0; 8] }],
    });
    let error = maple.check_model(clip).unwrap_err().to_string();
    assert!(error.contains("vision transformer"), "{error}");
}

/// Timing, so not part of the suite: `cargo test --release --test tune -- --ignored --nocapture`.
#[test]
#[ignore = "measures time on a model of real size"]
fn a_sapt_step_costs_two_context_steps() {
    let checkpoint = flatclip::weights::random("ViT-B-16", 1).unwrap();
    let (clip, tokenizer) = (Clip::load(&checkpoint, LoadOptions::default()).unwrap(), Tokenizer::clip());
    let classes: Vec<String> = flatclip::text::imagenet::CLASS_NAMES.iter().map(|n| (*n).to_owned()).collect();
    let labels: Vec<usize> = (0..32).map(|i| i * 31).collect();
    let mut stream = flatclip::rng::Stream::new(1, &["features"]);
    let raw = (0..32 * clip.embed_dim()).map(|_| stream.normal() as f32).collect();
    let features = flatclip::model::Features::unit(Matrix::from_vec(32, clip.embed_dim(), raw)).0;
    let (clip, tokenizer, classes, labels) = (&clip, &tokenizer, &classes[..], &labels[..]);
    let task = TuneTask { clip, tokenizer, classes, templates: &[], labels, bank: None, seed: 1 };
    let batch = Batch { labels, features: &features, pixels: &[] };
    let coop = Coop::build(&CoopConfig::default(), &task).unwrap();
    let sapt = Sapt::new(coop.clone(), &SaptConfig::default());
    let time = |work: &dyn Fn()| {
        work();
        let best = (0..3).map(|_| {
            let start = std::time::Instant::now();
            work();
            start.elapsed()
        });
        best.min().unwrap().as_secs_f64()
    };
    let plain = time(&|| drop(coop.step(clip, &batch, 0).unwrap()));
    let sharp = time(&|| drop(sapt.step(clip, &batch, 0).unwrap()));
    println!("context step {plain:.2} s, SAPT step {sharp:.2} s, ratio {:.2}", sharp / plain);
    assert!(sharp <= 2.2 * plain, "{sharp} against {plain}");
}
