//! `--model` and what belongs to it.

use crate::output::Output;
use anyhow::{Result, bail};
use flatclip::architecture::Activation;
use flatclip::image::views::{ViewKey, ViewOptions, make_views};
use flatclip::image::{Normalise, Picture};
use flatclip::model::{Clip, LoadOptions, Precision};
use flatclip::text::Tokenizer;
use flatclip::weights::Checkpoint;
use flatclip_tensor::Matrix;
use std::path::PathBuf;

/// Which model, and how to run it.
#[derive(clap::Args, Debug)]
pub(crate) struct ModelArgs {
    /// A checkpoint file, a model directory, a known name such as ViT-B-16/openai, `pocket`, `pocket-vit`, or `random:ViT-B-16`
    #[arg(long, short, env = "FLATCLIP_MODEL", default_value = "pocket", value_name = "MODEL")]
    pub(crate) model: String,
    /// Where known names are looked for first
    #[arg(long, env = "FLATCLIP_MODEL_DIR", value_name = "DIR")]
    pub(crate) model_dir: Option<PathBuf>,
    /// Never fetch a model, only look on disk
    #[arg(long, env = "FLATCLIP_OFFLINE")]
    pub(crate) offline: bool,
    /// Override the activation (quick-gelu, gelu) that the checkpoint states or its family suggests
    #[arg(long, value_name = "NAME")]
    pub(crate) activation: Option<String>,
    /// Arithmetic of the image tower; auto is bf16 where the CPU has AMX, else f32. The text tower and the gradients of
    /// contexts are always f32
    #[arg(long, env = "FLATCLIP_PRECISION", value_enum, default_value = "auto", value_name = "NAME")]
    pub(crate) precision: PrecisionArg,
}

/// The values of `--precision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PrecisionArg {
    Auto,
    F32,
    Bf16,
}

impl PrecisionArg {
    /// Decided for this machine: not while options are read, since one of them may force an instruction set.
    pub(crate) fn precision(self) -> Precision {
        match self {
            Self::Auto => Precision::auto(),
            Self::F32 => Precision::F32,
            Self::Bf16 => Precision::Bf16,
        }
    }
}

/// A loaded model with the tokenizer that belongs to it.
pub(crate) struct Model {
    pub(crate) clip: Clip,
    pub(crate) tokenizer: Tokenizer,
}

/// Pictures per call of the image tower: enough to keep every core busy, few enough to stay small in memory.
const BATCH: usize = 32;

impl Model {
    /// TPT's views, in the size and with the pixel statistics that this model wants.
    pub(crate) fn views(&self, count: usize) -> ViewOptions {
        let config = self.clip.config();
        let normalise = Normalise::new(config.mean, config.std);
        ViewOptions { count, size: config.image_size, normalise, ..ViewOptions::default() }
    }

    /// Raw features `[n, D]` of pictures as they are, one plain view each.
    pub(crate) fn plain_features(&self, pictures: impl Iterator<Item = Result<Picture>>) -> Result<Matrix> {
        let views = self.views(1);
        let (mut rows, mut pixels, mut waiting) = (Vec::new(), Vec::new(), 0);
        let mut pictures = pictures.peekable();
        while let Some(picture) = pictures.next() {
            pixels.extend(make_views(&picture?, &views, ViewKey { seed: 0, dataset: "", sample: "" })?);
            waiting += 1;
            if waiting == BATCH || pictures.peek().is_none() {
                rows.extend(self.clip.encode_images(&pixels, waiting)?.into_vec());
                pixels.clear();
                waiting = 0;
            }
        }
        let width = self.clip.embed_dim();
        Ok(Matrix::from_vec(rows.len() / width, width, rows))
    }
}

impl ModelArgs {
    /// An embedded model.
    pub(crate) fn embedded(name: &str) -> Self {
        let precision = PrecisionArg::Auto;
        Self { model: name.into(), model_dir: None, offline: true, activation: None, precision }
    }

    /// The checkpoint, opened but not loaded; fetched first when it is a known name that is not on disk.
    pub(crate) fn open(&self, out: &Output) -> Result<Checkpoint> {
        let checkpoint = crate::places::open(&self.model, self.model_dir.as_deref(), self.offline, out)?;
        Ok(match self.activation.as_deref().map(|word| (word, Activation::parse(word))) {
            None => checkpoint,
            Some((_, Some(activation))) => checkpoint.with_activation(activation),
            Some((word, None)) => bail!("--activation: expected quick-gelu or gelu, found {word:?}"),
        })
    }

    /// Loads the towers and says what was loaded.
    pub(crate) fn load(&self, out: &Output) -> Result<Model> {
        let checkpoint = self.open(out)?;
        let tokenizer = Tokenizer::of(&checkpoint)?;
        out.note(format_args!("{}: {}", self.model, checkpoint.config().describe()));
        let options = LoadOptions { precision: self.precision.precision(), ..LoadOptions::default() };
        let clip = Clip::load(&checkpoint, options)?;
        Ok(Model { clip, tokenizer })
    }
}
