//! Imported features: an entry of the cache with a manifest (`import.json`) and text features (`text.safetensors`).

use super::features::{FeatureCache, FeatureKey};
use super::{id_of, read_if_there, sub_folders};
use crate::data::{Dataset, Family, IMPORTED, Sample, Source, Split};
use flatclip::digest::Digest;
use flatclip::error::Hint;
use flatclip::methods::bank::TextBank;
use flatclip::prompt::{PromptContent, Tensor, decode_arrays};
use flatclip::{Error, Prompt, Result, TextFeatures, files};
use flatclip_tensor::Matrix;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MANIFEST: &str = "import.json";
pub(super) const TEXT: &str = "text.safetensors";

/// What an import stores in addition to the features.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) schema_version: u32,
    pub(super) name: String,
    pub(super) model: String,
    pub(super) dataset: String,
    pub(super) split: Split,
    pub(super) family: Family,
    pub(super) views: usize,
    pub(super) width: usize,
    pub(super) dtype: String,
    /// Features are stored with unit norm, else as the model gave them.
    pub(super) unit: bool,
    pub(super) logit_scale: f32,
    pub(super) classes: Vec<String>,
    /// In the order of the stream.
    pub(super) ids: Vec<String>,
    pub(super) labels: Vec<usize>,
    /// Of everything that decides an answer.
    pub(super) digest: String,
}

impl Manifest {
    /// The manifest of an entry; `None` for one that was not imported.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(MANIFEST);
        let Some(bytes) = read_if_there(&path)? else { return Ok(None) };
        let damaged = |reason: String| Error::Data { path: path.clone(), reason };
        let read: Self = serde_json::from_slice(&bytes).map_err(|error| damaged(format!("damaged: {error}")))?;
        if read.schema_version != 1 {
            return Err(damaged(format!("format {}, this version reads 1", read.schema_version)));
        }
        Ok(Some(read))
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_vec(self).map_err(|error| Error::config("features", error.to_string()))?;
        files::write_atomic(&folder.join(MANIFEST), &json)
    }

    /// What the entry is kept under.
    pub(super) fn key(&self) -> FeatureKey {
        FeatureKey {
            weights: self.digest.clone(),
            dataset: self.dataset.clone(),
            split: self.split.name().to_owned(),
            views: format!("imported as {} x{}", self.name, self.views),
            seed: 0,
            precision: self.dtype.clone(),
            pixels: IMPORTED.to_owned(),
        }
    }

    /// Adds what decides an answer.
    pub(super) fn add_to(&self, digest: Digest) -> Digest {
        let digest = digest.part(&self.model).number(usize::from(self.unit)).floats(&[self.logit_scale]);
        let digest = self.classes.iter().chain(&self.ids).fold(digest, Digest::part);
        self.labels.iter().fold(digest, |digest, &label| digest.number(label))
    }
}

/// Features that were imported, ready to be evaluated.
#[derive(Clone, Debug)]
pub struct Imported {
    id: String,
    folder: PathBuf,
    manifest: Manifest,
    dataset: Dataset,
    text: Option<TextFeatures>,
    bank: Option<Arc<TextBank>>,
}

impl Imported {
    /// Opens features by name, or by (the beginning of) the id of their entry.
    pub fn open(root: &Path, name: &str) -> Result<Self> {
        let mut known = Vec::new();
        let mut by_id = None;
        for folder in sub_folders(&root.join("features"))? {
            let Some(manifest) = Manifest::read(&folder)? else { continue };
            if FeatureKey::read(&folder)?.is_none() {
                continue;
            }
            if manifest.name == name {
                return Self::of_folder(folder, manifest);
            }
            known.push(manifest.name.clone());
            if name.len() >= 4 && id_of(&folder).starts_with(name) {
                by_id = Some((folder, manifest));
            }
        }
        let unknown = || Error::unknown("features", name, known.iter().map(String::as_str));
        let (folder, manifest) = by_id.ok_or_else(|| unknown().with_hint(Hint::List("cache entries")))?;
        Self::of_folder(folder, manifest)
    }

    /// The id of the features of exactly this name.
    pub(super) fn find(root: &Path, name: &str) -> Result<Option<String>> {
        for folder in sub_folders(&root.join("features"))? {
            if Manifest::read(&folder)?.is_some_and(|manifest| manifest.name == name) {
                return Ok(Some(id_of(&folder)));
            }
        }
        Ok(None)
    }

    fn of_folder(folder: PathBuf, manifest: Manifest) -> Result<Self> {
        let sample = |(id, &label): (&String, &usize)| Sample { id: id.clone(), label, source: Source::Features };
        let samples = manifest.ids.iter().zip(&manifest.labels).map(sample).collect();
        let dataset = Dataset {
            spec: format!("features:{}", manifest.name),
            family: manifest.family,
            split: manifest.split,
            ..Dataset::of_samples(manifest.dataset.clone(), manifest.classes.clone(), samples)?
        };
        let (mut text, mut bank) = (None, None);
        for Tensor { shape, values, .. } in read_text(&folder)? {
            match shape[..] {
                [rows, width] if rows == manifest.classes.len() => text = Some(Matrix::from_vec(rows, width, values)),
                [count, rows, width] => {
                    bank = Some(Arc::new(TextBank::new(Matrix::from_vec(count * rows, width, values), rows)?));
                }
                _ => {
                    let reason = format!("damaged: text features of shape {shape:?}");
                    return Err(Error::Data { path: folder.join(TEXT), reason });
                }
            }
        }
        let text = text.or_else(|| bank.as_ref().map(|bank| bank.base().clone()));
        let named = |rows| TextFeatures::new(rows, manifest.logit_scale)?.named(manifest.classes.clone());
        let text = text.map(named).transpose()?;
        Ok(Self { id: id_of(&folder), folder, manifest, dataset, text, bank })
    }

    /// How runs name them.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// The id of their cache entry.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The model that made them.
    pub fn model(&self) -> &str {
        &self.manifest.model
    }

    /// Names the features and what belongs to them: the same for the same numbers.
    pub fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// Views of each sample, the image itself included.
    pub fn views(&self) -> usize {
        self.manifest.views
    }

    /// Width of the features.
    pub fn width(&self) -> usize {
        self.manifest.width
    }

    /// Their type where they came from.
    pub fn dtype(&self) -> &str {
        &self.manifest.dtype
    }

    /// The factor on cosines.
    pub fn logit_scale(&self) -> f32 {
        self.manifest.logit_scale
    }

    /// Their samples: classes, labels and ids, without images.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Whether text features belong to them.
    pub fn has_text(&self) -> bool {
        self.text.is_some()
    }

    /// Text features at the prompt and around it.
    pub fn bank(&self) -> Option<&Arc<TextBank>> {
        self.bank.as_ref()
    }

    /// The text features of a run: those of `prompt`, which is class embeddings, or the features' own.
    pub(crate) fn text(&self, prompt: Option<&Prompt>) -> Result<TextFeatures> {
        let Some(prompt) = prompt else {
            return self.text.clone().ok_or_else(|| {
                let reason = format!("features `{}` were imported without text features", self.name());
                Error::config("prompt", reason).with_hint(Hint::TextFeatures)
            });
        };
        let PromptContent::Features(rows) = &prompt.content else {
            let reason = format!("a {} prompt needs a text tower, and there are features only", prompt.kind());
            return Err(Error::config("prompt", reason).with_hint(Hint::TextFeatures));
        };
        prompt.check_classes(&self.manifest.classes)?;
        if rows.cols() != self.width() {
            let (found, name, width) = (rows.cols(), self.name(), self.width());
            let reason =
                format!("text features of width {found}, but `{name}` has width {width}: they are of another model");
            return Err(Error::config("prompt", reason));
        }
        TextFeatures::new(rows.clone(), self.logit_scale())?.named(self.manifest.classes.clone())
    }

    pub(crate) fn cache(&self) -> Result<FeatureCache> {
        FeatureCache::scan(self.folder.clone(), self.manifest.unit)
    }
}

/// The tensors of text features of an entry.
pub(super) fn read_text(folder: &Path) -> Result<Vec<Tensor>> {
    let path = folder.join(TEXT);
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
    Ok(decode_arrays(&bytes).map_err(|reason| Error::Data { path, reason })?.0)
}
