//! What every route answers and refuses.
#![allow(clippy::unwrap_used)]

mod common;

use axum::body::Body;
use axum::http::Request;
use common::*;
use flatclip::{Image, Model};
use flatclip_serve::Limits;
use serde_json::{Value, json};

/// `parity.rs` compares both with the library.
#[tokio::test]
async fn classes_of_a_form_are_separated_by_commas_and_an_answer_says_what_it_took() {
    let (router, bytes) = (router(), image(3));
    let body = json!({ "image": base64(&bytes), "classes": CLASSES, "method": "stss", "views": 16 });
    let answer = post(&router, "/v1/classify", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("server-timing").starts_with("work;dur="));
    let fields = [("classes", "fish,lamp, snail ,boat"), ("method", "stss"), ("views", "16")];
    let other = send(&router, form("/v1/classify", &fields, &[&bytes])).await;
    assert_eq!(other.body, answer.body);
}

#[tokio::test]
async fn explained_views_say_what_they_say_and_where_they_lie() {
    let body =
        json!({ "image": base64(&image(5)), "classes": CLASSES, "method": "stss", "views": 16, "explain": true });
    let answer = post(&router(), "/v1/classify", &body).await.json();
    let why = &answer["explain"];
    assert_eq!((why["width"].as_u64(), why["views"].as_array().unwrap().len()), (Some(112), 16));
    assert!(why["views"][0]["crop"].is_null() && why["views"][1]["crop"].is_array());
    let selected: Vec<&Value> =
        why["views"].as_array().unwrap().iter().filter(|view| view["selected"] == true).collect();
    assert_eq!(selected.len(), answer["selected_views"].as_array().unwrap().len());
    assert!(selected.iter().all(|view| view["score"].as_f64() <= why["threshold"].as_f64()));
}

#[tokio::test]
async fn many_images_are_lines_and_one_bad_one_spoils_no_other() {
    let (good, bad) = (image(1), b"not an image".to_vec());
    let fields = [("classes", "fish,lamp"), ("method", "zero-shot")];
    let answer = send(&router(), form("/v1/classify", &fields, &[&good, &bad, &good])).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/x-ndjson"));
    let lines: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["error"]["code"], "image.unreadable");
    assert_eq!(lines[0]["top"], lines[2]["top"]);
    assert_eq!(lines[2]["image"], 2);
}

#[tokio::test]
async fn events_tell_progress_and_then_the_answer() {
    let body = json!({ "image": base64(&image(1)), "classes": CLASSES });
    let mut request = json_request("/v1/classify", &body);
    request.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    let answer = send(&router(), request).await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let text = answer.text();
    let (progress, result) = (text.find("event: progress").unwrap(), text.find("event: answer").unwrap());
    assert!(progress < result);
}

#[tokio::test]
async fn a_slice_has_the_entropy_of_the_view_in_its_centre() {
    let (router, bytes) = (router(), image(2));
    let fields = [("classes", "fish,lamp,boat"), ("method", "stss"), ("views", "8"), ("view", "3"), ("points", "5")];
    let answer = send(&router, form("/v1/slice", &fields, &[&bytes])).await;
    let lines: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6, "{}", answer.text());
    let last = &lines[5];
    assert_eq!(last["done"], true);
    assert!(last["lowest"].as_f64() <= last["centre"].as_f64());
    assert_eq!(lines[2]["values"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn embeddings_are_unit_rows_of_the_library() {
    let (router, bytes) = (router(), image(4));
    let model = Model::load("pocket").unwrap();
    let answer = send(&router, form("/v1/embed/image", &[], &[&bytes, &image(5)])).await.json();
    let expected = model.encode_images(&[Image::decode(&bytes).unwrap()]).unwrap();
    assert_eq!(answer["embeddings"][0], json!(expected.row(0)));
    assert_eq!(answer["embeddings"].as_array().unwrap().len(), 2);
    let answer = post(&router, "/v1/embed/text", &json!({ "texts": ["a photo of a fish."] })).await.json();
    let expected = model.encode_texts(&["a photo of a fish."]).unwrap();
    assert_eq!(answer["embeddings"][0], json!(expected.row(0)));
}

#[tokio::test]
async fn other_forms_give_the_same_numbers() {
    let (router, bytes) = (router(), image(6));
    let body = json!({ "inputs": base64(&bytes), "parameters": { "candidate_labels": CLASSES, "hypothesis_template": "a photo of a {}." } });
    let labels = post(&router, "/hf/zero-shot-image-classification", &body).await.json();
    assert_eq!(labels, post(&router, "/", &body).await.json());
    let plain = post(&router, "/v1/classify", &json!({ "image": base64(&bytes), "classes": CLASSES })).await.json();
    assert_eq!(labels[0]["label"], plain["prediction"]);
    assert_eq!(labels[0]["score"], plain["top"][0]["probability"]);
    assert_eq!(labels.as_array().unwrap().len(), 4);

    let request = json!({ "input": ["a fish", "a boat"], "model": "pocket" });
    let rows = post(&router, "/v1/embeddings", &request).await.json();
    let texts = post(&router, "/v1/embed/text", &json!({ "texts": ["a fish", "a boat"] })).await.json();
    assert_eq!(rows["data"][1]["embedding"], texts["embeddings"][1]);
    assert!(rows["usage"]["prompt_tokens"].as_u64() >= Some(6));
    let unknown = post(&router, "/v1/embeddings", &json!({ "input": "x", "model": "text-embedding-3-small" })).await;
    assert_eq!((unknown.status.as_u16(), unknown.code().as_str()), (404, "name.unknown"));
}

#[tokio::test]
async fn the_open_inference_protocol_takes_json_and_bytes() {
    let (router, bytes) = (router(), image(6));
    let about = get(&router, "/v2/models/pocket").await.json();
    assert_eq!(about["inputs"][0]["name"], "image");
    let plain = post(&router, "/v1/classify", &json!({ "image": base64(&bytes), "classes": CLASSES })).await.json();
    let request = json!({ "id": "7", "inputs": [
        { "name": "image", "datatype": "BYTES", "shape": [1], "data": [base64(&bytes)] },
        { "name": "classes", "datatype": "BYTES", "shape": [4], "data": CLASSES },
    ] });
    let answer = post(&router, "/v2/models/pocket/infer", &request).await;
    let json = answer.json();
    assert_eq!(
        (json["id"].as_str(), json["outputs"][1]["data"][0].as_str()),
        (Some("7"), plain["prediction"].as_str())
    );
    // The same with bytes both ways.
    let image: Vec<u8> = [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat();
    let classes: Vec<u8> =
        CLASSES.iter().flat_map(|name| [&(name.len() as u32).to_le_bytes()[..], name.as_bytes()].concat()).collect();
    let head = json!({ "inputs": [
        { "name": "image", "datatype": "BYTES", "shape": [1], "parameters": { "binary_data_size": image.len() } },
        { "name": "classes", "datatype": "BYTES", "shape": [4], "parameters": { "binary_data_size": classes.len() } },
    ], "outputs": [{ "name": "probabilities", "parameters": { "binary_data": true } }] })
    .to_string();
    let body = [head.as_bytes(), &image, &classes].concat();
    let request = Request::post("/v2/models/pocket/infer")
        .header("inference-header-content-length", head.len())
        .body(Body::from(body))
        .unwrap();
    let answer = send(&router, request).await;
    let length: usize = answer.header("inference-header-content-length").parse().unwrap();
    let floats: Vec<f64> = answer.body[length..]
        .chunks_exact(4)
        .map(|four| f64::from(f32::from_le_bytes([four[0], four[1], four[2], four[3]])))
        .collect();
    assert_eq!(json!(floats), json["outputs"][0]["data"]);
    let wrong = post(&router, "/v2/models/none/infer", &json!({ "inputs": [] })).await;
    assert!(wrong.status == 404 && wrong.json()["error"].is_string());
}

#[tokio::test]
async fn a_session_learns_alone() {
    let router = router();
    let open = json!({ "classes": CLASSES, "method": "tda", "views": 4 });
    let opened = post(&router, "/v1/sessions", &open).await;
    assert_eq!(opened.status, 201, "{}", opened.text());
    let mine = format!("/v1/sessions/{}", opened.json()["id"].as_str().unwrap());
    let other = post(&router, "/v1/sessions", &open).await.json();
    let other = format!("/v1/sessions/{}", other["id"].as_str().unwrap());
    let ask = |path: &str, number: u64| {
        let request = json_request(&format!("{path}/classify"), &json!({ "image": base64(&image(number)) }));
        let router = router.clone();
        async move { send(&router, request).await.json() }
    };
    let probe = ask(&other, 9).await;
    for number in 0..6 {
        ask(&mine, number).await;
    }
    let fresh = post(&router, "/v1/sessions", &open).await.json();
    let fresh = format!("/v1/sessions/{}", fresh["id"].as_str().unwrap());
    assert_eq!(ask(&fresh, 9).await, probe, "another client's stream was seen");
    assert_ne!(ask(&mine, 9).await["top"], probe["top"], "the stream has learned nothing");
    let closed = send(&router, Request::delete(&mine).body(Body::empty()).unwrap()).await;
    assert_eq!(closed.status, 204);
    assert_eq!(get(&router, &mine).await.code(), "session.unknown");
    let online =
        post(&router, "/v1/classify", &json!({ "image": base64(&image(1)), "classes": CLASSES, "method": "tda" }))
            .await;
    assert_eq!((online.status.as_u16(), online.code().as_str()), (422, "method.needs"));
}

#[tokio::test]
async fn what_is_wrong_gets_its_status_its_code_and_a_hint() {
    let router = with_limits(Limits { body_bytes: 64 << 10, ..Limits::default() });
    let file = image(0);
    let image = base64(&file);
    let many: Vec<String> = (0..2001).map(|n| format!("class {n}")).collect();
    let classify = |body: Value| json_request("/v1/classify", &body);
    let asked = |more: Value| classify(with(json!({ "image": image, "classes": ["a", "b"] }), &more));
    let json = |body: &str| raw("/v1/classify", "application/json", body.to_owned());
    let form_of = |media_type: &str| raw("/v1/classify", media_type, "--xx\r\nbroken");
    let empty = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    let zipped = Request::post("/v1/classify").header("content-encoding", "gzip").body(Body::from("x")).unwrap();
    let table = [
        (classify(json!({})), 422, "option.invalid", "image"),
        (classify(json!({ "image": image })), 422, "option.invalid", "/v1/class_sets"),
        (asked(json!({ "classes": [] })), 422, "option.invalid", ""),
        (asked(json!({ "classes": ["a", " "] })), 422, "option.invalid", ""),
        (asked(json!({ "classes": ["fish", " fish"] })), 422, "option.invalid", "once"),
        (asked(json!({ "image": "###" })), 422, "option.invalid", ""),
        (asked(json!({ "image": base64(b"text") })), 422, "image.unreadable", "PNG"),
        (asked(json!({ "classes": many })), 413, "limit.exceeded", ""),
        (asked(json!({ "classes": ["x".repeat(201)] })), 413, "limit.exceeded", ""),
        (asked(json!({ "views": 257, "method": "zero" })), 413, "limit.exceeded", "/v1/limits"),
        (asked(json!({ "views": 0 })), 422, "option.invalid", ""),
        (asked(json!({ "model": "none" })), 404, "name.unknown", "/v1/models"),
        (asked(json!({ "prompt": "none" })), 404, "name.unknown", "/v1/prompts"),
        (asked(json!({ "classes": null, "class_set": "none" })), 404, "name.unknown", "/v1/class_sets"),
        (asked(json!({ "method": "stsss" })), 422, "option.invalid", "/v1/methods"),
        (asked(json!({ "method": "stss", "options": { "radius": -1 } })), 422, "option.invalid", ""),
        (asked(json!({ "method": "stss", "options": { "perturbations": 65 } })), 413, "limit.exceeded", ""),
        (asked(json!({ "method": "stss", "options": { "rdius": 1 } })), 422, "option.invalid", "/v1/methods"),
        (asked(json!({ "template": "no place" })), 422, "option.invalid", ""),
        (asked(json!({ "template": "a {}", "ensemble": "imagenet7" })), 422, "option.invalid", ""),
        (asked(json!({ "colour": 1 })), 422, "request.fields", "/docs"),
        (asked(json!({ "classes": "a" })), 422, "request.fields", ""),
        (asked(json!({ "method": "transclip" })), 422, "method.needs", ""),
        (asked(json!({ "method": "tda" })), 422, "method.needs", "/v1/sessions"),
        (json("{"), 400, "request.malformed", "/docs"),
        (json(""), 400, "request.malformed", ""),
        (json("{\"model\":\"a\",\"model\":\"b\"}"), 422, "request.fields", ""),
        (json(&" ".repeat(65 << 10)), 413, "limit.exceeded", "/v1/limits"),
        (form_of("text/plain"), 415, "request.content-type", "multipart/form-data"),
        (form_of("multipart/form-data"), 400, "request.malformed", ""),
        (form_of("multipart/form-data; boundary=xx"), 400, "request.malformed", ""),
        (zipped, 415, "request.encoding", "uncompressed"),
        (raw("/nothing", "text/plain", ""), 404, "route.unknown", "/docs"),
        (empty("/nothing"), 404, "route.unknown", "/docs"),
        (empty("/v1/classify"), 405, "route.method", "/docs"),
        (empty("/v1/sessions/none"), 404, "session.unknown", "POST /v1/sessions"),
        (empty("/v2/models/none"), 404, "name.unknown", "/v1/models"),
        (form("/v1/slice", &[("classes", "fish,lamp"), ("view", "999")], &[&file]), 422, "option.invalid", "views"),
    ];
    for (number, (request, status, code, word)) in table.into_iter().enumerate() {
        let shown = format!("case {number}: {} {}", request.method(), request.uri());
        let answer = send(&router, request).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (status, code), "{shown}: {}", answer.text());
        assert!(answer.hint().contains(word), "{shown}: expected {word:?}, found {}", answer.text());
    }
    // In a stream of answers, too.
    let two = json!({ "images": [image, base64(b"text")], "classes": CLASSES });
    let lines = post(&router, "/v1/classify", &two).await.text();
    assert!(lines.lines().nth(1).unwrap().contains("\"hint\""), "{lines}");
}

#[tokio::test]
async fn bodies_are_bounded_one_by_one_and_together() {
    let router = with_limits(Limits { body_bytes: 4096, held_bytes: 8192, ..Limits::default() });
    let send_bytes = |count: usize| send(&router, raw("/v1/classify", "application/json", vec![b' '; count]));
    assert_eq!(send_bytes(4096).await.status, 400);
    assert_eq!(send_bytes(4097).await.status, 413);
    // Without a length as much as is allowed is set aside, and it stops there.
    let endless =
        futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(axum::body::Bytes::from(vec![b' '; 1000])));
    let request = Request::post("/v1/classify").body(Body::from_stream(endless)).unwrap();
    assert_eq!(send(&router, request).await.status, 413);
}

#[tokio::test]
async fn a_key_is_asked_for_everywhere_but_on_the_page_and_the_probes() {
    let router = locked(config());
    let files = ["/", "/app.js", "/style.css", "/docs", "/openapi.json", "/samples/photo-1.png"];
    for open in files.into_iter().chain(["/healthz", "/readyz", "/v2/health/live"]) {
        assert_eq!(get(&router, open).await.status, 200, "{open}");
    }
    for closed in ["/v1/models", "/v1/methods", "/metrics", "/v2", "/v2/models/pocket"] {
        let answer = get(&router, closed).await;
        assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, "Bearer"), "{closed}");
        assert!(answer.hint().contains("Authorization"), "{closed}: {}", answer.text());
    }
    assert_eq!(post(&router, "/", &json!({})).await.status, 401);
    let request = Request::get("/v1/models").header("authorization", format!("Bearer {KEY}"));
    assert_eq!(send(&router, request.body(Body::empty()).unwrap()).await.status, 200);
}

#[tokio::test]
async fn every_answer_is_framed_and_named() {
    let router = router();
    for path in ["/", "/v1/models", "/nothing", "/docs"] {
        let answer = get(&router, path).await;
        assert!(answer.header("content-security-policy").starts_with("default-src 'self'"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert!(!answer.header("x-request-id").is_empty());
    }
    let request = Request::get("/healthz").header("x-request-id", "mine-7").body(Body::empty()).unwrap();
    assert_eq!(send(&router, request).await.header("x-request-id"), "mine-7");
    let request = Request::get("/healthz").header("x-request-id", "<script>").body(Body::empty()).unwrap();
    assert_ne!(send(&router, request).await.header("x-request-id"), "<script>");
    let page = get(&router, "/").await.text();
    assert!(!page.contains("<style") && !page.contains("style=") && !page.contains("onclick"));
    assert!(!page.contains("http://") && !page.contains("https://"), "the page must need nobody else");
}

#[tokio::test]
async fn lists_name_what_can_be_asked_for() {
    let router = router();
    let methods = get(&router, "/v1/methods").await.json();
    let stss = methods.as_array().unwrap().iter().find(|method| method["name"] == "stss").unwrap();
    let fraction = stss["options"].as_array().unwrap().iter().find(|option| option["name"] == "fraction").unwrap();
    assert_eq!((fraction["low"].as_f64(), fraction["high"].as_f64()), (Some(0.0), Some(1.0)));
    assert_eq!(get(&router, "/v1/models").await.json()["data"][0]["id"], "pocket");
    assert!(get(&router, "/v1/class_sets").await.json().as_array().unwrap().len() >= 2);
    assert_eq!(get(&router, "/v1/limits").await.json()["views"], 256);
    let sample = get(&router, "/samples/photo-3.png").await;
    assert_eq!((sample.header("content-type"), &sample.body[1..4]), ("image/png", &b"PNG"[..]));
    assert_eq!(get(&router, "/samples/photo-99.png").await.status, 404);
    let metrics = get(&router, "/metrics").await.text();
    assert!(metrics.contains("flatclip_requests_total{") && metrics.contains("flatclip_queue_admitted 0"), "{metrics}");
}
