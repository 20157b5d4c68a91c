//! Features of the views of one image.

use flatclip_tensor::Matrix;
use std::ops::Range;

/// Unit-norm features of all views and the norms they had.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewFeatures {
    /// `[views, width]`, row 0 is the original.
    pub unit: Matrix,
    /// One per view.
    pub norms: Vec<f32>,
}

impl ViewFeatures {
    /// Of no view yet.
    pub fn none() -> Self {
        Self { unit: Matrix::default(), norms: Vec::new() }
    }

    /// Those of some of the views.
    pub fn part(&self, views: Range<usize>) -> Self {
        let rows: Vec<usize> = views.clone().collect();
        Self { unit: self.unit.select_rows(&rows), norms: self.norms[views].to_vec() }
    }

    /// Adds later views of the same image.
    pub fn append(&mut self, later: &Self) {
        let data = [self.unit.data(), later.unit.data()].concat();
        self.unit = Matrix::from_vec(self.unit.rows() + later.unit.rows(), self.unit.cols(), data);
        self.norms.extend_from_slice(&later.norms);
    }
}
