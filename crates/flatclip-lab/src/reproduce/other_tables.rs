//! The other tables of an item: tuned prompts, skipped rows, sweeps and landscapes.

use super::plan::Plan;
use super::step_store::{StepStore, context_norm, tuning};
use super::work::{LandscapeWork, SweepWork, Work};
use crate::data::Split;
use crate::report::{Cell, LandscapeRecord, Section, Table};
use crate::train::TuneSummary;
use crate::{EvaluateRequest, SweepRequest};
use flatclip::{Error, Result};
use std::path::Path;

/// rho' of the paper.
const STSS_RADIUS: f64 = 0.5;

/// The tuned prompts: the selected settings, and the sharpness of the loss around each prompt.
pub(super) fn tuned(plan: &Plan) -> Result<Option<Table>> {
    let header = [
        "prompt",
        "seed",
        "images",
        "steps",
        "rho",
        "relative rho",
        "train %",
        "sharpness",
        "relative radius",
        "relative rho'",
    ];
    let mut table = Table::new("Tuned prompts", header);
    for step in &plan.steps {
        let (Some(request), file) = (tuning(step), step.dir.join("summary.json")) else { continue };
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let summary: TuneSummary =
            serde_json::from_slice(&bytes).map_err(|e| Error::Run { path: file.clone(), reason: e.to_string() })?;
        let norm = context_norm(&step.dir);
        let relative = |radius: Option<f64>| {
            radius.zip(norm).map_or_else(Cell::none, |(radius, norm)| Cell::number(radius / norm, 4))
        };
        let name = step.dir.parent().and_then(Path::file_name).map_or_else(String::new, |n| n.to_string_lossy().into());
        table.push(vec![
            Cell::text(name),
            Cell::text(request.seed.to_string()),
            Cell::number(summary.images as f64, 0),
            Cell::number(summary.steps as f64, 0),
            summary.radius.map_or_else(Cell::none, |radius| Cell::number(radius.length, 4)),
            summary.radius.map_or_else(Cell::none, |radius| Cell::number(radius.share, 4)),
            summary.train.map_or_else(Cell::none, |t| Cell::percent(f64::from(t.accuracy))),
            summary.flatness.map_or_else(Cell::none, |f| Cell::number(f64::from(f.sharpness), 4)),
            relative(summary.flatness.map(|f| f.radius)),
            relative(Some(STSS_RADIUS)),
        ]);
    }
    table.notes.push(
        "sharpness: rise of the training loss within radius 0.1 of the context, found by one SAM step; relative: as a fraction of \
         the context's norm; rho at the end of tuning; rho' = 0.5 is the radius of STSS"
            .into(),
    );
    Ok((!table.rows.is_empty()).then_some(table))
}

pub(super) fn left_out(plan: &Plan) -> Option<Table> {
    let mut table = Table::new("Skipped", ["what", "why"]);
    let rows = plan.left_out.iter().map(|(what, why)| (what, why));
    for (what, why) in rows.chain(&plan.absent) {
        table.push([what.clone(), why.clone()].map(Cell::text).to_vec());
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Finished sweeps and landscapes.
pub(super) fn sections(store: &StepStore<'_>, plan: &Plan) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    for step in plan.steps.iter().filter(|step| step.dir.join("step.json").is_file()) {
        match &step.work {
            Work::Sweep(work) => sections.push(swept(store, work, &step.dir)?),
            Work::Landscape(LandscapeWork { title, .. }) => {
                sections.extend(LandscapeRecord::read(&step.dir)?.map(|record| record.section(title)));
            }
            _ => {}
        }
    }
    Ok(sections)
}

fn swept(store: &StepStore<'_>, work: &SweepWork, dir: &Path) -> Result<Section> {
    let base = EvaluateRequest { methods: vec![work.method.clone()], ..EvaluateRequest::new(dir)? };
    let request = SweepRequest { base, axes: work.axes.clone() };
    let names = work.data.iter().map(|data| Ok(store.dataset(data, Split::Test)?.name.clone()));
    let parts = request.finished(&names.collect::<Result<Vec<_>>>()?)?;
    let mut section = Section { title: work.title.clone(), ..Section::default() };
    for part in parts {
        section.tables.extend(part.tables);
        section.figures.extend(part.figures);
    }
    Ok(section)
}
