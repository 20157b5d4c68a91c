//! What the page opens with: the files of its script, and an image that shows the idea.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use flatclip_serve::{Config, ModelEntry};
use serde_json::{Value, json};

fn serving(names: &[&str]) -> Config {
    let entry = |name: &&str| ModelEntry { name: (*name).to_owned(), source: None, precision: None };
    Config { models: names.iter().map(entry).collect(), ..config() }
}

#[tokio::test]
async fn zero_shot_gets_the_first_image_wrong_and_stss_right() {
    let router = flatclip_serve::router(serving(&["pocket", "pocket-vit"])).unwrap();
    let opening = get(&router, "/v1/opening").await.json();
    assert_eq!((opening["side"].as_u64(), opening["known"].as_array().unwrap().len()), (Some(112), 32));
    let models = opening["models"].as_array().unwrap();
    assert_eq!(models.len(), 2);
    for model in models {
        assert_eq!(model["synthetic"], true);
        let sample = get(&router, &format!("/samples/{}", model["sample"].as_str().unwrap())).await;
        let truth = sample.header("x-class");
        assert!(opening["classes"].as_array().unwrap().contains(&Value::from(truth)), "{truth}");
        for (method, views, is_right) in [("zero-shot", 1, false), ("stss", 64, true)] {
            let body = json!({
                "model": model["id"], "image": base64(&sample.body), "classes": opening["classes"], "method": method, "views": views,
            });
            let answer = post(&router, "/v1/classify", &body).await.json();
            assert_eq!(answer["prediction"] == truth, is_right, "{method}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_model_is_known_by_its_source_and_not_by_its_name() {
    let mut config = serving(&["ViT-B-16"]);
    config.models[0].source = Some("pocket".to_owned());
    let opening = get(&flatclip_serve::router(config).unwrap(), "/v1/opening").await.json();
    assert_eq!((&opening["models"][0]["id"], &opening["models"][0]["synthetic"]), (&json!("ViT-B-16"), &json!(true)));
}

#[tokio::test]
async fn every_module_that_the_script_imports_is_served_without_a_key() {
    let router = locked(config());
    let mut open = vec!["/app.js".to_owned()];
    let mut seen = Vec::new();
    while let Some(path) = open.pop() {
        let answer = get(&router, &path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("content-type")),
            (200, "text/javascript; charset=utf-8"),
            "{path}"
        );
        let text = answer.text();
        let imports = text.lines().filter_map(|line| line.split_once(" from \"./")?.1.strip_suffix("\";"));
        for name in imports.map(|name| format!("/page/{}", name.trim_start_matches("page/"))) {
            if !seen.contains(&name) {
                seen.push(name.clone());
                open.push(name);
            }
        }
    }
    assert_eq!(seen.len(), 14, "{seen:?}");
    assert_eq!(get(&router, "/page/..%2Fapp.js").await.status, 404);
    assert_eq!(get(&router, "/v1/opening").await.status, 401);
}
