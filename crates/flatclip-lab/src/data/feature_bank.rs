//! Features of augmented views of the training images, encoded once: for tuners that leave the image tower as it is.

use flatclip::model::Features;
use flatclip::prompt::{Tensor, decode_arrays, encode_arrays, normalise_rows};
use flatclip::{Error, Result, files};
use flatclip_tensor::Matrix;
use std::path::Path;

/// Raw features of n augmented views of every image.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureBank {
    views: usize,
    /// `[images * views, D]`.
    raw: Matrix,
}

impl FeatureBank {
    /// From raw features, `[images * views, D]`, image after image.
    pub fn new(views: usize, raw: Matrix) -> Result<Self> {
        if views == 0 || raw.rows() == 0 || !raw.rows().is_multiple_of(views) {
            return Err(Error::config("views.bank", format!("{} rows of {views} views each", raw.rows())));
        }
        Ok(Self { views, raw })
    }

    /// Views of each image.
    pub fn views(&self) -> usize {
        self.views
    }

    /// Number of images.
    pub fn images(&self) -> usize {
        self.raw.rows() / self.views
    }

    /// Unit-norm `[B, D]`: the given view of each image.
    pub fn select(&self, picks: &[(usize, usize)]) -> Matrix {
        let rows: Vec<usize> = picks.iter().map(|(image, view)| image * self.views + view).collect();
        Features::unit(self.raw.select_rows(&rows)).0
    }

    /// Unit-norm `[images, D]`: the first view of every image.
    pub(crate) fn first_views(&self) -> Matrix {
        self.select(&(0..self.images()).map(|image| (image, 0)).collect::<Vec<_>>())
    }

    /// Tip-Adapter's keys, `[images, D]`: the mean of an image's raw views, normalised.
    pub fn mean_keys(&self) -> Result<Matrix> {
        let mut keys = Matrix::zeros(self.images(), self.raw.cols());
        for (row, values) in self.raw.iter_rows().enumerate() {
            keys.row_mut(row / self.views).iter_mut().zip(values).for_each(|(k, v)| *k += v / self.views as f32);
        }
        normalise_rows(&mut keys)?;
        Ok(keys)
    }

    /// Writes the bank; `key` names what it was made from.
    pub fn save(&self, path: &Path, key: &str) -> Result<()> {
        let shape = vec![self.images(), self.views, self.raw.cols()];
        let tensor = Tensor::new("features", shape, self.raw.data().to_vec());
        let bytes = encode_arrays(&[tensor], key).map_err(|reason| Error::Data { path: path.into(), reason })?;
        files::write_atomic(path, &bytes)
    }

    /// Reads a bank, if there is one made from the same.
    pub fn load(path: &Path, key: &str) -> Option<Self> {
        let (mut tensors, found) = decode_arrays(&std::fs::read(path).ok()?).ok()?;
        let tensor = tensors.pop().filter(|_| found.as_deref() == Some(key))?;
        match *tensor.shape.as_slice() {
            [images, views, width] => Self::new(views, Matrix::from_vec(images * views, width, tensor.values)).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_survives_its_file_and_is_not_taken_for_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("features.safetensors");
        let raw = Matrix::from_vec(4, 2, vec![3.0, 0.0, 0.0, 4.0, 1.0, 1.0, 2.0, 2.0]);
        let bank = FeatureBank::new(2, raw).unwrap();
        bank.save(&path, "model a").unwrap();
        assert_eq!(FeatureBank::load(&path, "model a"), Some(bank.clone()));
        assert_eq!(FeatureBank::load(&path, "model b"), None);
        assert_eq!(bank.first_views().row(0), [1.0, 0.0]);
        // The mean is taken before the norm: (1.5, 2) and not the middle of two unit vectors.
        assert_eq!(bank.mean_keys().unwrap().row(0), [0.6, 0.8]);
    }
}
