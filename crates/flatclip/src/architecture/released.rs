//! Released architectures by name, one line each, as in open_clip's model configurations and timm's image towers.

use super::config::{Activation, ActivationSource, ClipConfig, HEAD_WIDTH, ImageConfig, TextConfig};
use super::form::{Projection, TextForm, VitForm};
use super::preprocess::Preprocess;
use Activation::{Gelu, GeluTanh, QuickGelu};
use Image::{Eva, Mobile, PeCore, Rn, SigLip, Vit};
use Words::{PeText, SigLipText, Text};

/// An image tower: width, layers, heads, patch, width of the MLP.
#[derive(Clone, Copy)]
enum Image {
    Vit(usize, usize, usize, usize, usize),
    /// CLIP's ViT in timm's form, with a text tower that is not causal.
    Mobile(usize, usize, usize, usize, usize),
    SigLip(usize, usize, usize, usize, usize, Activation),
    PeCore(usize, usize, usize, usize, usize),
    Eva(usize, usize, usize, usize, usize),
    /// Width after the stem, bottlenecks of the stages.
    Rn(usize, [usize; 4]),
}

/// A text tower: width, layers.
#[derive(Clone, Copy)]
enum Words {
    Text(usize, usize),
    /// Also the positions.
    PeText(usize, usize, usize),
    /// Also the width of the MLP, positions, tokens, activation.
    SigLipText(usize, usize, usize, usize, usize, Activation),
}

/// Name, width of the joint space, pixels, towers.
#[rustfmt::skip] // one line each
const RELEASED: &[(&str, usize, usize, Image, Words)] = &[
    ("RN50", 1024, 224, Rn(64, [3, 4, 6, 3]), Text(512, 12)),
    ("RN101", 512, 224, Rn(64, [3, 4, 23, 3]), Text(512, 12)),
    ("RN50x4", 640, 288, Rn(80, [4, 6, 10, 6]), Text(640, 12)),
    ("RN50x16", 768, 384, Rn(96, [6, 8, 18, 8]), Text(768, 12)),
    ("RN50x64", 1024, 448, Rn(128, [3, 15, 36, 10]), Text(1024, 12)),
    ("ViT-B-32", 512, 224, Vit(768, 12, 12, 32, 3072), Text(512, 12)),
    ("ViT-B-32-256", 512, 256, Vit(768, 12, 12, 32, 3072), Text(512, 12)),
    ("ViT-B-16", 512, 224, Vit(768, 12, 12, 16, 3072), Text(512, 12)),
    ("ViT-B-16-plus-240", 640, 240, Vit(896, 12, 14, 16, 3584), Text(640, 12)),
    ("ViT-L-14", 768, 224, Vit(1024, 24, 16, 14, 4096), Text(768, 12)),
    ("ViT-L-14-336", 768, 336, Vit(1024, 24, 16, 14, 4096), Text(768, 12)),
    ("ViT-H-14", 1024, 224, Vit(1280, 32, 16, 14, 5120), Text(1024, 24)),
    ("ViT-H-14-378", 1024, 378, Vit(1280, 32, 16, 14, 5120), Text(1024, 24)),
    ("ViT-g-14", 1024, 224, Vit(1408, 40, 16, 14, 6144), Text(1024, 24)),
    ("ViT-bigG-14", 1280, 224, Vit(1664, 48, 16, 14, 8192), Text(1280, 32)),
    ("TinyCLIP-ViT-8M-16-Text-3M", 512, 224, Vit(256, 10, 4, 16, 1024), Text(256, 3)),
    ("TinyCLIP-ViT-39M-16-Text-19M", 512, 224, Vit(512, 12, 8, 16, 2048), Text(512, 6)),
    ("TinyCLIP-ViT-40M-32-Text-19M", 512, 224, Vit(512, 12, 8, 32, 2048), Text(512, 6)),
    ("TinyCLIP-ViT-61M-32-Text-29M", 512, 224, Vit(640, 12, 10, 32, 2560), Text(512, 9)),
    ("MobileCLIP2-L-14", 768, 224, Mobile(1024, 24, 16, 14, 4096), Text(768, 12)),
    ("ViT-B-16-SigLIP", 768, 224, SigLip(768, 12, 12, 16, 3072, Gelu), SigLipText(768, 12, 3072, 64, 32000, Gelu)),
    ("ViT-B-16-SigLIP-256", 768, 256, SigLip(768, 12, 12, 16, 3072, Gelu), SigLipText(768, 12, 3072, 64, 32000, Gelu)),
    ("ViT-B-16-SigLIP-i18n-256", 768, 256, SigLip(768, 12, 12, 16, 3072, Gelu), SigLipText(768, 12, 3072, 64, 250000, Gelu)),
    ("ViT-B-16-SigLIP-384", 768, 384, SigLip(768, 12, 12, 16, 3072, Gelu), SigLipText(768, 12, 3072, 64, 32000, Gelu)),
    ("ViT-B-16-SigLIP-512", 768, 512, SigLip(768, 12, 12, 16, 3072, Gelu), SigLipText(768, 12, 3072, 64, 32000, Gelu)),
    ("ViT-L-16-SigLIP-256", 1024, 256, SigLip(1024, 24, 16, 16, 4096, Gelu), SigLipText(1024, 24, 4096, 64, 32000, Gelu)),
    ("ViT-L-16-SigLIP-384", 1024, 384, SigLip(1024, 24, 16, 16, 4096, Gelu), SigLipText(1024, 24, 4096, 64, 32000, Gelu)),
    ("ViT-SO400M-14-SigLIP", 1152, 224, SigLip(1152, 27, 16, 14, 4304, Gelu), SigLipText(1152, 27, 4304, 16, 32000, Gelu)),
    ("ViT-SO400M-14-SigLIP-384", 1152, 384, SigLip(1152, 27, 16, 14, 4304, Gelu), SigLipText(1152, 27, 4304, 64, 32000, Gelu)),
    ("ViT-SO400M-16-SigLIP-i18n-256", 1152, 256, SigLip(1152, 27, 16, 16, 4304, GeluTanh), SigLipText(1152, 27, 4304, 64, 250000, Gelu)),
    ("ViT-B-32-SigLIP2-256", 768, 256, SigLip(768, 12, 12, 32, 3072, GeluTanh), SigLipText(768, 12, 3072, 64, 256000, GeluTanh)),
    ("ViT-B-16-SigLIP2", 768, 224, SigLip(768, 12, 12, 16, 3072, Gelu), SigLipText(768, 12, 3072, 64, 256000, GeluTanh)),
    ("ViT-B-16-SigLIP2-256", 768, 256, SigLip(768, 12, 12, 16, 3072, Gelu), SigLipText(768, 12, 3072, 64, 256000, GeluTanh)),
    ("ViT-B-16-SigLIP2-384", 768, 384, SigLip(768, 12, 12, 16, 3072, Gelu), SigLipText(768, 12, 3072, 64, 256000, GeluTanh)),
    ("ViT-B-16-SigLIP2-512", 768, 512, SigLip(768, 12, 12, 16, 3072, Gelu), SigLipText(768, 12, 3072, 64, 256000, GeluTanh)),
    ("ViT-L-16-SigLIP2-256", 1024, 256, SigLip(1024, 24, 16, 16, 4096, Gelu), SigLipText(1024, 24, 4096, 64, 256000, GeluTanh)),
    ("ViT-L-16-SigLIP2-384", 1024, 384, SigLip(1024, 24, 16, 16, 4096, Gelu), SigLipText(1024, 24, 4096, 64, 256000, GeluTanh)),
    ("ViT-L-16-SigLIP2-512", 1024, 512, SigLip(1024, 24, 16, 16, 4096, Gelu), SigLipText(1024, 24, 4096, 64, 256000, GeluTanh)),
    ("ViT-SO400M-14-SigLIP2", 1152, 224, SigLip(1152, 27, 16, 14, 4304, Gelu), SigLipText(1152, 27, 4304, 64, 256000, GeluTanh)),
    ("ViT-SO400M-14-SigLIP2-378", 1152, 378, SigLip(1152, 27, 16, 14, 4304, Gelu), SigLipText(1152, 27, 4304, 64, 256000, GeluTanh)),
    ("ViT-SO400M-16-SigLIP2-256", 1152, 256, SigLip(1152, 27, 16, 16, 4304, GeluTanh), SigLipText(1152, 27, 4304, 64, 256000, GeluTanh)),
    ("ViT-SO400M-16-SigLIP2-384", 1152, 384, SigLip(1152, 27, 16, 16, 4304, GeluTanh), SigLipText(1152, 27, 4304, 64, 256000, GeluTanh)),
    ("ViT-SO400M-16-SigLIP2-512", 1152, 512, SigLip(1152, 27, 16, 16, 4304, GeluTanh), SigLipText(1152, 27, 4304, 64, 256000, GeluTanh)),
    ("ViT-gopt-16-SigLIP2-256", 1536, 256, SigLip(1536, 40, 16, 16, 6144, GeluTanh), SigLipText(1152, 27, 4304, 64, 256000, GeluTanh)),
    ("ViT-gopt-16-SigLIP2-384", 1536, 384, SigLip(1536, 40, 16, 16, 6144, GeluTanh), SigLipText(1152, 27, 4304, 64, 256000, GeluTanh)),
    ("PE-Core-T-16-384", 512, 384, PeCore(192, 12, 3, 16, 768), PeText(512, 12, 32)),
    ("PE-Core-S-16-384", 512, 384, PeCore(384, 12, 6, 16, 1536), PeText(512, 12, 32)),
    ("PE-Core-B-16", 1024, 224, PeCore(768, 12, 12, 16, 3072), PeText(1024, 24, 32)),
    ("PE-Core-L-14-336", 1024, 336, PeCore(1024, 24, 16, 14, 4096), PeText(1024, 24, 32)),
    ("PE-Core-bigG-14-448", 1280, 448, PeCore(1536, 50, 16, 14, 8960), PeText(1280, 24, 72)),
    ("EVA02-B-16", 512, 224, Eva(768, 12, 12, 16, 2048), Text(512, 12)),
    ("EVA02-L-14", 768, 224, Eva(1024, 24, 16, 14, 2730), Text(768, 12)),
    ("EVA02-L-14-336", 768, 336, Eva(1024, 24, 16, 14, 2730), Text(768, 12)),
];

impl Image {
    fn config(self) -> ImageConfig {
        let vit =
            |(width, layers, heads, patch, mlp), form| ImageConfig::Vit { width, layers, heads, patch, mlp, form };
        match self {
            Vit(w, l, h, p, m) => vit((w, l, h, p, m), VitForm::CLIP),
            Mobile(w, l, h, p, m) => vit((w, l, h, p, m), VitForm { projection: Projection::Affine, ..VitForm::CLIP }),
            SigLip(w, l, h, p, m, _) => vit((w, l, h, p, m), VitForm::siglip(h, m)),
            // That of bigG has no class token.
            PeCore(w, l, h, p, m) => vit((w, l, h, p, m), VitForm::pe_core(w < 1536, m)),
            Eva(w, l, h, p, m) => vit((w, l, h, p, m), VitForm::EVA02),
            Rn(width, blocks) => ImageConfig::ResNet { width, blocks, heads: width * 32 / HEAD_WIDTH },
        }
    }

    /// Of OpenAI's own sizes, OpenAI's; of those that only others trained, theirs.
    fn activation(self, text_layers: usize) -> Activation {
        match self {
            Vit(width, ..) if text_layers > 12 || ![768, 1024].contains(&width) => Gelu,
            Vit(..) | Rn(..) => QuickGelu,
            SigLip(.., activation) => activation,
            Mobile(..) | PeCore(..) | Eva(..) => Gelu,
        }
    }
}

impl Words {
    fn config(self, image: Image) -> TextConfig {
        let text = |width: usize, layers, context_length| TextConfig {
            width,
            layers,
            heads: width / HEAD_WIDTH,
            context_length,
            vocab: 49_408,
            mlp: 4 * width,
            form: TextForm { causal: !matches!(image, Mobile(..)), ..TextForm::CLIP },
        };
        match self {
            Text(width, layers) => text(width, layers, 77),
            PeText(width, layers, positions) => text(width, layers, positions),
            SigLipText(width, layers, mlp, positions, vocab, activation) => {
                let other = (image.activation(layers) != activation).then_some(activation);
                let padding = TextForm::siglip_padding(Some(vocab as u64));
                let form = TextForm { padding, activation: other, ..TextForm::SIGLIP };
                // 16 heads of 64 or 72 channels.
                let heads = if width > 768 { 16 } else { 12 };
                TextConfig { heads, mlp, vocab, form, ..text(width, layers, positions) }
            }
        }
    }
}

impl ClipConfig {
    /// The names that [`ClipConfig::named`] accepts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        RELEASED.iter().map(|row| row.0)
    }

    /// A released architecture by name: `ViT-B-16` (or `ViT-B/16`), `RN50`, `ViT-L-14-336` (or `ViT-L/14@336px`), ...
    pub fn named(name: &str) -> Option<Self> {
        let name = name.replace(['/', '@'], "-").trim_end_matches("px").to_owned();
        let &(_, embed_dim, image_size, image, words) =
            RELEASED.iter().find(|row| row.0.eq_ignore_ascii_case(&name))?;
        let text = words.config(image);
        Some(Self {
            embed_dim,
            image_size,
            activation: image.activation(text.layers),
            activation_source: ActivationSource::Assumed,
            image: image.config(),
            text: Some(text),
            logit_scale: 100.0,
            logit_bias: matches!(image, SigLip(..)).then_some(-10.0),
            preprocess: match image {
                SigLip(..) => Preprocess::SIGLIP,
                PeCore(..) => Preprocess::PE,
                _ => Preprocess::CLIP,
            },
        })
    }

    /// The released architecture with these sizes, if there is one (activation and preprocessing aside).
    pub fn released_name(&self) -> Option<&'static str> {
        let text_of = |config: &Self| {
            let form = |text: &TextConfig| TextForm { activation: None, ..text.form };
            config.text.as_ref().map(|text| TextConfig { form: form(text), ..text.clone() })
        };
        Self::names().find(|name| {
            Self::named(name).is_some_and(|other| {
                other.image == self.image
                    && other.image_size == self.image_size
                    && other.embed_dim == self.embed_dim
                    && (self.text.is_none() || text_of(&other) == text_of(self))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_names_are_found_by_either_spelling_and_back() {
        for name in ClipConfig::names() {
            let config = ClipConfig::named(name).unwrap();
            assert_eq!(config.released_name(), Some(name));
            let (channels, heads) = match config.image {
                ImageConfig::Vit { width, heads, .. } => (width, heads),
                ImageConfig::ResNet { width, heads, .. } => (32 * width, heads),
                ImageConfig::Other => panic!("a released architecture"),
            };
            assert!(channels.is_multiple_of(heads));
        }
        assert_eq!(ClipConfig::named("ViT-L/14@336px"), ClipConfig::named("ViT-L-14-336"));
        assert_eq!(ClipConfig::named("ViT-B/16").unwrap().image_tokens(), 197);
        assert!(ClipConfig::named("ViT-Z").is_none());
    }
}
