//! A whole model: two towers and the temperature.

use super::image::ImageKernels;
use super::load::Reader;
use super::text::TextKernels;
use super::towers::{Device, ImageTower, Passes, TextTower};
use crate::architecture::{Activation as Nonlinearity, ClipConfig, ImageConfig, Preprocess, TextForm, VitForm};
use crate::error::Hint;
use crate::weights::Checkpoint;
use crate::{Error, Result};
use flatclip_tensor::{Activation, Matrix, Precision};
use std::sync::Arc;

/// Bytes of activations that a text pass may keep where the image tower is not at work: enough for 1000 ImageNet names.
pub(crate) const LARGE_BUDGET: usize = 928 << 20;

/// How a model is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// How the image tower multiplies.
    pub precision: Precision,
    /// How the text tower multiplies, forward and backward. It runs once per prompt, so f32 unless prompts are learned.
    pub text_precision: Precision,
    /// Bytes of activations that a text pass keeps for its gradient; what does not fit is computed again.
    pub activation_budget: usize,
    /// Which towers are wanted: with given features of the other kind, half a model is enough.
    pub towers: Towers,
}

/// Which towers of a model are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Towers {
    /// Both.
    #[default]
    Both,
    /// Text features are given.
    Image,
    /// Image features are given.
    Text,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self::of(Towers::Both)
    }
}

impl LoadOptions {
    /// The defaults for these towers. Activations may have the place that an absent image tower leaves.
    pub fn of(towers: Towers) -> Self {
        let activation_budget = if towers == Towers::Text { LARGE_BUDGET } else { 192 << 20 };
        Self { precision: Precision::F32, text_precision: Precision::F32, activation_budget, towers }
    }
}

/// A frozen CLIP model.
#[derive(Debug)]
pub struct Clip {
    config: ClipConfig,
    precision: Precision,
    text_precision: Precision,
    hash: String,
    device: Option<Device>,
    image: Arc<dyn ImageTower>,
    text: Option<Box<dyn TextTower>>,
}

impl Clip {
    /// Reads and packs all weights.
    pub fn load(checkpoint: &Checkpoint, options: LoadOptions) -> Result<Self> {
        let config = checkpoint.config().clone();
        let reader = Reader { checkpoint, precision: options.precision };
        let image = || match options.towers {
            Towers::Text => Ok(ImageKernels::absent(config.image_size)),
            _ => ImageKernels::load(&reader, &config, kernel_of(config.activation)),
        };
        let (image, text) = rayon::join(image, || text_tower(checkpoint, &options));
        let (image, text) = (Arc::new(image?), text?);
        let LoadOptions { precision, text_precision, .. } = options;
        Ok(Self { image, text, hash: checkpoint.hash()?, precision, text_precision, device: None, config })
    }

    /// The same image tower beside a text tower that multiplies in another precision, read from the same weights.
    pub(crate) fn with_text_precision(&self, checkpoint: &Checkpoint, text_precision: Precision) -> Result<Self> {
        let options = LoadOptions { precision: self.precision, text_precision, ..LoadOptions::default() };
        Ok(Self {
            config: self.config.clone(),
            hash: self.hash.clone(),
            device: None,
            image: Arc::clone(&self.image),
            text: text_tower(checkpoint, &options)?,
            precision: self.precision,
            text_precision,
        })
    }

    /// A model whose towers are computed elsewhere. `hash` names its weights.
    pub fn from_towers(
        config: ClipConfig,
        hash: String,
        device: Device,
        image: Box<dyn ImageTower>,
        text: Option<Box<dyn TextTower>>,
    ) -> Self {
        let precision = Precision::F32;
        Self { config, precision, text_precision: precision, hash, device: Some(device), image: image.into(), text }
    }

    /// The architecture.
    pub fn config(&self) -> &ClipConfig {
        &self.config
    }

    /// What the image tower multiplies in: `f32`, `i16`, ..., or where else it runs and how.
    pub fn precision(&self) -> String {
        self.device.as_ref().map_or_else(|| self.precision.name().to_owned(), Device::arithmetic)
    }

    /// Where the towers run; `None` for our kernels.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// What the towers compute beyond features.
    pub fn passes(&self) -> Passes {
        let (image, text) = (self.image.passes(), self.text.as_ref().map_or(Passes::ALL, |text| text.passes()));
        Passes { vision: image.vision, norms: image.norms, ..text }
    }

    /// What the text tower multiplies in.
    pub fn text_precision(&self) -> Precision {
        self.text_precision
    }

    /// The factor on cosines, tau.
    pub fn logit_scale(&self) -> f32 {
        self.config.logit_scale
    }

    /// What is added to scaled cosines where a pair of image and text is scored by itself; `None` for models without.
    pub fn logit_bias(&self) -> Option<f32> {
        self.config.logit_bias
    }

    /// Side of the square input.
    pub fn image_size(&self) -> usize {
        self.config.image_size
    }

    /// Width of the joint space, D.
    pub fn embed_dim(&self) -> usize {
        self.config.embed_dim
    }

    /// Hash of the weights.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Names what decides features: weights, activation, parts, preprocessing. The same weights with another of them give other
    /// features, which must not be taken for these.
    pub fn features_id(&self) -> String {
        let mut id = self.hash.clone();
        if self.config.activation != Nonlinearity::QuickGelu {
            id = format!("{id} {}", self.config.activation.name());
        }
        if let ImageConfig::Vit { form, .. } = self.config.image
            && form != VitForm::CLIP
        {
            id = format!("{id} {form:?}");
        }
        if let Some(text) = self.config.text.as_ref().filter(|text| text.form != TextForm::CLIP) {
            id = format!("{id} {:?}", text.form);
        }
        if self.config.preprocess != Preprocess::CLIP {
            id = format!("{id} {:?}", self.config.preprocess);
        }
        id
    }

    /// Raw features `[count, D]` of normalised pixels `[count, 3, size, size]`.
    pub fn encode_images(&self, pixels: &[f32], count: usize) -> Result<Matrix> {
        self.image.encode(pixels, count)
    }

    /// The image tower.
    pub fn vision(&self) -> &dyn ImageTower {
        self.image.as_ref()
    }

    /// The text tower.
    pub fn text(&self) -> Result<&dyn TextTower> {
        self.text.as_deref().ok_or_else(|| match self.config.text {
            Some(_) => {
                Error::config("model", "was loaded without its text tower, expected one for texts; load both towers")
            }
            None => Error::config("model", "this checkpoint has no text tower, expected one for texts")
                .with_hint(Hint::TextFeatures),
        })
    }
}

fn kernel_of(activation: Nonlinearity) -> Activation {
    match activation {
        Nonlinearity::QuickGelu => Activation::QuickGelu,
        Nonlinearity::Gelu => Activation::Gelu,
        Nonlinearity::GeluTanh => Activation::GeluTanh,
    }
}

/// Raw features and what becomes of them.
pub struct Features;

impl Features {
    /// Unit-norm rows and the norms of the raw ones.
    pub fn unit(mut raw: Matrix) -> (Matrix, Vec<f32>) {
        let width = raw.cols();
        let norms = flatclip_tensor::ops::normalise(raw.data_mut(), width);
        (raw, norms)
    }
}

/// The text tower, if the model has one and it is wanted.
fn text_tower(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Option<Box<dyn TextTower>>> {
    let config = checkpoint.config();
    let Some(text) = config.text.as_ref().filter(|_| options.towers != Towers::Image) else { return Ok(None) };
    let activation = kernel_of(text.form.activation.unwrap_or(config.activation));
    let reader = Reader { checkpoint, precision: options.text_precision };
    let kernels = TextKernels::load(&reader, text, config.embed_dim, activation, options)?;
    Ok(Some(Box::new(Arc::new(kernels))))
}
