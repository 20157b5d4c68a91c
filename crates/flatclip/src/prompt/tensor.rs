//! A named array: what is trained, and what a prompt file holds.

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
}
