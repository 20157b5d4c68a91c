//! Short names of long things, for provenance.

use super::plan::Plan;
use crate::data::Dataset;
use flatclip_tensor::Matrix;
use sha2::{Digest as _, Sha256};

/// Names a matrix by its shape and bits.
pub fn matrix_hash(matrix: &Matrix) -> String {
    let mut hash = Sha256::new();
    for size in [matrix.rows(), matrix.cols()] {
        hash.update((size as u64).to_le_bytes());
    }
    matrix.data().iter().for_each(|value| hash.update(value.to_le_bytes()));
    short(hash)
}

/// Names a stream by its samples, their labels and their order.
pub fn stream_hash(dataset: &Dataset, plan: &Plan) -> String {
    let mut hash = Sha256::new();
    for sample in plan.order.iter().map(|&index| &dataset.samples[index]) {
        hash.update((sample.id.len() as u64).to_le_bytes());
        hash.update(sample.id.as_bytes());
        hash.update((sample.label as u64).to_le_bytes());
    }
    short(hash)
}

fn short(hash: Sha256) -> String {
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_bits_and_order_all_count() {
        let a = Matrix::from_vec(1, 2, vec![1.0, 2.0]);
        assert_ne!(matrix_hash(&a), matrix_hash(&Matrix::from_vec(2, 1, vec![1.0, 2.0])));
        assert_ne!(matrix_hash(&a), matrix_hash(&Matrix::from_vec(1, 2, vec![1.0, -2.0])));
        let dir = crate::data::tree::tree(&["a/1.jpg", "b/2.jpg", "b/3.jpg"]);
        let data = crate::data::open_folder(dir.path(), crate::data::Split::Test).unwrap();
        assert_ne!(stream_hash(&data, &Plan::new(3, None, None)), stream_hash(&data, &Plan::new(3, Some(2), None)));
    }
}
