//! How sharp the minima are that tuning ends in: the rise of the photos' loss within a radius, and its surface.

use super::compare::Difference;
use super::protocol::{ABSOLUTE_RADIUS, Protocol, RELATIVE_RADIUS};
use super::tuning::{Prompts, Tuned, Tuner};
use crate::data::{self, OpenOptions, Split};
use crate::flatness::{Directions, Floor, Grid, Normalisation, Probe, Surface, WorstCase, WorstCaseSearch};
use crate::report::figure::Figure;
use crate::report::landscape::{shared_range, surface_figure};
use crate::report::{Cell, Table};
use flatclip::Model;
use flatclip::image::DecodeOptions;
use flatclip::methods::Task;
use flatclip::model::Features;
use flatclip::progress::Progress;
use flatclip::prompt::Prompt;
use flatclip::{Error, Result};
use flatclip_pocket::CLASS_NAMES;
use flatclip_tensor::ops::l2_norm;
use rayon::prelude::*;
use serde::Serialize;
use std::sync::Arc;

/// Photos whose loss is looked at: 16 per class.
const PHOTOS: usize = 512;
/// Steps of the ascent: few steps read sharp minima as flatter than they are.
const STEPS: usize = 10;
/// Random directions, of which the worst is a second start of the ascent.
const DIRECTIONS: usize = 4;

/// How the sharpness was found.
fn found_by() -> String {
    format!("ascent with {STEPS} steps from 2 starts, {DIRECTIONS} random directions")
}

/// Around one tuned prompt.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Minimum {
    pub(super) tuner: Tuner,
    pub(super) shots: usize,
    pub(super) seed: u64,
    /// The context's norm.
    pub(super) norm: f64,
    pub(super) loss: f64,
    /// Sharpness within a share of this context's norm.
    pub(super) relative: f64,
    /// Sharpness within one length for all.
    pub(super) absolute: f64,
}

/// The loss of some photos.
pub(super) struct Photos {
    probe: Probe,
}

impl Photos {
    pub(super) fn of(model: &Model) -> Result<Self> {
        let options = OpenOptions { split: Split::Train, ..OpenOptions::default() };
        let data = data::open(&format!("pocket:photo:train:{PHOTOS}"), &options)?;
        let images = data.samples.iter().map(|sample| sample.image(&DecodeOptions::default()));
        let features = Features::unit(model.plain_features(images)?).0;
        let labels = data.samples.iter().map(|sample| sample.label).collect();
        Ok(Self { probe: Probe { name: "photos".into(), features, labels: Some(labels) } })
    }

    fn minimum(&self, model: &Model, tuned: &Tuned) -> Result<Minimum> {
        let task = task(model, &tuned.prompt)?;
        let (side, context) = (task.text_side("demo")?, task.start_context("demo")?);
        let rise = |radius: f64| -> Result<(f64, f64)> {
            let search = WorstCaseSearch {
                radius: radius as f32,
                steps: STEPS,
                directions: DIRECTIONS,
                own_images: 0,
                own_steps: 0,
                floor: Floor::NONE,
                seed: 1,
            };
            let found = WorstCase::measure(side.tower, side.tokens, context, task.logit_scale, &self.probe, &search)?;
            Ok((found.centre, found.sharpness()))
        };
        let norm = l2_norm(&context.data);
        let (loss, relative) = rise(RELATIVE_RADIUS * norm)?;
        let (_, absolute) = rise(ABSOLUTE_RADIUS)?;
        let Tuned { tuner, shots, seed, .. } = *tuned;
        Ok(Minimum { tuner, shots, seed, norm, loss, relative, absolute })
    }

    /// The surfaces around two prompts, along random directions in units of a token's norm, on one colour scale.
    pub(super) fn surfaces(&self, model: &Model, prompts: [(&str, &Prompt); 2], points: usize) -> Result<Vec<Figure>> {
        let grid = Grid::new(points, 1.0)?;
        let mut surfaces = Vec::new();
        for (name, prompt) in prompts {
            let task = task(model, prompt)?;
            let (side, context) = (task.text_side("demo")?, task.start_context("demo")?);
            let axes = Directions::random(context, Normalisation::PerToken, 1)?;
            let probe = Probe { name: name.to_owned(), ..self.probe.clone() };
            let found = Surface::compute(
                side.tower,
                side.tokens,
                context,
                &axes,
                &grid,
                task.logit_scale,
                &[probe],
                vec![],
                |_| Ok(()),
            )?;
            surfaces.extend(found);
        }
        let range = shared_range(surfaces.iter());
        Ok(surfaces.iter().map(|surface| surface_figure(surface, &grid, "token norms", range)).collect())
    }
}

fn task(model: &Model, prompt: &Prompt) -> Result<Task> {
    let classes: Vec<String> = CLASS_NAMES.iter().map(|&c| c.to_owned()).collect();
    Task::from_prompt(&Arc::new(prompt.clone()), model.clip(), model.tokenizer(), classes, 1)
}

/// All minima.
pub(super) fn measure(
    model: &Model,
    photos: &Photos,
    prompts: &Prompts,
    progress: &dyn Progress,
) -> Result<Vec<Minimum>> {
    progress.start("sharpness", None);
    let minima = prompts.tuned.par_iter().map(|tuned| photos.minimum(model, tuned)).collect();
    progress.finish();
    minima
}

fn mean(minima: &[Minimum], tuner: Tuner, shots: usize, of: fn(&Minimum) -> f64) -> f64 {
    let mine = || minima.iter().filter(|m| m.tuner == tuner && m.shots == shots);
    mine().map(of).sum::<f64>() / mine().count().max(1) as f64
}

/// How much lower SAPT's sharpness is than CoOp's, draw by draw.
pub(super) fn flatter(minima: &[Minimum], shots: usize, of: fn(&Minimum) -> f64) -> Result<Difference> {
    let values =
        |tuner: Tuner| -> Vec<f64> { minima.iter().filter(|m| m.tuner == tuner && m.shots == shots).map(of).collect() };
    let (coop, sapt) = (values(Tuner::Coop), values(Tuner::Sapt));
    if coop.is_empty() || coop.len() != sapt.len() {
        return Err(Error::config("sharpness", format!("{} draws of CoOp, {} of SAPT", coop.len(), sapt.len())));
    }
    Ok(Difference::paired(&coop, &sapt))
}

/// The mean over draws.
pub(super) fn table(minima: &[Minimum], shots: &[usize]) -> Table {
    let title =
        format!("Sharpness: largest rise of the photos' loss within a radius ({}), mean over draws", found_by());
    let radii = [format!("within {RELATIVE_RADIUS} of its norm"), format!("within {ABSOLUTE_RADIUS}")];
    let header = ["shots", "prompt", "norm", "loss"].map(str::to_owned).into_iter().chain(radii);
    let mut table = Table::new(title, header);
    for &shots in shots {
        for tuner in [Tuner::Coop, Tuner::Sapt] {
            let of = |value: fn(&Minimum) -> f64, digits| Cell::number(mean(minima, tuner, shots, value), digits);
            table.push(vec![
                Cell::number(shots as f64, 0),
                Cell::text(tuner.name()),
                of(|m| m.norm, 2),
                of(|m| m.loss, 3),
                of(|m| m.relative, 4),
                of(|m| m.absolute, 4),
            ]);
        }
    }
    table
}

/// One sentence.
pub(super) fn sentence(minima: &[Minimum], protocol: &Protocol) -> Result<String> {
    let shots = protocol.most_shots();
    let difference = flatter(minima, shots, |m| m.relative)?;
    let [coop, sapt] = [Tuner::Coop, Tuner::Sapt].map(|tuner| mean(minima, tuner, shots, |m| m.relative));
    Ok(format!(
        "With {shots} shots the sharpness within {RELATIVE_RADIUS} of the prompt's norm (largest rise of the photos' loss, {}) is {coop:.3} \
         around CoOp's prompt and {sapt:.3} around SAPT's: that SAPT ends flatter is {} (difference {:.3} ± {:.3}).",
        found_by(),
        difference.verdict().name(),
        difference.mean,
        difference.half,
    ))
}
