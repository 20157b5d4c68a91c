//! Where things lie on this user's machine. The one place of the library that reads the environment.

use crate::weights::Places;
use std::env::var_os;
use std::path::PathBuf;

/// The user's folder for what can be computed again: `flatclip` below `XDG_CACHE_HOME` or `~/.cache`, else in the working
/// directory.
pub fn cache_folder() -> PathBuf {
    user_cache().map_or_else(|| PathBuf::from(".flatclip-cache"), |folder| folder.join("flatclip"))
}

/// Where models of known names are looked for by default: `flatclip/models` in the user's cache, then
/// the hub cache as Hugging Face's own libraries find it (`HF_HUB_CACHE`, `HF_HOME`, `~/.cache/huggingface`).
pub fn model_places() -> Places {
    Places { model_dir: Some(cache_folder().join("models")), hub_cache: hub_cache() }
}

/// An absolute `XDG_CACHE_HOME` (the convention ignores relative ones), or `~/.cache`.
fn user_cache() -> Option<PathBuf> {
    let stated = var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    stated.or_else(|| Some(PathBuf::from(var_os("HOME")?).join(".cache")))
}

fn hub_cache() -> Option<PathBuf> {
    var_os("HF_HUB_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(var_os("HF_HOME")?).join("hub")))
        .or_else(|| Some(user_cache()?.join("huggingface/hub")))
}

/// The hub, or the mirror that `HF_ENDPOINT` names, with the token of `HF_TOKEN`: as Hugging Face's own libraries find them.
#[cfg(feature = "hub")]
pub(super) fn hub() -> crate::weights::hub::Hub {
    let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let hub = text("HF_ENDPOINT").map_or_else(Default::default, |endpoint| endpoint.as_str().into());
    match text("HF_TOKEN") {
        Some(token) => crate::weights::hub::Hub::with_token(hub, token),
        None => hub,
    }
}
