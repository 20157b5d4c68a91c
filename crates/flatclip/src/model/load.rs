//! From named tensors to packed layers. Shapes are checked here, so that no kernel sees a wrong one.

use crate::weights::Checkpoint;
use crate::{Error, Result};
use flatclip_tensor::{Linear, Precision};

/// Reads layers of a checkpoint.
pub(crate) struct Reader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// What products with the weights of transformer blocks compute in.
    pub(crate) precision: Precision,
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
        self.linear_of(&format!("{name}.weight"), &format!("{name}.bias"), outputs, inputs)
    }

    /// A weight and a bias by their own names.
    pub(crate) fn linear_of(&self, weight: &str, bias: &str, outputs: usize, inputs: usize) -> Result<Linear> {
        let weight = self.tensor(weight, &[outputs, inputs])?;
        let bias = self.tensor(bias, &[outputs])?;
        Ok(Linear::with_precision(outputs, inputs, &weight, Some(&bias), self.precision))
    }

    /// A projection `x P` that is stored as `[inputs, outputs]`, without bias.
    pub(crate) fn projection(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear> {
        let stored = self.tensor(name, &[inputs, outputs])?;
        let mut weight = vec![0.0; stored.len()];
        for (i, row) in stored.chunks_exact(outputs.max(1)).enumerate() {
            row.iter().enumerate().for_each(|(o, &x)| weight[o * inputs + i] = x);
        }
        Ok(Linear::new(outputs, inputs, &weight, None))
    }

    /// The two norms of a block.
    pub(crate) fn block_norms(&self, name: &str, width: usize) -> Result<super::block::BlockNorms> {
        Ok([self.norm(&format!("{name}.ln_1"), width)?, self.norm(&format!("{name}.ln_2"), width)?])
    }

    /// `name.weight` and `name.bias` as a LayerNorm.
    pub(crate) fn norm(&self, name: &str, width: usize) -> Result<super::block::Norm> {
        Ok(super::block::Norm {
            weight: self.tensor(&format!("{name}.weight"), &[width])?,
            bias: self.tensor(&format!("{name}.bias"), &[width])?,
        })
    }
}
