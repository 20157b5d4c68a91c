//! What is trained and what prompt files hold: named arrays, and a small layer y = x Wᵀ + b with its gradient (the meta-net of
//! CoCoOp, the projections of MaPLe).

use flatclip_tensor::Matrix;

/// A named row-major array of `f32`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in files and messages.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Vec<f32>,
}

impl Tensor {
    /// Names some values.
    ///
    /// # Panics
    /// If the values do not fill the shape: the caller made them.
    pub fn new(name: impl Into<String>, shape: Vec<usize>, values: Vec<f32>) -> Self {
        let name = name.into();
        assert_eq!(shape.iter().product::<usize>(), values.len(), "tensor {name} does not fill {shape:?}");
        Self { name, shape, values }
    }

    pub(crate) fn matrix(name: impl Into<String>, matrix: &Matrix) -> Self {
        Self::new(name, vec![matrix.rows(), matrix.cols()], matrix.data().to_vec())
    }
}

/// `y = x Wᵀ + b`, with `W` stored `[out, in]` as torch does.
#[derive(Clone, Debug, PartialEq)]
pub struct Affine {
    /// `[out, in]`.
    pub weight: Matrix,
    /// `[out]`.
    pub bias: Vec<f32>,
}

impl Affine {
    /// As the arrays `name.weight` and `name.bias`.
    pub fn tensors(&self, name: &str) -> [Tensor; 2] {
        [
            Tensor::matrix(format!("{name}.weight"), &self.weight),
            Tensor::new(format!("{name}.bias"), vec![self.bias.len()], self.bias.clone()),
        ]
    }

    /// `[rows, in]` to `[rows, out]`.
    pub fn apply(&self, input: &Matrix) -> Matrix {
        let mut output = Matrix::zeros(input.rows(), self.bias.len());
        for (row, x) in input.iter_rows().enumerate() {
            for ((y, w), b) in output.row_mut(row).iter_mut().zip(self.weight.iter_rows()).zip(&self.bias) {
                *y = b + dot(w, x);
            }
        }
        output
    }

    /// Adds `alpha` times what it gives for `input` to `output`.
    pub fn add_to(&self, output: &mut Matrix, input: &Matrix, alpha: f32) {
        output.data_mut().iter_mut().zip(self.apply(input).data()).for_each(|(o, y)| *o += alpha * y);
    }

    /// Gradients of the input, the weight and the bias, from that of the output.
    pub fn gradient(&self, input: &Matrix, d_output: &Matrix) -> (Matrix, Matrix, Vec<f32>) {
        let mut d_input = Matrix::zeros(input.rows(), input.cols());
        let mut d_weight = Matrix::zeros(self.weight.rows(), self.weight.cols());
        let mut d_bias = vec![0.0; self.bias.len()];
        for row in 0..input.rows() {
            for (out, &d) in d_output.row(row).iter().enumerate() {
                d_bias[out] += d;
                add_scaled(d_weight.row_mut(out), d, input.row(row));
                add_scaled(d_input.row_mut(row), d, self.weight.row(out));
            }
        }
        (d_input, d_weight, d_bias)
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn add_scaled(into: &mut [f32], factor: f32, from: &[f32]) {
    into.iter_mut().zip(from).for_each(|(a, b)| *a += factor * b);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let layer =
            Affine { weight: Matrix::from_vec(2, 3, vec![0.5, -1.0, 2.0, 0.1, 0.2, -0.3]), bias: vec![0.3, -0.7] };
        let input = Matrix::from_vec(2, 3, vec![1.0, 2.0, -1.0, 0.5, 0.25, 4.0]);
        let weights = Matrix::from_vec(2, 2, vec![1.0, -2.0, 0.5, 3.0]);
        let loss = |layer: &Affine, input: &Matrix| -> f32 {
            layer.apply(input).data().iter().zip(weights.data()).map(|(y, w)| y * w).sum()
        };
        let (d_input, d_weight, d_bias) = layer.gradient(&input, &weights);
        let step = 1e-2;
        for at in 0..6 {
            let (mut shifted, mut moved) = (layer.clone(), input.clone());
            shifted.weight.data_mut()[at] += step;
            moved.data_mut()[at] += step;
            let numeric = |value: f32| (value - loss(&layer, &input)) / step;
            assert!((numeric(loss(&shifted, &input)) - d_weight.data()[at]).abs() < 1e-3);
            assert!((numeric(loss(&layer, &moved)) - d_input.data()[at]).abs() < 1e-3);
        }
        assert_eq!(d_bias, [1.5, 1.0]);
    }
}
