//! A row-major matrix of `f32`, the container that modules exchange.

/// A row-major `[rows, cols]` matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

impl Matrix {
    /// A matrix of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Self { rows, cols, data: vec![0.0; rows * cols] }
    }

    /// Wraps row-major data.
    ///
    /// # Panics
    /// If `data.len() != rows * cols`: the caller made the data, so a mismatch is a bug, not bad input.
    pub fn from_vec(rows: usize, cols: usize, data: Vec<f32>) -> Self {
        assert_eq!(data.len(), rows * cols, "matrix data does not fill [{rows}, {cols}]");
        Self { rows, cols, data }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// All values, row after row.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// All values, row after row, mutable.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// The values, without the shape.
    pub fn into_vec(self) -> Vec<f32> {
        self.data
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.data[index * self.cols..(index + 1) * self.cols]
    }

    /// Row `index`, mutable.
    pub fn row_mut(&mut self, index: usize) -> &mut [f32] {
        &mut self.data[index * self.cols..(index + 1) * self.cols]
    }

    /// The rows, in order.
    pub fn iter_rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.data.chunks_exact(self.cols.max(1))
    }

    /// The listed rows as a new matrix.
    pub fn select_rows(&self, indices: &[usize]) -> Self {
        let mut data = Vec::with_capacity(indices.len() * self.cols);
        for &index in indices {
            data.extend_from_slice(self.row(index));
        }
        Self::from_vec(indices.len(), self.cols, data)
    }

    /// The transpose.
    pub fn transpose(&self) -> Self {
        let mut out = Self::zeros(self.cols, self.rows);
        for r in 0..self.rows {
            for c in 0..self.cols {
                out.data[c * self.rows + r] = self.data[r * self.cols + c];
            }
        }
        out
    }

    /// Euclidean norm over all entries.
    pub fn norm(&self) -> f32 {
        self.data.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt() as f32
    }
}
