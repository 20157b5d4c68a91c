//! How much arithmetic a stage is: two operations per multiply-add of the products and of attention.

use flatclip::model::{ClassTokens, ClipConfig, ImageConfig};

/// One image through the image tower; `None` for a ResNet, whose count depends on every stage.
pub(super) fn image(config: &ClipConfig) -> Option<f64> {
    let ImageConfig::Vit { width, layers, patch, mlp, form, .. } = config.image else { return None };
    let cells = (config.image_size / patch).pow(2);
    let tokens = config.image_tokens() as f64;
    // The first layer of a gated MLP is twice as wide.
    let mlp = if form.gated { mlp * 3 / 2 } else { mlp };
    let patches = 2.0 * (cells * 3 * patch * patch * width) as f64;
    Some(patches + layers as f64 * block(tokens, tokens, width, mlp) + 2.0 * (width * config.embed_dim) as f64)
}

/// Own rows of all classes behind a shared context, forward; all positions of every class without causal mask.
pub(super) fn text(config: &ClipConfig, tokens: &ClassTokens) -> Option<f64> {
    let text = config.text.as_ref()?;
    if !text.form.causal {
        let length = text.context_length as f64;
        return Some(text.layers as f64 * block(tokens.classes.len() as f64 * length, length, text.width, text.mlp));
    }
    let rows: usize = tokens.classes.iter().map(|class| class.name.len() + class.rest.len()).sum();
    let prefix = 1 + tokens.n_ctx;
    let keys = prefix as f64 + rows as f64 / tokens.classes.len() as f64 / 2.0;
    Some(text.layers as f64 * block((rows + prefix) as f64, keys, text.width, text.mlp))
}

fn block(rows: f64, keys: f64, width: usize, mlp: usize) -> f64 {
    rows * (2.0 * (4 * width * width + 2 * width * mlp) as f64 + 4.0 * keys * width as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vit_b_16_has_its_known_cost() {
        let config = ClipConfig::named("ViT-B-16").expect("a known name");
        let flops = image(&config).expect("a vision transformer");
        assert!((flops - 35.1e9).abs() < 0.5e9, "{flops}"); // 17.6 G multiply-adds
    }
}
