//! MaPLe: prompts in both towers, at the input and at the first blocks; the visual ones are projections of the textual
//! ones, so that both towers move together.

use super::coop::context_of;
use super::cross_entropy::cross_entropy;
use super::{Batch, Input, Loss, Recipe, TuneTask, Tuner, TunerSpec, context_init};
use crate::data::train_images::TrainViews;
use crate::model::{ClassTokens, Clip, Context, ImageConfig, Position, VisionInput};
use crate::prompt::{Affine, PromptKind, Tensor, check_length, class_tokens, logits, visual_prompts};
use crate::rng::Stream;
use crate::{Error, Result};
use flatclip_tensor::Matrix;

/// The registry entry.
pub static SPEC: TunerSpec = TunerSpec {
    name: "maple",
    aliases: &[],
    input: Input::Pixels,
    vit: true,
    table: MapleConfig::NAME,
    summary: "coupled prompts in the first blocks of both towers (ViT only)",
    docs: "\
What: prompts in both towers; the visual ones are projections of the textual ones, so that both towers move
together. Trained: p, c_1.., and the projections P_0, P_1... Golden cases: maple-*.
  text   [SOT] p [tail name \".\" EOT]; before block i (1 <= i < depth) the positions of p become c_i
  vision [CLS, patches, P_0 p]      ; before block i the last L tokens become P_i c_i
  loss = mean CE(tau z t', y)
Trained as published for base-to-new: 5 epochs, lr 0.0035, batch 4.
Cost: forward and backward through both towers per step; image features cannot be kept. ViT only.
Reference: Khattak et al., MaPLe: Multi-modal Prompt Learning, CVPR 2023.
",
    options: MapleConfig::OPTIONS,
    check: |options| MapleConfig::read(options).map(drop),
    build: |options, task| Ok(Box::new(Maple::build(&MapleConfig::read(options)?, task)?)),
    recipe: || Recipe { epochs: 5, batch: 4, lr: 0.0035, ..Recipe::default() },
    views: || TrainViews { bank: 0, ..TrainViews::default() },
};

crate::options! {
    /// Options of `maple`.
    pub struct MapleConfig for "maple" {
        /// Words: the first n_ctx start the context, the others stay as fixed words before the name; empty for noise.
        words: String = "a photo of a".into(), from "paper";
        /// Number of context tokens.
        n_ctx: usize = 2, range between(1, 64), from "paper";
        /// Number of layers with prompts of their own, the input included.
        depth: usize = 9, range at_least(1), from "paper, base-to-new; 3 across data sets";
    }
}

/// The learner of coupled prompts.
#[derive(Clone, Debug)]
pub struct Maple {
    class_tokens: ClassTokens,
    /// context; weight and bias of its projection; the deep prompts; weight and bias of each of their projections.
    parameters: Vec<Tensor>,
    deep: usize,
    words: String,
    tail: String,
}

impl Maple {
    /// Starts from given prompts; `projections[0]` belongs to the context, the others to the deep prompts.
    pub fn new(
        context: Context,
        deep: &[Matrix],
        projections: &[Affine],
        class_tokens: ClassTokens,
        words: &str,
        tail: &str,
    ) -> Self {
        assert_eq!(projections.len(), deep.len() + 1, "one projection per prompt");
        let mut parameters = vec![Tensor::new("context", context.shape(), context.data)];
        parameters.extend(projections[0].tensors("proj"));
        for (index, prompt) in deep.iter().enumerate() {
            let shape = vec![prompt.rows(), prompt.cols()];
            parameters.push(Tensor::new(format!("deep.{index}"), shape, prompt.data().to_vec()));
        }
        for (index, layer) in projections[1..].iter().enumerate() {
            parameters.extend(layer.tensors(&format!("projections.{index}")));
        }
        Self { class_tokens, parameters, deep: deep.len(), words: words.into(), tail: tail.into() }
    }

    /// Starts from words or noise.
    pub fn build(config: &MapleConfig, task: &TuneTask<'_>) -> Result<Self> {
        let text = task.clip.text()?;
        let layers = task.clip.config().text.as_ref().map_or(0, |t| t.layers);
        let (visual_width, visual_layers) = vit_of(task.clip)?;
        let depth_limit = layers.min(visual_layers);
        if config.depth > depth_limit {
            let reason =
                format!("{}, but the towers have {depth_limit} layers in common; give that or less", config.depth);
            return Err(Error::config("maple.depth", reason));
        }
        let (start, tail) = split_words(&config.words, config.n_ctx);
        let context = context_init::context(task, &start, config.n_ctx, false)?;
        let width = text.width();
        let mut stream = Stream::new(task.seed, &["maple"]);
        let mut layer = || Affine {
            weight: Matrix::from_vec(
                visual_width,
                width,
                context_init::linear_default(&mut stream, width, visual_width * width),
            ),
            bias: context_init::linear_default(&mut stream, width, visual_width),
        };
        // As published: the projections of the deep prompts start as copies of one layer.
        let (first, deeper) = (layer(), layer());
        let mut projections = vec![first];
        projections.extend(std::iter::repeat_n(deeper, config.depth - 1));
        let mut stream = Stream::new(task.seed, &["deep"]);
        let deep: Vec<Matrix> = (1..config.depth)
            .map(|_| Matrix::from_vec(config.n_ctx, width, context_init::noise(&mut stream, config.n_ctx * width)))
            .collect();
        let tokens = class_tokens(task.tokenizer, task.classes, config.n_ctx, Position::End, &tail);
        check_length(&tokens, task.classes, text.context_length())?;
        Ok(Self::new(context, &deep, &projections, tokens, &config.words, &tail))
    }

    /// Deep prompts and projections of some parameters.
    fn parts(&self, at: &[Tensor]) -> (Vec<Matrix>, Vec<Affine>) {
        let deep = (0..self.deep)
            .map(|i| {
                let tensor = &at[3 + i];
                Matrix::from_vec(tensor.shape[0], tensor.shape[1], tensor.values.clone())
            })
            .collect();
        let mut projections = vec![Affine::from_tensors(&at[1], &at[2])];
        projections.extend((0..self.deep).map(|i| {
            let place = 3 + self.deep + 2 * i;
            Affine::from_tensors(&at[place], &at[place + 1])
        }));
        (deep, projections)
    }
}

/// Width and layers of the vision transformer, or why MaPLe cannot work.
pub(crate) fn vit_of(clip: &Clip) -> Result<(usize, usize)> {
    match &clip.config().image {
        ImageConfig::Vit { width, layers, .. } => Ok((*width, *layers)),
        ImageConfig::ResNet { .. } => Err(Error::method(
            "maple",
            "it puts prompt tokens into a vision transformer, but this model's image tower is a ResNet; take a ViT model, \
             or tune with coop or sapt",
        )),
    }
}

/// The words that start the context, and those that stay.
fn split_words(words: &str, n_ctx: usize) -> (String, String) {
    let words: Vec<&str> = words.split([' ', '_']).filter(|w| !w.is_empty()).collect();
    if words.len() < n_ctx {
        // As published: a longer context than the words start from noise.
        return (String::new(), String::new());
    }
    (words[..n_ctx].join(" "), words[n_ctx..].join(" "))
}

impl Tuner for Maple {
    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut [Tensor] {
        &mut self.parameters
    }

    fn loss(&self, clip: &Clip, at: &[Tensor], batch: &Batch<'_>) -> Result<Loss> {
        let scale = clip.logit_scale();
        let context = context_of(&at[0]);
        let (deep, projections) = self.parts(at);
        let visual = visual_prompts(&context, &deep, &projections);
        let input = VisionInput { prompts: &visual, ..VisionInput::default() };
        let images = clip.vision().pass(batch.pixels, batch.labels.len(), input)?;
        let text = clip.text()?.deep_pass(&self.class_tokens, &context, &deep)?;
        let logits = logits(images.features(), text.features(), scale);
        let entropy = cross_entropy(&logits, batch.labels);

        let (d_context, d_deep) = text.gradient(&entropy.d_text(images.features(), scale))?;
        let d_visual = images.gradient(&entropy.d_images(text.features(), scale), &[])?.prompts;
        let gradient = self.join(&context, &deep, &projections, d_context, d_deep, &d_visual);
        Ok(Loss { value: entropy.loss, correct: entropy.correct, logits, gradient })
    }

    fn prompt(&self) -> PromptKind {
        let (deep, projections) = self.parts(&self.parameters);
        let context = context_of(&self.parameters[0]);
        PromptKind::Maple { context, words: self.words.clone(), tail: self.tail.clone(), deep, projections }
    }
}

impl Maple {
    /// A prompt's gradient is that of its text side and, through its projection, that of its visual side.
    fn join(
        &self,
        context: &Context,
        deep: &[Matrix],
        projections: &[Affine],
        d_context: Context,
        d_deep: Vec<Matrix>,
        d_visual: &[Matrix],
    ) -> Vec<Vec<f32>> {
        let context = Matrix::from_vec(context.tokens, context.width, context.data.clone());
        let mut prompts = vec![d_context.data];
        prompts.extend(d_deep.into_iter().map(Matrix::into_vec));
        let mut layers = Vec::new();
        for (index, prompt) in std::iter::once(&context).chain(deep).enumerate() {
            let (d_prompt, d_weight, d_bias) = projections[index].gradient(prompt, &d_visual[index]);
            prompts[index].iter_mut().zip(d_prompt.data()).for_each(|(sum, d)| *sum += d);
            layers.push([d_weight.into_vec(), d_bias]);
        }
        let mut prompts = prompts.into_iter();
        let mut layers = layers.into_iter();
        let first: Vec<Vec<f32>> = prompts.next().into_iter().chain(layers.next().into_iter().flatten()).collect();
        first.into_iter().chain(prompts).chain(layers.flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_beyond_the_context_stay_fixed() {
        assert_eq!(split_words("a photo of a", 2), ("a photo".into(), "of a".into()));
        assert_eq!(split_words("a_photo_of_a", 4), ("a photo of a".into(), String::new()));
        assert_eq!(split_words("a photo", 3), (String::new(), String::new()));
    }
}
