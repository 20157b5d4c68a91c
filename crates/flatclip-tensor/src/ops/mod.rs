//! All operations other than matrix products, each with its input gradient. The plain versions are generic over `f32` and
//! `f64`, so that derivatives can be checked by finite differences in `f64`.

pub mod activation;
pub mod attention;
mod gate;
pub mod loss;
pub mod norm;
pub mod real;
mod rotary;
pub mod unit;
pub mod wide;

#[cfg(test)]
pub(crate) mod check;

pub use activation::{activate, activate_backward};
pub use gate::gate;
pub use norm::{layer_norm, layer_norm_affine_gradient, layer_norm_backward};
pub use rotary::Rotation;
pub use unit::{l2_norm, normalise, normalise_backward};
