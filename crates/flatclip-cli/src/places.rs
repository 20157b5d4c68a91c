//! Where models lie on this machine, and fetching them when they do not.

use crate::output::Output;
use anyhow::Result;
use flatclip::weights::{self, Checkpoint, KnownModel, Places};
use std::env::var_os;
use std::path::{Path, PathBuf};

/// The places in which known names are looked for: the model folder, then Hugging Face's cache.
pub(crate) fn places(model_dir: Option<&Path>) -> Places {
    Places { model_dir: model_dir.map(Path::to_path_buf).or_else(default_model_dir), hub_cache: hub_cache() }
}

/// Opens a model; a known name that is not on disk is fetched unless `offline`.
pub(crate) fn open(model: &str, model_dir: Option<&Path>, offline: bool, out: &Output) -> Result<Checkpoint> {
    let places = places(model_dir);
    if let Some(known) = weights::known(model)
        && known.find(&places).is_none()
        && !offline
    {
        fetch(known, &places, out)?;
    }
    Ok(weights::resolve(model, &places)?)
}

#[cfg(feature = "hub")]
fn fetch(model: &KnownModel, places: &Places, out: &Output) -> Result<()> {
    use anyhow::Context as _;
    let dir = places.model_dir.as_ref().context("--model-dir: no folder to put the model into; name one")?;
    out.note(format_args!("{} is not on disk; fetching it into {}", model.name, dir.display()));
    let bar = out.progress(0, model.name);
    weights::hub::fetch(model, dir, weights::hub::HUB, &mut |done, total| {
        bar.set_length(total.unwrap_or(done));
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// Without the feature nothing is fetched; `resolve` then says where it looked.
#[cfg(not(feature = "hub"))]
fn fetch(_model: &KnownModel, _places: &Places, _out: &Output) -> Result<()> {
    Ok(())
}

fn cache_folder() -> Option<PathBuf> {
    var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(var_os("HOME")?).join(".cache")))
}

fn default_model_dir() -> Option<PathBuf> {
    Some(cache_folder()?.join("flatclip/models"))
}

/// As Hugging Face's own libraries look for it.
fn hub_cache() -> Option<PathBuf> {
    var_os("HF_HUB_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(var_os("HF_HOME")?).join("hub")))
        .or_else(|| Some(cache_folder()?.join("huggingface/hub")))
}
