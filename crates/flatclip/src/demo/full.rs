//! What `--full` adds: the other adapters and tuners on the same model, and the methods that need a vision transformer on the
//! embedded `pocket-vit`. DiffTPT stays out: it reads pictures that a diffusion model made.

use super::rows::{self, RowRequest, Table};
use super::tuning::{train_photos, tune_on};
use super::{Model, Size, World, named, template};
use crate::Result;
use crate::data::{Dataset, Sample};
use crate::eval::source_statistics;
use crate::facade::NamedPrompt;
use crate::methods;
use crate::progress::Progress;
use crate::prompt::Prompt;
use std::path::Path;
use std::sync::Arc;

/// Crops as the pocket CLIPs were trained on; everything else is the tuner's own default.
const VIEWS: &str = "[views]\nscale = [0.35, 1.0]\n";

/// Tuners beside CoOp and SAPT, with the names of their rows.
const TUNERS: [(&str, &str); 3] =
    [("cocoop", "CoCoOp"), ("tip-adapter", "Tip-Adapter"), ("tip-adapter-f", "Tip-Adapter-F")];

/// Most pictures per domain for the transformer: gradients through its image tower take their time.
const PICTURES: usize = 128;

/// Prompts of the other tuners.
pub(super) fn prompts(model: &Model, size: &Size, seed: u64, dir: &Path) -> Result<Vec<NamedPrompt>> {
    let photos = train_photos()?;
    TUNERS.iter().map(|&(tuner, _)| Ok(named(tuner, &tuned(model, &photos, VIEWS, tuner, size, seed, dir)?))).collect()
}

fn tuned(
    model: &Model,
    photos: &Dataset,
    settings: &str,
    method: &str,
    size: &Size,
    seed: u64,
    dir: &Path,
) -> Result<Prompt> {
    let place = dir.join(format!("tune-{method}"));
    let summary = tune_on(model, photos, settings, method, (size.shots, None), seed, &place)?;
    Prompt::load(&place.join(summary.prompt))
}

/// The other tuners' rows, then every adapter that works with features on each of the three prompts that has no row yet.
pub(super) fn row_requests() -> Vec<RowRequest> {
    let mut requests = rows::usual();
    requests.extend(TUNERS.iter().map(|&(tuner, name)| RowRequest::new(name, tuner, "zero-shot")));
    for prompt in ["template", "coop", "sapt"] {
        for spec in methods::ADAPTERS.iter().filter(|s| !s.needs.pixels && !s.needs.vit && !s.needs.generated) {
            if !requests.iter().any(|row| row.prompt == prompt && row.method == spec.name) {
                requests.push(RowRequest::new(format!("{prompt} + {}", spec.name), prompt, spec.name));
            }
        }
    }
    requests
}

/// MaPLe, PromptAlign and SAR on LayerNorms, with zero-shot and ZERO beside them.
pub(super) fn transformer(model: &Model, size: &Size, seed: u64, dir: &Path, progress: &dyn Progress) -> Result<Table> {
    let size = &Size { pictures: size.pictures.min(PICTURES), ..*size };
    let photos = train_photos()?;
    // The pocket text tower has two blocks, and no start of two whole words.
    let settings = format!("{VIEWS}[maple]\ndepth = 2\nwords = \"\"\n");
    let maple = tuned(model, &photos, &settings, "maple", size, seed, dir)?;
    let shown: Vec<&Sample> = photos.samples.iter().take(size.shots * photos.classes.len()).collect();
    let statistics =
        source_statistics(model.clip(), &maple.visual_prompts(), &photos.name, &shown, &mut |_| {})?.statistics;
    let untuned = template()?;
    let mut norms = RowRequest::new("SAR, LayerNorms", "template", "sar");
    norms.options.insert("adapt".into(), "norms".into());
    let requests = [
        RowRequest::new("zero-shot", "template", "zero-shot"),
        RowRequest::new("zero-shot + ZERO", "template", "zero"),
        norms,
        RowRequest::new("MaPLe", "maple", "zero-shot"),
        RowRequest::new("MaPLe + PromptAlign", "maple", "promptalign"),
    ];
    let world = World { model, cache: dir.join("cache"), statistics: Some(Arc::new(statistics)), progress };
    rows::evaluate(&world, &[untuned, named("maple", &maple)], &requests, size, seed, dir)
}
