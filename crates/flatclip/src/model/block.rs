//! The transformer block that both towers are made of, forward and backward with respect to its input:
//!
//! ```text
//! m = x + Wo attention(Wqkv LN1(x))        y = m + W2 act(W1 LN2(m))
//! ```
//!
//! Blocks of other families turn queries and keys, gate the MLP, or have norms before `Wo` and `W2`: forward only.
//!
//! The weights are frozen, so the backward pass costs about one forward pass. Only query rows (see [`Queries`]) leave
//! the block, since the last block of a tower is wanted at one row per sequence.

use super::load::Reader;
use crate::Result;
use crate::architecture::VitForm;
use flatclip_tensor::ops::attention::{self, Queries, Shape};
use flatclip_tensor::ops::{
    Rotation, activate, activate_backward, gate, layer_norm, layer_norm_affine_gradient, layer_norm_backward,
};
use flatclip_tensor::{Activation, Linear};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Norm {
    /// Factor per channel.
    pub(crate) weight: Vec<f32>,
    /// Shift per channel.
    pub(crate) bias: Vec<f32>,
    /// Added to the variance.
    pub(crate) epsilon: f32,
}

impl Norm {
    pub(crate) fn zeros(width: usize, epsilon: f32) -> Self {
        Self { weight: vec![0.0; width], bias: vec![0.0; width], epsilon }
    }

    pub(crate) fn apply(&self, x: &[f32], out: &mut [f32]) {
        layer_norm(x, &self.weight, &self.bias, self.epsilon, out);
    }

    /// Adds the input gradient to `dx`.
    pub(crate) fn backward(&self, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        layer_norm_backward(x, &self.weight, self.epsilon, dy, dx);
    }

    /// Treats `self` as a gradient and adds that of a norm with input `x` and output gradient `dy`.
    pub(crate) fn add_gradient(&mut self, x: &[f32], dy: &[f32]) {
        layer_norm_affine_gradient(x, self.epsilon, dy, &mut self.weight, &mut self.bias);
    }
}

/// The norms before the two halves of a block. Apart from the block, since SAR moves them.
pub(crate) type BlockNorms = [Norm; 2];

/// A frozen pre-norm transformer block.
#[derive(Debug)]
pub(crate) struct Block {
    qkv: Linear,
    out: Linear,
    fc: Linear,
    proj: Linear,
    activation: Activation,
    inner: Inner,
}

/// What a block of another family has inside.
#[derive(Debug, Default)]
struct Inner {
    rotation: Option<Arc<Rotation>>,
    attention_norm: Option<Norm>,
    gated: bool,
    mlp_norm: Option<Norm>,
}

/// How the blocks of a tower are made.
#[derive(Clone)]
pub(crate) struct BlockSpec<'a> {
    pub(crate) width: usize,
    pub(crate) mlp: usize,
    pub(crate) activation: Activation,
    pub(crate) form: &'a VitForm,
    pub(crate) rotation: Option<Arc<Rotation>>,
}

/// What the backward pass needs of a forward pass, besides the block's input.
#[derive(Debug)]
pub(crate) struct Tape {
    /// `[rows, 3 width]`.
    pub(crate) qkv: Vec<f32>,
    /// The residual stream between the halves, query rows.
    middle: Vec<f32>,
    /// The MLP before its activation, query rows.
    hidden: Vec<f32>,
}

impl Tape {
    /// Keys and values alone, for passes without a backward pass.
    pub(crate) fn of_keys(qkv: Vec<f32>) -> Self {
        Self { qkv, middle: Vec::new(), hidden: Vec::new() }
    }
}

/// Buffers that forward passes without a tape use again and again.
#[derive(Default)]
pub(crate) struct Scratch {
    normal: Vec<f32>,
    pub(crate) qkv: Vec<f32>,
    attention: Vec<f32>,
    hidden: Vec<f32>,
    inner: Vec<f32>,
}

/// What flows back into a block besides the gradient of its output, and where other gradients go.
#[derive(Default)]
pub(crate) struct Side<'a> {
    /// Gradient of this block's keys and values from sequences that shared them.
    pub(crate) shared: Option<&'a [f32]>,
    /// Where the gradient of the shared prefix before these sequences is added.
    pub(crate) prefix: Option<&'a mut [f32]>,
    /// Where the gradients of the two norms' parameters are added.
    pub(crate) norms: Option<&'a mut BlockNorms>,
    /// The gradient of the block's input is not needed: only that of the prefix is, and nothing is returned.
    pub(crate) fixed_input: bool,
}

impl Block {
    /// The block and its norms.
    pub(crate) fn load(reader: &Reader<'_>, name: &str, spec: &BlockSpec<'_>) -> Result<(Self, BlockNorms)> {
        let &BlockSpec { width, mlp, activation, form, .. } = spec;
        let of = |part: &str| format!("{name}.{part}");
        let norm = |part: &str, width| reader.norm(&of(part), width, form.epsilon);
        let mut norms = [norm("ln_1", width)?, norm("ln_2", width)?];
        let mut attention_norm = form.attention_norm.then(|| norm("attn.ln_inner", width)).transpose()?;
        let mut mlp_norm = form.mlp_norm.then(|| norm("mlp.ln_inner", mlp)).transpose()?;
        let linear = |part: &str, outputs, inputs, before: Option<&mut Norm>| match before {
            None => reader.linear(&of(part), outputs, inputs),
            Some(norm) => {
                let names = [of(&format!("{part}.weight")), of(&format!("{part}.bias"))];
                reader.linear_behind(norm, &names, outputs, inputs)
            }
        };
        let [first, second] = &mut norms;
        let qkv = [of("attn.in_proj_weight"), of("attn.in_proj_bias")];
        let hidden = if form.gated { 2 * mlp } else { mlp };
        let block = Self {
            qkv: reader.linear_behind(first, &qkv, 3 * width, width)?,
            out: linear("attn.out_proj", width, width, attention_norm.as_mut())?,
            fc: linear("mlp.c_fc", hidden, width, Some(second))?,
            proj: linear("mlp.c_proj", width, mlp, mlp_norm.as_mut())?,
            activation,
            inner: Inner { rotation: spec.rotation.clone(), attention_norm, gated: form.gated, mlp_norm },
        };
        Ok((block, norms))
    }

    /// Floats that a [`Tape`] holds per row.
    pub(crate) fn tape_width(&self) -> usize {
        4 * self.qkv.inputs() + self.fc.outputs()
    }

    /// `x` becomes the output at the query rows. `scratch.qkv` holds this block's keys and values afterwards.
    pub(crate) fn forward(&self, x: &mut Vec<f32>, shape: &Shape<'_>, norms: &BlockNorms, scratch: &mut Scratch) {
        let (rows, queries, width) = (shape.rows(), shape.query_count(), shape.width);
        let Scratch { normal, qkv, attention, hidden, inner } = scratch;
        resize(normal, rows * width);
        norms[0].apply(x, normal);
        resize(qkv, rows * 3 * width);
        self.qkv.forward(normal, rows, Activation::Identity, qkv);
        if let Some(rotation) = &self.inner.rotation {
            rotation.apply(qkv, width);
        }
        keep_query_rows(x, shape);
        if queries == 0 {
            return;
        }
        resize(attention, queries * width);
        attention::forward(shape, qkv, attention);
        apply_inner(self.inner.attention_norm.as_ref(), attention, inner);
        self.out.forward_add(attention, queries, x);
        resize(normal, queries * width);
        norms[1].apply(x, normal);
        resize(hidden, queries * self.fc.outputs());
        if self.inner.gated {
            self.fc.forward(normal, queries, Activation::Identity, hidden);
            resize(inner, hidden.len() / 2);
            gate(hidden, self.fc.outputs() / 2, inner);
            std::mem::swap(hidden, inner);
        } else {
            self.fc.forward(normal, queries, self.activation, hidden);
        }
        apply_inner(self.inner.mlp_norm.as_ref(), hidden, inner);
        self.proj.forward_add(hidden, queries, x);
    }

    /// The same with what the backward pass needs.
    pub(crate) fn forward_taped(&self, x: &[f32], shape: &Shape<'_>, norms: &BlockNorms) -> (Vec<f32>, Tape) {
        let tape = self.tape(x, shape, norms);
        let mut active = tape.hidden.clone();
        activate(self.activation, &mut active);
        let mut y = tape.middle.clone();
        self.proj.forward_add(&active, shape.query_count(), &mut y);
        (y, tape)
    }

    /// What the backward pass needs, without the output: two thirds of a forward pass.
    pub(crate) fn tape(&self, x: &[f32], shape: &Shape<'_>, norms: &BlockNorms) -> Tape {
        let (rows, queries, width) = (shape.rows(), shape.query_count(), shape.width);
        debug_assert!(matches!(
            self.inner,
            Inner { rotation: None, attention_norm: None, gated: false, mlp_norm: None }
        ));
        let mut normal = vec![0.0; rows * width];
        norms[0].apply(x, &mut normal);
        let mut qkv = vec![0.0; rows * 3 * width];
        self.qkv.forward(&normal, rows, Activation::Identity, &mut qkv);
        if queries == 0 {
            return Tape::of_keys(qkv);
        }
        let mut attention = vec![0.0; queries * width];
        attention::forward(shape, &qkv, &mut attention);
        let mut middle = x.to_vec();
        keep_query_rows(&mut middle, shape);
        self.out.forward_add(&attention, queries, &mut middle);
        normal.truncate(queries * width);
        norms[1].apply(&middle, &mut normal);
        let mut hidden = vec![0.0; queries * self.fc.outputs()];
        self.fc.forward(&normal, queries, Activation::Identity, &mut hidden);
        Tape { qkv, middle, hidden }
    }

    /// The gradient with respect to the block's input `x`, from that of its output at the query rows.
    pub(crate) fn backward(
        &self,
        x: &[f32],
        tape: &Tape,
        shape: &Shape<'_>,
        norms: &BlockNorms,
        mut dy: Vec<f32>,
        side: Side<'_>,
    ) -> Vec<f32> {
        let (rows, queries, width) = (shape.rows(), shape.query_count(), shape.width);
        let mut norm_gradients = side.norms;
        let mut d_qkv = vec![0.0; rows * 3 * width];
        if queries > 0 {
            let mut d_hidden = vec![0.0; queries * self.fc.outputs()];
            self.proj.backward(&dy, queries, &mut d_hidden);
            activate_backward(self.activation, &tape.hidden, &mut d_hidden);
            let mut d_normal = vec![0.0; queries * width];
            self.fc.backward(&d_hidden, queries, &mut d_normal);
            norms[1].backward(&tape.middle, &d_normal, &mut dy);
            if let Some(gradients) = norm_gradients.as_deref_mut() {
                gradients[1].add_gradient(&tape.middle, &d_normal);
            }
            let mut d_attention = d_normal;
            self.out.backward(&dy, queries, &mut d_attention);
            attention::backward(shape, &tape.qkv, &d_attention, &mut d_qkv, side.prefix);
        }
        if side.fixed_input {
            return Vec::new();
        }
        if let Some(shared) = side.shared {
            d_qkv.iter_mut().zip(shared).for_each(|(d, s)| *d += s);
        }
        let mut d_normal = vec![0.0; rows * width];
        self.qkv.backward(&d_qkv, rows, &mut d_normal);
        let mut dx = spread_query_rows(dy, shape);
        norms[0].backward(x, &d_normal, &mut dx);
        if let Some(gradients) = norm_gradients {
            gradients[0].add_gradient(x, &d_normal);
        }
        dx
    }
}

/// `x` behind a norm inside a block, if there is one.
fn apply_inner(norm: Option<&Norm>, x: &mut Vec<f32>, spare: &mut Vec<f32>) {
    if let Some(norm) = norm {
        resize(spare, x.len());
        norm.apply(x, spare);
        std::mem::swap(x, spare);
    }
}

fn resize(buffer: &mut Vec<f32>, size: usize) {
    buffer.resize(size, 0.0);
}

/// Keeps the query rows of `x`.
fn keep_query_rows(x: &mut Vec<f32>, shape: &Shape<'_>) {
    if shape.queries == Queries::All {
        return;
    }
    for (to, from) in shape.query_rows().enumerate() {
        x.copy_within(from * shape.width..(from + 1) * shape.width, to * shape.width);
    }
    x.truncate(shape.query_count() * shape.width);
}

/// The inverse: query rows at their places, zeros elsewhere.
fn spread_query_rows(d: Vec<f32>, shape: &Shape<'_>) -> Vec<f32> {
    if shape.queries == Queries::All {
        return d;
    }
    let width = shape.width;
    let mut all = vec![0.0; shape.rows() * width];
    for (from, to) in shape.query_rows().enumerate() {
        all[to * width..(to + 1) * width].copy_from_slice(&d[from * width..(from + 1) * width]);
    }
    all
}
