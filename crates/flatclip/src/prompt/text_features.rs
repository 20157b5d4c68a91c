//! Text features of other tools: a `[K, D]` matrix in a safetensors or `.npy` file, read and written.

use super::{Prompt, Tensor, encode_arrays, encode_plain};
use crate::weights::{Dtype, npy};
use crate::{Error, Result, files};
use flatclip_tensor::Matrix;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as StoredDtype, TensorView};
use std::path::Path;

/// Larger files are not class embeddings: 100 000 classes of width 1024 in f64 are 0.8 GB.
const MAX_BYTES: u64 = 1 << 30;

/// Reads a prompt that is nothing but text features. Rows are scaled to unit norm.
pub fn read_text_features(path: &Path) -> Result<Prompt> {
    let bytes = read_bounded(path)?;
    let features =
        if bytes.starts_with(npy::MAGIC) { from_npy(&bytes, path)? } else { from_safetensors(&bytes, path)? };
    prompt_of(features, path)
}

/// Reads the text features of several prompts, such as one description of each class after the other: every matrix `[K, D]` of a
/// safetensors file in the order of their names, or what [`read_text_features`] reads.
pub fn read_text_bank(path: &Path) -> Result<Vec<Prompt>> {
    let bytes = read_bounded(path)?;
    match SafeTensors::deserialize(&bytes) {
        Ok(file) if named(&matrices(&file)).is_none() && matrices(&file).len() > 1 => {
            matrices(&file).iter().map(|name| prompt_of(matrix(&file, name, path)?, path)).collect()
        }
        _ => Ok(vec![read_text_features(path)?]),
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>> {
    let length = std::fs::metadata(path).map_err(Error::io(path))?.len();
    if length > MAX_BYTES {
        let hint = "a [K, D] matrix of class embeddings is expected here".to_owned();
        return Err(Error::Limit { what: path.display().to_string(), asked: length, allowed: MAX_BYTES, hint });
    }
    std::fs::read(path).map_err(Error::io(path))
}

fn prompt_of(features: Matrix, path: &Path) -> Result<Prompt> {
    check(&features, path)?;
    let mut prompt = Prompt::features(features)?;
    prompt.path = path.to_path_buf();
    Ok(prompt)
}

fn bad(path: &Path, reason: impl Into<String>) -> Error {
    Error::Prompt { path: path.to_path_buf(), reason: reason.into() }
}

fn check(features: &Matrix, path: &Path) -> Result<()> {
    if features.rows() == 0 || features.cols() == 0 {
        return Err(bad(path, "the matrix of text features is empty; expected [classes, width]"));
    }
    if let Some(row) =
        features.iter_rows().position(|r| r.iter().any(|x| !x.is_finite()) || r.iter().all(|&x| x == 0.0))
    {
        return Err(bad(path, format!("row {row} holds NaN, infinity or only zeros: it cannot be a text feature")));
    }
    Ok(())
}

/// The matrix named `text_features` or `features`, or the only two-dimensional tensor.
fn from_safetensors(bytes: &[u8], path: &Path) -> Result<Matrix> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|e| bad(path, format!("neither a .npy nor a safetensors file ({e}); expected a [K, D] matrix")))?;
    let matrices = matrices(&file);
    let name = match (named(&matrices), matrices.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only.as_str(),
        (None, other) => {
            let reason = format!("expected a matrix named `text_features`, found {} matrices: {other:?}", other.len());
            return Err(bad(path, reason));
        }
    };
    matrix(&file, name, path)
}

/// The name that selects one of several matrices.
fn named(matrices: &[String]) -> Option<&'static str> {
    ["text_features", "features"].into_iter().find(|name| matrices.iter().any(|own| own == name))
}

/// Names of the two-dimensional tensors, in their order.
fn matrices(file: &SafeTensors<'_>) -> Vec<String> {
    let is_matrix = |(name, view): (&str, TensorView<'_>)| (view.shape().len() == 2).then(|| name.to_owned());
    let mut names: Vec<String> = file.iter().filter_map(is_matrix).collect();
    names.sort();
    names
}

fn matrix(file: &SafeTensors<'_>, name: &str, path: &Path) -> Result<Matrix> {
    let view = file.tensor(name).map_err(|e| bad(path, e.to_string()))?;
    let dtype = match view.dtype() {
        StoredDtype::F32 => Dtype::F32,
        StoredDtype::F16 => Dtype::F16,
        StoredDtype::F64 => Dtype::F64,
        other => return Err(bad(path, format!("`{name}` is {other:?}, expected F32, F16 or F64"))),
    };
    Ok(Matrix::from_vec(view.shape()[0], view.shape()[1], dtype.decode(view.data())))
}

fn from_npy(mut bytes: &[u8], path: &Path) -> Result<Matrix> {
    let header = npy::header(&mut bytes).map_err(|reason| bad(path, reason))?;
    let dtype = match header.descr.as_str() {
        "<f4" => Dtype::F32,
        "<f2" => Dtype::F16,
        "<f8" => Dtype::F64,
        other => return Err(bad(path, format!("numbers are {other:?}, expected '<f4', '<f2' or '<f8'"))),
    };
    let [rows, cols] = header.shape[..] else {
        return Err(bad(path, format!("shape is {:?}, expected two dimensions [K, D]", header.shape)));
    };
    if rows.checked_mul(cols).and_then(|n| n.checked_mul(dtype.size())) != Some(bytes.len()) {
        let reason = format!("the header promises [{rows}, {cols}], the file holds {} bytes of numbers", bytes.len());
        return Err(bad(path, reason));
    }
    Ok(Matrix::from_vec(rows, cols, dtype.decode(bytes)))
}

/// Writes unit-norm text features; the extension selects the format (`.npy`, otherwise safetensors, with the class names).
pub fn write_text_features(path: &Path, features: &Matrix, classes: &[String]) -> Result<()> {
    let bytes = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
        npy_bytes(features)
    } else {
        let document = serde_json::json!({ "classes": classes }).to_string();
        encode_plain(&[Tensor::matrix("text_features", features)], &document).map_err(|reason| bad(path, reason))?
    };
    files::write_atomic(path, &bytes)
}

/// A safetensors file with the rows as `features` and, in its metadata, their names: `flatclip` is a JSON document whose
/// `names` are in the order of the rows.
pub fn named_features_bytes(names: &[String], features: &Matrix) -> Result<Vec<u8>> {
    let document = serde_json::json!({ "schema_version": 1, "names": names });
    encode_arrays(&[Tensor::matrix("features", features)], &document.to_string())
        .map_err(|e| Error::config("features", e))
}

/// A matrix as a `.npy` file (version 1, little-endian f32).
pub fn npy_bytes(matrix: &Matrix) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", matrix.rows(), matrix.cols());
    // The numbers begin at a multiple of 64 bytes, as the format requires.
    let padding = 63 - (10 + header.len()) % 64;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    let mut bytes = [npy::MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    bytes.extend(matrix.data().iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::PromptContent;

    fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        [npy::MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn features(path: &Path) -> Result<Matrix> {
        match read_text_features(path)?.content {
            PromptContent::Features(features) => Ok(features),
            other => panic!("{other:?}"),
        }
    }

    fn read(bytes: &[u8]) -> Result<Matrix> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("features");
        std::fs::write(&file, bytes).unwrap();
        features(&file)
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn a_bank_has_every_matrix_of_a_file_unless_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bank.safetensors");
        for (names, expected) in [(["b", "a"], 2), (["text_features", "a"], 1)] {
            let data = floats(&[3.0, 4.0]);
            let view = || TensorView::new(StoredDtype::F32, vec![1, 2], &data).unwrap();
            std::fs::write(&file, safetensors::serialize(names.map(|name| (name, view())), None).unwrap()).unwrap();
            assert_eq!(read_text_bank(&file).unwrap().len(), expected);
            assert_eq!(read_text_features(&file).is_ok(), expected == 1);
        }
    }

    #[test]
    fn npy_rows_become_unit() {
        let features = read(&npy("<f4", "(2, 2)", &floats(&[3.0, 4.0, 0.0, 2.0]))).unwrap();
        assert_eq!(features.data(), [0.6, 0.8, 0.0, 1.0]);
    }

    #[test]
    fn what_is_written_is_read_and_begins_aligned() {
        let matrix = Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.6, 0.8]);
        let bytes = npy_bytes(&matrix);
        assert_eq!(read(&bytes).unwrap(), matrix);
        assert_eq!((bytes.len() - 16) % 64, 0);
        let folder = tempfile::tempdir().unwrap();
        let matrix = Matrix::from_vec(2, 3, vec![0.6, 0.8, 0.0, 0.0, 0.0, -1.0]);
        for name in ["features.npy", "features.safetensors"] {
            let path = folder.path().join(name);
            write_text_features(&path, &matrix, &["a".into(), "b".into()]).unwrap();
            assert_eq!(features(&path).unwrap(), matrix, "{name}");
        }
        assert_eq!((npy_bytes(&matrix).len() - 24) % 64, 0);
    }

    #[test]
    fn damaged_files_are_explained() {
        let good = floats(&[1.0, 2.0]);
        for (bytes, word) in [
            (npy("<f4", "(1, 3)", &good), "promises"),
            (npy("<f4", "(99999999999, 99999999999)", &good), "promises"),
            (npy("<i8", "(1, 2)", &good), "expected '<f4'"),
            (npy("<f4", "(2,)", &good), "two dimensions"),
            (npy("<f4", "(1, 2)", &floats(&[f32::NAN, 1.0])), "NaN"),
            (npy("<f4", "(1, 2)", &floats(&[0.0, 0.0])), "zeros"),
            (npy::MAGIC.to_vec(), "damaged"),
            (b"hello".to_vec(), "neither"),
        ] {
            let error = read(&bytes).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
