//! Models by name: `ViT-B-16/openai`, `RN50/openai`, `ViT-B-32/laion2b_s34b_b79k`, ... and where they lie on disk.

use super::bytes::bad;
use super::checkpoint::Checkpoint;
use super::{folder, random};
use crate::architecture::{Activation, Preprocess};
use crate::error::Hint;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// A published checkpoint.
#[derive(Debug)]
pub struct KnownModel {
    /// Architecture and training set, as open_clip calls them: `ViT-B-16/openai`.
    pub name: &'static str,
    /// Repositories of the Hugging Face hub; the first is the one that is fetched (open_clip layout).
    pub repositories: &'static [&'static str],
    /// What the MLPs compute. Caches often hold the weights without the configuration that says so.
    pub activation: Activation,
    /// SHA-256 of OpenAI's own `.pt` file.
    pub openai_sha256: Option<&'static str>,
    /// How images are prepared.
    pub preprocess: Preprocess,
}

const fn openai(name: &'static str, repositories: &'static [&'static str], sha256: &'static str) -> KnownModel {
    KnownModel {
        name,
        repositories,
        activation: Activation::QuickGelu,
        openai_sha256: Some(sha256),
        preprocess: Preprocess::CLIP,
    }
}

const fn other(name: &'static str, repositories: &'static [&'static str], activation: Activation) -> KnownModel {
    KnownModel { name, repositories, activation, openai_sha256: None, preprocess: Preprocess::CLIP }
}

use Activation::{Gelu, QuickGelu};

/// Every model that goes by a name.
pub static KNOWN: &[KnownModel] = &[
    openai(
        "RN50/openai",
        &["timm/resnet50_clip.openai"],
        "afeb0e10f9e5a86da6080e35cf09123aca3b358a0c3e3b6c78a7b63bc04b6762",
    ),
    openai(
        "RN101/openai",
        &["timm/resnet101_clip.openai"],
        "8fa8567bab74a42d41c5915025a8e4538c3bdbe8804a470a72f30b0d94fab599",
    ),
    openai(
        "RN50x4/openai",
        &["timm/resnet50x4_clip.openai"],
        "7e526bd135e493cef0776de27d5f42653e6b4c8bf9e0f653bb11773263205fdd",
    ),
    openai(
        "RN50x16/openai",
        &["timm/resnet50x16_clip.openai"],
        "52378b407f34354e150460fe41077663dd5b39c54cd0bfd2b27167a4a06ec9aa",
    ),
    openai(
        "RN50x64/openai",
        &["timm/resnet50x64_clip.openai"],
        "be1cfb55d75a9666199fb2206c106743da0f6468c9d327f3e0d0a543a9919d9c",
    ),
    openai(
        "ViT-B-32/openai",
        &["timm/vit_base_patch32_clip_224.openai", "openai/clip-vit-base-patch32"],
        "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af",
    ),
    openai(
        "ViT-B-16/openai",
        &["timm/vit_base_patch16_clip_224.openai", "openai/clip-vit-base-patch16"],
        "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f",
    ),
    openai(
        "ViT-L-14/openai",
        &["timm/vit_large_patch14_clip_224.openai", "openai/clip-vit-large-patch14"],
        "b8cca3fd41ae0c99ba7e8951adf17d267cdb84cd88be6f7c2e0eca1737a03836",
    ),
    openai(
        "ViT-L-14-336/openai",
        &["timm/vit_large_patch14_clip_336.openai", "openai/clip-vit-large-patch14-336"],
        "3035c92b350959924f9f00213499208652fc7ea050643e8b385c2dac08641f02",
    ),
    other("RN50/yfcc15m", &["timm/resnet50_clip.yfcc15m"], QuickGelu),
    other("RN50/cc12m", &["timm/resnet50_clip.cc12m"], QuickGelu),
    other("RN101/yfcc15m", &["timm/resnet101_clip.yfcc15m"], QuickGelu),
    other("ViT-B-32/laion400m_e32", &["timm/vit_base_patch32_clip_224.laion400m_e32"], QuickGelu),
    other("ViT-B-32/laion2b_s34b_b79k", &["laion/CLIP-ViT-B-32-laion2B-s34B-b79K"], Gelu),
    other("ViT-B-32/datacomp_xl_s13b_b90k", &["laion/CLIP-ViT-B-32-DataComp.XL-s13B-b90K"], Gelu),
    other("ViT-B-32/metaclip_400m", &["timm/vit_base_patch32_clip_224.metaclip_400m"], QuickGelu),
    other("ViT-B-16/laion400m_e32", &["timm/vit_base_patch16_clip_224.laion400m_e32"], Gelu),
    other("ViT-B-16/laion2b_s34b_b88k", &["laion/CLIP-ViT-B-16-laion2B-s34B-b88K"], Gelu),
    other("ViT-B-16/datacomp_xl_s13b_b90k", &["laion/CLIP-ViT-B-16-DataComp.XL-s13B-b90K"], Gelu),
    other("ViT-B-16/metaclip_400m", &["timm/vit_base_patch16_clip_224.metaclip_400m"], QuickGelu),
    other("ViT-B-16/dfn2b", &["apple/DFN2B-CLIP-ViT-B-16"], QuickGelu),
    other("ViT-L-14/laion400m_e32", &["timm/vit_large_patch14_clip_224.laion400m_e32"], Gelu),
    KnownModel {
        preprocess: Preprocess::HALF,
        ..other("ViT-L-14/laion2b_s32b_b82k", &["laion/CLIP-ViT-L-14-laion2B-s32B-b82K"], Gelu)
    },
    other("ViT-L-14/datacomp_xl_s13b_b90k", &["laion/CLIP-ViT-L-14-DataComp.XL-s13B-b90K"], Gelu),
    other("ViT-L-14/metaclip_400m", &["timm/vit_large_patch14_clip_224.metaclip_400m"], QuickGelu),
];

/// Where models are looked for. The library knows no default places; the caller names them.
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
    by_name
        .or_else(|| KNOWN.iter().find(|model| model.repositories.iter().any(|repository| plain(repository) == typed)))
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

    /// Opens what [`KnownModel::find`] found. The name settles what the files leave open.
    pub fn open(&self, path: &Path) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::open(path)?;
        let (arch, _) = self.parts();
        if let Some(found) = checkpoint.config().released_name()
            && found != arch
        {
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

/// Opens whatever a user may mean by a model: a file, a folder, `random:ARCH`, an embedded model (`pocket`, `pocket-vit`), a known name
/// that is on disk.
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
        return Err(Error::config("model", not_found(model, path)).with_hint(Hint::List("models")));
    };
    match known.find(places) {
        Some(path) => known.open(&path),
        None => {
            let place = |dir: &Option<PathBuf>| dir.as_ref().map_or("(none given)".into(), |d| d.display().to_string());
            let looked = format!("model folder {}, hub cache {}", place(&places.model_dir), place(&places.hub_cache));
            let (arch, _) = known.parts();
            let folder =
                places.model_dir.as_ref().map_or(known.name.into(), |dir| known.folder(dir).display().to_string());
            let openai =
                known.openai_sha256.map_or(String::new(), |_| format!(", or OpenAI's {arch}.pt into the model folder"));
            let put = format!(
                "put open_clip_model.safetensors and open_clip_config.json of {} into {folder}{openai}",
                known.repositories[0]
            );
            Err(Error::config("model", format!("{model} is not on disk; looked in {looked}; {put}")))
        }
    }
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
    let near =
        crate::error::nearest(model, &KNOWN.iter().map(|m| m.name).chain(["pocket", "pocket-vit"]).collect::<Vec<_>>())
            .map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
    format!("`{model}`: {what}{near}; known names are {}, ..., pocket, pocket-vit, random:ARCH", known.join(", "))
}
