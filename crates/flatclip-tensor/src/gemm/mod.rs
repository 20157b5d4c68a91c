//! Matrix products: `Linear` for frozen weights (packed once), `product_nt`/`product_nn` for two activations.

mod plain;

/// The nonlinearity fused behind a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Leave the value.
    Identity,
    /// `max(0, x)`.
    Relu,
    /// `x * sigmoid(1.702 x)`: OpenAI's CLIP.
    QuickGelu,
    /// The exact GELU, `x * Phi(x)`.
    Gelu,
}

/// A frozen affine map `y = x Wᵀ + b` with `W` of shape `[outputs, inputs]`, as `nn.Linear` stores it.
#[derive(Debug)]
pub struct Linear {
    outputs: usize,
    inputs: usize,
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// Packs `weight` (`[outputs, inputs]`, row-major).
    ///
    /// # Panics
    /// If the slices do not have these sizes: shapes are checked where weights are read.
    pub fn new(outputs: usize, inputs: usize, weight: &[f32], bias: Option<&[f32]>) -> Self {
        assert_eq!(weight.len(), outputs * inputs);
        assert!(bias.is_none_or(|b| b.len() == outputs));
        Self { outputs, inputs, weight: weight.to_vec(), bias: bias.map(<[f32]>::to_vec) }
    }

    /// Width of the result.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Width of the input.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// `out[rows, outputs] = act(x Wᵀ + b)`.
    pub fn forward(&self, x: &[f32], rows: usize, activation: Activation, out: &mut [f32]) {
        plain::product_nt(x, rows, &self.weight, self.outputs, self.inputs, out);
        plain::finish(out, self.outputs, self.bias.as_deref(), activation);
    }

    /// `out[rows, outputs] += x Wᵀ + b`: the residual form.
    pub fn forward_add(&self, x: &[f32], rows: usize, out: &mut [f32]) {
        let mut y = vec![0.0; rows * self.outputs];
        self.forward(x, rows, Activation::Identity, &mut y);
        out.iter_mut().zip(&y).for_each(|(o, y)| *o += y);
    }

    /// The input gradient, `dx[rows, inputs] = dy W` (no bias, no activation).
    pub fn backward(&self, dy: &[f32], rows: usize, dx: &mut [f32]) {
        plain::product_nn(dy, rows, &self.weight, self.inputs, self.outputs, dx);
    }
}

/// `out[m, n] = a[m, k] · b[n, k]ᵀ` for two activations.
pub fn product_nt(a: &[f32], m: usize, b: &[f32], n: usize, k: usize, out: &mut [f32]) {
    plain::product_nt(a, m, b, n, k, out);
}

/// `out[m, n] = a[m, k] · b[k, n]` for two activations.
pub fn product_nn(a: &[f32], m: usize, b: &[f32], n: usize, k: usize, out: &mut [f32]) {
    plain::product_nn(a, m, b, n, k, out);
}
