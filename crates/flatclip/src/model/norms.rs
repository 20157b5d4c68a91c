//! All LayerNorm parameters of a vision transformer: what SAR moves, and what a gradient with respect to them is.

use super::block::{BlockNorms, Norm};
use crate::{Error, Result};
use flatclip_tensor::ops::l2_norm;

/// The affine parameters of every LayerNorm of the image tower, or a gradient with respect to them.
#[derive(Clone, Debug, PartialEq)]
pub struct NormAffine {
    /// Absent in towers without a norm before their blocks.
    pub(super) pre: Option<Norm>,
    pub(super) blocks: Vec<BlockNorms>,
    pub(super) post: Norm,
}

impl NormAffine {
    pub(super) fn zeros_like(other: &Self) -> Self {
        let zero = |norm: &Norm| Norm::zeros(norm.weight.len(), norm.epsilon);
        Self {
            pre: other.pre.as_ref().map(zero),
            blocks: other.blocks.iter().map(|[a, b]| [zero(a), zero(b)]).collect(),
            post: zero(&other.post),
        }
    }

    /// From tensors in the order of [`NormAffine::names`], of a tower in CLIP's form.
    pub fn from_tensors(tensors: Vec<Vec<f32>>) -> Result<Self> {
        if tensors.len() < 4 || !tensors.len().is_multiple_of(4) || tensors.chunks(2).any(|t| t[0].len() != t[1].len())
        {
            let reason = format!("expected a scale and a shift for each norm, found {} tensors", tensors.len());
            return Err(Error::config("LayerNorm parameters", reason));
        }
        let norm = |t: &[Vec<f32>]| Norm { weight: t[0].clone(), bias: t[1].clone(), epsilon: 1e-5 };
        let mut norms: Vec<Norm> = tensors.chunks(2).map(norm).collect();
        let (pre, post) = (Some(norms.remove(0)), norms.pop().unwrap_or_else(|| Norm::zeros(0, 1e-5)));
        Ok(Self { pre, blocks: norms.chunks(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect(), post })
    }

    /// Names of the tensors in the order of [`NormAffine::tensors`]: `visual.ln_pre.weight`, `visual.ln_pre.bias`, the
    /// blocks' `ln_1` and `ln_2`, `visual.ln_post`.
    pub fn names(&self) -> Vec<String> {
        let blocks =
            (0..self.blocks.len()).flat_map(|i| [1, 2].map(|n| format!("visual.transformer.resblocks.{i}.ln_{n}")));
        let pre = self.pre.as_ref().map(|_| "visual.ln_pre".to_owned());
        pre.into_iter()
            .chain(blocks)
            .chain(std::iter::once("visual.ln_post".to_owned()))
            .flat_map(|norm| [format!("{norm}.weight"), format!("{norm}.bias")])
            .collect()
    }

    /// The tensors, in the order of [`NormAffine::names`].
    pub fn tensors(&self) -> Vec<&[f32]> {
        self.pre
            .iter()
            .chain(self.blocks.iter().flatten())
            .chain(std::iter::once(&self.post))
            .flat_map(|norm| [norm.weight.as_slice(), norm.bias.as_slice()])
            .collect()
    }

    /// The tensors, to write.
    pub(crate) fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        self.pre
            .iter_mut()
            .chain(self.blocks.iter_mut().flatten())
            .chain(std::iter::once(&mut self.post))
            .flat_map(|norm| [norm.weight.as_mut_slice(), norm.bias.as_mut_slice()])
            .collect()
    }

    /// Euclidean norm over all entries.
    pub fn norm(&self) -> f32 {
        l2_norm(self.tensors().into_iter().flatten()) as f32
    }

    /// `self += other`, entry by entry.
    pub fn add(&mut self, other: &Self) {
        for (to, from) in self.tensors_mut().into_iter().zip(other.tensors()) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }

    pub(super) fn same_shape(&self, other: &Self) -> bool {
        let sizes = |a: &Self| a.tensors().iter().map(|t| t.len()).collect::<Vec<_>>();
        sizes(self) == sizes(other)
    }
}
