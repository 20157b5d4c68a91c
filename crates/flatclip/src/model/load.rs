//! From named tensors to packed layers. Shapes are checked here, so that no kernel sees a wrong one.

use super::block::Norm;
use crate::weights::Checkpoint;
use crate::{Error, Result};
use flatclip_tensor::{Linear, Precision};
use rayon::prelude::*;

/// Reads layers of a checkpoint.
pub(crate) struct Reader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// What products with the weights of transformer blocks compute in.
    pub(crate) precision: Precision,
}

/// The parts `0..count` of a tower, read and packed by all threads. Of several errors the first in order is returned, as one thread
/// would.
pub(crate) fn in_parallel<T: Send>(count: usize, part: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let parts: Vec<Result<T>> = (0..count).into_par_iter().with_max_len(1).map(&part).collect();
    parts.into_iter().collect()
}

impl Reader<'_> {
    /// The numbers of a tensor of exactly this shape.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let (found, data) = self.checkpoint.load_tensor(name)?;
        if found != shape {
            return Err(Error::WeightShape {
                path: self.checkpoint.path().to_path_buf(),
                tensor: name.to_owned(),
                expected: format!("{shape:?}"),
                found,
            });
        }
        Ok(data)
    }

    /// `name.weight` and `name.bias` as an affine map.
    pub(crate) fn linear(&self, name: &str, outputs: usize, inputs: usize) -> Result<Linear> {
        let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
        let bias = self.tensor(&format!("{name}.bias"), &[outputs])?;
        Ok(Linear::with_precision(outputs, inputs, &weight, Some(&bias), self.precision))
    }

    /// The affine map with this weight and bias, behind a norm. Unless products are in f32, the norm's shift moves into the
    /// bias, in full precision: a large shift would otherwise cost the product's inputs many of their bits.
    /// `W (n + shift) + b = W n + (W shift + b)`.
    pub(crate) fn linear_behind(
        &self,
        norm: &mut Norm,
        [weight, bias]: &[String; 2],
        outputs: usize,
        inputs: usize,
    ) -> Result<Linear> {
        let weight = self.tensor(weight, &[outputs, inputs])?;
        let mut bias = self.tensor(bias, &[outputs])?;
        if self.precision != Precision::F32 {
            for (bias, row) in bias.iter_mut().zip(weight.chunks_exact(inputs)) {
                let moved: f64 = row.iter().zip(&norm.bias).map(|(&w, &shift)| f64::from(w) * f64::from(shift)).sum();
                *bias += moved as f32;
            }
            norm.bias.fill(0.0);
        }
        Ok(Linear::with_precision(outputs, inputs, &weight, Some(&bias), self.precision))
    }

    /// A projection `x P` that is stored as `[inputs, outputs]`, with a bias if it has one.
    pub(crate) fn projection(&self, name: &str, inputs: usize, outputs: usize, bias: bool) -> Result<Linear> {
        let stored = self.tensor(name, &[inputs, outputs])?;
        let mut weight = vec![0.0; stored.len()];
        for (i, row) in stored.chunks_exact(outputs.max(1)).enumerate() {
            row.iter().enumerate().for_each(|(o, &x)| weight[o * inputs + i] = x);
        }
        let bias = bias.then(|| self.tensor(&format!("{name}.bias"), &[outputs])).transpose()?;
        Ok(Linear::new(outputs, inputs, &weight, bias.as_deref()))
    }

    /// `name.weight` and `name.bias` as a LayerNorm.
    pub(crate) fn norm(&self, name: &str, width: usize, epsilon: f32) -> Result<Norm> {
        Ok(Norm {
            weight: self.tensor(&format!("{name}.weight"), &[width])?,
            bias: self.tensor(&format!("{name}.bias"), &[width])?,
            epsilon,
        })
    }
}
