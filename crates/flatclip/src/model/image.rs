//! The image tower of our kernels: one face for both architectures.

use super::load::Reader;
use super::modified_resnet::{BatchNormRun, BatchNorms, ModifiedResNet};
use super::norms::NormAffine;
use super::towers::{BatchNormPass, ImageTower, Passes, VisionPass};
use super::vision_pass::{VisionInput, VisionRun};
use super::vit::{Sizes, Vit};
use crate::architecture::{ClipConfig, ImageConfig};
use crate::{Error, Result};
use flatclip_tensor::{Activation, Matrix};

#[derive(Debug)]
pub(super) struct ImageKernels {
    image_size: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Vit(Box<Vit>),
    ResNet(Box<ModifiedResNet>),
    /// Left on disk.
    Absent,
}

impl ImageKernels {
    pub(super) fn load(reader: &Reader<'_>, config: &ClipConfig, activation: Activation) -> Result<Self> {
        let ClipConfig { image_size, embed_dim, .. } = *config;
        let kind = match config.image {
            ImageConfig::Vit { width, layers, heads, patch, mlp, form } => {
                let sizes = Sizes { width, layers, heads, patch, mlp, image_size, embed_dim, form };
                Kind::Vit(Box::new(Vit::load(reader, &sizes, activation)?))
            }
            ImageConfig::ResNet { width, blocks, heads } => {
                let resnet = ModifiedResNet::load(reader, width, &blocks, heads, image_size, embed_dim)?;
                Kind::ResNet(Box::new(resnet))
            }
            ImageConfig::Other => Kind::Absent,
        };
        Ok(Self { image_size, kind })
    }

    /// In the place of a tower that was not loaded; every use of it is an error.
    pub(super) fn absent(image_size: usize) -> Self {
        Self { image_size, kind: Kind::Absent }
    }

    fn resnet(&self) -> Result<&ModifiedResNet> {
        match &self.kind {
            Kind::ResNet(resnet) => Ok(resnet),
            Kind::Vit(_) => Err(Error::config(
                "model",
                "BatchNorms are those of a ResNet, this image tower is a vision transformer; move its LayerNorms",
            )),
            Kind::Absent => Err(not_loaded()),
        }
    }

    fn vit(&self) -> Result<&Vit> {
        match &self.kind {
            Kind::Vit(vit) => Ok(vit),
            Kind::ResNet(_) => Err(Error::config(
                "model",
                "visual prompts, token records and LayerNorm gradients need a vision transformer, this image tower is a \
                 ResNet; choose a ViT checkpoint",
            )),
            Kind::Absent => Err(not_loaded()),
        }
    }

    fn check_pixels(&self, pixels: &[f32], count: usize) -> Result<()> {
        let size = self.image_size;
        if count.checked_mul(3 * size * size) == Some(pixels.len()) {
            return Ok(());
        }
        let reason = format!("{} values, expected {count} x 3 x {size} x {size}", pixels.len());
        Err(Error::config("pixels", reason))
    }
}

impl ImageTower for ImageKernels {
    fn encode(&self, pixels: &[f32], count: usize) -> Result<Matrix> {
        self.check_pixels(pixels, count)?;
        Ok(match &self.kind {
            Kind::Vit(vit) => vit.plain().encode(pixels, count),
            Kind::ResNet(resnet) => resnet.encode(pixels, count),
            Kind::Absent => return Err(not_loaded()),
        })
    }

    fn passes(&self) -> Passes {
        let differentiable = !matches!(&self.kind, Kind::Vit(vit) if vit.form.lacks_gradient().is_some());
        Passes { vision: differentiable, norms: differentiable, ..Passes::ALL }
    }

    fn pass<'a>(&'a self, pixels: &[f32], count: usize, input: VisionInput<'_>) -> Result<Box<dyn VisionPass + 'a>> {
        self.check_pixels(pixels, count)?;
        Ok(Box::new(VisionRun::new(self.vit()?, pixels, count, &input)?))
    }

    fn token_width(&self) -> Result<usize> {
        Ok(self.vit()?.width)
    }

    fn norm_affine(&self) -> Result<NormAffine> {
        Ok(self.vit()?.norms.clone())
    }

    fn batch_norms(&self) -> Result<BatchNorms> {
        Ok(self.resnet()?.batch_norms())
    }

    fn batch_norm_pass<'a>(
        &'a self,
        pixels: &[f32],
        count: usize,
        norms: &BatchNorms,
    ) -> Result<Box<dyn BatchNormPass + 'a>> {
        self.check_pixels(pixels, count)?;
        Ok(Box::new(BatchNormRun::new(self.resnet()?, pixels, count, norms)?))
    }

    /// Tokens or pixels as rows: `conv1`, `ln_pre`, `block0`.., `norm`, `ln_post` or `pool` of a vision transformer, `stem`,
    /// `layer1`.. of a ResNet.
    fn trace(&self, pixels: &[f32], count: usize) -> Result<Vec<(String, Matrix)>> {
        self.check_pixels(pixels, count)?;
        Ok(match &self.kind {
            Kind::Vit(vit) => vit.trace(pixels),
            Kind::ResNet(resnet) => resnet.trace(pixels),
            Kind::Absent => return Err(not_loaded()),
        })
    }
}

fn not_loaded() -> Error {
    Error::config("model", "was loaded without its image tower, expected one for images; load both towers")
}
