//! The CLIP towers, frozen, with gradients for what is learned beside them: contexts, prompts, norm parameters.

mod block;
mod clip;
mod context;
mod context_pass;
mod deep;
mod image;
mod input;
mod load;
mod modified_resnet;
mod norms;
mod plan;
mod prefix;
mod text;
mod tokenizer;
mod vision_pass;
mod vit;

#[cfg(test)]
mod tests;

pub use clip::{Clip, Features, LoadOptions, Towers};
pub use context::{ClassName, ClassTokens, Context, Position};
pub use context_pass::ContextPass;
pub use deep::DeepPass;
pub use image::ImageTower;
pub use modified_resnet::{BatchNormPass, BatchNorms};
pub use norms::NormAffine;
pub use text::TextTower;
pub use vision_pass::{VisionGradient, VisionInput, VisionPass};

pub use crate::architecture::{Activation, ClipConfig, ImageConfig, TextConfig};
pub use flatclip_tensor::Precision;
