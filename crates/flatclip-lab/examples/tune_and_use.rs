//! Learns a prompt from four photos per class, then answers a test image with it: SAPT and STSS, together FGA.
#![allow(missing_docs, unreachable_pub, clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use flatclip::image::DecodeOptions;
use flatclip::{Classifier, Model, Prompt};
use flatclip_lab::data::{self, OpenOptions, Split};
use flatclip_lab::{TuneRequest, tune};

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let model = Model::load("pocket")?;
    // `folder:DIR` reads your own photos: one folder per class.
    let train = data::open("pocket:photo:train:512", &OpenOptions { split: Split::Train, ..OpenOptions::default() })?;
    let request = TuneRequest {
        method: "sapt".into(),
        shots: Some(4),
        overrides: vec!["[train]\nepochs = 2".parse()?],
        out: folder.path().join("my-prompt"),
        ..TuneRequest::default()
    };
    let summary = tune(&request, &model, &train, &())?;
    println!("{} images, {} steps", summary.images, summary.steps);

    let prompt = Prompt::open(&request.out)?;
    // The prompt knows its classes; another list would do, too.
    let fga = Classifier::builder(&model).prompt(prompt).method("stss").views(16).build()?;
    let test = data::open("pocket:sketch:test:1", &OpenOptions::default())?;
    let answer = fga.answer(&test.samples[0].image(&DecodeOptions::default())?)?;
    println!("a {}: answered {} ({:.2})", test.classes[test.samples[0].label], answer.label(), answer.confidence());
    for view in answer.selected() {
        println!("  view {} has score {:.3}", view.index, view.score.unwrap_or(f32::NAN));
    }
    Ok(())
}
