//! Prometheus metrics.

use crate::{App, lock};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Histogram buckets for the seconds of a request.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// Histogram buckets for the images of a batch.
const IMAGES: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// The recorder of this process: there can be only one, so servers in one process share it.
static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

pub(crate) fn install() {
    HANDLE.get_or_init(|| {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("seconds".to_owned()), &SECONDS)
            .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("images".to_owned()), &IMAGES));
        let handle = builder.ok()?.install_recorder().ok()?;
        describe();
        let own = handle.clone();
        let upkeep = move || {
            loop {
                std::thread::sleep(UPKEEP);
                own.run_upkeep();
            }
        };
        // Without the thread, reading the metrics does the same.
        let _ = std::thread::Builder::new().name("metrics".to_owned()).spawn(upkeep);
        Some(handle)
    });
}

/// How often samples are aggregated into their buckets, even if nobody reads the metrics: until then each takes memory.
const UPKEEP: Duration = Duration::from_secs(2);

fn describe() {
    metrics::describe_counter!("flatclip_requests_total", "Requests by route and status");
    metrics::describe_counter!("flatclip_images_total", "Images to classify by model and method");
    metrics::describe_histogram!("flatclip_request_seconds", "Time of a request by route");
    metrics::describe_histogram!("flatclip_batch_images", "Images that were worked on together");
    metrics::describe_histogram!("flatclip_build_seconds", "Time of building a class list");
    // These are reported from the start, as 0.
    for (name, text) in [
        ("flatclip_panics_total", "Panics that were caught"),
        ("flatclip_refused_total", "Requests that found the queue full"),
        ("flatclip_dropped_total", "Pieces of work that nobody waited for any more"),
        ("flatclip_late_total", "Requests whose deadline passed"),
    ] {
        metrics::describe_counter!(name, text);
        metrics::counter!(name).increment(0);
    }
}

pub(crate) fn count_panic() {
    metrics::counter!("flatclip_panics_total").increment(1);
    tracing::error!("a panic was caught; the request that caused it gets status 500");
}

pub(crate) fn count_request(route: &str, status: u16, seconds: f64) {
    metrics::counter!("flatclip_requests_total", "route" => route.to_owned(), "status" => status.to_string())
        .increment(1);
    metrics::histogram!("flatclip_request_seconds", "route" => route.to_owned()).record(seconds);
}

pub(crate) fn count_image(model: &str, method: &str) {
    metrics::counter!("flatclip_images_total", "model" => model.to_owned(), "method" => method.to_owned()).increment(1);
}

/// Info metrics about version and models, whose value is always 1. Formatted here so that models removed by a reload disappear.
fn info(app: &App) -> String {
    let mut text = String::new();
    let mut line = |name: &str, labels: &[(&str, &str)]| {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", quoted(value))).collect();
        let _ = writeln!(text, "{name}{{{}}} 1", labels.join(","));
    };
    line("flatclip_build_info", &[("version", env!("CARGO_PKG_VERSION")), ("architecture", std::env::consts::ARCH)]);
    for (entry, model) in &app.catalogue().models {
        let (about, precision) = (model.describe(), model.clip().precision());
        let labels = [("architecture", about.as_str()), ("weights", model.hash()), ("precision", precision.as_str())];
        line("flatclip_model_info", &[&[("model", entry.name.as_str())], labels.as_slice()].concat());
    }
    text
}

/// Gauges are set when they are read; servers of one process take turns.
static READING: Mutex<()> = Mutex::new(());

/// The text that Prometheus reads.
pub(crate) fn text(app: &App) -> String {
    let _turn = lock(&READING);
    let queue = app.queue.gauges();
    for (name, text, value) in [
        ("flatclip_queue_waiting", "Pieces of work that wait", queue.waiting),
        ("flatclip_queue_in_work", "Pieces of work that are worked on", queue.in_work),
        ("flatclip_queue_in_work_peak", "The most that was ever worked on at the same time", queue.peak_in_work),
        ("flatclip_queue_admitted", "Images that were admitted and are not done", queue.admitted),
        ("flatclip_sessions", "Open sessions", app.sessions.len()),
        ("flatclip_kept_classifiers", "Class lists whose text features are kept", app.builds.classifiers.len()),
        ("flatclip_builds", "Class lists that wait or are built", app.builds.len()),
        ("flatclip_held_bytes", "Bytes of bodies and answers that are held", app.held.used()),
        ("flatclip_held_bytes_peak", "The most that was ever held", app.held.peak()),
        ("flatclip_pixel_bytes", "Bytes of pixels and views that are worked on", app.pixels.used()),
        ("flatclip_pixel_bytes_peak", "The most that was ever worked on", app.pixels.peak()),
        ("flatclip_kept_bytes", "Bytes of text features and sessions that are kept", app.builds.classifiers.bytes()),
    ] {
        metrics::describe_gauge!(name, text);
        metrics::gauge!(name).set(value as f64);
    }
    let Some(Some(handle)) = HANDLE.get() else { return String::new() };
    handle.run_upkeep();
    handle.render() + &info(app)
}
