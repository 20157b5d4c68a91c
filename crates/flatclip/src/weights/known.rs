//! Models by name (`ViT-B-16/openai`, `RN50/openai`, `ViT-B-32/laion2b_s34b_b79k`, ...), and where they are on disk.

use super::bytes::bad;
use super::checkpoint::Checkpoint;
use super::known_table::{KNOWN, REFUSED};
use super::{folder, random};
use crate::architecture::{Activation, Preprocess};
use crate::error::{Hint, nearest};
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// A published checkpoint.
#[derive(Debug)]
pub struct KnownModel {
    /// Architecture and training set, as open_clip calls them: `ViT-B-16/openai`.
    pub name: &'static str,
    /// Repositories of the Hugging Face hub; the first one is downloaded (open_clip layout).
    pub repositories: &'static [&'static str],
    /// Activation of the MLPs: caches often hold the weights without the configuration that specifies it. `None` if the model's
    /// own files must specify it.
    pub activation: Option<Activation>,
    /// SHA-256 of OpenAI's own `.pt` file.
    pub openai_sha256: Option<&'static str>,
    /// How images are prepared.
    pub preprocess: Preprocess,
}

/// Where models are searched. The library has no default locations; the caller sets them.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// A folder of models: `ARCH/TAG/` (as fetched), `ARCH-TAG.safetensors`, OpenAI's `ARCH.pt`.
    pub model_dir: Option<PathBuf>,
    /// The hub cache of Hugging Face's libraries, with its `models--ORG--NAME` folders.
    pub hub_cache: Option<PathBuf>,
}

/// The known model of that name, in any of the usual spellings; an architecture alone is OpenAI's.
pub fn known(name: &str) -> Option<&'static KnownModel> {
    let typed = plain(name.strip_prefix("hf-hub:").unwrap_or(name));
    let typed = typed.strip_suffix("px").unwrap_or(&typed);
    let openai = format!("{typed}-openai");
    let by_name = KNOWN.iter().find(|model| [typed, &openai].contains(&plain(model.name).as_str()));
    let holds = |model: &&KnownModel| model.repositories.iter().any(|repository| plain(repository) == typed);
    by_name.or_else(|| KNOWN.iter().find(holds))
}

/// A name without the differences of spelling between OpenAI, open_clip and the hub: `ViT-B/16`, `vit_b_16`, `ViT-L/14@336px`.
pub(super) fn plain(name: &str) -> String {
    let same = |c: char| if matches!(c, '/' | '_' | '@' | ' ') { '-' } else { c.to_ascii_lowercase() };
    name.chars().map(same).collect()
}

impl KnownModel {
    /// Architecture and tag.
    pub(super) fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('/').unwrap_or((self.name, ""))
    }

    /// Architecture, as open_clip calls it.
    pub fn architecture(&self) -> &'static str {
        self.parts().0
    }

    /// Whether the model has its own tokenizer.
    pub(super) fn has_tokenizer(&self) -> bool {
        self.name.contains("SigLIP")
    }

    /// Description of the tokenizer.
    pub fn tokenizer(&self) -> &'static str {
        match () {
            () if self.name.contains("SigLIP2") => "SentencePiece BPE (Gemma), 256000 tokens, rows of 64",
            () if self.name.contains("i18n") => "SentencePiece Unigram (mT5), 250000 tokens, rows of 64",
            () if self.has_tokenizer() => "SentencePiece Unigram, 32000 tokens, rows of 64",
            () => "CLIP BPE, 49408 tokens",
        }
    }

    /// The model's own folder below a model folder.
    pub fn folder(&self, model_dir: &Path) -> PathBuf {
        let (arch, tag) = self.parts();
        model_dir.join(arch).join(tag)
    }

    /// The file or folder that holds it: first in the model folder, then in the hub cache.
    pub fn find(&self, places: &Places) -> Option<PathBuf> {
        let (arch, tag) = self.parts();
        if let Some(dir) = &places.model_dir {
            if folder::weight_file(&self.folder(dir)).is_ok() {
                return Some(self.folder(dir));
            }
            let mut files = vec![format!("{arch}-{tag}.safetensors"), format!("{arch}-{tag}.pt")];
            if self.openai_sha256.is_some() {
                files.extend([format!("{arch}.pt"), format!("{arch}px.pt")]);
            }
            if let Some(file) = files.iter().map(|file| dir.join(file)).find(|file| file.is_file()) {
                return Some(file);
            }
        }
        let cache = places.hub_cache.as_ref()?;
        self.repositories.iter().find_map(|repository| snapshot(cache, repository))
    }

    /// Opens the path that [`KnownModel::find`] returned. The name determines settings that the files do not specify.
    pub fn open(&self, path: &Path) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::open(path)?;
        if let Some(found) = checkpoint.config().released_name().filter(|found| *found != self.architecture()) {
            return Err(bad(path, format!("{} was asked for, the weights are those of a {found}", self.name)));
        }
        Ok(checkpoint.settle(self.activation, self.preprocess))
    }
}

/// The newest complete snapshot of a repository in the hub cache.
fn snapshot(cache: &Path, repository: &str) -> Option<PathBuf> {
    let folder = cache.join(format!("models--{}", repository.replace('/', "--")));
    let snapshots = folder.join("snapshots");
    let current = std::fs::read_to_string(folder.join("refs/main")).ok().map(|rev| snapshots.join(rev.trim()));
    let mut all: Vec<PathBuf> = std::fs::read_dir(&snapshots).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    all.sort();
    current.into_iter().chain(all.into_iter().rev()).find(|path| folder::weight_file(path).is_ok())
}

/// Opens a model by any of its forms: a file, a folder, `random:ARCH`, an embedded model (`pocket`, `pocket-vit`), or a known
/// name that is on disk.
pub fn resolve(model: &str, places: &Places) -> Result<Checkpoint> {
    if model.starts_with("random:") {
        return random::random(model, 0);
    }
    let path = Path::new(model);
    if path.exists() {
        return Checkpoint::open(path);
    }
    if let Some(embedded) = Checkpoint::embedded(model) {
        return embedded;
    }
    let Some(known) = known(model) else {
        let reason = refusal(model).unwrap_or_else(|| not_found(model, path));
        return Err(Error::config("model", reason).with_hint(Hint::List("models")));
    };
    if let Some(path) = known.find(places) {
        return known.open(&path);
    }
    let place = |dir: &Option<PathBuf>| dir.as_ref().map_or("(none given)".into(), |d| d.display().to_string());
    let looked = format!("model folder {}, hub cache {}", place(&places.model_dir), place(&places.hub_cache));
    let folder = places.model_dir.as_ref().map_or(known.name.into(), |dir| known.folder(dir).display().to_string());
    let (arch, repository) = (known.architecture(), known.repositories[0]);
    let openai =
        known.openai_sha256.map(|_| format!(", or OpenAI's {arch}.pt into the model folder")).unwrap_or_default();
    let put =
        format!("put open_clip_model.safetensors and open_clip_config.json of {repository} into {folder}{openai}");
    Err(Error::config("model", format!("{model} is not on disk; looked in {looked}; {put}")))
}

/// Why a published model is not supported, and what to use instead; `None` if its name is not of an unsupported family.
pub fn refusal(model: &str) -> Option<String> {
    let name = plain(model);
    let &(_, what, instead) = REFUSED.iter().find(|(part, ..)| name.contains(part))?;
    Some(format!(
        "`{model}` has {what}, which flatclip does not compute; take {instead}, or compute its features with PyTorch and \
         import them (class embeddings as text features)"
    ))
}

/// The known model whose published file has this SHA-256.
pub fn published_as(sha256: &str) -> Option<&'static KnownModel> {
    KNOWN.iter().find(|model| model.openai_sha256 == Some(sha256))
}

fn not_found(model: &str, path: &Path) -> String {
    let known: Vec<&str> = KNOWN.iter().map(|m| m.name).filter(|n| n.ends_with("/openai")).collect();
    let what = if path.components().count() > 2 || path.extension().is_some() {
        "no such file or folder"
    } else {
        "neither a file, a folder nor a known name"
    };
    let names: Vec<&str> = KNOWN.iter().map(|m| m.name).chain(["pocket", "pocket-vit"]).collect();
    let near = nearest(model, &names).map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
    format!("`{model}`: {what}{near}; known names are {}, ..., pocket, pocket-vit, random:ARCH", known.join(", "))
}
