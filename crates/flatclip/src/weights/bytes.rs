//! Byte ranges in weight files, and the values in them. Everything is read on demand, and nothing is allocated before the
//! file is known to be long enough.

use crate::{Error, Result};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use crate::error::unusable_weights as bad;

/// An open file for positioned reads, or embedded bytes.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) len: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    File(File),
    Embedded(&'static [u8]),
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>> {
        let file = File::open(path).map_err(Error::io(path))?;
        let about = file.metadata().map_err(Error::io(path))?;
        if !about.is_file() {
            return Err(bad(path, "expected a weight file, found something else (a folder or a device)"));
        }
        Ok(Arc::new(Self { path: path.to_path_buf(), len: about.len(), content: Content::File(file) }))
    }

    /// Embedded bytes; `path` names them in messages.
    pub(crate) fn embedded(path: &Path, bytes: &'static [u8]) -> Arc<Self> {
        Arc::new(Self { path: path.to_path_buf(), len: bytes.len() as u64, content: Content::Embedded(bytes) })
    }

    /// `len` bytes at `offset`; an error when the file ends before.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.check(offset, len)?;
        let len = usize::try_from(len).map_err(|_| bad(&self.path, "too large for this machine's address space"))?;
        let mut bytes = vec![0; len];
        self.fill(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes` from `offset` on. The file is read, not memory-mapped: if it is truncated meanwhile, a read returns an
    /// error, while access to a mapping would kill the process.
    fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.check(offset, bytes.len() as u64)?;
        match &self.content {
            Content::File(file) => read_at(file, bytes, offset).map_err(Error::io(&self.path)),
            Content::Embedded(all) => {
                // In range: the end was compared with the length above.
                bytes.copy_from_slice(&all[offset as usize..offset as usize + bytes.len()]);
                Ok(())
            }
        }
    }

    fn check(&self, offset: u64, len: u64) -> Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let reason = format!("truncated: {len} bytes wanted at offset {offset}, the file has {} bytes", self.len);
        Err(bad(&self.path, reason))
    }
}

/// Reads at an offset; safe from any number of threads at the same time.
#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

/// The same on systems where a read moves the file position: every read passes its own offset, so threads do not interfere.
#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    use std::os::windows::fs::FileExt as _;
    while !bytes.is_empty() {
        let count = file.seek_read(bytes, offset)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[count..];
        offset += count as u64;
    }
    Ok(())
}

/// How the bytes of a [`Bytes`] are stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Uncompressed.
    Plain,
    /// Uncompressed, with a CRC-32 of all bytes.
    Checked(u32),
    /// Deflated, with a CRC-32 of all uncompressed bytes.
    Deflated(u32),
}

/// A range of a file, optionally compressed.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    pub(crate) source: Arc<Source>,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Stored size in bytes.
    pub(crate) stored: u64,
    /// Uncompressed size in bytes.
    pub(crate) len: u64,
    pub(crate) packing: Packing,
}

impl Bytes {
    /// All bytes, checked against the CRC if there is one.
    pub(crate) fn all(&self) -> Result<Vec<u8>> {
        let raw = self.source.read(self.offset, self.stored)?;
        let (bytes, crc) = match self.packing {
            Packing::Plain => return Ok(raw),
            Packing::Checked(crc) => (raw, crc),
            Packing::Deflated(crc) => (self.inflate(&raw)?, crc),
        };
        let found = crc32fast::hash(&bytes);
        if found != crc {
            let reason = format!(
                "damaged: the {} bytes at offset {} have checksum {found:08x}, the archive says {crc:08x}; copy or download it again",
                self.len, self.offset
            );
            return Err(bad(&self.source.path, reason));
        }
        Ok(bytes)
    }

    /// `len` bytes from `start` on.
    pub(crate) fn part(&self, start: u64, len: u64) -> Result<Vec<u8>> {
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            let reason =
                format!("a tensor reaches to byte {} of a storage of {} bytes", start.saturating_add(len), self.len);
            return Err(bad(&self.source.path, reason));
        }
        if (start == 0 && len == self.len) || matches!(self.packing, Packing::Deflated(_)) {
            let mut all = self.all()?;
            // Both fit into `usize`: they are inside `all`, which is in memory.
            all.truncate((start + len) as usize);
            all.drain(..start as usize);
            return Ok(all);
        }
        self.source.read(self.offset + start, len)
    }

    /// `count` floats from byte `start` on, read directly into the result. `None` if the bytes are compressed or have a CRC.
    fn floats(&self, start: u64, count: usize) -> Result<Option<Vec<f32>>> {
        let len = (count * size_of::<f32>()) as u64;
        let inside = start.checked_add(len).is_some_and(|end| end <= self.len);
        if self.packing != Packing::Plain || cfg!(target_endian = "big") || !inside {
            return Ok(None);
        }
        self.source.check(self.offset + start, len)?;
        let mut values = vec![0.0f32; count];
        self.source.fill(self.offset + start, bytemuck::cast_slice_mut(&mut values))?;
        Ok(Some(values))
    }

    /// Grows with the actual output, and stops one byte after the length that the archive declares.
    fn inflate(&self, raw: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut reader = flate2::read::DeflateDecoder::new(raw).take(self.len.saturating_add(1));
        reader.read_to_end(&mut bytes).map_err(|e| bad(&self.source.path, format!("damaged deflate stream: {e}")))?;
        if bytes.len() as u64 != self.len {
            let reason =
                format!("a deflated entry unpacks to another length than the {} bytes that the archive says", self.len);
            return Err(bad(&self.source.path, reason));
        }
        Ok(bytes)
    }
}

/// Number types in weight files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
}

impl Dtype {
    /// In the order of the variants: bytes of one number, name, torch's storage class, NumPy's code.
    const ALL: [(Self, usize, &str, &str, Option<&str>); 10] = [
        (Self::F64, 8, "f64", "DoubleStorage", Some("<f8")),
        (Self::F32, 4, "f32", "FloatStorage", Some("<f4")),
        (Self::F16, 2, "f16", "HalfStorage", Some("<f2")),
        (Self::Bf16, 2, "bf16", "BFloat16Storage", None),
        (Self::I64, 8, "i64", "LongStorage", Some("<i8")),
        (Self::I32, 4, "i32", "IntStorage", Some("<i4")),
        (Self::I16, 2, "i16", "ShortStorage", Some("<i2")),
        (Self::I8, 1, "i8", "CharStorage", Some("|i1")),
        (Self::U8, 1, "u8", "ByteStorage", Some("|u1")),
        (Self::Bool, 1, "bool", "BoolStorage", Some("|b1")),
    ];

    /// The type of a storage class of the module `torch`.
    pub(super) fn of_torch(class: &str) -> Option<Self> {
        Self::ALL.iter().find(|row| row.3 == class).map(|row| row.0)
    }

    /// The type that safetensors headers name. Larger unsigned numbers count as signed ones.
    pub(super) fn of_safetensors(word: &str) -> Option<Self> {
        let named = |word: &str| Self::ALL.iter().find(|row| row.2.to_uppercase() == word).map(|row| row.0);
        named(word).or_else(|| named(&format!("I{}", word.strip_prefix('U')?)))
    }

    /// The type of NumPy's code.
    pub(super) fn of_numpy(code: &str) -> Option<Self> {
        let code = if code == "<u8" { "<i8" } else { code };
        Self::ALL.iter().find(|row| row.4 == Some(code)).map(|row| row.0)
    }

    /// Bytes of one number.
    pub fn size(self) -> usize {
        Self::ALL[self as usize].1
    }

    /// Short name: `f32`, `bf16`, ...
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].2
    }

    /// Little-endian bytes as f32.
    pub(crate) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        fn each<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
            bytes.as_chunks::<N>().0.iter().map(|chunk| convert(*chunk)).collect()
        }
        match self {
            Self::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
            Self::F32 => each(bytes, f32::from_le_bytes),
            Self::F16 => each(bytes, |b| half::f16::from_le_bytes(b).to_f32()),
            Self::Bf16 => each(bytes, |b| half::bf16::from_le_bytes(b).to_f32()),
            Self::I64 => each(bytes, |b| i64::from_le_bytes(b) as f32),
            Self::I32 => each(bytes, |b| i32::from_le_bytes(b) as f32),
            Self::I16 => each(bytes, |b| f32::from(i16::from_le_bytes(b))),
            Self::I8 => each(bytes, |[b]: [u8; 1]| f32::from(b as i8)),
            Self::U8 | Self::Bool => each(bytes, |[b]: [u8; 1]| f32::from(b)),
        }
    }
}

/// A tensor in a file, not read yet.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Bytes,
    /// First element inside `bytes`.
    pub(crate) first: usize,
    /// Elements between neighbours, per dimension; row-major when `None`.
    pub(crate) strides: Option<Vec<usize>>,
}

/// Number of elements of a shape; `None` on overflow.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// A little-endian two's complement number of at most eight bytes.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    let mut wide = [if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i]);
    }
    strides
}

impl Stored {
    /// The same values with the dimensions in reverse order.
    pub(super) fn transposed(mut self) -> Self {
        let mut strides = self.strides.take().unwrap_or_else(|| row_major(&self.shape));
        strides.reverse();
        self.shape.reverse();
        Self { strides: Some(strides), ..self }
    }

    /// Removes leading dimensions of one element, down to `dims`.
    pub(super) fn without_ones(mut self, dims: usize) -> Self {
        let ones = self.shape.iter().take_while(|&&size| size == 1).count();
        let ones = ones.min(self.shape.len().saturating_sub(dims));
        self.shape.drain(..ones);
        self.strides.iter_mut().for_each(|strides| drop(strides.drain(..ones)));
        self
    }

    /// The values, row-major, as f32.
    pub(crate) fn values(&self) -> Result<Vec<f32>> {
        let path = &self.bytes.source.path;
        let wrong = || bad(path, format!("tensor `{}`: its size {:?} cannot be addressed", self.name, self.shape));
        let total = count(&self.shape).ok_or_else(wrong)?;
        if total == 0 {
            return Ok(Vec::new());
        }
        let plain = row_major(&self.shape);
        let strides = self.strides.as_ref().unwrap_or(&plain);
        // Index of the last element, which must be inside the storage.
        let span = self.shape.iter().zip(strides).try_fold(1usize, |n, (&d, &s)| n.checked_add(s.checked_mul(d - 1)?));
        let span = span.ok_or_else(wrong)?;
        let size = self.dtype.size();
        let at = |elements: usize| elements.checked_mul(size).map(|n| n as u64).ok_or_else(wrong);
        let floats = if self.dtype == Dtype::F32 { self.bytes.floats(at(self.first)?, span)? } else { None };
        let values = match floats {
            Some(values) => values,
            None => self.dtype.decode(&self.bytes.part(at(self.first)?, at(span)?)?),
        };
        // Dimensions of one element may carry any stride.
        let contiguous = self.shape.iter().zip(strides.iter().zip(&plain)).all(|(&d, (s, p))| d == 1 || s == p);
        if contiguous {
            return Ok(values);
        }
        if total > values.len() {
            // Stride 0 repeats elements; no checkpoint uses it, and it would let a small file declare a large tensor.
            return Err(bad(path, format!("tensor `{}` overlaps itself (strides {strides:?})", self.name)));
        }
        Ok(gather(&values, &self.shape, strides, total))
    }
}

fn gather(values: &[f32], shape: &[usize], strides: &[usize], total: usize) -> Vec<f32> {
    let value = |at: usize| {
        let (mut rest, mut place) = (at, 0);
        for (size, stride) in shape.iter().zip(strides).rev() {
            place += rest % size * stride;
            rest /= size;
        }
        values[place]
    };
    (0..total).map(value).collect()
}
