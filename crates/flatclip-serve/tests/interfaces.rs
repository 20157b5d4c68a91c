//! What clients of other servers ask for, and what a refusal tells.
#![allow(clippy::unwrap_used)]

mod common;

use axum::body::Body;
use axum::http::Request;
use common::{CLASSES, KEY, base64, config, form, get, image, locked, post, router, send, with};
use flatclip_serve::Config;
use serde_json::{Value, json};

#[tokio::test]
async fn versions_config_and_statistics_are_told_as_triton_s_clients_ask() {
    let router = router();
    let base = "/v2/models/pocket";
    for path in ["", "/ready", "/config", "/stats"] {
        let plain = get(&router, &format!("{base}{path}")).await;
        let versioned = get(&router, &format!("{base}/versions/1{path}")).await;
        assert_eq!((plain.status.as_u16(), versioned.status.as_u16()), (200, 200), "{path}");
        assert_eq!(plain.text(), versioned.text(), "{path}");
        let other = get(&router, &format!("{base}/versions/2{path}")).await;
        assert_eq!((other.status.as_u16(), other.code().as_str()), (404, "name.unknown"), "{path}");
    }
    let config = get(&router, &format!("{base}/config")).await.json();
    assert_eq!((&config["name"], &config["max_batch_size"]), (&json!("pocket"), &json!(0)));
    assert_eq!(config["input"][1], json!({ "name": "pixels", "data_type": "TYPE_UINT8", "dims": [-1, -1, -1, 3] }));
    let extensions = get(&router, "/v2").await.json()["extensions"].clone();
    assert_eq!(extensions, json!(["binary_tensor_data", "model_configuration", "statistics"]));

    let text =
        |shape: usize| json!([{ "name": "text", "datatype": "BYTES", "shape": [shape], "data": ["a fish", "a lamp"] }]);
    let answer =
        post(&router, &format!("{base}/versions/1/infer"), &json!({ "inputs": text(2), "parameters": null })).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["model_version"]), (200, &json!("1")), "{}", answer.text());
    assert_eq!(post(&router, &format!("{base}/infer"), &json!({ "inputs": text(3) })).await.status, 422);
    let stats = get(&router, "/v2/models/stats").await.json();
    let model = &stats["model_stats"][0];
    assert_eq!((&model["name"], &model["version"]), (&json!("pocket"), &json!("1")));
    assert_eq!((&model["inference_count"], &model["execution_count"]), (&json!(2), &json!(1)), "{stats}");
    let count = |kind: &str| model["inference_stats"][kind]["count"].as_u64();
    assert_eq!((count("success"), count("fail")), (Some(1), Some(1)), "{stats}");
    assert!(
        model["inference_stats"]["success"]["ns"].as_u64().unwrap() > 0 && model["last_inference"].as_u64() > Some(0)
    );
}

#[tokio::test]
async fn openai_s_clients_retrieve_a_model() {
    let router = router();
    let listed = get(&router, "/v1/models").await.json()["data"][0].clone();
    assert_eq!(get(&router, "/v1/models/pocket").await.json(), listed);
    let models =
        vec![flatclip_serve::ModelEntry { name: "a/b".into(), source: Some("pocket".into()), precision: None }];
    let slashed = flatclip_serve::router(Config { models, ..config() }).unwrap();
    for path in ["/v1/models/a/b", "/v1/models/a%2Fb"] {
        assert_eq!(get(&slashed, path).await.json()["id"], "a/b", "{path}");
    }
    assert_eq!(get(&router, "/v1/models/gpt").await.code(), "name.unknown");
}

#[tokio::test]
async fn pages_elsewhere_are_answered_only_where_they_are_listed() {
    let listed = locked(Config { allowed_origins: vec!["https://app.example".into()], ..config() });
    let from = |method: &str, origin: &str| {
        let request = Request::builder().method(method).uri("/v1/models");
        let request = request.header("host", "localhost").header("origin", origin);
        let request = request.header("authorization", format!("Bearer {KEY}"));
        let request = request.header("access-control-request-method", "POST");
        request.header("access-control-request-headers", "authorization,content-type").body(Body::empty()).unwrap()
    };
    // A preflight has no key to show.
    let mut preflight = from("OPTIONS", "https://app.example");
    preflight.headers_mut().remove("authorization");
    let answer = send(&listed, preflight).await;
    assert!(answer.status.is_success(), "{}", answer.status);
    assert_eq!(answer.header("access-control-allow-origin"), "https://app.example");
    for (name, word) in
        [("methods", "DELETE"), ("headers", "authorization"), ("headers", "inference-header-content-length")]
    {
        let value = answer.header(&format!("access-control-allow-{name}")).to_owned();
        assert!(value.contains(word), "{name}: {value}");
    }
    let answer = send(&listed, from("GET", "https://app.example")).await;
    assert_eq!((answer.status.as_u16(), answer.header("access-control-allow-origin")), (200, "https://app.example"));
    assert!(answer.header("access-control-expose-headers").contains("x-request-id"));
    assert!(answer.header("vary").to_lowercase().contains("origin"));
    for (router, origin) in [(&listed, "https://evil.example"), (&router(), "https://app.example")] {
        for method in ["OPTIONS", "GET"] {
            let answer = send(router, from(method, origin)).await;
            assert_eq!(answer.header("access-control-allow-origin"), "", "{method} {origin}");
        }
        assert_eq!(send(router, from("GET", origin)).await.code(), "request.origin");
    }
}

#[tokio::test]
async fn null_is_as_good_as_absent() {
    let router = router();
    let file = image(0);
    let image = base64(&file);
    let nulls = json!({
        "model": null, "class_set": null, "template": null, "templates": null, "ensemble": null, "prompt": null,
        "method": null, "options": null, "views": null, "seed": null, "top_k": null,
    });
    let body = with(nulls, &json!({ "image": image, "classes": CLASSES }));
    let answer = post(&router, "/v1/classify", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let tensor = |name: &str, data: Value| json!({ "name": name, "datatype": "BYTES", "shape": [1], "data": data, "parameters": null });
    let outputs = json!([{ "name": "label", "parameters": null }]);
    let infer = json!({ "inputs": [tensor("image", json!([image])), tensor("classes", json!(["fish"]))], "outputs": outputs,
        "parameters": { "options": null, "method": null, "views": null }, "id": null });
    let answer = post(&router, "/v2/models/pocket/infer", &infer).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = [("classes", "fish,lamp"), ("options", "null"), ("views", "null")];
    let answer = send(&router, form("/v1/classify", &text, &[&file])).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn forms_are_described() {
    let description: Value = serde_json::from_str(&flatclip_serve::openapi_json()).unwrap();
    for path in ["/v1/classify", "/v1/slice", "/v1/embed/image", "/v1/sessions/{id}/classify"] {
        let content = &description["paths"][path]["post"]["requestBody"]["content"];
        let name =
            content["multipart/form-data"]["schema"]["$ref"].as_str().unwrap_or_else(|| panic!("{path}: {content}"));
        let properties = &description["components"]["schemas"][name.rsplit('/').next().unwrap()]["properties"];
        let image = &properties["image"];
        let file = if image["items"].is_object() { &image["items"] } else { image };
        assert_eq!((&file["type"], &file["format"]), (&json!("string"), &json!("binary")), "{path}: {image}");
        assert!(properties["images"].is_null(), "{path}: files are all called image");
        assert!(path != "/v1/classify" || properties["classes"]["type"] == "string", "a part of a form is no list");
    }
}

#[tokio::test]
async fn metrics_tell_the_build_the_models_and_the_methods() {
    let router = router();
    let body =
        json!({ "images": [base64(&image(0)), base64(&image(1))], "classes": CLASSES, "method": "zero", "views": 3 });
    assert_eq!(post(&router, "/v1/classify", &body).await.status, 200);
    let metrics = get(&router, "/metrics").await.text();
    let line = |start: &str| {
        metrics.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {metrics}"))
    };
    assert!(line("flatclip_build_info{").contains(&format!("version=\"{}\"", env!("CARGO_PKG_VERSION"))));
    let model = line("flatclip_model_info{");
    assert!(model.contains("model=\"pocket\"") && model.contains("precision=\"") && model.ends_with(" 1"), "{model}");
    assert!(metrics.contains("flatclip_images_total{model=\"pocket\",method=\"zero\"} 2"), "{metrics}");
}
