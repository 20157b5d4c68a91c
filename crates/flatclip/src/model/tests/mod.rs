//! Whole-tower promises: the fast form equals the full one, gradients are derivatives, bytes do not depend on threads.

mod context_gradient;
mod determinism;
mod families;
mod full_form;
mod vision;

use super::load::Reader;
use super::text::TextKernels;
use super::{ClassName, ClassTokens, Clip, Context, LoadOptions, Position};
use crate::architecture::{ClipConfig, ImageConfig, TextConfig, TextForm, VitForm};
use crate::rng::Stream;
use crate::weights::random_of;
use flatclip_tensor::{Activation, Matrix};
use std::sync::Arc;

/// A small ViT model with random weights.
fn tiny(budget: usize) -> Clip {
    load(&tiny_config(), budget)
}

/// The forms of text towers: causal, SigLIP's, and one without mask that is read at the end of the text.
const TEXT_FORMS: [TextForm; 3] = [TextForm::CLIP, TextForm::SIGLIP, TextForm { causal: false, ..TextForm::CLIP }];

/// The same with another form of the text tower.
fn tiny_with_text(form: TextForm, budget: usize) -> Clip {
    load(&config_with_text(form), budget)
}

/// Its text tower, with what only our kernels have.
fn tiny_text(form: TextForm, budget: usize) -> Arc<TextKernels> {
    let config = config_with_text(form);
    let checkpoint = random_of(&config, 5);
    let options = LoadOptions { activation_budget: budget, ..LoadOptions::default() };
    let reader = Reader { checkpoint: &checkpoint, precision: options.text_precision };
    let text = config.text.as_ref().unwrap();
    Arc::new(TextKernels::load(&reader, text, config.embed_dim, Activation::QuickGelu, &options).unwrap())
}

fn config_with_text(form: TextForm) -> ClipConfig {
    let mut config = tiny_config();
    config.text.as_mut().unwrap().form = form;
    config
}

fn tiny_config() -> ClipConfig {
    let mut config = ClipConfig::named("ViT-B-16").unwrap();
    config.embed_dim = 12;
    config.image_size = 16;
    config.image = ImageConfig::Vit { width: 32, layers: 3, heads: 2, patch: 8, mlp: 64, form: VitForm::CLIP };
    config.text = Some(TextConfig {
        width: 32,
        layers: 3,
        heads: 2,
        context_length: 20,
        vocab: 40,
        mlp: 64,
        form: TextForm::CLIP,
    });
    config
}

/// A small ResNet model with random weights.
fn tiny_resnet() -> Clip {
    let mut config = ClipConfig::named("RN50").unwrap();
    config.embed_dim = 12;
    config.image_size = 64;
    config.image = ImageConfig::ResNet { width: 8, blocks: [1, 2, 1, 1], heads: 4 };
    config.text = None;
    load(&config, 0)
}

fn load(config: &ClipConfig, budget: usize) -> Clip {
    let options = LoadOptions { activation_budget: budget, ..LoadOptions::default() };
    Clip::load(&random_of(config, 5), options).unwrap()
}

/// `K` classes with names of one to four tokens.
fn classes(count: usize, n_ctx: usize, position: Position) -> ClassTokens {
    let mut stream = Stream::new(1, &["classes"]);
    let name = |stream: &mut Stream| (0..1 + stream.below(4)).map(|_| 2 + stream.below(30) as u32).collect();
    let classes = (0..count).map(|_| ClassName { name: name(&mut stream), rest: vec![35, 39] }).collect();
    ClassTokens { n_ctx, position, sot: Some(38), classes }
}

fn draws(name: &str, count: usize) -> Vec<f32> {
    let mut stream = Stream::new(2, &[name]);
    (0..count).map(|_| stream.normal() as f32).collect()
}

fn context(name: &str, classes: Option<usize>, tokens: usize) -> Context {
    let data = draws(name, classes.unwrap_or(1) * tokens * 32).iter().map(|x| 0.3 * x).collect();
    Context { classes, tokens, width: 32, data }
}

fn matrix(name: &str, rows: usize, cols: usize) -> Matrix {
    Matrix::from_vec(rows, cols, draws(name, rows * cols))
}

fn inner(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Compares `gradient` with central differences of `f` along random directions, to 1 % of the gradient's norm.
fn assert_slope(x: &[f32], gradient: &[f32], f: impl Fn(&[f32]) -> f64) {
    assert_slope_within(1e-2, x, gradient, f);
}

/// The same with another step: a function that bends within the usual one needs a smaller.
fn assert_slope_within(h: f32, x: &[f32], gradient: &[f32], f: impl Fn(&[f32]) -> f64) {
    let size = inner(gradient, gradient).sqrt();
    assert!(size > 1e-4, "the gradient vanishes, so the check would show nothing");
    for direction in 0..4 {
        // The gradient itself first: there the derivative is largest.
        let v: Vec<f32> = match direction {
            0 => gradient.iter().map(|g| g / size as f32).collect(),
            i => {
                let v = draws(&format!("direction {i}"), x.len());
                let length = inner(&v, &v).sqrt() as f32;
                v.iter().map(|v| v / length).collect()
            }
        };
        let at = |h: f32| f(&x.iter().zip(&v).map(|(x, v)| x + h * v).collect::<Vec<_>>());
        let slope = (at(h) - at(-h)) / (2.0 * f64::from(h));
        let expected = inner(gradient, &v);
        assert!(
            (slope - expected).abs() < 0.01 * size,
            "direction {direction}: {expected}, slope {slope}, size {size}"
        );
    }
}

fn assert_close(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    let top = b.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance * top, "entry {i}: {a} and {b}, largest {top}");
    }
}

/// Runs `f` in pools of one, two and five threads; the results must be the same bytes.
fn same_on_any_threads<T: PartialEq + std::fmt::Debug + Send>(f: impl Fn() -> T + Sync) {
    let run = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&f);
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(5));
}
