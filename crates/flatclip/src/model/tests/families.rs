//! Towers of other families: parts against their definition, what they lack.

use super::super::load::Reader;
use super::super::{Position, Precision, VisionInput};
use super::{assert_close, classes, context, draws, load, tiny_config, tiny_with_text};
use crate::architecture::{ClipConfig, ImageConfig, Projection, TextForm, VitForm};
use crate::model::attention_pool::AttentionPool;
use crate::weights::random_of;
use flatclip_tensor::Activation;

fn with_form(form: VitForm) -> ClipConfig {
    let mut config = tiny_config();
    config.image = ImageConfig::Vit { width: 32, layers: 2, heads: 2, patch: 8, mlp: 64, form };
    config.embed_dim = if form.projection == Projection::None { 32 } else { 12 };
    config
}

/// A query that attends to all tokens, with keys and values of every token.
#[test]
fn the_attention_pool_equals_its_definition() {
    let (width, heads, tokens) = (32, 4, 5);
    let checkpoint = random_of(&with_form(VitForm::siglip(heads, 48)), 5);
    let read = |name: &str| checkpoint.tensor(&format!("visual.attn_pool.{name}")).unwrap().1;
    let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let times = |weight: &[f32], x: &[f64]| -> Vec<f64> {
        weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum()).collect()
    };
    let (projection, x) = (read("in_proj_weight"), draws("tokens", tokens * width));
    let (queries, rest) = projection.split_at(width * width);
    let (keys, values) = rest.split_at(width * width);
    let query = times(queries, &wide(&read("latent")));
    let rows: Vec<[Vec<f64>; 2]> =
        x.chunks(width).map(|x| [keys, values].map(|weight| times(weight, &wide(x)))).collect();
    let mut attended = Vec::new();
    for head in (0..width).step_by(width / heads).map(|at| at..at + width / heads) {
        let dot = |key: &[f64]| key[head.clone()].iter().zip(&query[head.clone()]).map(|(k, q)| k * q).sum::<f64>();
        let exponents: Vec<f64> = rows.iter().map(|[key, _]| (dot(key) / 8f64.sqrt()).exp()).collect();
        let sum: f64 = exponents.iter().sum();
        attended.extend(head.map(|c| rows.iter().zip(&exponents).map(|([_, v], e)| v[c] * e / sum).sum::<f64>()));
    }
    let out = times(&read("out_proj.weight"), &attended);
    let mean = out.iter().sum::<f64>() / width as f64;
    let variance = out.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
    let normal: Vec<f64> = out.iter().map(|x| (x - mean) / (variance + 1e-6).sqrt()).collect();
    let hidden = times(&read("mlp.c_fc.weight"), &normal);
    let hidden: Vec<f64> = hidden.iter().map(|&x| x / (1.0 + (-1.702 * x).exp())).collect();
    let mlp = times(&read("mlp.c_proj.weight"), &hidden);
    let expected: Vec<f32> = out.iter().zip(mlp).map(|(x, y)| (x + y) as f32).collect();

    let reader = Reader { checkpoint: &checkpoint, precision: Precision::F32 };
    let pool = AttentionPool::load(&reader, width, (heads, 48), 1e-6, Activation::QuickGelu).unwrap();
    // Two images, to see that they do not mix.
    let found = pool.forward(&[draws("others", tokens * width), x].concat(), 2);
    assert_close(&found[width..], &expected, 1e-5);
}

#[test]
fn a_tower_without_class_token_sees_every_patch_and_rotation_sees_their_places() {
    let pixels = draws("pixels", 3 * 16 * 16);
    // The four patches in another order: without positions a tower could not tell.
    let moved: Vec<f32> = (0..3 * 16 * 16).map(|i| pixels[i / 256 * 256 + (i + 8 * 16) % 256]).collect();
    for form in [VitForm::siglip(2, 64), VitForm::pe_core(true, 64), VitForm::pe_core(false, 64), VitForm::EVA02] {
        let clip = load(&with_form(form), 0);
        let [a, b] = [&pixels, &moved].map(|pixels| clip.encode_images(pixels, 1).unwrap());
        assert!(a.data().iter().all(|x| x.is_finite()) && a != b, "{form:?}");
    }
}

#[test]
fn pixels_behind_the_last_patch_are_not_seen() {
    let whole = with_form(VitForm::siglip(2, 64));
    let rest = ClipConfig { image_size: 20, ..whole.clone() };
    let pixels = draws("pixels", 3 * 20 * 20);
    let corner: Vec<f32> = (0..3 * 16 * 16).map(|i| pixels[i / 256 * 400 + i / 16 % 16 * 20 + i % 16]).collect();
    let [whole, rest] = [whole, rest].map(|config| load(&config, 0));
    assert_eq!(rest.encode_images(&pixels, 1).unwrap(), whole.encode_images(&corner, 1).unwrap());
}

#[test]
fn what_a_tower_lacks_is_an_error_and_said_before() {
    let pixels = draws("pixels", 3 * 16 * 16);
    for form in [VitForm::siglip(2, 64), VitForm::pe_core(true, 64), VitForm::EVA02] {
        let clip = load(&with_form(form), 0);
        assert!(!clip.passes().vision && !clip.passes().norms && clip.passes().context_gradient);
        let error = clip.vision().pass(&pixels, 1, VisionInput::default()).unwrap_err();
        assert!(error.to_string().contains("this image tower"), "{error}");
    }
    let clip = tiny_with_text(TextForm::SIGLIP, 0);
    assert!(!clip.passes().deep && clip.passes().vision);
    let error =
        clip.text().unwrap().deep_pass(&classes(3, 2, Position::End), &context("ctx", None, 2), &[]).unwrap_err();
    assert!(error.to_string().contains("causal"), "{error}");
}

#[test]
fn a_text_longer_than_the_positions_is_refused_and_a_shorter_one_padded() {
    let clip = tiny_with_text(TextForm::SIGLIP, 0);
    let tower = clip.text().unwrap();
    let error = tower.encode_tokens(&[vec![3; 21]]).unwrap_err();
    assert!(error.to_string().contains("21 positions"), "{error}");
    let full = [vec![3, 7, 1], vec![1; 17]].concat();
    assert_eq!(tower.encode_tokens(&[vec![3, 7, 1]]).unwrap(), tower.encode_tokens(&[full]).unwrap());
}
