//! MaPLe: prompts in both towers, at the input and at the first blocks; the visual ones are projections of
//! the textual ones, so that both towers move together.

use super::Verified;
use super::cross_entropy::cross_entropy;
use super::sapt::Sharpness;
use super::{Batch, Input, Loss, Recipe, Step, TuneTask, Tuner, TunerSpec, context_init};
use crate::data::train_images::TrainViews;
use flatclip::methods::TextSide;
use flatclip::methods::maple::MapleParameters;
use flatclip::methods::sam::Ascent;
use flatclip::model::{ClassTokens, Clip, Context, ImageConfig, Position};
use flatclip::prompt::{Affine, PromptContent, PromptKind, Tensor, check_length, class_tokens, logits};
use flatclip::rng::Stream;
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;

/// The registry entry.
pub static SPEC: TunerSpec = TunerSpec {
    name: "maple",
    aliases: &[],
    input: Input::Pixels,
    prompt: PromptKind::Maple,
    vit: true,
    table: MapleConfig::NAME,
    summary: "coupled prompts in the first blocks of both towers (ViT only)",
    docs: "\
What: prompts in both towers; the visual ones are projections of the textual ones, so that both towers move
together. Trained: p, c_1.., and the projections P_0, P_1... Golden cases: maple-*.
  text   [SOT] p [tail name \".\" EOT]; before block i (1 <= i < depth) the positions of p become c_i
  vision [CLS, patches, P_0 p]      ; before block i the last L tokens become P_i c_i
  loss = mean CE(tau z t', y)
Trained as published for base-to-new: 5 epochs, lr 0.0035, batch 4. With a radius the step is SAPT's: the
sharpness of the loss around all trained tensors, one norm over all of them, counts too.
Cost: forward and backward through both towers per step, twice with a radius; image features cannot be kept.
ViT only.
Reference: Khattak et al., MaPLe: Multi-modal Prompt Learning, CVPR 2023.
",
    verified: Verified::AuthorsCode,
    options: MapleConfig::OPTIONS,
    check: |options| MapleConfig::read(options).map(drop),
    build: |options, task| Ok(Box::new(Maple::build(&MapleConfig::read(options)?, task)?)),
    recipe: || Recipe { epochs: 5, batch: 4, lr: 0.0035, ..Recipe::default() },
    views: || TrainViews { bank: 0, ..TrainViews::default() },
};

flatclip::options! {
    /// Options of `maple`.
    pub struct MapleConfig for "maple" {
        /// Words: the first n_ctx start the context, the others stay as fixed words before the name; empty
        /// for noise.
        words: String = "a photo of a".into(), from "paper";
        /// Number of context tokens.
        n_ctx: usize = 2, range between(1, 64), from "paper";
        /// Number of layers with prompts of their own, the input included.
        depth: usize = 9, range at_least(1), from "paper, base-to-new; 3 across data sets";
        /// rho of SAPT on all of MaPLe's tensors, one norm over all; 0 is MaPLe itself.
        radius: f64 = 0.0, alias "rho", range at_least(0.0), from "paper: no perturbation";
        /// Weight of the sharpness, lambda.
        weight: f64 = 1.0, alias "lambda", range at_least(0.0), from "SAPT's paper";
    }
}

/// The learner of coupled prompts.
#[derive(Clone, Debug)]
pub struct Maple {
    class_tokens: ClassTokens,
    /// Those of [`MapleParameters::to_tensors`].
    parameters: Vec<Tensor>,
    words: String,
    tail: String,
    sharpness: Sharpness,
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
        let start = MapleParameters { context, deep: deep.to_vec(), projections: projections.to_vec() };
        let sharpness = Sharpness { ascent: Ascent::sam(0.0), weight: 0.0, start_epoch: 0 };
        Self { class_tokens, parameters: start.to_tensors(), words: words.into(), tail: tail.into(), sharpness }
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
        let mut layer = || context_init::layer(&mut stream, visual_width, width);
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
        let weight = if config.radius > 0.0 { config.weight as f32 } else { 0.0 };
        let sharpness = Sharpness { ascent: Ascent::sam(config.radius), weight, start_epoch: 0 };
        Ok(Self { sharpness, ..Self::new(context, &deep, &projections, tokens, &config.words, &tail) })
    }
}

/// Width and layers of the vision transformer, or why MaPLe cannot work.
pub(crate) fn vit_of(clip: &Clip) -> Result<(usize, usize)> {
    let passes = clip.passes();
    let reason = match &clip.config().image {
        ImageConfig::Vit { width, layers, .. } if passes.vision && passes.deep => return Ok((*width, *layers)),
        ImageConfig::Vit { .. } => {
            "it puts prompt tokens into the blocks of both towers, which the towers of this model do not compute; take a CLIP \
             ViT model, or tune with coop or sapt"
        }
        ImageConfig::ResNet { .. } | ImageConfig::Other => {
            "it puts prompt tokens into a vision transformer, which this model's image tower is not; take a ViT model, \
             or tune with coop or sapt"
        }
    };
    Err(Error::method("maple", reason))
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
        let side = TextSide { tower: clip.text()?, tokens: &self.class_tokens };
        let pass = MapleParameters::from_tensors(at)?.pass(clip, side, batch.pixels, batch.labels.len())?;
        let logits = logits(pass.image_features(), pass.text_features(), scale);
        let entropy = cross_entropy(&logits, batch.labels);
        let d_text = entropy.d_text(pass.image_features(), scale);
        let d_image = entropy.d_images(pass.text_features(), scale);
        let gradient = pass.gradient(&d_text, &d_image, &[])?.to_tensors();
        let gradient = gradient.into_iter().map(|tensor| tensor.values).collect();
        Ok(Loss { value: entropy.loss, correct: entropy.correct, logits, gradient })
    }

    fn step(&self, clip: &Clip, batch: &Batch<'_>, epoch: usize) -> Result<Step> {
        self.sharpness.step(self, clip, batch, epoch)
    }

    fn prompt(&self) -> Result<PromptContent> {
        let MapleParameters { context, deep, projections } = MapleParameters::from_tensors(&self.parameters)?;
        Ok(PromptContent::Maple { context, words: self.words.clone(), tail: self.tail.clone(), deep, projections })
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
