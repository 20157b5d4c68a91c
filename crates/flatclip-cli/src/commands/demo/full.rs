//! What `--full` adds: the other adapters and tuners on the same model, and the methods that need a vision transformer on the
//! embedded `pocket-vit`. DiffTPT stays out: it reads pictures that a diffusion model made.

use super::rows::{self, Ask, Table};
use super::tuning::{train_photos, tune_on};
use super::{Model, Output, Size, World, template};
use anyhow::Result;
use flatclip::data::{Dataset, Sample};
use flatclip::eval::source_statistics;
use flatclip::methods;
use flatclip::prompt::Prompt;
use std::path::Path;

/// Crops as the pocket CLIPs were trained on; everything else is the tuner's own default.
const VIEWS: &str = "[views]\nscale = [0.35, 1.0]\n";

/// Tuners beside CoOp and SAPT, with the names of their rows.
const TUNERS: [(&str, &str); 3] =
    [("cocoop", "CoCoOp"), ("tip-adapter", "Tip-Adapter"), ("tip-adapter-f", "Tip-Adapter-F")];

/// Most pictures per domain for the transformer: gradients through its image tower take their time.
const PICTURES: usize = 128;

/// Prompts of the other tuners.
pub(super) fn prompts(model: &Model, size: &Size, seed: u64, dir: &Path) -> Result<Vec<(&'static str, Prompt)>> {
    let photos = train_photos()?;
    TUNERS
        .iter()
        .map(|&(tuner, _)| Ok((tuner, tuned(model, "pocket", &photos, VIEWS, tuner, size, seed, dir)?)))
        .collect()
}

fn tuned(
    model: &Model,
    model_name: &str,
    photos: &Dataset,
    settings: &str,
    method: &str,
    size: &Size,
    seed: u64,
    dir: &Path,
) -> Result<Prompt> {
    let place = dir.join(format!("tune-{method}"));
    let summary = tune_on(model, model_name, photos, settings, method, (size.shots, None), seed, &place)?;
    Ok(Prompt::load(&place.join(summary.prompt))?)
}

/// The other tuners' rows, then every adapter that works with features on each of the three prompts that has no row yet.
pub(super) fn asks() -> Vec<Ask> {
    let mut asks = rows::usual();
    asks.extend(TUNERS.iter().map(|&(tuner, name)| Ask::new(name, tuner, "zero-shot")));
    for prompt in ["template", "coop", "sapt"] {
        for spec in methods::ADAPTERS.iter().filter(|s| !s.needs.pixels && !s.needs.vit && !s.needs.generated) {
            if !asks.iter().any(|ask| ask.prompt == prompt && ask.method == spec.name) {
                asks.push(Ask::new(format!("{prompt} + {}", spec.name), prompt, spec.name));
            }
        }
    }
    asks
}

/// MaPLe, PromptAlign and SAR on LayerNorms, with zero-shot and ZERO beside them.
pub(super) fn transformer(model: &Model, size: &Size, seed: u64, dir: &Path, out: &Output) -> Result<Table> {
    let size = &Size { pictures: size.pictures.min(PICTURES), ..*size };
    let photos = train_photos()?;
    // The pocket text tower has two blocks, and no start of two whole words.
    let settings = format!("{VIEWS}[maple]\ndepth = 2\nwords = \"\"\n");
    let maple = tuned(model, "pocket-vit", &photos, &settings, "maple", size, seed, dir)?;
    let shown: Vec<&Sample> = photos.samples.iter().take(size.shots * photos.classes.len()).collect();
    let statistics =
        source_statistics(&model.clip, &maple.visual_prompts(), &photos.name, &shown, &mut |_| {})?.statistics;
    let untuned = template()?;
    let mut norms = Ask::new("SAR, LayerNorms", "template", "sar");
    norms.options.insert("adapt".into(), "norms".into());
    let asks = [
        Ask::new("zero-shot", "template", "zero-shot"),
        Ask::new("zero-shot + ZERO", "template", "zero"),
        norms,
        Ask::new("MaPLe", "maple", "zero-shot"),
        Ask::new("MaPLe + PromptAlign", "maple", "promptalign"),
    ];
    let world = World { model, name: "pocket-vit", cache: dir.join("cache"), statistics: Some(&statistics), out };
    rows::evaluate(&world, &[("template", &untuned), ("maple", &maple)], &asks, size, seed, dir)
}
