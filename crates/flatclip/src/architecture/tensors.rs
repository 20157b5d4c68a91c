//! The architecture, inferred from the tensors' names and shapes, and the tensors that an architecture needs.

use super::config::{Activation, ActivationSource, ClipConfig, HEAD_WIDTH, ImageConfig, TextConfig};
use super::form::{ImagePool, Projection, TextForm, VitForm};
use super::stated::Stated;
use crate::error::unusable_weights as bad;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Canonical names with shapes.
pub(crate) type Shapes = BTreeMap<String, Vec<usize>>;

/// Shapes with the file they came from, for errors.
struct Reader<'a> {
    path: &'a Path,
    shapes: &'a Shapes,
}

impl Reader<'_> {
    /// The sizes of a tensor that must have `N` dimensions, none of them empty.
    fn dims<const N: usize>(&self, name: &str, expected: &str) -> Result<[usize; N]> {
        let shape = self.shapes.get(name).ok_or_else(|| missing(self.path, name))?;
        match <[usize; N]>::try_from(shape.as_slice()) {
            Ok(dims) if dims.iter().all(|&d| d > 0) => Ok(dims),
            _ => Err(wrong_shape(self.path, name, expected, shape)),
        }
    }

    /// Distinct numbers after `prefix`, which must be 0..n.
    fn layers(&self, prefix: &str) -> Result<usize> {
        let numbers: BTreeSet<usize> = self
            .shapes
            .range(prefix.to_owned()..)
            .map_while(|(name, _)| name.strip_prefix(prefix))
            .filter_map(|rest| rest.split('.').next()?.parse().ok())
            .collect();
        match numbers.iter().enumerate().find(|(i, n)| i != *n) {
            None => Ok(numbers.len()),
            Some((i, _)) => Err(missing(self.path, &format!("{prefix}{i}.*"))),
        }
    }

    fn heads(&self, tower: &str, width: usize, stated: Option<usize>) -> Result<usize> {
        let heads = match stated {
            Some(heads) => heads,
            None if width.is_multiple_of(HEAD_WIDTH) => width / HEAD_WIDTH,
            None => 0,
        };
        if heads == 0 || !width.is_multiple_of(heads) {
            let reason = format!(
                "{tower} tower of width {width}: cannot be cut into heads (64 channels each unless a config.json says otherwise; stated: {stated:?})"
            );
            return Err(bad(self.path, reason));
        }
        Ok(heads)
    }

    /// Side of a square grid from the rows of a positional embedding, `first` tokens before it.
    fn grid(&self, name: &str, rows: usize, first: usize) -> Result<usize> {
        let grid = rows.saturating_sub(first).isqrt();
        if grid == 0 || grid * grid + first != rows {
            let expected = if first == 0 { "[a square number, width]" } else { "[1 + a square number, width]" };
            return Err(wrong_shape(self.path, name, expected, &self.shapes[name]));
        }
        Ok(grid)
    }

    fn vit(&self, stated: &Stated) -> Result<(ImageConfig, usize, usize)> {
        let mut form = stated.image_form.unwrap_or(VitForm::CLIP);
        let [width, _, patch, _] = self.dims("visual.conv1.weight", "[width, 3, patch, patch]")?;
        let [rows, _] = self.dims("visual.positional_embedding", "[tokens, width]")?;
        let grid = self.grid("visual.positional_embedding", rows, form.class_tokens())?;
        let embed_dim = match form.projection {
            Projection::None => width,
            Projection::Matrix | Projection::Affine => self.dims::<2>("visual.proj", "[width, embed_dim]")?[1],
        };
        let layers = self.layers("visual.transformer.resblocks.")?;
        // The second layer: the first has two halves in a gated MLP.
        let [_, mlp] = self.dims("visual.transformer.resblocks.0.mlp.c_proj.weight", "[width, mlp]")?;
        let heads = self.heads("image", width, stated.image_heads)?;
        if let ImagePool::Attention { heads, mlp } = &mut form.pool {
            *mlp = self.dims::<2>("visual.attn_pool.mlp.c_fc.weight", "[mlp, width]")?[0];
            self.heads("image", width, Some(*heads))?;
        }
        if form.rotary.is_some() && !(width / heads).is_multiple_of(4) {
            let reason = format!("heads of {} channels; rotary positions need a multiple of four", width / heads);
            return Err(bad(self.path, reason));
        }
        let covered = grid.checked_mul(patch).ok_or_else(|| bad(self.path, "the image size is too large"))?;
        // SigLIP SO400M/14 takes 384 pixels: 27 patches, and a rest that no patch covers.
        let image_size = stated.pixels().filter(|side| side / patch == grid).unwrap_or(covered);
        Ok((ImageConfig::Vit { width, layers, heads, patch, mlp, form }, image_size, embed_dim))
    }

    fn resnet(&self, stated: &Stated) -> Result<(ImageConfig, usize, usize)> {
        let [width, ..] = self.dims::<4>("visual.layer1.0.conv1.weight", "[width, width, 1, 1]")?;
        let [rows, pooled] = self.dims("visual.attnpool.positional_embedding", "[1 + cells, 32 x width]")?;
        let grid = self.grid("visual.attnpool.positional_embedding", rows, 1)?;
        let [embed_dim, _] = self.dims("visual.attnpool.c_proj.weight", "[embed_dim, 32 x width]")?;
        let mut blocks = [0; 4];
        for (stage, blocks) in blocks.iter_mut().enumerate() {
            *blocks = self.layers(&format!("visual.layer{}.", stage + 1))?;
        }
        let heads = self.heads("image", pooled, stated.image_heads)?;
        Ok((ImageConfig::ResNet { width, blocks, heads }, grid.saturating_mul(32), embed_dim))
    }

    fn text(&self, stated: &Stated) -> Result<TextConfig> {
        let [vocab, width] = self.dims("token_embedding.weight", "[vocabulary, width]")?;
        let [context_length, _] = self.dims("positional_embedding", "[positions, width]")?;
        let layers = self.layers("transformer.resblocks.")?;
        let [mlp, _] = self.dims("transformer.resblocks.0.mlp.c_fc.weight", "[mlp, width]")?;
        let heads = self.heads("text", width, stated.text_heads)?;
        let form = stated.text_form.unwrap_or(TextForm::CLIP);
        if !form.causal && form.padding as usize >= vocab {
            let reason =
                format!("texts are padded with token {}, but the vocabulary has {vocab} entries", form.padding);
            return Err(bad(self.path, reason));
        }
        Ok(TextConfig { width, layers, heads, context_length, vocab, mlp, form })
    }
}

fn missing(path: &Path, name: &str) -> Error {
    bad(path, format!("tensor `{name}` is missing; the file is incomplete or holds another architecture"))
}

fn wrong_shape(path: &Path, name: &str, expected: &str, found: &[usize]) -> Error {
    Error::WeightShape {
        path: path.to_path_buf(),
        tensor: name.to_owned(),
        expected: expected.to_owned(),
        found: found.to_vec(),
    }
}

/// Tensors that OpenAI's architecture does not have, and others do.
const OF_OTHER_FORMS: [&str; 3] = ["visual.attn_pool.latent", "visual.proj.bias", "visual.conv1.bias"];

/// The architecture behind these tensors. Every tensor that it needs is there in the right shape, or this is an error.
pub(crate) fn infer(
    path: &Path,
    shapes: &Shapes,
    stated: &Stated,
    logit_scale: f32,
    logit_bias: Option<f32>,
) -> Result<ClipConfig> {
    let reader = Reader { path, shapes };
    let other = OF_OTHER_FORMS.iter().find(|name| shapes.contains_key(**name));
    if let (Some(name), None) = (other, stated.image_form) {
        let reason = format!(
            "tensor `{name}` is that of SigLIP or of an image tower of timm, whose heads, norms and activation no tensor \
             shows; expected the model's open_clip_config.json or config.json beside the weights"
        );
        return Err(bad(path, reason));
    }
    if stated.logit_bias && logit_bias.is_none() {
        return Err(missing(path, "logit_bias"));
    }
    let (image, image_size, embed_dim) = if shapes.contains_key("visual.layer1.0.conv1.weight") {
        reader.resnet(stated)?
    } else {
        reader.vit(stated)?
    };
    let has_text = shapes.contains_key("token_embedding.weight") || shapes.contains_key("text_projection");
    let text = has_text.then(|| reader.text(stated)).transpose()?;
    let config = ClipConfig {
        embed_dim,
        image_size,
        activation: stated.activation.unwrap_or(Activation::QuickGelu),
        activation_source: stated.activation.map_or(ActivationSource::Assumed, |_| ActivationSource::Stated),
        image,
        text,
        logit_scale,
        logit_bias,
        preprocess: stated.preprocess.unwrap_or_default(),
    };
    check(path, shapes, &config)?;
    stated.check(path, &config)?;
    Ok(config)
}

fn check(path: &Path, shapes: &Shapes, config: &ClipConfig) -> Result<()> {
    let needed = tensors(config);
    for (name, expected) in &needed {
        let found = shapes.get(name).ok_or_else(|| missing(path, name))?;
        // torch keeps temperature and bias as scalars, some converters as one number.
        if found != expected && !(name.starts_with("logit_") && found == &[1]) {
            return Err(wrong_shape(path, name, &format!("{expected:?}"), found));
        }
    }
    // A tensor inside a tower that nobody reads (layer scale, another attention pool) means other arithmetic.
    let extra = shapes.keys().find(|name| {
        let inside = ["visual.", "transformer.", "text_projection."].iter().any(|part| name.starts_with(part));
        inside && !needed.contains_key(*name)
    });
    extra.map_or(Ok(()), |name| {
        Err(bad(path, format!("tensor `{name}` belongs to an architecture that flatclip does not compute")))
    })
}

/// Every tensor of an architecture with its shape, under canonical names.
pub(crate) fn tensors(config: &ClipConfig) -> Shapes {
    let mut out = Shapes::new();
    match config.image {
        ImageConfig::Vit { width, layers, patch, mlp, form, .. } => {
            put_vit(&mut out, width, patch, &form, config);
            put_blocks(&mut out, "visual.transformer.resblocks", width, layers, mlp, &form);
        }
        ImageConfig::Other => {}
        ImageConfig::ResNet { width, blocks, .. } => {
            let half = width / 2;
            put_convs(&mut out, "visual", [[half, 3, 3], [half, half, 3], [width, half, 3]]);
            let mut inputs = width;
            for (stage, &count) in blocks.iter().enumerate() {
                let (planes, outputs) = (width << stage, 4 * (width << stage));
                for block in 0..count {
                    let name = format!("visual.layer{}.{block}", stage + 1);
                    put_convs(&mut out, &name, [[planes, inputs, 1], [planes, planes, 3], [outputs, planes, 1]]);
                    if block == 0 {
                        let [conv, norm] = [0, 1].map(|part| format!("{name}.downsample.{part}"));
                        put_conv(&mut out, &conv, &norm, [outputs, inputs, 1]);
                    }
                    inputs = outputs;
                }
            }
            put_attention_pool(&mut out, 32 * width, config.image_tokens(), config.embed_dim);
        }
    }
    if let Some(text) = &config.text {
        put(&mut out, "token_embedding.weight", &[text.vocab, text.width]);
        put(&mut out, "positional_embedding", &[text.context_length, text.width]);
        put_affine(&mut out, "ln_final", text.width);
        put(&mut out, "text_projection", &[text.width, config.embed_dim]);
        if text.form.projection_bias {
            put(&mut out, "text_projection.bias", &[config.embed_dim]);
        }
        put(&mut out, "logit_scale", &[]);
        if config.logit_bias.is_some() {
            put(&mut out, "logit_bias", &[]);
        }
        put_blocks(&mut out, "transformer.resblocks", text.width, text.layers, text.mlp, &VitForm::CLIP);
    }
    out
}

/// What a vision transformer has around its blocks.
fn put_vit(out: &mut Shapes, width: usize, patch: usize, form: &VitForm, config: &ClipConfig) {
    for (is_there, name, shape) in [
        (true, "visual.conv1.weight", &[width, 3, patch, patch][..]),
        (form.patch_bias, "visual.conv1.bias", &[width]),
        (form.class_token, "visual.class_embedding", &[width]),
        (true, "visual.positional_embedding", &[config.image_tokens(), width]),
        (form.projection != Projection::None, "visual.proj", &[width, config.embed_dim]),
        (form.projection == Projection::Affine, "visual.proj.bias", &[config.embed_dim]),
    ] {
        if is_there {
            put(out, name, shape);
        }
    }
    if form.pre_norm {
        put_affine(out, "visual.ln_pre", width);
    }
    put_affine(out, "visual.ln_post", width);
    if let ImagePool::Attention { mlp, .. } = form.pool {
        put(out, "visual.attn_pool.latent", &[width]);
        put_attention(out, "visual.attn_pool", width);
        put_affine(out, "visual.attn_pool.ln_2", width);
        put_linear(out, "visual.attn_pool.mlp.c_fc", mlp, width);
        put_linear(out, "visual.attn_pool.mlp.c_proj", width, mlp);
    }
}

fn put(out: &mut Shapes, name: &str, shape: &[usize]) {
    out.insert(name.to_owned(), shape.to_vec());
}

fn put_affine(out: &mut Shapes, name: &str, width: usize) {
    put(out, &format!("{name}.weight"), &[width]);
    put(out, &format!("{name}.bias"), &[width]);
}

fn put_linear(out: &mut Shapes, name: &str, outputs: usize, inputs: usize) {
    put(out, &format!("{name}.weight"), &[outputs, inputs]);
    put(out, &format!("{name}.bias"), &[outputs]);
}

fn put_attention(out: &mut Shapes, name: &str, width: usize) {
    put(out, &format!("{name}.in_proj_weight"), &[3 * width, width]);
    put(out, &format!("{name}.in_proj_bias"), &[3 * width]);
    put_linear(out, &format!("{name}.out_proj"), width, width);
}

fn put_blocks(out: &mut Shapes, prefix: &str, width: usize, layers: usize, mlp: usize, form: &VitForm) {
    for layer in 0..layers {
        let block = format!("{prefix}.{layer}");
        put_affine(out, &format!("{block}.ln_1"), width);
        put_affine(out, &format!("{block}.ln_2"), width);
        put_attention(out, &format!("{block}.attn"), width);
        put_linear(out, &format!("{block}.mlp.c_fc"), if form.gated { 2 * mlp } else { mlp }, width);
        put_linear(out, &format!("{block}.mlp.c_proj"), width, mlp);
        if form.attention_norm {
            put_affine(out, &format!("{block}.attn.ln_inner"), width);
        }
        if form.mlp_norm {
            put_affine(out, &format!("{block}.mlp.ln_inner"), mlp);
        }
    }
}

/// A convolution and the batch norm behind it.
fn put_conv(out: &mut Shapes, conv: &str, norm: &str, [outputs, inputs, side]: [usize; 3]) {
    put(out, &format!("{conv}.weight"), &[outputs, inputs, side, side]);
    put_affine(out, norm, outputs);
    put(out, &format!("{norm}.running_mean"), &[outputs]);
    put(out, &format!("{norm}.running_var"), &[outputs]);
}

/// The three convolutions of the stem or a bottleneck.
fn put_convs(out: &mut Shapes, name: &str, sizes: [[usize; 3]; 3]) {
    for (i, sizes) in (1..).zip(sizes) {
        put_conv(out, &format!("{name}.conv{i}"), &format!("{name}.bn{i}"), sizes);
    }
}

fn put_attention_pool(out: &mut Shapes, width: usize, tokens: usize, embed_dim: usize) {
    put(out, "visual.attnpool.positional_embedding", &[tokens, width]);
    for part in ["q_proj", "k_proj", "v_proj"] {
        put_linear(out, &format!("visual.attnpool.{part}"), width, width);
    }
    put_linear(out, "visual.attnpool.c_proj", embed_dim, width);
}
