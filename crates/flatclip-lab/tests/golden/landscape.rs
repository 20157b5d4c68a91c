//! `landscape`: filter-normalised directions and the loss on a grid.

use super::case::{Case, Fallible, Report, Tolerance};
use flatclip_lab::flatness::{Directions, Grid, Normalisation, Probe, Surface};

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let context = case.context("in.ctx")?;
    let classes = case.class_tokens(context.tokens)?;
    let directions = Directions::from_raw(
        &context,
        Normalisation::PerToken,
        case.f32("in.direction_x")?.to_vec(),
        case.f32("in.direction_y")?.to_vec(),
    )?;
    let labels = if case.has("in.labels") { Some(case.indices("in.labels")?) } else { None };
    let probe = Probe { name: "golden".into(), features: case.image_features(&clip, "in.images")?, labels };
    let grid = Grid { coordinates: case.f32("in.coords")?.to_vec() };
    let tower = clip.text()?;
    let surfaces = Surface::compute(
        tower,
        &classes,
        &context,
        &directions,
        &grid,
        clip.logit_scale(),
        &[probe],
        Vec::new(),
        |_| Ok(()),
    )?;
    // The file's first index is x, ours is y.
    let n = grid.coordinates.len();
    let values: Vec<f32> = (0..n * n).map(|i| surfaces[0].values[i % n][i / n]).collect();

    let mut report = Report::of(case);
    let tolerance = case.tolerance("direction", Tolerance::atol(1e-5));
    report.close_to("direction_x", &directions.x, tolerance);
    report.close_to("direction_y", &directions.y, tolerance);
    report.close_or("grid", &values, Tolerance::atol(2e-3));
    Ok(report)
}
