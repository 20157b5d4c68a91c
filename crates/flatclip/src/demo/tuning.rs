//! CoOp and SAPT on a few photos, each with the same number of settings tried on held-out photos.

use super::{Model, Size};
use crate::data::{self, Dataset, OpenOptions, Split};
use crate::facade::tune;
use crate::progress::Progress;
use crate::prompt::Prompt;
use crate::report::{Cell, Table};
use crate::train::{TuneRequest, TuneSummary};
use crate::{Error, Result};
use serde::Serialize;
use std::path::Path;

/// CoOp's grid: as many settings as SAPT's.
const RATES: [f64; 3] = [0.002, 0.01, 0.05];
/// SAPT's grid, a part of the paper's.
const RADII: [f64; 3] = [0.1, 0.3, 0.7];

/// Held-out losses within two per cent count as equal.
const SLACK: f64 = 1.02;

/// One setting that was tried.
#[derive(Clone, Debug, Serialize)]
struct Tried {
    method: &'static str,
    setting: String,
    held_out_loss: f64,
    summary: TuneSummary,
    chosen: bool,
}

/// Both prompts, and how they were chosen.
#[derive(Debug)]
pub(super) struct Tuned {
    pub(super) coop: Prompt,
    pub(super) sapt: Prompt,
    tried: Vec<Tried>,
}

pub(super) fn tune_both(model: &Model, size: &Size, seed: u64, dir: &Path, progress: &dyn Progress) -> Result<Tuned> {
    let photos = train_photos()?;
    progress.start("tuning", Some((RATES.len() + RADII.len()) as u64));
    let mut tried = Vec::new();
    for rate in RATES {
        tried.push(one(model, &photos, size, seed, dir, "coop", rate, None)?);
        progress.advance(tried.len() as u64, "");
    }
    let (rate, coop) = choose(&mut tried, "coop", &RATES, dir)?;
    for radius in RADII {
        tried.push(one(model, &photos, size, seed, dir, "sapt", rate, Some(radius))?);
        progress.advance(tried.len() as u64, "");
    }
    let (_, sapt) = choose(&mut tried, "sapt", &RADII, dir)?;
    progress.finish();
    Ok(Tuned { coop, sapt, tried })
}

fn folder_of(method: &str, rate: f64, radius: Option<f64>) -> String {
    match radius {
        Some(radius) => format!("tune-{method}-radius-{radius}"),
        None => format!("tune-{method}-rate-{rate}"),
    }
}

fn one(
    model: &Model,
    photos: &Dataset,
    size: &Size,
    seed: u64,
    dir: &Path,
    method: &'static str,
    rate: f64,
    radius: Option<f64>,
) -> Result<Tried> {
    // Crops as the pocket CLIP was trained on; two per photo keep the demo short.
    let views = "[views]\nbank = 2\nscale = [0.35, 1.0]\n";
    let mut settings = format!("{views}[train]\nepochs = {}\nlr = {rate:?}\n", size.epochs);
    // Around "a photo of a" this small text tower is flat already, and tuning has nothing to do; it starts from noise.
    settings.push_str(&format!("[{method}]\nwords = \"\"\nn_ctx = 4\n"));
    if let Some(radius) = radius {
        settings.push_str(&format!("radius = {radius:?}\n"));
    }
    let place = dir.join(folder_of(method, rate, radius));
    let held_out = Some(size.shots.div_ceil(2));
    let summary = tune_on(model, photos, &settings, method, (size.shots, held_out), seed, &place)?;
    let held_out_loss = summary.held_out.as_ref().map_or(f64::INFINITY, |e| f64::from(e.loss));
    let setting = radius.map_or_else(|| format!("lr {rate}"), |radius| format!("rho {radius}, lr {rate}"));
    Ok(Tried { method, setting, held_out_loss, summary, chosen: false })
}

/// One tuner on `shots` photos per class, and perhaps some held out.
pub(super) fn tune_on(
    model: &Model,
    photos: &Dataset,
    settings: &str,
    method: &str,
    (shots, held_out): (usize, Option<usize>),
    seed: u64,
    place: &Path,
) -> Result<TuneSummary> {
    let settings = settings.parse().map_err(|e: toml::de::Error| Error::config("settings", e.message()))?;
    let request = TuneRequest {
        method: method.into(),
        data: "pocket:photo".into(),
        shots: Some(shots),
        held_out,
        seed,
        overrides: vec![settings],
        out: place.to_path_buf(),
        ..TuneRequest::default()
    };
    tune(&request, model, photos, &())
}

/// The photos that every prompt of the demo is tuned on.
pub(super) fn train_photos() -> Result<Dataset> {
    let options = OpenOptions { split: Split::Train, ..OpenOptions::default() };
    data::open("pocket:photo:train:4096", &options)
}

/// CoOp: the setting of lowest held-out loss. SAPT: the largest radius whose held-out loss is as good within [`SLACK`];
/// source data alone always prefer the smallest radius, while the point of a larger one is what it has not seen.
fn choose(tried: &mut [Tried], method: &str, grid: &[f64], dir: &Path) -> Result<(f64, Prompt)> {
    let mine: Vec<usize> = (0..tried.len()).filter(|&i| tried[i].method == method).collect();
    let loss = |place: usize| tried[mine[place]].held_out_loss;
    let lowest = (0..mine.len()).min_by(|&a, &b| loss(a).total_cmp(&loss(b)));
    let lowest = lowest.ok_or_else(|| Error::config(method, "no setting was tried"))?;
    let place = if method == "coop" {
        lowest
    } else {
        (0..mine.len()).rev().find(|&i| loss(i) <= SLACK * loss(lowest)).unwrap_or(lowest)
    };
    let index = mine[place];
    tried[index].chosen = true;
    let folder =
        if method == "coop" { folder_of(method, grid[place], None) } else { folder_of(method, 0.0, Some(grid[place])) };
    let prompt = Prompt::load(&dir.join(folder).join(&tried[index].summary.prompt))?;
    Ok((grid[place], prompt))
}

impl Tuned {
    /// The settings that were tried, for people.
    pub(super) fn table(&self) -> Table {
        let title = "Tuning: settings tried on held-out photos, and how sharp each minimum is";
        let header = ["prompt", "setting", "held-out loss", "train accuracy", "sharpness", "chosen"];
        let mut table = Table::new(title, header);
        for t in &self.tried {
            let sharpness = t.summary.flatness.map_or_else(Cell::none, |f| Cell::number(f64::from(f.sharpness), 4));
            let accuracy = t.summary.flatness.map_or_else(Cell::none, |f| Cell::percent(f64::from(f.accuracy)));
            table.push(vec![
                Cell::text(t.method),
                Cell::text(&t.setting),
                Cell::number(t.held_out_loss, 4),
                accuracy,
                sharpness,
                Cell::text(if t.chosen { "yes" } else { "" }),
            ]);
        }
        table
    }

    /// The same, for machines.
    pub(super) fn summary(&self) -> impl Serialize + '_ {
        &self.tried
    }

    /// Sharpness (rise of the training loss within the radius) of a method's prompts: the chosen one, and the range of all.
    pub(super) fn sharpness(&self, method: &str) -> Option<Sharpness> {
        let mine = || self.tried.iter().filter(|t| t.method == method);
        let of = |t: &Tried| t.summary.flatness.map(|f| f.sharpness);
        Some(Sharpness {
            chosen: of(mine().find(|t| t.chosen)?)?,
            least: mine().filter_map(of).fold(f32::INFINITY, f32::min),
            most: mine().filter_map(of).fold(f32::NEG_INFINITY, f32::max),
        })
    }
}

/// See [`Tuned::sharpness`].
pub(super) struct Sharpness {
    pub(super) chosen: f32,
    pub(super) least: f32,
    pub(super) most: f32,
}
