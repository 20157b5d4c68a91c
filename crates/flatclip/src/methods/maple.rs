//! MaPLe's parameters as one thing that can be moved: forward through both towers, gradient for all of them.

use super::task::TextSide;
use crate::model::{Clip, Context, DeepPass, VisionInput, VisionPass};
use crate::prompt::{Affine, Arrays, Prompt, PromptContent, Tensor, unusable, visual_prompts};
use crate::{Error, Hint, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::pages::give_back;

/// The context, the deep text prompts, and the projections of each to visual prompts; or a gradient with
/// respect to them.
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
        match prompt.map(|p| &p.content) {
            Some(PromptContent::Maple { context, deep, projections, .. }) if projections.len() == deep.len() + 1 => {
                Ok(Self { context: context.clone(), deep: deep.clone(), projections: projections.clone() })
            }
            _ => {
                let kind = prompt.map_or("given", |p| p.kind().name());
                let error = Error::method(method, format!("needs a maple prompt, not a {kind} one"));
                Err(error.with_hint(Hint::Tune("maple")))
            }
        }
    }

    /// Those of trained tensors, taken by name.
    pub fn from_tensors(tensors: &[Tensor]) -> Result<Self> {
        let arrays = Arrays(tensors);
        let (context, deep, projections) = arrays.maple("context", "deep", "projections").map_err(unusable)?;
        Ok(Self { context, deep, projections })
    }

    /// As trained tensors: the context and its projection, the deep prompts, their projections.
    pub fn to_tensors(&self) -> Vec<Tensor> {
        let mut tensors = vec![Tensor::new("context", self.context.shape(), self.context.data.clone())];
        let mut projections = self.projections.iter();
        tensors.extend(projections.next().into_iter().flat_map(|layer| layer.tensors("proj")));
        let deep = self.deep.iter().enumerate();
        tensors.extend(deep.map(|(index, prompt)| Tensor::matrix(format!("deep.{index}"), prompt)));
        let later = projections.enumerate();
        tensors.extend(later.flat_map(|(index, layer)| layer.tensors(&format!("projections.{index}"))));
        tensors
    }

    pub fn tensors(&self) -> Vec<&[f32]> {
        let inputs = std::iter::once(self.context.data.as_slice()).chain(self.deep.iter().map(Matrix::data));
        inputs.zip(&self.projections).flat_map(|(x, p)| [x, p.weight.data(), p.bias.as_slice()]).collect()
    }

    pub fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        let inputs =
            std::iter::once(self.context.data.as_mut_slice()).chain(self.deep.iter_mut().map(Matrix::data_mut));
        inputs.zip(&mut self.projections).flat_map(|(x, p)| [x, p.weight.data_mut(), p.bias.as_mut_slice()]).collect()
    }

    /// The text prompts of every depth as one context, the input's first.
    pub(crate) fn text_tensor(&self) -> Context {
        let rows = self.text_prompts().iter().map(Matrix::data).collect::<Vec<_>>().concat();
        Context::shared(rows.len() / self.context.width, self.context.width, rows)
    }

    /// The same parameters with other text prompts, as [`MapleParameters::text_tensor`] orders them.
    pub(crate) fn with_text_tensor(&self, all: &Context) -> Self {
        let mut moved = self.clone();
        let (first, rest) = all.data.split_at(self.context.data.len());
        moved.context.data = first.to_vec();
        for (prompt, values) in moved.deep.iter_mut().zip(rest.chunks(self.context.data.len().max(1))) {
            prompt.data_mut().copy_from_slice(values);
        }
        moved
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

    pub fn text_features(&self, side: TextSide<'_>) -> Result<Matrix> {
        side.tower.encode_deep(side.tokens, &self.context, &self.deep)
    }

    /// Image features alone, no gradient.
    pub fn image_features(&self, clip: &Clip, pixels: &[f32], count: usize) -> Result<Matrix> {
        let prompts = self.visual_prompts();
        let input = VisionInput { prompts: &prompts, ..VisionInput::default() };
        Ok(clip.vision().pass(pixels, count, input)?.features().clone())
    }

    /// Both towers on some images, with all that the backward pass needs.
    pub fn pass<'t>(&self, clip: &'t Clip, side: TextSide<'t>, pixels: &[f32], count: usize) -> Result<MaplePass<'t>> {
        let pass = side.tower.deep_pass(side.tokens, &self.context, &self.deep)?;
        self.pass_beside((pass.features().clone(), Some(pass)), clip, side, pixels, count, 0)
    }

    /// The same with the image tower's tokens kept, and of the text tower the features alone (given where
    /// they are known): its pass is made again for the gradient, so that both towers are never in memory
    /// together.
    pub fn pass_with_tokens<'t>(
        &self,
        clip: &'t Clip,
        side: TextSide<'t>,
        text_features: Option<&Matrix>,
        pixels: &[f32],
        count: usize,
    ) -> Result<MaplePass<'t>> {
        let features = text_features.map_or_else(|| self.text_features(side), |known| Ok(known.clone()))?;
        self.pass_beside((features, None), clip, side, pixels, count, usize::MAX)
    }

    fn pass_beside<'t>(
        &self,
        (text_features, text): (Matrix, Option<Box<dyn DeepPass>>),
        clip: &'t Clip,
        side: TextSide<'t>,
        pixels: &[f32],
        count: usize,
        recorded: usize,
    ) -> Result<MaplePass<'t>> {
        let prompts = self.visual_prompts();
        let input = VisionInput { prompts: &prompts, recorded, ..VisionInput::default() };
        let vision = clip.vision().pass(pixels, count, input)?;
        Ok(MaplePass { parameters: self.clone(), side, text_features, text, vision })
    }
}

#[derive(Debug)]
pub struct MaplePass<'t> {
    parameters: MapleParameters,
    side: TextSide<'t>,
    text_features: Matrix,
    /// The text tower's pass, unless it is made again for the gradient.
    text: Option<Box<dyn DeepPass>>,
    vision: Box<dyn VisionPass + 't>,
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

    /// The gradient of all parameters from those of the text features, the image features and the tokens that
    /// some blocks read. One tower after the other, so that what they keep for it is never in memory at the
    /// same time.
    pub fn gradient(
        self,
        d_text: &Matrix,
        d_image: &Matrix,
        d_tokens: &[(usize, Vec<f32>)],
    ) -> Result<MapleParameters> {
        let Self { parameters, side, text, vision, .. } = self;
        let visual = vision.gradient(d_image, d_tokens)?.prompts;
        drop(vision);
        give_back();
        let text = match text {
            Some(pass) => pass,
            None => side.tower.deep_pass(side.tokens, &parameters.context, &parameters.deep)?,
        };
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
