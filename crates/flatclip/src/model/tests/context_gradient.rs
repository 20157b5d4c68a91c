//! Gradients with respect to contexts and deep prompts.

use super::super::{ClassTokens, Clip, Context, Position};
use super::{
    TEXT_FORMS, assert_close, assert_slope, classes, context, inner, matrix, same_on_any_threads, tiny, tiny_with_text,
};
use flatclip_tensor::Matrix;
use std::slice::from_ref;

/// The gradient of `d · features` with respect to a context.
fn gradient(clip: &Clip, tokens: &ClassTokens, context: &Context, d: &Matrix) -> Vec<f32> {
    gradient_through(clip, usize::MAX, tokens, context, d)
}

/// The same through the last blocks only.
fn gradient_through(clip: &Clip, blocks: usize, tokens: &ClassTokens, context: &Context, d: &Matrix) -> Vec<f32> {
    let pass = clip.text().unwrap().pass_through(blocks, tokens, from_ref(context)).unwrap();
    pass.gradient(from_ref(d)).unwrap().remove(0).data
}

#[test]
fn the_context_gradient_is_the_derivative() {
    let clips = TEXT_FORMS.map(|form| tiny_with_text(form, 1 << 30));
    let places = [(Position::End, false), (Position::Middle, false), (Position::Front, true)];
    for (clip, (position, class_specific)) in clips.iter().flat_map(|clip| places.map(|place| (clip, place))) {
        let tower = clip.text().unwrap();
        let tokens = classes(7, 3, position);
        let context = context("ctx", class_specific.then_some(7), 3);
        let d = matrix("d", 7, 12);
        assert_slope(&context.data, &gradient(clip, &tokens, &context, &d), |data| {
            let moved = Context { data: data.to_vec(), ..context.clone() };
            inner(tower.encode(&tokens, &[moved]).unwrap()[0].data(), d.data())
        });
    }
}

#[test]
fn many_contexts_at_once_equal_one_at_a_time() {
    let clip = tiny(1 << 30);
    let tower = clip.text().unwrap();
    let tokens = classes(40, 2, Position::End);
    let contexts: Vec<Context> = (0..5).map(|i| context(&format!("ctx {i}"), None, 2)).collect();
    let d: Vec<Matrix> = (0..5).map(|i| matrix(&format!("d {i}"), 40, 12)).collect();
    let together = tower.pass(&tokens, &contexts).unwrap();
    for (with_way_back, plain) in together.features().iter().zip(tower.encode(&tokens, &contexts).unwrap()) {
        assert_close(with_way_back.data(), plain.data(), 1e-5);
    }
    let gradients = together.gradient(&d).unwrap();
    for i in 0..5 {
        let alone = tower.pass(&tokens, &contexts[i..=i]).unwrap();
        assert_eq!(together.features()[i], alone.features()[0]);
        assert_close(&gradients[i].data, &alone.gradient(&d[i..=i]).unwrap()[0].data, 1e-5);
    }
}

#[test]
fn recomputing_gives_the_same_bytes_as_keeping() {
    for form in TEXT_FORMS {
        let [keeps, some, recomputes] = [1 << 30, 2 << 20, 0].map(|budget| tiny_with_text(form, budget));
        let (tokens, context, d) = (classes(300, 4, Position::End), context("ctx", None, 4), matrix("d", 300, 12));
        let [keeps, some, recomputes] = [keeps, some, recomputes].map(|clip| gradient(&clip, &tokens, &context, &d));
        assert_eq!(keeps, recomputes);
        assert_eq!(some, recomputes);
    }
}

#[test]
fn the_bytes_do_not_depend_on_threads() {
    let clip = tiny(1 << 20);
    let (tokens, context, d) = (classes(200, 4, Position::End), context("ctx", None, 4), matrix("d", 200, 12));
    same_on_any_threads(|| {
        let pass = clip.text().unwrap().pass(&tokens, from_ref(&context)).unwrap();
        (pass.features().to_vec(), pass.gradient(from_ref(&d)).unwrap())
    });
}

#[test]
fn deep_prompt_gradients_are_derivatives() {
    let clip = tiny(1 << 30);
    let tower = clip.text().unwrap();
    let (tokens, context, d) = (classes(6, 2, Position::End), context("ctx", None, 2), matrix("d", 6, 12));
    let deep = [matrix("deep 0", 2, 32), matrix("deep 1", 2, 32)];
    let (d_context, d_deep) = tower.deep_pass(&tokens, &context, &deep).unwrap().gradient(&d).unwrap();
    let loss = |context: &Context, deep: &[Matrix]| {
        inner(tower.deep_pass(&tokens, context, deep).unwrap().features().data(), d.data())
    };
    assert_slope(&context.data, &d_context.data, |x| loss(&Context { data: x.to_vec(), ..context.clone() }, &deep));
    for i in 0..2 {
        assert_slope(deep[i].data(), d_deep[i].data(), |x| {
            let mut moved = deep.clone();
            moved[i] = Matrix::from_vec(2, 32, x.to_vec());
            loss(&context, &moved)
        });
    }
    let plain = tower.pass(&tokens, from_ref(&context)).unwrap();
    assert_eq!(&plain.features()[0], tower.deep_pass(&tokens, &context, &[]).unwrap().features());
}

#[test]
fn wrong_contexts_are_errors_not_panics() {
    let clip = tiny(0);
    let tower = clip.text().unwrap();
    let tokens = classes(5, 3, Position::End);
    let good = context("ctx", None, 3);
    let short = Context { data: vec![0.0; 5], ..good.clone() };
    let wide = Context { width: 16, ..good.clone() };
    for bad in [short, wide, context("ctx", None, 2), context("ctx", Some(4), 3)] {
        assert!(tower.encode(&tokens, &[bad]).is_err());
    }
    assert!(tower.encode(&tokens, &[good.clone(), context("ctx", Some(5), 3)]).is_err());
    assert!(tower.pass(&tokens, &[]).is_err());
    assert!(tower.encode_tokens(&[vec![38, 100, 39]]).is_err());
    assert!(tower.encode_tokens(&[vec![]]).is_err());
    assert!(tower.encode_tokens(&[(0..40).map(|i| i % 30).chain([39]).collect()]).is_err());
    let pass = tower.pass(&tokens, from_ref(&good)).unwrap();
    assert!(pass.gradient(&[Matrix::zeros(4, 12)]).is_err() && pass.gradient(&[]).is_err());
    assert!(tower.deep_pass(&classes(5, 3, Position::Front), &good, &[]).is_err());
    assert!(tower.deep_pass(&tokens, &good, &[Matrix::zeros(2, 32)]).is_err());
}

#[test]
fn a_gradient_through_the_last_blocks_is_close_to_the_whole_one_and_whole_through_all() {
    let clip = tiny(1 << 30);
    let (tokens, context, d) = (classes(300, 4, Position::End), context("ctx", None, 4), matrix("d", 300, 12));
    let through = |clip: &Clip, blocks: usize| gradient_through(clip, blocks, &tokens, &context, &d);
    let pass = clip.text().unwrap().pass(&tokens, from_ref(&context)).unwrap();
    let whole = pass.gradient(from_ref(&d)).unwrap().remove(0).data;
    assert_eq!(through(&clip, 3), whole);
    assert_eq!(through(&clip, usize::MAX), whole);
    let cosine = |a: &[f32]| inner(a, &whole) / (inner(a, a) * inner(&whole, &whole)).sqrt();
    let (two, one) = (through(&clip, 2), through(&clip, 1));
    assert!(two != whole && one != two);
    assert!(cosine(&two) > 0.5 && cosine(&two) > cosine(&one), "{} {}", cosine(&two), cosine(&one));
    // What is kept and what is computed again does not matter here either.
    assert_eq!(through(&tiny(0), 2), two);
    assert_eq!(through(&tiny(2 << 20), 2), two);
}

#[test]
fn gradients_in_16_bits_point_the_same_way() {
    let options = super::LoadOptions { text_precision: flatclip_tensor::Precision::I16, ..Default::default() };
    let fixed = Clip::load(&crate::weights::random_of(&super::tiny_config(), 5), options).unwrap();
    let (tokens, context, d) = (classes(40, 4, Position::End), context("ctx", None, 4), matrix("d", 40, 12));
    let [a, b] = [fixed, tiny(1 << 30)].map(|clip| gradient(&clip, &tokens, &context, &d));
    assert!(a != b && inner(&a, &b) / (inner(&a, &a) * inner(&b, &b)).sqrt() > 0.999_99);
}
