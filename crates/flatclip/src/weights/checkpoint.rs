//! A checkpoint: canonical names, checked shapes, values read one tensor at a time.

use super::activation;
use super::bytes::{Dtype, Stored, bad};
use super::naming::{self, Naming, Recipe};
use super::random;
use crate::architecture::{self, Activation, ActivationSource, ClipConfig, Preprocess, Shapes, Stated};
use crate::digest::Digest;
use crate::{Error, Result};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Where a tensor's values come from.
pub(crate) enum Origin {
    File(Recipe),
    Random { seed: u64 },
}

/// An open checkpoint. Tensors have OpenAI's names, whatever the names in the file, and are read on demand.
pub struct Checkpoint {
    path: PathBuf,
    config: ClipConfig,
    naming: Naming,
    /// Shapes and origins of the tensors.
    entries: BTreeMap<String, (Vec<usize>, Origin)>,
    pub(super) tokenizer_dir: Option<PathBuf>,
    pub(super) embedded: &'static [(&'static str, &'static [u8])],
    /// Digests of tensors that were read for loading, so that the hash need not read them again.
    digests: Mutex<BTreeMap<String, [u8; 32]>>,
    pub(super) hash: OnceLock<String>,
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint").field("path", &self.path).field("config", &self.config).finish_non_exhaustive()
    }
}

impl Checkpoint {
    pub(crate) fn assemble(path: PathBuf, config: ClipConfig, entries: BTreeMap<String, (Vec<usize>, Origin)>) -> Self {
        Self {
            path,
            config,
            naming: Naming::OpenAi,
            entries,
            tokenizer_dir: None,
            embedded: &[],
            digests: Mutex::default(),
            hash: OnceLock::new(),
        }
    }

    /// From the tensors of a file and its configuration.
    pub(crate) fn from_tensors(path: &Path, tensors: Vec<Stored>, stated: &Stated) -> Result<Self> {
        let openai = activation::is_openai_archive(&tensors);
        let (naming, mut recipes) = naming::canonical(path, tensors)?;
        let shapes: Shapes = recipes.iter().map(|(name, recipe)| (name.clone(), recipe.shape())).collect();
        // The file holds the logarithm of the scale.
        let expected = "about 4.6 (its exponential multiplies the cosines)";
        let scale = scalar(path, &recipes, "logit_scale", expected, |scale| scale.exp().is_finite())?;
        let bias = scalar(path, &recipes, "logit_bias", "a number near -10", f32::is_finite)?;
        let mut config = architecture::infer(path, &shapes, stated, scale.map_or(100.0, f32::exp), bias)?;
        activation::decide(path, openai, &mut config);
        let needed = architecture::tensors(&config).into_iter();
        let entry = |(name, shape)| recipes.remove(&name).map(|recipe| (name, (shape, Origin::File(recipe))));
        let entries = needed.filter_map(entry).collect();
        Ok(Self { naming, ..Self::assemble(path.to_path_buf(), config, entries) })
    }

    /// Overrides the activation that the checkpoint specifies or its family suggests.
    pub(crate) fn with_activation(mut self, activation: Activation) -> Self {
        self.config.activation = activation;
        self.config.activation_source = ActivationSource::Asked;
        if let Some(text) = &mut self.config.text {
            text.form.activation = None;
        }
        self
    }

    /// Applies the settings that a model of a known name was published with. They take precedence over a configuration next to
    /// the weights: some published ones omit the activation or the resize mode, and their defaults are wrong.
    pub(crate) fn settle(mut self, activation: Option<Activation>, preprocess: Preprocess) -> Self {
        if let Some(activation) = activation {
            (self.config.activation, self.config.activation_source) = (activation, ActivationSource::Published);
        }
        self.config.preprocess = preprocess;
        self
    }

    /// Whether its values come from a file, not from a random generator.
    pub(super) fn is_from_file(&self) -> bool {
        self.entries.values().all(|(_, origin)| matches!(origin, Origin::File(_)))
    }

    /// The file or folder it was opened from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The architecture.
    pub fn config(&self) -> &ClipConfig {
        &self.config
    }

    /// The naming scheme of the tensors in the file.
    pub fn naming(&self) -> Naming {
        self.naming
    }

    /// The folder with `vocab.json` and `merges.txt`, if the checkpoint has its own.
    pub fn tokenizer_dir(&self) -> Option<PathBuf> {
        self.tokenizer_dir.clone()
    }

    /// A file of an embedded model, e.g. its `vocab.json`.
    pub(crate) fn embedded_file(&self, name: &str) -> Option<&'static [u8]> {
        self.embedded.iter().find(|(found, _)| *found == name).map(|(_, bytes)| *bytes)
    }

    /// Canonical names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entries.get(name).map(|(shape, _)| shape.as_slice())
    }

    /// How a tensor is stored.
    pub fn dtype(&self, name: &str) -> Option<Dtype> {
        self.entries.get(name).map(|(_, origin)| match origin {
            Origin::File(recipe) => recipe.dtype(),
            Origin::Random { .. } => Dtype::F32,
        })
    }

    /// Total number of values in all tensors.
    pub fn parameters(&self) -> usize {
        self.entries.values().map(|(shape, _)| shape.iter().product::<usize>()).sum()
    }

    /// Shape and numbers (row-major) of a tensor. A number that is not finite is an error.
    pub fn tensor(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        let entry = self.entries.get(name).ok_or_else(|| bad(&self.path, format!("it has no tensor `{name}`")));
        let (shape, origin) = entry?;
        let values = match origin {
            Origin::File(recipe) => recipe.values()?,
            Origin::Random { seed } => random::draw(name, shape, &self.config, *seed),
        };
        if let Some((at, value)) = values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            let reason = format!("tensor `{name}` holds {value} at element {at}; the weights are damaged or diverged");
            return Err(bad(&self.path, reason));
        }
        Ok((shape.clone(), values))
    }

    /// [`Checkpoint::tensor`] for loading a model: also hashes the values.
    pub(crate) fn load_tensor(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        let (shape, values) = self.tensor(name)?;
        if self.hash.get().is_some() {
            return Ok((shape, values));
        }
        let digest = digest(name, &shape, &values);
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), digest);
        Ok((shape, values))
    }

    /// SHA-256 over the sorted canonical names, shapes and f32 values: the same for every encoding of the same weights
    /// (naming, container, f16 stored as f32). Reads the tensors that were not loaded before; the result is cached.
    pub fn hash(&self) -> Result<String> {
        if let Some(hash) = self.hash.get() {
            return Ok(hash.clone());
        }
        let mut all = Digest::default();
        let names: Vec<&String> = self.entries.keys().collect();
        // Four tensors at a time: parallel, with bounded memory.
        for group in names.chunks(4) {
            let digests: Vec<[u8; 32]> =
                group.par_iter().map(|name| self.tensor_digest(name)).collect::<Result<_>>()?;
            all = digests.iter().fold(all, Digest::bytes);
        }
        let hash = all.hex();
        Ok(self.hash.get_or_init(|| hash).clone())
    }

    fn tensor_digest(&self, name: &str) -> Result<[u8; 32]> {
        if let Some(known) = self.digests.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(*known);
        }
        let (shape, values) = self.tensor(name)?;
        Ok(digest(name, &shape, &values))
    }
}

fn digest(name: &str, shape: &[usize], values: &[f32]) -> [u8; 32] {
    let named = Digest::default().bytes(name).bytes([0]);
    shape.iter().fold(named, |digest, &size| digest.number(size)).floats(values).finish()
}

/// The value of a tensor of one number, if the model has it; another value than `fits` is an error.
fn scalar(
    path: &Path,
    recipes: &BTreeMap<String, Recipe>,
    name: &str,
    expected: &str,
    fits: fn(f32) -> bool,
) -> Result<Option<f32>> {
    let Some(recipe) = recipes.get(name) else { return Ok(None) };
    let values = if recipe.shape().iter().all(|&d| d == 1) { recipe.values()? } else { Vec::new() };
    match values.as_slice() {
        [value] if fits(*value) => Ok(Some(*value)),
        [value] => Err(bad(path, format!("tensor `{name}` holds {value}; expected {expected}"))),
        _ => Err(Error::WeightShape {
            path: path.to_path_buf(),
            tensor: name.to_owned(),
            expected: "[]".into(),
            found: recipe.shape(),
        }),
    }
}
