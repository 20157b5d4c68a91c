//! Token statistics as files: ours, and those that PromptAlign's authors publish.

use super::{SourceStatistics, StatisticsOrigin};
use crate::digest::matrix_hash;
use crate::weights::Stored;
use crate::weights::torch_file::{self, Value};
use crate::{Error, Result, files};
use flatclip_tensor::Matrix;
use std::path::Path;

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
    Ok(statistics.with_origin(StatisticsOrigin { source, ..StatisticsOrigin::default() }))
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
            [_, rows, cols] if rows * cols > 0 => {
                let blocks = tensor.values()?;
                Ok(blocks.chunks_exact(rows * cols).map(|m| Matrix::from_vec(rows, cols, m.to_vec())).collect())
            }
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
