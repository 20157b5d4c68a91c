//! The library as a program uses it: answers, streams, features of other models, and what is refused when.
#![allow(clippy::unwrap_used, reason = "what a test cannot do fails it")]

use flatclip::image::DecodeOptions;
use flatclip::methods::bank::TextBank;
use flatclip::methods::{ADAPTERS, Kind};
use flatclip::prompt::PromptKind;
use flatclip::{Answer, Classifier, Hint, Image, Matrix, Model, Prompt, TextFeatures, ViewFeatures, adapt};
use flatclip_lab::data::{self, Dataset, OpenOptions};
use std::sync::LazyLock;

static MODEL: LazyLock<Model> = LazyLock::new(|| Model::load("pocket").unwrap());

const CLASSES: [&str; 5] = ["fish", "boat", "lamp", "cat", "apple"];

fn dataset(count: usize) -> Dataset {
    data::open(&format!("pocket:sketch:test:{count}"), &OpenOptions::default()).unwrap()
}

fn images(count: usize) -> Vec<Image> {
    dataset(count).samples.iter().map(|sample| sample.image(&DecodeOptions::default()).unwrap()).collect()
}

fn classifier(method: &str) -> Classifier {
    Classifier::builder(&MODEL).classes(CLASSES).method(method).views(12).seed(3).build().unwrap()
}

/// The bits of an answer.
fn bits(answer: &Answer) -> (usize, Vec<u32>, Vec<u32>) {
    let of = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect();
    (answer.index(), of(answer.probabilities()), of(&answer.explanation().scores))
}

#[test]
fn a_classifier_shared_by_eight_threads_answers_the_same_bytes_as_one() {
    let images = images(4);
    for method in ["zero-shot", "stss", "tpt", "mta"] {
        let classifier = classifier(method);
        let alone: Vec<_> = images.iter().map(|image| bits(&classifier.answer(image).unwrap())).collect();
        std::thread::scope(|scope| {
            for first in 0..8 {
                let (mine, images, alone) = (classifier.clone(), &images, &alone);
                scope.spawn(move || {
                    for turn in 0..images.len() {
                        let at = (first + turn) % images.len();
                        assert_eq!(bits(&mine.answer(&images[at]).unwrap()), alone[at], "{method}");
                    }
                });
            }
        });
    }
}

#[test]
fn an_answer_depends_on_content_and_seed_not_on_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let image = &images(1)[0];
    let png = flatclip::image::sheet::encode_png(image).unwrap();
    let paths = ["a.png", "zz-other.png"].map(|name| folder.path().join(name));
    paths.iter().for_each(|path| std::fs::write(path, &png).unwrap());
    let stss = classifier("stss");
    let [a, b] = paths.map(|path| bits(&stss.answer(&path).unwrap()));
    assert_eq!(a, b);
    assert_eq!(a, bits(&stss.answer(png.as_slice()).unwrap()));
    assert_eq!(a, bits(&stss.answer(image).unwrap()));
    let other = Classifier::builder(&MODEL).classes(CLASSES).method("stss").views(12).seed(4).build().unwrap();
    assert_ne!(a.2, bits(&other.answer(image).unwrap()).2, "another seed draws other views");
}

#[test]
fn streams_of_one_classifier_know_nothing_of_each_other() {
    let images = images(6);
    let tda = classifier("tda");
    assert_eq!(tda.kind(), Kind::Online);
    let refused = tda.answer(&images[0]).unwrap_err();
    assert!(refused.code() == "method.needs" && refused.to_string().contains("stream"), "{refused}");
    let answers = |order: &[usize]| {
        let mut stream = tda.stream().unwrap();
        order.iter().map(|&i| bits(&stream.answer(&images[i]).unwrap())).collect::<Vec<_>>()
    };
    let first = answers(&[0, 1, 2, 3, 4, 5]);
    let mut one = tda.stream().unwrap();
    let mut two = tda.stream().unwrap();
    for (i, expected) in first.iter().enumerate() {
        two.answer(&images[5 - i]).unwrap();
        assert_eq!(bits(&one.answer(&images[i]).unwrap()), *expected);
    }
}

/// The text features of [`CLASSES`] and the view features of an image, as another program would have them.
fn features(image: &Image) -> (TextFeatures, ViewFeatures) {
    let texts: Vec<String> = CLASSES.iter().map(|class| format!("a photo of a {class}.")).collect();
    let text = TextFeatures::new(MODEL.encode_texts(&texts).unwrap(), MODEL.logit_scale()).unwrap();
    let (_, views) = classifier("zero-shot").answer_and_features(image).unwrap();
    (text.named(CLASSES).unwrap(), views)
}

#[test]
fn methods_run_on_features_alone_or_say_what_they_need_beyond() {
    let (text, views) = features(&images(1)[0]);
    for spec in ADAPTERS {
        let built = Classifier::from_text_features(text.clone()).method(spec.name).build();
        let needs = spec.needs;
        if needs.pixels
            || needs.text_tower
            || needs.vit
            || needs.generated
            || !needs.prompts.contains(&PromptKind::Features)
        {
            let error = built.unwrap_err();
            assert_eq!(error.code(), "method.needs", "{}: {error}", spec.name);
            continue;
        }
        let classifier = built.unwrap_or_else(|e| panic!("{}: {e}", spec.name));
        if spec.kind() == Kind::Batch {
            match classifier.answer_set(&[views.clone(), views.clone()]) {
                // Two copies of an image say nothing about the frequency of classes.
                Err(error) if spec.name == "adte" => assert_eq!(error.code(), "method.needs"),
                answers => assert_eq!(answers.unwrap().len(), 2),
            }
            continue;
        }
        let answer = match classifier.stream().unwrap().answer(&views) {
            // The embedded model has negative cosines.
            Err(error) if spec.name == "dlae" && error.code() == "method.needs" => continue,
            answer => answer.unwrap(),
        };
        assert!(CLASSES.contains(&answer.label()), "{}", spec.name);
        assert!((answer.probabilities().iter().sum::<f32>() - 1.0).abs() < 1e-3, "{}", spec.name);
    }
    let same = adapt("zero", &views, &text).unwrap();
    let image = images(1).remove(0);
    assert_eq!(bits(&same).0, bits(&classifier("zero").answer(&image).unwrap()).0);
}

#[test]
fn stss_runs_from_a_ready_text_bank() {
    let image = &images(1)[0];
    let (text, views) = features(image);
    let refused = Classifier::from_text_features(text.clone()).method("stss").build().unwrap_err();
    assert!(refused.hint() == Some(&Hint::Model) && refused.to_string().contains("text bank"), "{refused}");
    // Three prompts stand for the context and two perturbations of it.
    let rows: Vec<f32> = ["a photo of a {}.", "a sketch of a {}.", "one {}."]
        .iter()
        .flat_map(|template| {
            let texts: Vec<String> = CLASSES.iter().map(|class| template.replace("{}", class)).collect();
            MODEL.encode_texts(&texts).unwrap().into_vec()
        })
        .collect();
    let rows = Matrix::from_vec(3 * CLASSES.len(), MODEL.width(), rows);
    let bank = TextBank::from_rows(&rows, CLASSES.len(), 2).unwrap();
    let stss = Classifier::from_text_bank(bank, MODEL.logit_scale()).unwrap().classes(CLASSES).method("stss");
    let answer = stss.set("fraction", 0.5).unwrap().build().unwrap().answer(&views).unwrap();
    assert_eq!((answer.selected().len(), answer.explanation().scores.len()), (6, 12));
}

#[test]
fn options_that_a_ready_text_bank_leaves_without_effect_are_refused() {
    let texts: Vec<String> = CLASSES.iter().map(|class| format!("a {class}.")).collect();
    let rows = MODEL.encode_texts(&texts).unwrap();
    let bank = TextBank::from_rows(&rows, CLASSES.len(), 0).unwrap();
    let builder = || Classifier::from_text_bank(bank.clone(), 100.0).unwrap().classes(CLASSES).method("stss");
    for key in ["radius", "rho"] {
        let error = builder().set(key, 0.1).unwrap().build().unwrap_err();
        assert_eq!(error.code(), "option.invalid");
        assert!(error.to_string().starts_with("stss.radius: has no effect with a ready text bank"), "{error}");
    }
    assert!(builder().set("perturbations", 4).unwrap().build().is_err());
    builder().set("lambda", 0.5).unwrap().build().unwrap();
}

#[test]
fn a_logit_scale_that_looks_like_its_logarithm_or_inverse_is_refused() {
    let rows = || Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 1.0]);
    let message = |scale| TextFeatures::new(rows(), scale).unwrap_err().to_string();
    assert!(message(100f32.ln()).contains("looks like its logarithm; give exp(4.6"), "{}", message(100f32.ln()));
    assert!(message(100f32.ln()).contains("= 100.0"), "{}", message(100f32.ln()));
    assert!(message(0.01).contains("1 / 0.01 = 100.0"), "{}", message(0.01));
    TextFeatures::new(rows(), 10.0).unwrap();
    TextFeatures::with_small_scale(rows(), 4.6).unwrap();
}

#[test]
fn rows_that_may_be_images_or_views_are_refused_by_methods_of_one_view() {
    let (text, views) = features(&images(1)[0]);
    let many = views.unit.rows();
    for method in ["zero-shot", "bca", "transclip"] {
        let three = ViewFeatures::new(Matrix::from_vec(3, views.unit.cols(), views.unit.row(0).repeat(3))).unwrap();
        let error = adapt(method, &three, &text).unwrap_err().to_string();
        let both = error.contains("3 images with one view each") && error.contains("3 views of one image");
        assert!(both, "{method} of {many}: {error}");
    }
    let one = ViewFeatures::new(Matrix::from_vec(1, views.unit.cols(), views.unit.row(0).to_vec())).unwrap();
    adapt("zero-shot", &one, &text).unwrap();
}

#[test]
fn what_cannot_work_is_refused_when_it_is_built() {
    let builder = || Classifier::builder(&MODEL).classes(CLASSES);
    let code = |result: flatclip::Result<Classifier>| result.unwrap_err().code();
    assert!(builder().method("stss").set("radios", 0.5).unwrap_err().to_string().contains("radios"));
    assert_eq!(builder().method("stss").set("radius", -1.0).unwrap_err().code(), "option.invalid");
    assert!(builder().method("stsss").build().unwrap_err().to_string().contains("`stss`"));
    assert_eq!(code(builder().views(0).build()), "option.invalid");
    assert_eq!(code(builder().classes(Vec::<String>::new()).build()), "option.invalid");
    assert_eq!(code(builder().classes(["cat", " "]).build()), "option.invalid");
    assert_eq!(code(builder().classes(["cat", "dog", "cat"]).build()), "option.invalid");
    let misspelt = builder().method("stss").set("vews", 8).unwrap_err().to_string();
    assert!(misspelt.contains("did you mean `views`?"), "{misspelt}");
    let none = builder().set("vews", 8).unwrap_err().to_string();
    assert!(none.contains("did you mean `views`?"), "{none}");
    assert_eq!(code(builder().method("promptalign").build()), "method.needs");
    let mut foreign = Prompt::templates(&["a photo of a {}."]).unwrap();
    foreign.provenance.model_hash = "0".repeat(64);
    assert_eq!(code(builder().prompt(foreign.clone()).build()), "prompt.other-model");
    builder().prompt(foreign).any_model(true).build().unwrap();
}

#[test]
fn bad_features_are_errors_not_answers() {
    let (text, _) = features(&images(1)[0]);
    assert!(ViewFeatures::new(Matrix::zeros(0, 4)).is_err());
    assert!(ViewFeatures::new(Matrix::zeros(2, 4)).is_err(), "rows of zeros");
    assert!(ViewFeatures::new(Matrix::from_vec(1, 2, vec![f32::NAN, 1.0])).is_err());
    assert!(TextFeatures::new(Matrix::zeros(0, 4), 100.0).is_err());
    assert!(text.clone().named(["one"]).is_err());
    let narrow = ViewFeatures::new(Matrix::from_vec(1, 2, vec![1.0, 0.0])).unwrap();
    assert!(adapt("zero-shot", &narrow, &text).unwrap_err().to_string().contains("width"));
}

#[test]
fn handles_are_send_sync_and_static() {
    fn check<T: Send + Sync + Clone + 'static>() {}
    check::<Model>();
    check::<Classifier>();
    check::<Prompt>();
}
