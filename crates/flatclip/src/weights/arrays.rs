//! Arrays of other programs in npz or safetensors files, read sequentially: a file may be larger than memory.

use super::bytes::{Bytes, Dtype, Packing, count, signed};
use super::{npy, safetensors, zip};
use crate::error::quoted;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes per read.
const CHUNK: usize = 1 << 18;

/// A file of named arrays. Opening it reads headers only.
#[derive(Debug)]
pub struct ArrayFile {
    path: PathBuf,
    arrays: BTreeMap<String, Array>,
    metadata: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Array {
    shape: Vec<usize>,
    element: Element,
    bytes: Bytes,
    /// Bytes before the first number.
    skip: u64,
}

/// The type of the entries.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element {
    Number(Dtype),
    /// Text with this many characters of four bytes (Unicode) or of one.
    Text(usize, usize),
    Other(String),
}

impl ArrayFile {
    /// Opens a safetensors file or an npz archive.
    pub fn open(path: &Path) -> Result<Self> {
        let mut start = Vec::new();
        let file = std::fs::File::open(path).map_err(Error::io(path))?;
        file.take(npy::MAGIC.len() as u64).read_to_end(&mut start).map_err(Error::io(path))?;
        if start.starts_with(npy::MAGIC) {
            let expected = "expected named arrays (npz or safetensors)";
            return Err(bad(path, format!("{expected}, found a single .npy array; save it with numpy.savez")));
        }
        let opened = if start.starts_with(b"PK") { from_npz(path) } else { from_safetensors(path) };
        let (arrays, metadata) = opened.map_err(of_data)?;
        Ok(Self { path: path.to_path_buf(), arrays, metadata })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the arrays.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().map(String::as_str)
    }

    /// The shape of an array; `None` if there is none of this name.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.arrays.get(name).map(|array| array.shape.as_slice())
    }

    /// A text of a safetensors file's metadata.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// The numbers of an array of float32, float16 or bfloat16, each of which float32 holds exactly.
    pub fn floats(&self, name: &str) -> Result<Floats> {
        let array = self.array(name)?;
        match &array.element {
            Element::Number(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::Bf16)) => {
                Ok(Floats { path: self.path.clone(), name: name.to_owned(), dtype: *dtype, reader: reader(array)? })
            }
            other => Err(self.wrong(name, "float32, float16 or bfloat16 numbers", other)),
        }
    }

    /// All values of a float array; more than `most` are refused.
    pub fn all_floats(&self, name: &str, most: usize) -> Result<Vec<f32>> {
        let total = self.total(name, most)?;
        let mut floats = self.floats(name)?;
        let values = floats.read(total)?;
        floats.finish()?;
        Ok(values)
    }

    /// The value of an array with one entry of any number type.
    pub fn one_number(&self, name: &str) -> Result<f64> {
        let (array, _) = (self.array(name)?, self.total(name, 1)?);
        let Element::Number(dtype) = array.element else { return Err(self.wrong(name, "a number", &array.element)) };
        let bytes = self.take(name, array, dtype.size())?;
        match <[u8; 8]>::try_from(bytes.as_slice()) {
            Ok(wide) if dtype == Dtype::F64 => Ok(f64::from_le_bytes(wide)),
            _ => Ok(f64::from(dtype.decode(&bytes).first().copied().unwrap_or(f32::NAN))),
        }
    }

    /// All values of an integer array; more than `most` are refused.
    pub fn integers(&self, name: &str, most: usize) -> Result<Vec<i64>> {
        let (array, total) = (self.array(name)?, self.total(name, most)?);
        let Element::Number(dtype @ (Dtype::I64 | Dtype::I32 | Dtype::I16 | Dtype::I8 | Dtype::U8)) = array.element
        else {
            return Err(self.wrong(name, "whole numbers", &array.element));
        };
        let bytes = self.take(name, array, total * dtype.size())?;
        let integer = |chunk: &[u8]| if dtype == Dtype::U8 { i64::from(chunk[0]) } else { signed(chunk) };
        Ok(bytes.chunks_exact(dtype.size()).map(integer).collect())
    }

    /// All texts of a NumPy array; more than `most` are refused.
    pub fn texts(&self, name: &str, most: usize) -> Result<Vec<String>> {
        let (array, total) = (self.array(name)?, self.total(name, most)?);
        let Element::Text(length, width) = array.element else {
            return Err(self.wrong(name, "texts", &array.element));
        };
        let size = length.saturating_mul(width);
        let bytes = self.take(name, array, total.saturating_mul(size))?;
        let text = |chunk: &[u8]| match width {
            4 => {
                let (letters, _) = chunk.as_chunks::<4>();
                let codes = letters.iter().map(|letter| u32::from_le_bytes(*letter)).take_while(|&code| code != 0);
                codes.map(char::from_u32).collect::<Option<String>>()
            }
            _ => String::from_utf8(chunk.iter().copied().take_while(|&byte| byte != 0).collect()).ok(),
        };
        let damaged = || bad(&self.path, format!("`{}`: one of its texts is damaged", quoted(name)));
        bytes.chunks_exact(size.max(1)).map(|chunk| text(chunk).ok_or_else(damaged)).collect()
    }

    fn array(&self, name: &str) -> Result<&Array> {
        self.arrays.get(name).ok_or_else(|| {
            let known: Vec<String> = self.names().map(quoted).collect();
            bad(&self.path, format!("expected an array `{}`, found {}", quoted(name), known.join(", ")))
        })
    }

    fn total(&self, name: &str, most: usize) -> Result<usize> {
        let total = count(&self.array(name)?.shape);
        total.filter(|&total| total <= most).ok_or_else(|| {
            let asked = total.map_or(u64::MAX, |total| total as u64);
            let what = format!("{}: entries of `{}`", self.path.display(), quoted(name));
            Error::Limit { what, asked, allowed: most as u64, hint: "this is not what it is named".into() }
        })
    }

    /// The buffer grows while reading, because `total` comes from an untrusted header.
    fn take(&self, name: &str, array: &Array, total: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut reader = reader(array)?;
        let wrong = |error: std::io::Error| bad(&self.path, format!("`{}`: {error}", quoted(name)));
        reader.by_ref().take(total as u64).read_to_end(&mut bytes).map_err(wrong)?;
        if bytes.len() != total {
            return Err(bad(&self.path, format!("`{}` is truncated: {} of {total} bytes", quoted(name), bytes.len())));
        }
        Ok(bytes)
    }

    fn wrong(&self, name: &str, expected: &str, found: &Element) -> Error {
        let found = match found {
            Element::Number(dtype) => dtype.name().to_owned(),
            Element::Text(..) => "texts".to_owned(),
            Element::Other(code) => format!("numpy's type {}", quoted(code)),
        };
        bad(&self.path, format!("`{}`: expected {expected}, found {found}", quoted(name)))
    }
}

/// Sequential reader of the values of an array.
pub struct Floats {
    path: PathBuf,
    name: String,
    dtype: Dtype,
    reader: Box<dyn Read + Send>,
}

impl Floats {
    /// Their type in the file: `f32`, `f16`, `bf16`.
    pub fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// The next `count` numbers.
    pub fn read(&mut self, count: usize) -> Result<Vec<f32>> {
        let mut bytes = vec![0; count * self.dtype.size()];
        self.reader.read_exact(&mut bytes).map_err(|error| self.fault(&error))?;
        Ok(self.dtype.decode(&bytes))
    }

    /// Reads to the end of the array, where the archive's checksum is verified.
    pub fn finish(&mut self) -> Result<()> {
        let rest = std::io::copy(&mut self.reader, &mut std::io::sink()).map_err(|error| self.fault(&error))?;
        if rest > 0 {
            let reason = format!("`{}` has {rest} bytes behind its last number", quoted(&self.name));
            return Err(bad(&self.path, reason));
        }
        Ok(())
    }

    fn fault(&self, error: &std::io::Error) -> Error {
        let what = if error.kind() == std::io::ErrorKind::UnexpectedEof { "truncated" } else { "cannot be read" };
        bad(&self.path, format!("`{}` is {what}: {error}", quoted(&self.name)))
    }
}

fn bad(path: &Path, reason: impl Into<String>) -> Error {
    Error::Data { path: path.to_path_buf(), reason: reason.into() }
}

/// Converts an error of the weight file readers to a data error.
fn of_data(error: Error) -> Error {
    match error {
        Error::Weights { path, reason } => Error::Data { path, reason },
        other => other,
    }
}

type Opened = (BTreeMap<String, Array>, BTreeMap<String, String>);

fn from_safetensors(path: &Path) -> Result<Opened> {
    let found = safetensors::open(path)?;
    let array = |stored: super::bytes::Stored| {
        let element = Element::Number(stored.dtype);
        (stored.name, Array { shape: stored.shape, element, bytes: stored.bytes, skip: 0 })
    };
    Ok((found.tensors.into_iter().map(array).collect(), found.metadata))
}

fn from_npz(path: &Path) -> Result<Opened> {
    let archive = zip::Archive::open(path)?;
    let names: Vec<String> = archive.names().filter(|name| name.ends_with(".npy")).map(str::to_owned).collect();
    let mut arrays = BTreeMap::new();
    for entry in names {
        let Some(bytes) = archive.find(&entry)? else { continue };
        let fault = |reason: String| bad(path, format!("`{}`: {reason}", quoted(&entry)));
        let header = npy::header(&mut plain(&bytes)).map_err(fault)?;
        let (element, size) = element_of(&header.descr);
        let expected = count(&header.shape).and_then(|n| n.checked_mul(size)).map(|n| n as u64);
        // The size of objects and other unsupported types is unknown; reading them is refused.
        let length = expected.and_then(|n| n.checked_add(header.len));
        if size > 0 && length != Some(bytes.len) {
            let npy::Header { shape, descr, .. } = header;
            return Err(fault(format!("its header promises {shape:?} of {descr}, it holds {} bytes", bytes.len)));
        }
        let array = Array { shape: header.shape, element, bytes, skip: header.len };
        arrays.insert(entry.trim_end_matches(".npy").to_owned(), array);
    }
    Ok((arrays, BTreeMap::new()))
}

/// NumPy's code of a type, and the bytes of an entry; 0 where it is not known.
fn element_of(descr: &str) -> (Element, usize) {
    let texts = |kind: &str| descr.strip_prefix(kind).and_then(|length| length.parse::<usize>().ok());
    match (Dtype::of_numpy(descr), texts("<U"), texts("|S")) {
        (Some(dtype), ..) => (Element::Number(dtype), dtype.size()),
        (_, Some(n), _) => (Element::Text(n, 4), n.saturating_mul(4)),
        (.., Some(n)) => (Element::Text(n, 1), n),
        _ => (Element::Other(descr.to_owned()), 0),
    }
}

/// The numbers of an array, without its header.
fn reader(array: &Array) -> Result<Box<dyn Read + Send>> {
    let path = &array.bytes.source.path;
    let mut reader = plain(&array.bytes);
    let skipped =
        std::io::copy(&mut reader.by_ref().take(array.skip), &mut std::io::sink()).map_err(Error::io(path))?;
    if skipped != array.skip {
        return Err(bad(path, "truncated: an array ends inside its header"));
    }
    Ok(reader)
}

/// The uncompressed bytes; a wrong checksum is an error at the end.
fn plain(bytes: &Bytes) -> Box<dyn Read + Send> {
    let stored = Stretch { source: bytes.source.clone(), at: bytes.offset, left: bytes.stored };
    let stored = BufReader::with_capacity(CHUNK, stored);
    let checked = |inner: Box<dyn Read + Send>, crc| Checked { inner, crc, hasher: crc32fast::Hasher::new() };
    match bytes.packing {
        Packing::Plain => Box::new(stored),
        Packing::Checked(crc) => Box::new(checked(Box::new(stored), crc)),
        Packing::Deflated(crc) => {
            // One byte more than declared, to detect entries that are longer.
            let unpacked = flate2::bufread::DeflateDecoder::new(stored).take(bytes.len.saturating_add(1));
            Box::new(checked(Box::new(unpacked), crc))
        }
    }
}

/// A range of a file.
struct Stretch {
    source: std::sync::Arc<super::bytes::Source>,
    at: u64,
    left: u64,
}

impl Read for Stretch {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.left.min(buffer.len() as u64);
        let found = self.source.read(self.at, length).map_err(|error| std::io::Error::other(error.to_string()))?;
        buffer[..found.len()].copy_from_slice(&found);
        self.at += length;
        self.left -= length;
        Ok(found.len())
    }
}

/// Compares the checksum when the end is reached.
struct Checked<R> {
    inner: R,
    crc: u32,
    hasher: crc32fast::Hasher,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        if length == 0 && !buffer.is_empty() && self.hasher.clone().finalize() != self.crc {
            let reason = "damaged: its checksum is not the one that the archive says; copy it again";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, reason));
        }
        Ok(length)
    }
}
