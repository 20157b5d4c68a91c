//! MaPLe's parameters as one thing that can be moved: forward through both towers, gradient for all of them.

use super::task::TextSide;
use crate::model::{Clip, Context, VisionInput, VisionPass};
use crate::prompt::{Affine, Prompt, PromptKind, visual_prompts};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::pages::give_back;

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
                Err(Error::method(method, format!("needs a maple prompt, not a {kind} one")))
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
        side.tower.encode_deep(side.tokens, &self.context, &self.deep)
    }

    /// Image features alone, no gradient.
    pub fn image_features(&self, clip: &Clip, pixels: &[f32], count: usize) -> Result<Matrix> {
        let prompts = self.visual_prompts();
        let input = VisionInput { prompts: &prompts, ..VisionInput::default() };
        Ok(clip.vision().pass(pixels, count, input)?.features().clone())
    }

    /// The image tower on some pictures with its tokens kept, and the text features (given where they are known), ready for
    /// the way back.
    pub fn pass<'t>(
        &self,
        clip: &'t Clip,
        side: TextSide<'t>,
        text_features: Option<&Matrix>,
        pixels: &[f32],
        count: usize,
    ) -> Result<MaplePass<'t>> {
        let prompts = self.visual_prompts();
        let input = VisionInput { prompts: &prompts, record_tokens: true, ..VisionInput::default() };
        let text_features = text_features.map_or_else(|| self.text_features(side), |known| Ok(known.clone()))?;
        Ok(MaplePass {
            parameters: self.clone(),
            side,
            text_features,
            vision: clip.vision().pass(pixels, count, input)?,
        })
    }
}

/// A forward pass through both towers.
#[derive(Debug)]
pub struct MaplePass<'t> {
    parameters: MapleParameters,
    side: TextSide<'t>,
    text_features: Matrix,
    vision: VisionPass<'t>,
}

impl MaplePass<'_> {
    /// Unit-norm `[K, D]`.
    pub fn text_features(&self) -> &Matrix {
        &self.text_features
    }

    /// Unit-norm `[count, D]`.
    pub fn image_features(&self) -> &Matrix {
        self.vision.features()
    }

    /// The tokens that a block reads, its prompts written in: `[count * tokens, width]`.
    pub fn tokens(&self, block: usize) -> Result<Matrix> {
        self.vision.tokens(block)
    }

    /// The gradient of all parameters from those of the text features, the image features and the tokens that some blocks read.
    /// One tower after the other, so that what they keep for it is never in memory at the same time.
    pub fn gradient(
        self,
        d_text: &Matrix,
        d_image: &Matrix,
        d_tokens: &[(usize, Vec<f32>)],
    ) -> Result<MapleParameters> {
        let Self { parameters, side, vision, .. } = self;
        let visual = vision.gradient(d_image, d_tokens)?.prompts;
        drop(vision);
        give_back();
        let text = side.tower.deep_pass(side.tokens, &parameters.context, &parameters.deep)?;
        let (context, deep) = text.gradient(d_text)?;
        drop(text);
        give_back();
        let mut total = MapleParameters { context, deep, projections: Vec::new() };
        let inputs = parameters.text_prompts();
        for (depth, ((input, layer), d)) in inputs.iter().zip(&parameters.projections).zip(&visual).enumerate() {
            let (d_input, weight, bias) = layer.gradient(input, d);
            let to = if depth == 0 { &mut total.context.data } else { total.deep[depth - 1].data_mut() };
            to.iter_mut().zip(d_input.data()).for_each(|(t, d)| *t += d);
            total.projections.push(Affine { weight, bias });
        }
        Ok(total)
    }
}
