//! The same file gets the same answer through every form of request as from the library, EXIF and 16-bit grey included.
#![allow(clippy::unwrap_used)]

mod common;

use axum::body::Body;
use axum::http::Request;
use common::{CLASSES, base64, config, form, image, json_request, send, with};
use flatclip::{Classifier, Model, Prompt};
use flatclip_serve::{Config, ModelEntry};
use serde_json::{Value, json};

const TEMPLATE: &str = Prompt::TEMPLATE;
const VIEWS: usize = 8;

/// The images that doors used to read differently, by name.
fn files() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/reading");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none_or(|ending| ending != "py"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    assert!(files.len() >= 12, "{} files", files.len());
    files
}

/// What is asked for, and what the library answers.
struct Case {
    method: Option<&'static str>,
    exif: Option<bool>,
    classifier: Classifier,
}

fn cases(model: &Model) -> Vec<Case> {
    let case = |method: Option<&'static str>, exif: Option<bool>| {
        let mut builder = Classifier::builder(model).classes(CLASSES);
        if let Some(method) = method {
            builder = builder.method(method).views(VIEWS);
        }
        if let Some(exif) = exif {
            builder = builder.exif(exif);
        }
        Case { method, exif, classifier: builder.build().unwrap() }
    };
    vec![case(None, None), case(Some("stss"), None), case(None, Some(false)), case(Some("zero"), Some(false))]
}

/// The fields that differ from the defaults.
fn fields(case: &Case) -> Value {
    let mut fields = json!({ "top_k": CLASSES.len() });
    if let Some(method) = case.method {
        (fields["method"], fields["views"]) = (json!(method), json!(VIEWS));
    }
    if let Some(exif) = case.exif {
        fields["exif"] = json!(exif);
    }
    fields
}

fn as_form(fields: &Value, bytes: &[u8]) -> Request<Body> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let owned: Vec<(String, String)> = fields.as_object().unwrap().iter().map(|(k, v)| (k.clone(), text(v))).collect();
    let borrowed: Vec<(&str, &str)> = owned.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    form("/v1/classify", &borrowed, &[bytes])
}

#[tokio::test]
async fn every_form_of_request_gives_the_librarys_answer() {
    let (router, model) = (flatclip_serve::router(config()).unwrap(), Model::load("pocket").unwrap());
    for case in cases(&model) {
        for (name, bytes) in files() {
            let what = format!("{name}, method {:?}, exif {:?}", case.method, case.exif);
            let answer = case.classifier.answer(bytes.as_slice()).unwrap();
            let expected = serde_json::to_value(answer.report(CLASSES.len())).unwrap();
            let explained = case.classifier.explaining(true).answer(bytes.as_slice()).unwrap();
            let explained = serde_json::to_value(explained.report(CLASSES.len())).unwrap();
            let asked = with(fields(&case), &json!({ "classes": CLASSES }));
            // As the page asks.
            let page = with(asked.clone(), &json!({ "model": "pocket", "template": TEMPLATE, "explain": true }));
            let own = [
                ("JSON", json_request("/v1/classify", &with(asked.clone(), &json!({ "image": base64(&bytes) })))),
                ("form", as_form(&asked, &bytes)),
                ("page", as_form(&page, &bytes)),
            ];
            for (form, request) in own {
                let mut found = send(&router, request).await.json();
                let object = found.as_object_mut().unwrap();
                assert_eq!(object.remove("model").unwrap(), "pocket", "{what} as {form}");
                assert_eq!(object.remove("explain").is_some(), form == "page");
                assert_eq!(&found, if form == "page" { &explained } else { &expected }, "{what} as {form}");
            }
            let mut parameters = json!({ "candidate_labels": CLASSES, "hypothesis_template": TEMPLATE });
            if let Some(exif) = case.exif {
                parameters["exif"] = json!(exif);
            }
            if case.method.is_none() {
                let request = json!({ "inputs": base64(&bytes), "parameters": parameters });
                let found = send(&router, json_request("/hf/zero-shot-image-classification", &request)).await.json();
                let ranked: Vec<Value> = answer
                    .ranked(CLASSES.len())
                    .into_iter()
                    .map(|(_, label, score)| json!({ "label": label, "score": score }))
                    .collect();
                assert_eq!(found, json!(ranked), "{what} as Hugging Face's task");
            }
            let inputs = json!([
                { "name": "image", "datatype": "BYTES", "shape": [1], "data": [base64(&bytes)] },
                { "name": "classes", "datatype": "BYTES", "shape": [CLASSES.len()], "data": CLASSES },
            ]);
            let mut parameters = fields(&case);
            parameters.as_object_mut().unwrap().remove("top_k");
            let request = json!({ "inputs": inputs, "parameters": parameters });
            let found = send(&router, json_request("/v2/models/pocket/infer", &request)).await.json();
            assert_eq!(found["outputs"][0]["data"], json!(answer.probabilities()), "{what} as tensors");
        }
    }
}

#[tokio::test]
async fn a_model_with_a_logit_bias_answers_with_sigmoid_scores() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/golden/models/tiny-siglip");
    let models = vec![ModelEntry { name: "siglip".into(), source: Some(folder.into()), precision: None }];
    let router = flatclip_serve::router(Config { models, ..config() }).unwrap();
    let model = Model::load(folder).unwrap();
    let classifier = Classifier::builder(&model).classes(CLASSES).build().unwrap();
    let bytes = image(1);
    let expected = serde_json::to_value(classifier.answer(bytes.as_slice()).unwrap().report(CLASSES.len())).unwrap();
    assert!(expected["top"][0]["sigmoid"].is_number(), "{expected}");
    let request = json!({ "classes": CLASSES, "image": base64(&bytes), "top_k": CLASSES.len() });
    let found = send(&router, json_request("/v1/classify", &request)).await.json();
    assert_eq!(found["top"], expected["top"]);
}

#[tokio::test]
async fn every_form_of_embedding_gives_the_librarys_features() {
    let (router, model) = (flatclip_serve::router(config()).unwrap(), Model::load("pocket").unwrap());
    for exif in [None, Some(false)] {
        for (name, bytes) in files() {
            let options = flatclip::image::DecodeOptions { exif: exif.unwrap_or(true), ..Default::default() };
            let image = flatclip::image::decode(&bytes, &options).unwrap();
            let expected = json!(model.encode_images(&[image]).unwrap().row(0));
            let mut request = json!({ "image": base64(&bytes) });
            let mut parameters = json!({});
            if let Some(exif) = exif {
                (request["exif"], parameters["exif"]) = (json!(exif), json!(exif));
            }
            let found = send(&router, json_request("/v1/embed/image", &request)).await.json();
            assert_eq!(found["embeddings"][0], expected, "{name} {exif:?}");
            let inputs = json!([{ "name": "image", "datatype": "BYTES", "shape": [1], "data": [base64(&bytes)] }]);
            let request = json!({ "inputs": inputs, "parameters": parameters });
            let found = send(&router, json_request("/v2/models/pocket/infer", &request)).await.json();
            assert_eq!(found["outputs"][0]["data"], expected, "{name} {exif:?} as tensors");
        }
    }
}
