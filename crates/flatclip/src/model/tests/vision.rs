//! Image towers: batches, prompts, LayerNorm parameters, gradients on tokens.

use super::super::{BatchNorms, NormAffine, VisionInput};
use super::{
    assert_close, assert_slope, assert_slope_within, draws, inner, matrix, same_on_any_threads, tiny, tiny_resnet,
};
use flatclip_tensor::Matrix;

const PIXELS: usize = 3 * 16 * 16;

#[test]
fn features_do_not_depend_on_batch_or_threads() {
    for (clip, size) in [(tiny(0), PIXELS), (tiny_resnet(), 3 * 64 * 64)] {
        let pixels = draws("pixels", 7 * size);
        let all = clip.encode_images(&pixels, 7).unwrap();
        for i in 0..7 {
            let one = clip.encode_images(&pixels[i * size..(i + 1) * size], 1).unwrap();
            assert_eq!(one.row(0), all.row(i));
        }
        same_on_any_threads(|| clip.encode_images(&pixels, 7).unwrap());
    }
}

#[test]
fn wrong_pixels_and_wrong_towers_are_errors_not_panics() {
    let (vit, resnet) = (tiny(0), tiny_resnet());
    assert!(vit.encode_images(&[0.0; 10], 1).is_err());
    assert!(vit.encode_images(&[0.0; PIXELS], usize::MAX).is_err());
    assert_eq!(vit.encode_images(&[], 0).unwrap().rows(), 0);
    let pixels = vec![0.0; 3 * 64 * 64];
    let error = resnet.vision().pass(&pixels, 1, VisionInput::default()).unwrap_err();
    assert!(error.to_string().contains("ViT"), "{error}");
    assert!(resnet.text().unwrap_err().to_string().contains("no text tower"));
    let prompts = [Matrix::zeros(2, 31)];
    let input = VisionInput { prompts: &prompts, ..VisionInput::default() };
    assert!(vit.vision().pass(&[0.0; PIXELS], 1, input).is_err());
    let pass = vit.vision().pass(&[0.0; PIXELS], 1, VisionInput::default()).unwrap();
    assert!(pass.tokens(0).is_err() && pass.gradient(&Matrix::zeros(2, 12), &[]).is_err());
    assert!(pass.gradient(&Matrix::zeros(1, 12), &[(9, vec![])]).is_err());
}

#[test]
fn a_plain_pass_gives_the_plain_features() {
    let clip = tiny(0);
    let pixels = draws("pixels", 5 * PIXELS);
    let (unit, norms) = super::super::Features::unit(clip.encode_images(&pixels, 5).unwrap());
    for recorded in [0, 1, usize::MAX] {
        let input = VisionInput { recorded, ..VisionInput::default() };
        let pass = clip.vision().pass(&pixels, 5, input).unwrap();
        assert_close(pass.features().data(), unit.data(), 1e-6);
        assert_close(pass.norms(), &norms, 1e-6);
    }
}

#[test]
fn prompt_gradients_are_derivatives_with_gradients_on_tokens() {
    let clip = tiny(0);
    let pixels = draws("pixels", 6 * PIXELS);
    let prompts = [matrix("p0", 2, 32), matrix("p1", 2, 32)];
    let d = matrix("d", 6, 12);
    let d_tokens: Vec<(usize, Vec<f32>)> = [0, 2].map(|block| (block, draws("dt", 6 * 7 * 32))).to_vec();
    let run = |prompts: &[Matrix], recorded| {
        clip.vision().pass(&pixels, 6, VisionInput { prompts, norms: None, recorded }).unwrap()
    };
    let pass = run(&prompts, usize::MAX);
    assert_eq!(pass.tokens_per_image(), 7);
    let gradient = pass.gradient(&d, &d_tokens).unwrap();
    for i in 0..2 {
        assert_slope(prompts[i].data(), gradient.prompts[i].data(), |x| {
            let mut moved = prompts.clone();
            moved[i] = Matrix::from_vec(2, 32, x.to_vec());
            let pass = run(&moved, usize::MAX);
            let tokens: f64 = d_tokens.iter().map(|(b, d)| inner(pass.tokens(*b).unwrap().data(), d)).sum();
            inner(pass.features().data(), d.data()) + tokens
        });
    }
    for recorded in [0, 2] {
        assert!(run(&prompts, recorded).tokens(0).is_err());
        let again = run(&prompts, recorded).gradient(&d, &d_tokens).unwrap();
        assert_eq!((&again.prompts, &again.norms), (&gradient.prompts, &gradient.norms));
    }
}

/// Tensors from their values, one after the other.
fn fill(tensors: Vec<&mut [f32]>, mut values: &[f32]) {
    for tensor in tensors {
        let (own, rest) = values.split_at(tensor.len());
        tensor.copy_from_slice(own);
        values = rest;
    }
}

#[test]
fn norm_gradients_are_derivatives() {
    let clip = tiny(0);
    let pixels = draws("pixels", 5 * PIXELS);
    let d = matrix("d", 5, 12);
    let mut start = clip.vision().norm_affine().unwrap();
    for (i, tensor) in start.tensors_mut().into_iter().enumerate() {
        tensor.iter_mut().zip(draws(&format!("norm {i}"), 32)).for_each(|(x, d)| *x += 0.1 * d);
    }
    let run = |norms: &NormAffine| {
        let input = VisionInput { norms: Some(norms), ..VisionInput::default() };
        clip.vision().pass(&pixels, 5, input).unwrap()
    };
    let gradient = run(&start).gradient(&d, &[]).unwrap().norms;
    assert_eq!(start.names().len(), start.tensors().len());
    let flat = |norms: &NormAffine| norms.tensors().concat();
    assert_slope(&flat(&start), &flat(&gradient), |x| {
        let mut moved = start.clone();
        fill(moved.tensors_mut(), x);
        inner(run(&moved).features().data(), d.data())
    });
    // The second norm of the last block sees class tokens only; a gradient there must not vanish.
    let names = start.names();
    let at = names.iter().position(|name| name == "visual.transformer.resblocks.2.ln_2.weight").unwrap();
    assert!(gradient.tensors()[at].iter().any(|g| g.abs() > 1e-5));
}

#[test]
fn images_without_gradient_do_not_matter() {
    let clip = tiny(0);
    let pixels = draws("pixels", 9 * PIXELS);
    let prompts = [matrix("p0", 2, 32)];
    let input = VisionInput { prompts: &prompts, ..VisionInput::default() };
    let mut d = Matrix::zeros(9, 12);
    [1, 7].iter().for_each(|&i| d.row_mut(i).copy_from_slice(&draws("d", 12)));
    let all = clip.vision().pass(&pixels, 9, input).unwrap().gradient(&d, &[]).unwrap();
    let few: Vec<f32> = [1, 7].iter().flat_map(|&i| pixels[i * PIXELS..(i + 1) * PIXELS].to_vec()).collect();
    let two = clip.vision().pass(&few, 2, input).unwrap().gradient(&d.select_rows(&[1, 7]), &[]).unwrap();
    assert_eq!(all.prompts, two.prompts);
    same_on_any_threads(|| clip.vision().pass(&pixels, 9, input).unwrap().gradient(&d, &[]).unwrap().prompts);
}

/// The tower with its own scales and shifts, moved a little.
fn moved_batch_norms() -> (super::super::Clip, BatchNorms) {
    let clip = tiny_resnet();
    let mut norms = clip.vision().batch_norms().unwrap();
    for (i, tensor) in norms.tensors_mut().into_iter().enumerate() {
        let shifts = draws(&format!("norm {i}"), tensor.len());
        tensor.iter_mut().zip(shifts).for_each(|(x, d)| *x += 0.2 * d);
    }
    (clip, norms)
}

#[test]
fn batch_norm_gradients_are_derivatives() {
    let (clip, start) = moved_batch_norms();
    let (pixels, d) = (draws("pixels", 4 * 3 * 64 * 64), matrix("d", 4, 12));
    let run = |norms: &BatchNorms| clip.vision().batch_norm_pass(&pixels, 4, norms).unwrap();
    let gradient = run(&start).gradient(&d).unwrap();
    assert_eq!(start.names().len(), start.tensors().len());
    let flat = |norms: &BatchNorms| norms.tensors().concat();
    // Batch statistics make the function bend sharply along the gradient.
    assert_slope_within(3e-4, &flat(&start), &flat(&gradient), |x| {
        let mut moved = start.clone();
        fill(moved.tensors_mut(), x);
        inner(run(&moved).features().data(), d.data())
    });
    same_on_any_threads(|| run(&start).gradient(&d).unwrap());
}

#[test]
fn batch_statistics_see_the_batch_and_the_last_stage_can_stay() {
    let (clip, norms) = moved_batch_norms();
    let pixels = draws("pixels", 4 * 3 * 64 * 64);
    let all = clip.vision().batch_norm_pass(&pixels, 4, &norms).unwrap();
    let two = clip.vision().batch_norm_pass(&pixels[..2 * 3 * 64 * 64], 2, &norms).unwrap();
    assert!(all.features().row(0).iter().zip(two.features().row(0)).any(|(a, b)| (a - b).abs() > 1e-3));
    let without = norms.clone().with_last_stage(false);
    assert!(without.names().iter().all(|name| !name.contains("layer4")));
    assert_eq!(norms.names().len() - without.names().len(), 8);
    assert!(tiny(0).vision().batch_norms().unwrap_err().to_string().contains("LayerNorms"));
    assert!(two.gradient(&Matrix::zeros(3, 12)).is_err());
}
