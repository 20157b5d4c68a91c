//! The tower as the papers' code runs it: every class its whole padded sequence, every block at every position.

use super::super::block::{Side, Tape};
use super::super::context::Source;
use super::super::text::TextKernels;
use super::super::{ClassName, ClassTokens, Context, Position};
use super::{TEXT_FORMS, assert_close, classes, context, matrix, tiny_text, tiny_with_text};
use crate::architecture::TextPool;
use crate::model::TextTower;
use flatclip_tensor::ops::attention::Queries;
use flatclip_tensor::ops::{normalise, normalise_backward};
use flatclip_tensor::{Activation, Matrix};

/// Unit-norm features and the gradient of `d · features` with respect to the context.
fn full(tower: &TextKernels, tokens: &ClassTokens, context: &Context, d: &Matrix) -> (Matrix, Context) {
    let (width, length) = (tower.width(), tower.config.context_length);
    let mut features = Matrix::zeros(tokens.classes.len(), tower.projection.outputs());
    let mut gradient = Context::zeros_like(context);
    let starts = [0, length];
    let shape = tower.shape(&starts, Queries::All);
    for class in 0..tokens.classes.len() {
        let sources = tokens.sources(class);
        let end = match tower.config.form.pool {
            TextPool::End => sources.len() - 1,
            TextPool::Last => length - 1,
        };
        let mut x = Vec::new();
        for position in 0..length {
            let row = match sources.get(position) {
                Some(Source::Context(token)) => context.row(class, *token),
                Some(Source::Token(id)) => tower.token_row(*id),
                None => tower.token_row(tower.config.form.padding),
            };
            x.extend(row.iter().zip(tower.position_row(position)).map(|(x, p)| x + p));
        }
        let mut tapes: Vec<(Vec<f32>, Tape)> = Vec::new();
        for (block, norms) in tower.blocks.iter().zip(&tower.norms) {
            let (y, tape) = block.forward_taped(&x, &shape, norms);
            tapes.push((std::mem::replace(&mut x, y), tape));
        }
        let last = &x[end * width..(end + 1) * width];
        let mut normal = vec![0.0; width];
        tower.final_norm.apply(last, &mut normal);
        let unit = features.row_mut(class);
        tower.projection.forward(&normal, 1, Activation::Identity, unit);
        let dim = unit.len();
        let norms = normalise(unit, dim);

        let (mut d_raw, mut d_normal) = (vec![0.0; dim], vec![0.0; width]);
        normalise_backward(unit, &norms, d.row(class), &mut d_raw);
        tower.projection.backward(&d_raw, 1, &mut d_normal);
        let mut dx = vec![0.0; length * width];
        tower.final_norm.backward(last, &d_normal, &mut dx[end * width..(end + 1) * width]);
        for (layer, (x, tape)) in tapes.iter().enumerate().rev() {
            dx = tower.blocks[layer].backward(x, tape, &shape, &tower.norms[layer], dx, Side::default());
        }
        for (position, source) in sources.iter().enumerate() {
            if let Source::Context(token) = source {
                let at = gradient.offset(class, *token);
                let d = &dx[position * width..(position + 1) * width];
                gradient.data[at..].iter_mut().zip(d).for_each(|(g, d)| *g += d);
            }
        }
    }
    (features, gradient)
}

#[test]
fn the_fast_form_equals_the_full_one_in_value_and_gradient() {
    let towers = TEXT_FORMS.map(|form| tiny_text(form, 1 << 30));
    let positions = [Position::End, Position::Middle, Position::Front];
    for (tower, position) in towers.iter().flat_map(|tower| positions.map(|position| (tower, position))) {
        // 130 classes make several chunks.
        for (count, class_specific) in [(1, false), (9, false), (9, true), (130, false), (130, true)] {
            let tokens = classes(count, 3, position);
            let context = context("ctx", class_specific.then_some(count), 3);
            let d = matrix("d", count, 12);
            let (features, gradient) = full(tower, &tokens, &context, &d);
            let pass = tower.pass(&tokens, std::slice::from_ref(&context)).unwrap();
            assert_close(pass.features()[0].data(), features.data(), 1e-5);
            let fast = pass.gradient(&[d]).unwrap();
            assert_eq!(fast[0].shape(), context.shape());
            assert_close(&fast[0].data, &gradient.data, 1e-4);
        }
    }
}

#[test]
fn texts_by_their_ids_equal_the_same_texts_as_context() {
    for form in TEXT_FORMS {
        let clip = tiny_with_text(form, 0);
        let tower = clip.text().unwrap();
        let tokens = classes(20, 3, Position::End);
        let words = [4, 5, 6];
        let context = Context { classes: None, tokens: 3, width: 32, data: tower.embed(&words).unwrap().into_vec() };
        let padding = [form.padding; 2];
        let text = |class: &ClassName| [&[38], &words[..], &class.name, &class.rest, &padding].concat();
        let texts: Vec<Vec<u32>> = tokens.classes.iter().map(text).collect();
        let (unit, _) = super::super::Features::unit(tower.encode_tokens(&texts).unwrap());
        assert_eq!(unit, tower.encode(&tokens, &[context]).unwrap()[0]);
        // Alone or in company: the same bytes.
        let alone = tower.encode_tokens(&texts[7..8]).unwrap();
        assert_eq!(alone.row(0), tower.encode_tokens(&texts).unwrap().row(7));
    }
}
