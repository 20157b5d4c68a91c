//! SHA-256 names of things: weights, class lists, matrices, cache keys. One definition of each, since run directories,
//! prompt files and caches of earlier versions carry them.

use crate::{Error, Result};
use flatclip_tensor::Matrix;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

/// Bytes of a short name: 16 hexadecimal digits.
const SHORT: usize = 8;
/// Bytes of a cache key: 32 hexadecimal digits.
const KEY: usize = 16;

/// A digest in the making.
#[derive(Default)]
pub struct Digest(Sha256);

impl Digest {
    /// Bytes as they are: two calls and one of both joined give the same.
    pub fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.0.update(bytes);
        self
    }

    /// A number, as 64 bits in little endian.
    pub fn number(self, number: usize) -> Self {
        self.bytes((number as u64).to_le_bytes())
    }

    /// Bytes with their length before them, so that parts do not run into each other.
    pub fn part(self, bytes: impl AsRef<[u8]>) -> Self {
        self.number(bytes.as_ref().len()).bytes(bytes)
    }

    /// The bits of floats, little endian.
    pub fn floats(self, values: &[f32]) -> Self {
        if cfg!(target_endian = "little") {
            return self.bytes(bytemuck::cast_slice::<f32, u8>(values));
        }
        values.iter().fold(self, |digest, value| digest.bytes(value.to_le_bytes()))
    }

    /// All 32 bytes.
    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    /// All 64 hexadecimal digits.
    pub fn hex(self) -> String {
        hex(&self.finish())
    }

    /// 16 hexadecimal digits: enough to tell what people compare.
    pub fn short(self) -> String {
        hex(&self.finish()[..SHORT])
    }

    /// 32 hexadecimal digits: a key that machines compare.
    pub fn key(self) -> String {
        hex(&self.finish()[..KEY])
    }
}

/// A short name of a list of names, such as classes: the names and their order.
pub fn of_names(names: &[String]) -> String {
    names.iter().fold(Digest::default(), Digest::part).short()
}

/// Names an image by its size and pixels.
pub fn of_pixels(width: usize, height: usize, rgb: &[u8]) -> String {
    Digest::default().number(width).number(height).bytes(rgb).key()
}

/// A short name of a matrix: its shape and its bits.
pub fn matrix_hash(matrix: &Matrix) -> String {
    Digest::default().number(matrix.rows()).number(matrix.cols()).floats(matrix.data()).short()
}

/// SHA-256 of a file's bytes.
pub fn file_sha256(path: &Path) -> Result<String> {
    let mut file = std::fs::File::open(path).map_err(Error::io(path))?;
    let mut digest = Digest::default();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(Error::io(path))? {
            0 => return Ok(digest.hex()),
            n => digest = digest.bytes(&buffer[..n]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 0.1.0 computed them: they stand in run directories, prompt files and names of cache files.
    #[test]
    fn the_names_of_earlier_versions_stay() {
        assert_eq!(of_names(&["cat".to_owned(), "größte Katze".to_owned()]), "3187a3e97f4e6279");
        let matrix = Matrix::from_vec(2, 3, vec![1.0, -2.5, 0.0, 1e-7, 3.25, -0.0]);
        assert_eq!(matrix_hash(&matrix), "9a3258718be27af1");
        assert_eq!(Digest::default().bytes("text-bank-x").key(), "2e0b238b95d1fffc48bb1fa40fcc9754");
        let tensor = Digest::default().bytes("ln_final.weight").bytes([0]).number(3).floats(&[0.5, -1.0, 2.0]);
        assert_eq!(tensor.hex(), "fbb73324e3f56131344b6fc40bcc3cccc12ff8baca46a5605702b9ddc3465447");
    }

    #[test]
    fn shape_bits_and_cuts_all_count() {
        let a = Matrix::from_vec(1, 2, vec![1.0, 2.0]);
        assert_ne!(matrix_hash(&a), matrix_hash(&Matrix::from_vec(2, 1, vec![1.0, 2.0])));
        assert_ne!(matrix_hash(&a), matrix_hash(&Matrix::from_vec(1, 2, vec![1.0, -2.0])));
        let names = |names: &[&str]| of_names(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_ne!(names(&["ab", "c"]), names(&["a", "bc"]));
    }
}
