//! Runs that an earlier version left in a state from which it could not finish.

use super::averaging::Mean;
use super::checkpoint;
use super::directory::{CHECKPOINT, PROMPT};
use super::settings::TuneRequest;
use super::trainer::Trainer;
use super::tune::tune;
use crate::data::{Dataset, OpenOptions, Split, open};
use crate::run_dir::{RunDir, SUMMARY};
use crate::tuners::{Average, Batch, Loss, Recipe, Tuner};
use flatclip::model::Clip;
use flatclip::progress::Progress;
use flatclip::prompt::{PromptContent, Tensor};
use flatclip::settings::parse_settings;
use flatclip::{Error, Model, Result};
use std::path::Path;
use std::sync::Mutex;

/// Parameters to read a checkpoint into.
struct Parameters(Vec<Tensor>);

impl Tuner for Parameters {
    fn parameters(&self) -> &[Tensor] {
        &self.0
    }

    fn parameters_mut(&mut self) -> &mut [Tensor] {
        &mut self.0
    }

    fn loss(&self, _: &Clip, _: &[Tensor], _: &Batch<'_>) -> Result<Loss> {
        Err(Error::config("test", "is not trained"))
    }

    fn prompt(&self) -> Result<PromptContent> {
        Err(Error::config("test", "is not trained"))
    }
}

/// Collects warnings.
#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl Progress for Warnings {
    fn warn(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

fn run(data: &Dataset, out: &Path, resume: bool) -> Vec<String> {
    let settings = ["train.epochs=5", "train.batch=9", "train.average=swad", "train.swad_converge=2", "views.bank=1"];
    let request = TuneRequest {
        method: "coop".into(),
        shots: Some(3),
        held_out: Some(2),
        overrides: vec![parse_settings(&settings).unwrap()],
        out: out.to_path_buf(),
        resume,
        ..TuneRequest::default()
    };
    let warnings = Warnings::default();
    tune(&request, &Model::load("pocket").unwrap(), data, &warnings).unwrap();
    warnings.0.into_inner().unwrap()
}

#[test]
fn a_run_whose_checkpoint_lacks_steps_of_swad_is_finished_as_if_it_had_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let options = OpenOptions { split: Split::Train, ..OpenOptions::default() };
    let data = open("pocket:photo", &options).unwrap().restrict_classes(&[0, 1, 2]);
    let warned = run(&data, &out, false);
    assert!(warned.iter().any(|text| text.contains("SWAD found no valley")), "{warned:?}");
    let result = |name: &str| std::fs::read(out.join(name)).unwrap();
    let straight = ["metrics.jsonl", PROMPT, SUMMARY, CHECKPOINT].map(result);

    // As the earlier version left it: the last two segments alone, and no result.
    let (path, digest) = (out.join(CHECKPOINT), RunDir::open(&out).unwrap().run_digest());
    let recipe = Recipe { average: Average::Swad, swad_converge: 2, ..Recipe::default() };
    let mut trainer = Trainer::new(&recipe, 1);
    let mut tuner = Parameters(vec![Tensor::new("context", vec![5, 64], vec![0.0; 320])]);
    let lengths = checkpoint::load(&path, &digest, &mut trainer, &mut tuner).unwrap();
    assert_eq!((trainer.averager.earlier.count, trainer.averager.segments.len()), (3, 2));
    trainer.averager.earlier = Mean::default();
    checkpoint::save(&path, &digest, &trainer, &tuner, lengths).unwrap();
    for name in [PROMPT, SUMMARY] {
        std::fs::remove_file(out.join(name)).unwrap();
    }

    let warned = run(&data, &out, true);
    assert!(warned.iter().any(|text| text.contains("starts again from the first step")), "{warned:?}");
    assert_eq!(["metrics.jsonl", PROMPT, SUMMARY, CHECKPOINT].map(result), straight);
}
