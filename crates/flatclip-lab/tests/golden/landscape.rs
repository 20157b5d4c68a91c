//! `landscape`: filter-normalised directions and the loss on a grid.

use super::case::{Case, Report, Tolerance};
use flatclip_lab::flatness::{Directions, Grid, Normalisation, Probe, Surface};

pub fn run(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let context = case.context("in.ctx")?;
    let classes = case.class_tokens(context.tokens)?;
    let directions = Directions::from_raw(
        &context,
        Normalisation::PerToken,
        case.f32("in.direction_x")?.to_vec(),
        case.f32("in.direction_y")?.to_vec(),
    )
    .map_err(|e| e.to_string())?;
    let labels = if case.has("in.labels") { Some(case.indices("in.labels")?) } else { None };
    let probe = Probe { name: "golden".into(), features: case.image_features(&clip, "in.images")?, labels };
    let grid = Grid { coordinates: case.f32("in.coords")?.to_vec() };
    let tower = clip.text().map_err(|e| e.to_string())?;
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
    )
    .map_err(|e| e.to_string())?;
    // The file's first index is x, ours is y.
    let n = grid.coordinates.len();
    let values: Vec<f32> = (0..n * n).map(|i| surfaces[0].values[i % n][i / n]).collect();

    let mut report = Report::default();
    let tolerance = case.tolerance("direction", Tolerance::atol(1e-5));
    report.close("direction_x", &directions.x, case.f32("out.direction_x")?, tolerance);
    report.close("direction_y", &directions.y, case.f32("out.direction_y")?, tolerance);
    report.close("grid", &values, case.f32("out.grid")?, case.tolerance("grid", Tolerance::atol(2e-3)));
    Ok(report)
}
