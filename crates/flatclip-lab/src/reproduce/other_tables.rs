//! The other tables of an item: tuned prompts, skipped rows, sweeps and landscapes.

use super::step_store::StepStore;
use super::{LandscapeWork, Plan, SweepWork, Work};
use crate::data::Split;
use crate::report::{Cell, LandscapeRecord, Section, Table};
use crate::{EvaluateRequest, SweepRequest, TuneSummary};
use flatclip::prompt::{Prompt, PromptContent};
use flatclip::{Error, Result};
use std::path::Path;

/// rho' of the paper.
const STSS_RADIUS: f64 = 0.5;

/// The tuned prompts: the selected settings, and the sharpness of the loss around each prompt.
pub(super) fn tuned(plan: &Plan) -> Result<Option<Table>> {
    let mut prompts: Vec<(&Path, u64, TuneSummary)> = Vec::new();
    for step in &plan.steps {
        let (Work::Tune(request), file) = (&step.work, step.dir.join("summary.json")) else { continue };
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let summary: TuneSummary =
            serde_json::from_slice(&bytes).map_err(|e| Error::Run { path: file.clone(), reason: e.to_string() })?;
        prompts.push((&step.dir, request.seed, summary));
    }
    let name =
        |dir: &Path| dir.parent().and_then(Path::file_name).map_or_else(String::new, |n| n.to_string_lossy().into());
    let relative = |dir: &Path, radius: Option<f64>| {
        Cell::some(radius.zip(context_norm(dir)), |(radius, norm)| Cell::number(radius / norm, 4))
    };
    let table = Table::of("Tuned prompts", prompts)
        .column("prompt", |(dir, ..)| Cell::text(name(dir)))
        .column("seed", |(_, seed, _)| Cell::text(seed.to_string()))
        .column("images", |(.., summary)| Cell::count(summary.images))
        .column("steps", |(.., summary)| Cell::count(summary.steps))
        .column("rho", |(.., summary)| Cell::some(summary.radius, |radius| Cell::number(radius.length, 4)))
        .column("relative rho", |(.., summary)| Cell::some(summary.radius, |radius| Cell::number(radius.share, 4)))
        .column("train %", |(.., summary)| Cell::some(summary.train, |t| Cell::percent(f64::from(t.accuracy))))
        .column("sharpness", |(.., summary)| {
            Cell::some(summary.flatness, |flatness| Cell::number(f64::from(flatness.sharpness), 4))
        })
        .column("relative radius", |(dir, _, summary)| relative(dir, summary.flatness.map(|f| f.radius)))
        .column("relative rho'", |(dir, ..)| relative(dir, Some(STSS_RADIUS)))
        .with_note(
            "sharpness: rise of the training loss within radius 0.1 of the context, found by one SAM step; relative: as a fraction \
             of the context's norm; rho at the end of tuning; rho' = 0.5 is the radius of STSS",
        );
    Ok((!table.rows.is_empty()).then_some(table))
}

/// The norm of a prompt's learned context; `None` if the file has none.
fn context_norm(path: &Path) -> Option<f64> {
    let prompt = Prompt::open(path).ok()?;
    let PromptContent::Learned { context, .. } = &prompt.content else { return None };
    Some(flatclip_tensor::ops::l2_norm(context.data.iter()))
}

pub(super) fn left_out(plan: &Plan) -> Option<Table> {
    let rows = plan.left_out.iter().map(|(what, why)| (what, why)).chain(&plan.absent);
    let columns = Table::of("Skipped", rows).column("what", |(what, _)| Cell::text(*what));
    let table = columns.column("why", |(_, why)| Cell::text(*why)).table();
    (!table.rows.is_empty()).then_some(table)
}

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
    let mut section = Section::new(&work.title, "");
    for part in parts {
        section.tables.extend(part.tables);
        section.figures.extend(part.figures);
    }
    Ok(section)
}
