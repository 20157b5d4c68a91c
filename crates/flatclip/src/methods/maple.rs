//! MaPLe's parameters as one thing that can be moved: forward through both towers, gradient for all of them.

use super::task::TextSide;
use crate::model::{Clip, Context, DeepPass, VisionInput, VisionPass};
use crate::prompt::{Affine, Prompt, PromptKind, visual_prompts};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::{layer_norm, layer_norm_backward};

/// The context, the deep text prompts, and the projections of each to visual prompts; or a gradient with respect to them.
#[derive(Clone, Debug, PartialEq)]
pub struct MapleParameters {
    /// Text prompts at the input, `[n_ctx, width]`.
    pub context: Context,
    /// Text prompts that replace the context's rows before block 1, 2, ...
    pub deep: Vec<Matrix>,
    /// Context to visual prompts, then one for each deep prompt.
    pub projections: Vec<Affine>,
}

impl MapleParameters {
    /// Those of a MaPLe prompt, or what `method` lacks.
    pub fn of(prompt: Option<&Prompt>, method: &str) -> Result<Self> {
        match prompt.map(|p| &p.kind) {
            Some(PromptKind::Maple { context, deep, projections, .. }) if projections.len() == deep.len() + 1 => {
                Ok(Self { context: context.clone(), deep: deep.clone(), projections: projections.clone() })
            }
            _ => {
                let kind = prompt.map_or("given", Prompt::kind_name);
                Err(Error::method(
                    method,
                    format!("needs a maple prompt (flatclip tune --method maple), not a {kind} one"),
                ))
            }
        }
    }

    /// Names in the order of [`MapleParameters::tensors`], as MaPLe's checkpoints have them.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec!["ctx".to_owned(), "proj.weight".to_owned(), "proj.bias".to_owned()];
        for i in 0..self.deep.len() {
            names.push(format!("compound_prompts_text.{i}"));
            names.push(format!("compound_prompt_projections.{i}.weight"));
            names.push(format!("compound_prompt_projections.{i}.bias"));
        }
        names
    }

    /// All tensors.
    pub fn tensors(&self) -> Vec<&[f32]> {
        let inputs = std::iter::once(self.context.data.as_slice()).chain(self.deep.iter().map(Matrix::data));
        inputs.zip(&self.projections).flat_map(|(x, p)| [x, p.weight.data(), p.bias.as_slice()]).collect()
    }

    /// All tensors, to write.
    pub fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        let inputs =
            std::iter::once(self.context.data.as_mut_slice()).chain(self.deep.iter_mut().map(Matrix::data_mut));
        inputs.zip(&mut self.projections).flat_map(|(x, p)| [x, p.weight.data_mut(), p.bias.as_mut_slice()]).collect()
    }

    /// The text prompts of every depth, the context first.
    fn text_prompts(&self) -> Vec<Matrix> {
        let context = Matrix::from_vec(self.context.tokens, self.context.width, self.context.data.clone());
        std::iter::once(context).chain(self.deep.iter().cloned()).collect()
    }

    /// The visual prompts of every depth.
    pub fn visual_prompts(&self) -> Vec<Matrix> {
        visual_prompts(&self.context, &self.deep, &self.projections)
    }

    /// Text features alone.
    pub fn text_features(&self, side: TextSide<'_>) -> Result<Matrix> {
        Ok(side.tower.deep_pass(side.tokens, &self.context, &self.deep)?.features().clone())
    }

    /// Image features alone, no gradient.
    pub fn image_features(&self, clip: &Clip, pixels: &[f32], count: usize) -> Result<Matrix> {
        let prompts = self.visual_prompts();
        let input = VisionInput { prompts: &prompts, ..VisionInput::default() };
        Ok(clip.vision().pass(pixels, count, input)?.features().clone())
    }

    /// Both towers, ready for the way back; the image tower keeps its tokens.
    pub fn pass<'t>(&self, clip: &'t Clip, side: TextSide<'t>, images: &Images<'_>) -> Result<MaplePass<'t>> {
        let visual = self.visual_prompts();
        let input = VisionInput { prompts: &visual, record_tokens: true, ..VisionInput::default() };
        Ok(MaplePass {
            parameters: self.clone(),
            text: side.tower.deep_pass(side.tokens, &self.context, &self.deep)?,
            vision: clip.vision().pass(images.pixels, images.count, input)?,
            visual,
            entry: images.entry.clone(),
            entry_norm: images.entry_norm.clone(),
            count: images.count,
        })
    }
}

/// Images, and what of them no prompt changes: their own tokens at the entry of the image tower.
#[derive(Clone, Debug)]
pub struct Images<'p> {
    pixels: &'p [f32],
    count: usize,
    /// `ln_pre` of class token and patches, `[count * tokens, width]`: LayerNorm acts token by token, so prompts do not reach them.
    entry: Matrix,
    /// Weight and bias of `ln_pre`.
    entry_norm: [Vec<f32>; 2],
}

impl<'p> Images<'p> {
    /// Looks at the entry of the tower.
    pub fn new(clip: &Clip, pixels: &'p [f32], count: usize) -> Result<Self> {
        let norms = clip.vision().norm_affine()?;
        let trace = clip.vision().trace(pixels, count)?;
        let entry = trace.into_iter().find(|(name, _)| name == "ln_pre").map(|(_, rows)| rows);
        let entry = entry.ok_or_else(|| Error::method("maple", "the image tower has no ln_pre; a ViT is needed"))?;
        let tensors = norms.tensors();
        Ok(Self { pixels, count, entry, entry_norm: [tensors[0].to_vec(), tensors[1].to_vec()] })
    }
}

/// A forward pass through both towers.
#[derive(Debug)]
pub struct MaplePass<'t> {
    parameters: MapleParameters,
    text: DeepPass<'t>,
    vision: VisionPass<'t>,
    visual: Vec<Matrix>,
    entry: Matrix,
    entry_norm: [Vec<f32>; 2],
    count: usize,
}

impl MaplePass<'_> {
    /// Unit-norm `[K, D]`.
    pub fn text_features(&self) -> &Matrix {
        self.text.features()
    }

    /// Unit-norm `[count, D]`.
    pub fn image_features(&self) -> &Matrix {
        self.vision.features()
    }

    /// Tokens of one image, prompts included.
    pub fn tokens_per_image(&self) -> usize {
        self.vision.tokens_per_image()
    }

    /// What block `block` reads, after its prompts have replaced the last tokens: `[count * tokens, width]`.
    pub fn block_input(&self, block: usize) -> Result<Matrix> {
        let (tokens, prompts) = (self.tokens_per_image(), self.visual[0].rows());
        if block > 0 {
            let mut rows = self.vision.tokens(block - 1)?;
            if let Some(prompt) = self.visual.get(block) {
                for image in 0..self.count {
                    let first = (image + 1) * tokens - prompts;
                    (0..prompts).for_each(|i| rows.row_mut(first + i).copy_from_slice(prompt.row(i)));
                }
            }
            return Ok(rows);
        }
        let first = &self.visual[0];
        let mut normal = Matrix::zeros(first.rows(), first.cols());
        layer_norm(first.data(), &self.entry_norm[0], &self.entry_norm[1], normal.data_mut());
        let own = self.entry.data().len() / self.count;
        let mut data = Vec::with_capacity(self.count * tokens * first.cols());
        for image in self.entry.data().chunks_exact(own) {
            data.extend_from_slice(image);
            data.extend_from_slice(normal.data());
        }
        Ok(Matrix::from_vec(self.count * tokens, first.cols(), data))
    }

    /// Splits a gradient on [`MaplePass::block_input`]: the part of the block's own prompts, summed over images, is taken out.
    fn take_prompt_part(&self, block: usize, d_input: &mut [f32]) -> Option<Matrix> {
        let prompt = self.visual.get(block)?;
        let mut sum = Matrix::zeros(prompt.rows(), prompt.cols());
        let size = d_input.len() / self.count;
        for image in d_input.chunks_exact_mut(size) {
            let part = &mut image[size - prompt.data().len()..];
            sum.data_mut().iter_mut().zip(part.iter()).for_each(|(s, d)| *s += d);
            part.fill(0.0);
        }
        if block > 0 {
            return Some(sum);
        }
        let mut through = Matrix::zeros(prompt.rows(), prompt.cols());
        layer_norm_backward(prompt.data(), &self.entry_norm[0], sum.data(), through.data_mut());
        Some(through)
    }

    /// The gradient of all parameters from those of the text features, the image features and some blocks' inputs.
    pub fn gradient(
        &self,
        d_text: &Matrix,
        d_image: &Matrix,
        d_inputs: Vec<(usize, Vec<f32>)>,
    ) -> Result<MapleParameters> {
        let mut direct: Vec<Option<Matrix>> = vec![None; self.visual.len()];
        let mut d_tokens = Vec::new();
        for (block, mut d) in d_inputs {
            if let Some(part) = self.take_prompt_part(block, &mut d) {
                direct[block] = Some(part);
            }
            // Before block 0 only prompts can be changed.
            if block > 0 {
                d_tokens.push((block - 1, d));
            }
        }
        let (context, deep) = self.text.gradient(d_text)?;
        let mut total = MapleParameters { context, deep, projections: Vec::new() };
        let mut visual = self.vision.gradient(d_image, &d_tokens)?.prompts;
        for (visual, direct) in visual.iter_mut().zip(direct) {
            let Some(direct) = direct else { continue };
            visual.data_mut().iter_mut().zip(direct.data()).for_each(|(v, d)| *v += d);
        }
        let inputs = self.parameters.text_prompts();
        for (depth, ((input, layer), d)) in inputs.iter().zip(&self.parameters.projections).zip(&visual).enumerate() {
            let (d_input, weight, bias) = layer.gradient(input, d);
            let to = if depth == 0 { &mut total.context.data } else { total.deep[depth - 1].data_mut() };
            to.iter_mut().zip(d_input.data()).for_each(|(t, d)| *t += d);
            total.projections.push(Affine { weight, bias });
        }
        Ok(total)
    }
}
