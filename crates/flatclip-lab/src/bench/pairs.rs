//! Cases that compare two forms of the same work, which take turns in one process: their ratio does not depend on how busy the
//! machine was at another time.

use super::cases::{Workbench, class_names, pixels};
use super::measure::{CaseTiming, reset_peak, seconds, spread};
use flatclip::classify::{batch_images, in_batches};
use flatclip::image::{DecodeOptions, open_noted};
use flatclip::methods::adapters::stss::{self, Stss};
use flatclip::methods::bank::TextBank;
use flatclip::methods::{Adapter as _, Decision, Task, ViewSet};
use flatclip::model::{Features, Towers};
use flatclip::rng::Stream;
use flatclip::{Error, Matrix, Result};
use rayon::prelude::*;
use std::path::PathBuf;

/// Files of the case `files`.
const FILES: usize = 500;
/// Images of the case `stss-scores`.
const IMAGES: usize = 1000;
/// Width of its features, that of ViT-B/16.
const WIDTH: usize = 512;

/// Times both in turns, after one turn that warms up, and notes the median of the ratios of the first to the second.
fn in_turns(
    bench: &Workbench<'_>,
    names: [String; 2],
    ratio: &str,
    mut works: [&mut dyn FnMut() -> Result<()>; 2],
) -> Result<Vec<CaseTiming>> {
    reset_peak();
    let mut times = [Vec::new(), Vec::new()];
    for turn in 0..=bench.request.repeats {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let time = seconds(work)?;
            if turn > 0 {
                times.push(time);
            }
        }
    }
    let ratios = times[0].iter().zip(&times[1]).map(|(first, second)| first / second).collect();
    bench.progress.note(&format!("{ratio}: {:.3}", spread(ratios)[1]));
    Ok(names.into_iter().zip(times).map(|(name, times)| CaseTiming::new(name, times, None)).collect())
}

/// Image files embedded as `predict` and `embed` do, one view each, and as many views encoded from ready pixels.
pub(super) fn files(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let Some(file) = bench.request.image.clone() else {
        bench.progress.note("files: skipped, it needs an image; name one");
        return Ok(Vec::new());
    };
    let (model, views) = (bench.load(Towers::Image)?, bench.request.views);
    let clip = model.clip();
    let pixels = pixels(clip, views);
    let paths: Vec<PathBuf> = vec![file; FILES];
    let open = |path: &PathBuf| model.view_pixels(&open_noted(path, &DecodeOptions::default())?.0, 1, 0);
    let encode = |batch: Vec<Result<Vec<f32>>>| -> Vec<Result<()>> {
        let made: Result<Vec<Vec<f32>>> = batch.into_iter().collect();
        let count = made.as_ref().map_or(1, Vec::len);
        let encoded = made.and_then(|made| clip.encode_images(&made.concat(), count));
        let mut results: Vec<Result<()>> = (1..count).map(|_| Ok(())).collect();
        results.push(encoded.map(drop));
        results
    };
    let mut from_files =
        || in_batches(&paths, batch_images(1), open, encode, |_, done: Result<()>| done.map(|()| true));
    let mut from_pixels = || {
        let mut counts = (0..FILES).step_by(views).map(|done| views.min(FILES - done));
        counts.try_for_each(|count| clip.encode_images(&pixels[..count * pixels.len() / views], count).map(drop))
    };
    let names = [format!("views {FILES}, {views} per call"), format!("files {FILES}, one view each")];
    in_turns(bench, names, "rate of files / rate of encode-views", [&mut from_pixels, &mut from_files])
}

/// Views scored by STSS from ready features: the score of every view, and lower bounds where they suffice. The features are drawn:
/// each view is near the text of a class, some more, some less.
pub(super) fn stss_scores(bench: &mut Workbench<'_>) -> Result<Vec<CaseTiming>> {
    let (views, count) = (bench.request.views, bench.request.classes);
    let options = stss::Config::default();
    let (directions, scale) = (options.perturbations, 100.0);
    let base = drawn("text", count, None);
    let around = (0..directions).map(|r| drawn(&format!("around {r}"), count, Some((&base, &|_| 3.0)))).collect();
    let bank = TextBank::from_prompts(base.clone(), around)?;
    let images: Vec<Matrix> = (0..IMAGES)
        .into_par_iter()
        .map(|image| {
            let text = base.select_rows(&vec![image % count; views]);
            // Cosines with the class of about 0.05 to 0.3, as those of CLIP.
            drawn(&format!("image {image}"), views, Some((&text, &|view| 0.05 + 0.25 * view as f32 / views as f32)))
        })
        .collect();
    let task = Task::new(class_names(count), base, scale, 0)?;
    let adapter = Stss::with_bank(options, bank);
    let answers = |explain: bool| -> Result<Vec<Decision>> {
        let of = |features| ViewSet { explain, ..ViewSet::new("bench", features) };
        match explain {
            true => images.par_iter().map(|features| adapter.adapt(&task, &of(features))).collect(),
            false => adapter.adapt_many(&task, &images.iter().map(of).collect::<Vec<_>>()),
        }
    };
    let (all, lazy) = (answers(true)?, answers(false)?);
    let same = |(a, b): (&Decision, &Decision)| {
        a.probabilities == b.probabilities && a.explanation.selected == b.explanation.selected
    };
    if !all.iter().zip(&lazy).all(same) {
        return Err(Error::method("stss", "bounds give other answers than scores of all views"));
    }
    let size = format!("{IMAGES} images V={views} K={count} R={directions}");
    let names = [format!("stss-scores all, {size}"), format!("stss-scores lazy, {size}")];
    let ratio = "stss-scores: time of all / time of lazy";
    let [mut full, mut bounds] = [true, false].map(|explain| move || answers(explain).map(drop));
    in_turns(bench, names, ratio, [&mut full, &mut bounds])
}

/// Unit rows: random directions, to which `near.1` (a row's factor) of the row of `near.0` is added.
fn drawn(what: &str, rows: usize, near: Option<(&Matrix, &dyn Fn(usize) -> f32)>) -> Matrix {
    let mut stream = Stream::new(0, &["bench", "stss-scores", what]);
    let random = (0..rows * WIDTH).map(|_| stream.normal() as f32).collect();
    let mut rows = Features::unit(Matrix::from_vec(rows, WIDTH, random)).0;
    if let Some((text, factor)) = near {
        for row in 0..rows.rows() {
            let factor = factor(row);
            rows.row_mut(row).iter_mut().zip(text.row(row)).for_each(|(x, t)| *x += factor * t);
        }
        rows = Features::unit(rows).0;
    }
    rows
}
