//! The CLIP towers, frozen, with gradients for the parameters that are learned: contexts, prompts, norm parameters.

mod attention_pool;
mod block;
mod check;
mod clip;
mod context;
mod context_pass;
mod image;
mod load;
mod modified_resnet;
mod norms;
mod plan;
mod prefix;
mod text;
mod tokenizer;
mod towers;
mod vision_pass;
mod vit;

#[cfg(test)]
mod tests;

pub use check::lowest_cosine;
pub use clip::{Clip, Features, LoadOptions, Towers};
pub use context::{ClassName, ClassTokens, Context, Position};
pub use modified_resnet::BatchNorms;
pub use norms::NormAffine;
pub use towers::{BatchNormPass, ContextPass, DeepPass, Device, ImageTower, Passes, TextTower, VisionPass};
pub use vision_pass::{VisionGradient, VisionInput};

pub use crate::architecture::{Activation, ActivationSource, ClipConfig, ImageConfig, TextConfig, TextForm, VitForm};
pub use flatclip_tensor::Precision;
