//! An evaluation with a progress callback: three methods on one data set, then a table with intervals.
#![allow(missing_docs, unreachable_pub, clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use flatclip::{Model, Progress};
use flatclip_lab::data::{self, OpenOptions};
use flatclip_lab::report::{Run, metrics_table};
use flatclip_lab::{EvaluateRequest, evaluate};

/// Prints each stage as it begins and its last status as it ends; `cancelled` could stop the work.
#[derive(Default)]
struct Printed(std::sync::Mutex<String>);

impl Progress for Printed {
    fn start(&self, stage: &str, total: Option<u64>) {
        println!("{stage}: {} images", total.unwrap_or(0));
    }

    fn advance(&self, done: u64, status: &str) {
        if let Ok(mut last) = self.0.lock() {
            *last = format!("{done} done, {status}");
        }
    }

    fn finish(&self) {
        println!("  {}", self.0.lock().map(|last| last.clone()).unwrap_or_default());
    }
}

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let model = Model::load("pocket")?;
    let sketches = data::open("pocket:sketch:test:64", &OpenOptions::default())?;
    let request = EvaluateRequest {
        methods: ["zero-shot", "zero", "stss"].map(String::from).to_vec(),
        views: Some(16),
        cache: Some(folder.path().join("cache")), // the second method encodes nothing
        ..EvaluateRequest::new(folder.path().join("runs"))?
    };
    let done = evaluate(&request, &model, &[sketches], &Printed::default())?;
    let runs = done.iter().map(|run| Run::read(&run.dir)).collect::<flatclip::Result<Vec<_>>>()?;
    println!("{}", metrics_table(&runs).to_text());
    Ok(())
}
