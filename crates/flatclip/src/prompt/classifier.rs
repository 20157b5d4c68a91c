//! A prompt with a model and a class list: text features, and logits for every kind of prompt.

use super::{Affine, Prompt, PromptContent, normalise_rows};
use crate::model::{ClassTokens, Clip, Context, ImageConfig};
use crate::progress::Progress;
use crate::prompt::check_length;
use crate::text::Tokenizer;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::gemm::product_nt;

impl Prompt {
    /// Unit-norm `[K, D]` text features of a class list. Those of a CoCoOp prompt depend on the image: this gives them
    /// without the image's shift; [`PromptClassifier`] has the whole method.
    pub fn text_features(&self, clip: &Clip, tokenizer: &Tokenizer, classes: &[String]) -> Result<Matrix> {
        self.text_features_with(clip, tokenizer, classes, &())
    }

    /// The same with progress in texts, and cancellable between chunks of them.
    pub fn text_features_with(
        &self,
        clip: &Clip,
        tokenizer: &Tokenizer,
        classes: &[String],
        progress: &dyn Progress,
    ) -> Result<Matrix> {
        self.check_model(clip)?;
        self.check_classes(classes)?;
        match &self.content {
            PromptContent::Features(features) => Ok(features.clone()),
            PromptContent::Templates(templates)
            | PromptContent::TipAdapter { templates, .. }
            | PromptContent::Linear { templates, .. } => {
                template_features(clip, tokenizer, templates, classes, progress)
            }
            PromptContent::Learned { context, .. } | PromptContent::CoCoOp { context, .. } => {
                let tokens = self.fitting_tokens(clip, tokenizer, classes)?;
                Ok(clip.text()?.encode(&tokens, std::slice::from_ref(context))?.swap_remove(0))
            }
            PromptContent::Maple { context, deep, .. } => {
                let tokens = self.fitting_tokens(clip, tokenizer, classes)?;
                clip.text()?.encode_deep(&tokens, context, deep)
            }
        }
    }

    fn fitting_tokens(&self, clip: &Clip, tokenizer: &Tokenizer, classes: &[String]) -> Result<ClassTokens> {
        let tokens = self.class_tokens(tokenizer, classes)?;
        check_length(&tokens, classes, clip.text()?.context_length())?;
        Ok(tokens)
    }

    /// Refuses a model that this prompt cannot work with, and says why.
    pub fn check_model(&self, clip: &Clip) -> Result<()> {
        if let Some(context) = self.context() {
            let width = clip.text()?.width();
            if context.width != width {
                return Err(self.fault(format!(
                    "its context has width {}, but the text tower of this model has width {width}; it was made with another \
                     architecture, use that one",
                    context.width
                )));
            }
        }
        let depth = clip.embed_dim();
        let reason = match &self.content {
            PromptContent::Maple { projections, deep, .. } => {
                let found = projections.first().map_or(0, |p| p.weight.rows());
                match clip.config().image {
                    ImageConfig::Vit { width, layers, .. } if found == width && deep.len() < layers => return Ok(()),
                    ImageConfig::Vit { width, layers, .. } => format!(
                        "its visual prompts have width {found} and depth {}, but the image tower has width {width} and \
                         {layers} layers",
                        deep.len() + 1
                    ),
                    _ => "a MaPLe prompt puts tokens into a vision transformer, which this model's image tower is not; use \
                          the ViT it was made with"
                        .to_owned(),
                }
            }
            PromptContent::CoCoOp { meta: [Affine { weight, .. }, _], .. } if weight.cols() != depth => {
                format!(
                    "its meta-net takes image features of width {}, but this model has width {depth}",
                    weight.cols()
                )
            }
            PromptContent::Features(rows)
            | PromptContent::TipAdapter { keys: rows, .. }
            | PromptContent::Linear { layer: Affine { weight: rows, .. }, .. }
                if rows.cols() != depth =>
            {
                format!("its features have width {}, but those of this model have width {depth}", rows.cols())
            }
            _ => return Ok(()),
        };
        Err(self.fault(reason))
    }

    /// MaPLe's visual prompts: `[0]` for the input of the image tower, `[i]` for block i. Empty for other kinds.
    pub fn visual_prompts(&self) -> Vec<Matrix> {
        let PromptContent::Maple { context, deep, projections, .. } = &self.content else { return Vec::new() };
        visual_prompts(context, deep, projections)
    }
}

/// The projections of the context and of each deep prompt.
pub fn visual_prompts(context: &Context, deep: &[Matrix], projections: &[Affine]) -> Vec<Matrix> {
    let context = Matrix::from_vec(context.tokens, context.width, context.data.clone());
    std::iter::once(&context).chain(deep).zip(projections).map(|(prompt, layer)| layer.apply(prompt)).collect()
}

/// Mean over the templates of unit-norm features, normalised again.
fn template_features(
    clip: &Clip,
    tokenizer: &Tokenizer,
    templates: &[String],
    classes: &[String],
    progress: &dyn Progress,
) -> Result<Matrix> {
    let (text, width) = (clip.text()?, clip.embed_dim());
    let mut sum = Matrix::zeros(classes.len(), width);
    let mut done = 0;
    progress.start("text features", Some((templates.len() * classes.len()) as u64));
    for template in templates {
        for (classes, sum) in classes.chunks(TEXT_CHUNK).zip(sum.data_mut().chunks_mut(TEXT_CHUNK * width)) {
            let texts: Vec<String> =
                classes.iter().map(|name| template.replace("{}", &name.replace('_', " "))).collect();
            let mut features = text.encode_texts(tokenizer, &texts, false)?;
            normalise_rows(&mut features)?;
            sum.iter_mut().zip(features.data()).for_each(|(s, f)| *s += f);
            done += classes.len() as u64;
            progress.advance(done, "");
            if progress.cancelled() {
                return Err(Error::Interrupted(format!("after {done} texts")));
            }
        }
    }
    progress.finish();
    normalise_rows(&mut sum)?;
    Ok(sum)
}

/// Texts between two looks at whether to stop; enough to keep every core busy.
const TEXT_CHUNK: usize = 256;

/// The meta-net's hidden layer (after ReLU) and its shifts, `[B, width]`, for unit-norm image features.
pub fn shifts(meta: &[Affine; 2], features: &Matrix) -> (Matrix, Matrix) {
    let mut hidden = meta[0].apply(features);
    hidden.data_mut().iter_mut().for_each(|x| *x = x.max(0.0));
    let shift = meta[1].apply(&hidden);
    (hidden, shift)
}

/// The context of every image.
pub fn shifted(context: &Context, shift: &Matrix) -> Vec<Context> {
    let add = |row: &[f32]| {
        let mut own = context.clone();
        own.data.chunks_mut(context.width).for_each(|token| token.iter_mut().zip(row).for_each(|(p, s)| *p += s));
        own
    };
    shift.iter_rows().map(add).collect()
}

/// `logits += alpha Σ_i exp(-beta (1 - affinity_i)) onehot(label_i)`.
pub fn add_cache(logits: &mut Matrix, affinity: &Matrix, labels: &[usize], alpha: f64, beta: f64) {
    let (alpha, beta) = (alpha as f32, beta as f32);
    let mut cache = vec![0.0f32; logits.cols()];
    for row in 0..logits.rows() {
        cache.fill(0.0);
        for (a, &label) in affinity.row(row).iter().zip(labels) {
            cache[label] += (beta * a - beta).exp();
        }
        logits.row_mut(row).iter_mut().zip(&cache).for_each(|(x, c)| *x += alpha * c);
    }
}

/// `scale · images · textᵀ`, `[B, K]`.
pub fn logits(images: &Matrix, text: &Matrix, scale: f32) -> Matrix {
    let mut out = Matrix::zeros(images.rows(), text.rows());
    product_nt(images.data(), images.rows(), text.data(), text.rows(), images.cols(), out.data_mut());
    scaled(out, scale)
}

/// `factor` times every entry.
pub fn scaled(mut rows: Matrix, factor: f32) -> Matrix {
    rows.data_mut().iter_mut().for_each(|x| *x *= factor);
    rows
}

/// A prompt made ready for a model and a class list: logits of image features, whatever its kind.
pub struct PromptClassifier<'a> {
    clip: &'a Clip,
    prompt: &'a Prompt,
    tokens: Option<ClassTokens>,
    text_features: Matrix,
}

impl<'a> PromptClassifier<'a> {
    /// Computes what does not depend on images.
    pub fn new(prompt: &'a Prompt, clip: &'a Clip, tokenizer: &Tokenizer, classes: &[String]) -> Result<Self> {
        let text_features = prompt.text_features(clip, tokenizer, classes)?;
        let tokens = match &prompt.content {
            PromptContent::CoCoOp { .. } => Some(prompt.class_tokens(tokenizer, classes)?),
            _ => None,
        };
        if let PromptContent::TipAdapter { labels, .. } = &prompt.content
            && let Some(label) = labels.iter().find(|l| **l >= classes.len())
        {
            return Err(prompt.fault(format!("a key has label {label}, but there are {} classes", classes.len())));
        }
        Ok(Self { clip, prompt, tokens, text_features })
    }

    /// Unit-norm `[K, D]`.
    pub fn text_features(&self) -> &Matrix {
        &self.text_features
    }

    /// The prompts that the image tower must be given when it computes the features (MaPLe), else none.
    pub fn visual_prompts(&self) -> Vec<Matrix> {
        self.prompt.visual_prompts()
    }

    /// `[B, K]` logits of unit-norm image features.
    pub fn logits(&self, features: &Matrix) -> Result<Matrix> {
        prompt_logits(self.prompt, self.clip, self.tokens.as_ref(), &self.text_features, features)
    }
}

/// `[B, K]` logits of unit-norm image features under any kind of prompt; `tokens` are needed for CoCoOp, whose text features
/// depend on the image.
pub fn prompt_logits(
    prompt: &Prompt,
    clip: &Clip,
    tokens: Option<&ClassTokens>,
    text_features: &Matrix,
    features: &Matrix,
) -> Result<Matrix> {
    let scale = clip.logit_scale();
    if features.cols() != text_features.cols() {
        let (found, expected) = (features.cols(), text_features.cols());
        return Err(Error::config("features", format!("expected width {expected}, found {found}")));
    }
    match (&prompt.content, tokens) {
        (PromptContent::CoCoOp { context, meta, .. }, Some(tokens)) => {
            let mut out = Matrix::zeros(features.rows(), text_features.rows());
            // A few images at a time: each needs its own text features for all classes.
            for start in (0..features.rows()).step_by(8) {
                let rows: Vec<usize> = (start..features.rows().min(start + 8)).collect();
                let (_, shift) = shifts(meta, &features.select_rows(&rows));
                let text = clip.text()?.encode(tokens, &shifted(context, &shift))?;
                for (row, text) in rows.iter().zip(&text) {
                    let own = logits(&features.select_rows(&[*row]), text, scale);
                    out.row_mut(*row).copy_from_slice(own.data());
                }
            }
            Ok(out)
        }
        (content, _) => {
            let mut out = logits(features, text_features, scale);
            match content {
                PromptContent::TipAdapter { keys, labels, alpha, beta, .. } => {
                    add_cache(&mut out, &logits(features, keys, 1.0), labels, f64::from(*alpha), f64::from(*beta));
                }
                PromptContent::Linear { layer, alpha, .. } => layer.add_to(&mut out, features, *alpha),
                _ => {}
            }
            Ok(out)
        }
    }
}
