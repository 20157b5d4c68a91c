//! Mean and variance of the image tower's tokens over training images: what PromptAlign aligns a test image with.

use crate::digest::matrix_hash;
use crate::prompt::{Tensor, decode_arrays, encode_arrays};
use crate::weights::Stored;
use crate::weights::torch_file::{self, Value};
use crate::{Error, Result, files};
use flatclip_tensor::Matrix;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What statistics were computed from. Empty where an imported file does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatisticsOrigin {
    /// Fingerprint of the model's weights.
    pub weights: String,
    /// Fingerprint of the visual prompts; empty for the plain tower.
    pub visual_prompts: String,
    /// The data set, or the imported files.
    pub source: String,
    pub images: usize,
    /// The program that computed them.
    pub version: String,
}

/// Per block, token and channel of what the block reads (visual prompts included): mean and population variance over images.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceStatistics {
    /// One `[tokens, width]` per block.
    pub means: Vec<Matrix>,
    /// One `[tokens, width]` per block.
    pub variances: Vec<Matrix>,
    pub origin: StatisticsOrigin,
}

impl SourceStatistics {
    /// Checks that means and variances belong together.
    pub fn new(means: Vec<Matrix>, variances: Vec<Matrix>) -> Result<Self> {
        let shapes = |all: &[Matrix]| all.iter().map(|m| (m.rows(), m.cols())).collect::<Vec<_>>();
        let (a, b) = (shapes(&means), shapes(&variances));
        if a != b || a.is_empty() || a.iter().any(|s| *s != a[0]) {
            let reason =
                format!("means of shapes {a:?}, variances of shapes {b:?}; expected one [tokens, width] per block");
            return Err(Error::config("promptalign.statistics", reason));
        }
        if means.iter().chain(&variances).any(|m| m.data().iter().any(|x| !x.is_finite())) {
            return Err(Error::NotFinite {
                place: "promptalign.statistics".into(),
                reason: "means or variances hold NaN or infinity; compute or import them again".into(),
            });
        }
        Ok(Self { means, variances, origin: StatisticsOrigin::default() })
    }

    /// Why they may not belong to a model (by the fingerprint of its weights) and a prompt (by that of its visual prompts).
    /// Imported statistics do not record their model and prompt, so they are not checked.
    pub fn mismatch(&self, weights: &str, visual_prompts: &str) -> Option<String> {
        let StatisticsOrigin { weights: of_model, visual_prompts: of_prompt, .. } = &self.origin;
        if of_model.is_empty() {
            return None;
        }
        if of_model != weights {
            return Some(format!("computed with the model {of_model}, this is {weights}; compute them again"));
        }
        let differs = of_prompt != visual_prompts;
        differs.then(|| "computed with other visual prompts than these; compute them again with this prompt".to_owned())
    }

    /// As a safetensors file: `means` and `variances`, each `[blocks, tokens, width]`.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let stacked = |name: &str, all: &[Matrix]| {
            let shape = vec![all.len(), all[0].rows(), all[0].cols()];
            Tensor::new(name, shape, all.iter().flat_map(|m| m.data().iter().copied()).collect())
        };
        let tensors = [stacked("means", &self.means), stacked("variances", &self.variances)];
        let fault = |reason: String| Error::config("statistics", reason);
        let origin = serde_json::to_string(&self.origin).map_err(|e| fault(e.to_string()))?;
        encode_arrays(&tensors, &origin).map_err(fault)
    }

    /// Reads what [`SourceStatistics::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let fault = |reason: String| Error::config("statistics", reason);
        let (tensors, origin) = decode_arrays(bytes).map_err(fault)?;
        let stacked = |name: &str| -> Result<Vec<Matrix>> {
            let tensor = tensors.iter().find(|t| t.name == name);
            match tensor.map(|t| (t.shape.as_slice(), &t.values)) {
                Some((&[_, rows, cols], values)) if rows * cols > 0 => Ok(blocks(values, rows, cols)),
                _ => Err(fault(format!("expected a tensor `{name}` of shape [blocks, tokens, width]"))),
            }
        };
        let origin = origin.map(|json| serde_json::from_str(&json)).transpose();
        let origin = origin.map_err(|e| fault(format!("metadata: {e}")))?.unwrap_or_default();
        Ok(Self { origin, ..Self::new(stacked("means")?, stacked("variances")?)? })
    }
}

/// `[blocks, rows, cols]` as one matrix per block.
fn blocks(values: &[f32], rows: usize, cols: usize) -> Vec<Matrix> {
    values.chunks_exact(rows * cols).map(|m| Matrix::from_vec(rows, cols, m.to_vec())).collect()
}

/// Sums over images, from which [`SourceStatistics`] come. Batches may be of any size; the order of images is the order of sums.
#[derive(Clone, Debug)]
pub struct StatisticsSum {
    shape: (usize, usize),
    count: usize,
    sums: Vec<Vec<f64>>,
    squares: Vec<Vec<f64>>,
}

impl StatisticsSum {
    /// For `blocks` blocks with `tokens` tokens of `width` channels.
    pub fn new(blocks: usize, tokens: usize, width: usize) -> Self {
        let zeros = vec![vec![0.0; tokens * width]; blocks];
        Self { shape: (tokens, width), count: 0, sums: zeros.clone(), squares: zeros }
    }

    /// Adds images: `tokens[block]` is `[images, tokens, width]`.
    pub fn add(&mut self, tokens: &[&[f32]]) -> Result<()> {
        let size = self.shape.0 * self.shape.1;
        let whole =
            tokens.len() == self.sums.len() && tokens.iter().all(|t| t.len() % size == 0 && t.len() == tokens[0].len());
        if !whole {
            return Err(Error::config(
                "statistics",
                format!("tokens do not fill {} blocks of {size}", self.sums.len()),
            ));
        }
        for ((block, sums), squares) in tokens.iter().zip(&mut self.sums).zip(&mut self.squares) {
            for image in block.chunks_exact(size) {
                for ((&x, sum), square) in image.iter().zip(sums.iter_mut()).zip(squares.iter_mut()) {
                    *sum += f64::from(x);
                    *square += f64::from(x) * f64::from(x);
                }
            }
        }
        self.count += tokens.first().map_or(0, |t| t.len() / size);
        Ok(())
    }

    pub fn finish(self) -> Result<SourceStatistics> {
        if self.count == 0 {
            return Err(Error::config("statistics", "no image was added"));
        }
        let n = self.count as f64;
        let matrix = |values: Vec<f32>| Matrix::from_vec(self.shape.0, self.shape.1, values);
        let means = self.sums.iter().map(|sum| matrix(sum.iter().map(|s| (s / n) as f32).collect())).collect();
        let variance = |(sum, square): (&f64, &f64)| (square / n - (sum / n).powi(2)).max(0.0) as f32;
        let variances = self.sums.iter().zip(&self.squares);
        let variances = variances.map(|(s, q)| matrix(s.iter().zip(q).map(variance).collect())).collect();
        SourceStatistics::new(means, variances)
    }
}

/// One fingerprint of a prompt's visual prompts; empty when there are none.
pub fn prompts_hash(visual_prompts: &[Matrix]) -> String {
    visual_prompts.iter().map(matrix_hash).collect::<Vec<_>>().join(" ")
}

/// One fingerprint of all means and variances.
pub fn statistics_hash(statistics: &SourceStatistics) -> String {
    let all = || statistics.means.iter().chain(&statistics.variances);
    let rows = all().map(Matrix::rows).sum();
    let data = all().flat_map(|m| m.data().iter().copied()).collect();
    matrix_hash(&Matrix::from_vec(rows, statistics.means[0].cols(), data))
}

/// Reads statistics that [`save_statistics`] wrote.
pub fn load_statistics(path: &Path) -> Result<SourceStatistics> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    SourceStatistics::from_bytes(&bytes).map_err(|error| named(path, &error))
}

/// Writes statistics: the file is complete or absent.
pub fn save_statistics(path: &Path, statistics: &SourceStatistics) -> Result<()> {
    files::write_atomic(path, &statistics.to_bytes()?)
}

/// Takes over the two tensors that PromptAlign's authors publish, each `[blocks, tokens, width]` (or a list of
/// `[tokens, width]`) in a file of `torch.save`.
pub fn import_statistics(means: &Path, variances: &Path) -> Result<SourceStatistics> {
    let statistics =
        SourceStatistics::new(stacked(means)?, stacked(variances)?).map_err(|error| named(variances, &error))?;
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let source = format!("{}, {}", name(means), name(variances));
    Ok(SourceStatistics { origin: StatisticsOrigin { source, ..StatisticsOrigin::default() }, ..statistics })
}

fn stacked(path: &Path) -> Result<Vec<Matrix>> {
    let value = torch_file::load(path)?;
    let wrong = |found: String| Error::Prompt {
        path: path.to_path_buf(),
        reason: format!("expected one tensor [blocks, tokens, width] or a list of [tokens, width], found {found}"),
    };
    let matrix = |tensor: &Stored| match tensor.shape[..] {
        [rows, cols] => Ok(Matrix::from_vec(rows, cols, tensor.values()?)),
        _ => Err(wrong(format!("a tensor of shape {:?} in a list", tensor.shape))),
    };
    match &value {
        Value::Tensor(tensor) => match tensor.shape[..] {
            [_, rows, cols] if rows * cols > 0 => Ok(blocks(&tensor.values()?, rows, cols)),
            _ => Err(wrong(format!("a tensor of shape {:?}", tensor.shape))),
        },
        Value::List(items) => items
            .iter()
            .map(|item| match item {
                Value::Tensor(tensor) => matrix(tensor),
                _ => Err(wrong("a list of something else".into())),
            })
            .collect(),
        _ => Err(wrong("neither".into())),
    }
}

fn named(path: &Path, error: &Error) -> Error {
    let reason = format!("{error}; expected a file of token statistics");
    Error::Prompt { path: path.to_path_buf(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture;

    #[test]
    fn batches_do_not_change_mean_and_variance() {
        let images: Vec<f32> = (0..12).map(|i| (i * i) as f32).collect();
        let mut whole = StatisticsSum::new(1, 2, 2);
        whole.add(&[&images]).unwrap();
        let mut parts = StatisticsSum::new(1, 2, 2);
        images.chunks(4).for_each(|part| parts.add(&[part]).unwrap());
        let (whole, parts) = (whole.finish().unwrap(), parts.finish().unwrap());
        assert_eq!(whole, parts);
        // Entries 0, 4, 8 of the squares: 0, 16, 64.
        assert!((whole.means[0].data()[0] - 80.0 / 3.0).abs() < 1e-4);
        assert!(
            (whole.variances[0].data()[0] - (16.0f32.powi(2) + 64.0f32.powi(2)) / 3.0 + (80.0f32 / 3.0).powi(2)).abs()
                < 1e-2
        );
        assert!(StatisticsSum::new(1, 2, 2).finish().is_err());
        let origin = StatisticsOrigin { weights: "w".into(), images: 3, ..StatisticsOrigin::default() };
        let whole = SourceStatistics { origin, ..whole };
        assert_eq!(SourceStatistics::from_bytes(&whole.to_bytes().unwrap()).unwrap(), whole);
        assert!(whole.mismatch("w", "").is_none());
        assert!(whole.mismatch("other", "").unwrap().contains("other"));
        assert!(whole.mismatch("w", "prompts").unwrap().contains("this prompt"));
        assert!(parts.mismatch("anything", "at all").is_none());
        assert!(SourceStatistics::from_bytes(b"something else").is_err());
    }

    #[test]
    fn the_authors_tensors_are_taken_over_and_other_files_named() {
        let (means, variances) = (fixture("torch/statistics-means.pt"), fixture("torch/statistics-variances.pt"));
        let found = import_statistics(&means, &variances).unwrap();
        assert_eq!(found.means[1].row(2), [20.0, 21.0, 22.0, 23.0]);
        assert_eq!(found.variances[0].row(0), [1.0, 2.0, 3.0, 4.0]);
        let error = import_statistics(&fixture("torch/varied.pt"), &variances).unwrap_err().to_string();
        assert!(error.contains("varied.pt") && error.contains("[blocks, tokens, width]"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("statistics.safetensors");
        save_statistics(&path, &found).unwrap();
        assert_eq!(load_statistics(&path).unwrap(), found);
        let error = load_statistics(&means).unwrap_err().to_string();
        assert!(error.contains("statistics-means.pt") && error.contains("token statistics"), "{error}");
    }
}
