//! Text features for other tools: `[K, D]` as safetensors or `.npy`.

use super::{Tensor, encode_plain};
use crate::{Error, Result, files};
use flatclip_tensor::Matrix;
use std::path::Path;

/// Writes unit-norm text features; the extension selects the format (`.npy`, otherwise safetensors, with the class names).
pub fn write_text_features(path: &Path, features: &Matrix, classes: &[String]) -> Result<()> {
    let bytes = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
        npy(features)
    } else {
        let tensor = Tensor::new("text_features", vec![features.rows(), features.cols()], features.data().to_vec());
        let document = serde_json::json!({ "classes": classes }).to_string();
        encode_plain(&[tensor], &document).map_err(|reason| Error::Prompt { path: path.into(), reason })?
    };
    files::write_atomic(path, &bytes)
}

/// NumPy's format, version 1: the header is padded so that the numbers start at a multiple of 64.
fn npy(features: &Matrix) -> Vec<u8> {
    let (rows, cols) = (features.rows(), features.cols());
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    let padding = (64 - (10 + header.len() + 1) % 64) % 64;
    header.push_str(&" ".repeat(padding));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend(features.data().iter().flat_map(|x| x.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::{PromptContent, read_text_features};
    use super::*;

    #[test]
    fn both_forms_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let features = Matrix::from_vec(2, 3, vec![0.6, 0.8, 0.0, 0.0, 0.0, -1.0]);
        for name in ["features.npy", "features.safetensors"] {
            let path = folder.path().join(name);
            write_text_features(&path, &features, &["a".into(), "b".into()]).unwrap();
            let PromptContent::Features(found) = read_text_features(&path).unwrap().content else {
                panic!("not features")
            };
            assert_eq!(found, features, "{name}");
        }
        assert_eq!((npy(&features).len() - 24) % 64, 0);
    }
}
