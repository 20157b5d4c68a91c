//! What attacks on memory take: resident memory of this process, so one test runs them in turn.
#![allow(clippy::unwrap_used)]

mod common;

use common::{base64, form, get, post, raw, send, with_limits};
use flatclip::Image;
use flatclip::image::sheet::encode_png;
use flatclip_serve::Limits;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The most that is resident while something runs, and what is left a little later, in megabytes above what was there before.
struct Watch {
    before: u64,
    most: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

fn resident() -> u64 {
    flatclip::resident_memory().0
}

impl Watch {
    fn start() -> Self {
        flatclip::give_back();
        let (most, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, until) = (Arc::clone(&most), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                seen.fetch_max(resident(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self { before: resident(), most, over, thread }
    }

    fn peak(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.most.load(Ordering::Relaxed).saturating_sub(self.before) >> 20
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_on_memory_stay_within_their_budgets() {
    let router = common::router();
    // What is made on first use.
    let small = json!({ "texts": ["a fish"] });
    assert_eq!(post(&router, "/v1/embed/text", &small).await.status, 200);
    repeated_outputs(&router).await;
    amplified_json(&router).await;
    amplified_form(&router).await;
    large_images().await;
    unread_counts(&router).await;
}

async fn repeated_outputs(router: &axum::Router) {
    let texts: Vec<String> = (0..256).map(|number| format!("text {number}")).collect();
    let ask = async |times: usize| {
        let outputs: Vec<Value> = (0..times).map(|_| json!({ "name": "text_embedding" })).collect();
        let inputs = json!([{ "name": "text", "datatype": "BYTES", "shape": [256], "data": texts }]);
        post(router, "/v2/models/pocket/infer", &json!({ "inputs": inputs, "outputs": outputs })).await
    };
    assert_eq!(ask(1).await.status, 200);
    let watch = Watch::start();
    let (twice, often) = (ask(2).await, ask(1000).await);
    assert_eq!(twice.status, 422, "the same output twice");
    assert!(twice.text().contains("duplicate"), "{}", twice.text());
    assert_eq!(often.status, 422);
    let peak = watch.peak();
    assert!(peak < 60, "repeated outputs took {peak} MB");
}

/// Bodies of 15 MB that are made to become larger when they are read.
async fn amplified_json(router: &axum::Router) {
    let tensor = "{\"inputs\":[{\"name\":\"text\",\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[";
    for (path, start, piece, end) in [
        ("/v1/classify", "{\"classes\":[\"a\"],\"options\":{\"x\":[", "{\"\":0},", "0]}}"),
        ("/v1/classify", "{\"options\":{\"x\":[", "[[[]]],", "0]}}"),
        ("/v1/classify", "{\"options\":{", "\"\":0,", "\"x\":0}}"),
        ("/v1/classify", "{\"classes\":[", "\"\",", "\"\"]}"),
        ("/v1/classify", "{\"images\":[", "\"\",", "\"\"]}"),
        ("/v2/models/pocket/infer", tensor, "{},", "0]}]}"),
        ("/v2/models/pocket/infer", tensor, "\"\",", "\"\"]}]}"),
        ("/v2/models/pocket/infer", "{\"parameters\":{\"x\":[", "[0],", "0]},\"inputs\":[]}"),
    ] {
        let body = format!("{start}{}{end}", piece.repeat((15 << 20) / piece.len()));
        let watch = Watch::start();
        let request = raw(path, "application/json", body);
        assert!(matches!(send(router, request).await.status.as_u16(), 400..500), "{path} {start}");
        let peak = watch.peak();
        assert!(peak < 60, "{start}{piece}: 15 MB of JSON took {peak} MB");
    }
}

async fn amplified_form(router: &axum::Router) {
    let many = format!("[{}0]", "[0],".repeat(14 << 18));
    let watch = Watch::start();
    let answer = send(router, form("/v1/classify", &[("classes", "a"), ("options", &many)], &[])).await;
    assert!(matches!(answer.status.as_u16(), 400 | 413 | 422), "{}", answer.status);
    let peak = watch.peak();
    assert!(peak < 90, "a form of 14 MB took {peak} MB");
}

/// 12 images of 16 megapixels are 550 MB of pixels.
async fn large_images() {
    let router = with_limits(Limits { pixel_megabytes: 96, ..Limits::default() });
    let (width, height) = (4096, 4000);
    let image = encode_png(&Image { width, height, rgb: vec![7; width * height * 3] }).unwrap();
    let images = vec![image.as_slice(); 12];
    for path in ["/v1/embed/image", "/v1/classify"] {
        let fields = [("classes", "fish,lamp")];
        let fields: &[(&str, &str)] = if path == "/v1/classify" { &fields } else { &[] };
        let watch = Watch::start();
        let answer = send(&router, form(path, fields, &images)).await;
        let peak = watch.peak();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(peak < 260, "{path}: 12 images of 16 megapixels took {peak} MB");
    }
    let encoded: Vec<String> = vec![base64(&image); 3];
    assert_eq!(post(&router, "/v1/embed/image", &json!({ "images": encoded })).await.status, 200);
}

/// Nobody scrapes: samples must not pile up.
async fn unread_counts(router: &axum::Router) {
    let ask = async |count: usize| {
        for _ in 0..count {
            assert_eq!(get(router, "/healthz").await.status, 200);
        }
        // The timer comes within this time.
        tokio::time::sleep(Duration::from_secs(3)).await;
        flatclip::give_back();
        resident()
    };
    let before = ask(60_000).await;
    let mut grown = ask(400_000).await.saturating_sub(before) >> 10;
    // The timer's thread may have to wait for a processor.
    for _ in 0..3 {
        if grown >= 3000 {
            grown = ask(0).await.saturating_sub(before) >> 10;
        }
    }
    assert!(grown < 3000, "400 000 requests that nobody reads about took {grown} KB");
}
