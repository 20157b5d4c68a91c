//! Input images: paths, encoded bytes, open files, numpy arrays, PIL images, torch tensors; one or many.

use crate::errors::OrRaise as _;
use crate::{arrays, values};
use flatclip::image::DecodeOptions;
use flatclip::{Error, Image};
use numpy::{PyArrayDescrMethods as _, PyUntypedArrayMethods as _};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};
use std::path::PathBuf;

/// One input image; files and bytes are decoded by a worker, not by the calling thread.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Path(PathBuf),
    Bytes(Vec<u8>),
    Image(Image),
}

impl Input {
    /// Decodes the image; `exif` is the `DecodeOptions` setting for files and bytes.
    pub(crate) fn image(&self, exif: bool) -> flatclip::Result<Image> {
        let options = DecodeOptions { exif, ..DecodeOptions::default() };
        match self {
            Self::Path(path) => Image::open_with(path, &options),
            Self::Bytes(bytes) => flatclip::image::decode(bytes, &options),
            Self::Image(image) => Ok(image.clone()),
        }
    }
}

/// One or more images. PIL images keep their EXIF entry, so `exif` applies to them here.
pub(crate) fn many(value: &Bound<'_, PyAny>, exif: bool) -> PyResult<Vec<Input>> {
    if let Some(input) = encoded(value, exif)? {
        return Ok(vec![input]);
    }
    if is_array(value)? {
        return from_array(value);
    }
    let Ok(items) = value.try_iter() else { return Err(unknown(value)) };
    let inputs = items.map(|item| one(&item?, exif)).collect::<PyResult<Vec<_>>>()?;
    if inputs.is_empty() {
        return Err(PyValueError::new_err("images: expected at least one, found none"));
    }
    Ok(inputs)
}

/// Exactly one image.
pub(crate) fn one(value: &Bound<'_, PyAny>, exif: bool) -> PyResult<Input> {
    if let Some(input) = encoded(value, exif)? {
        return Ok(input);
    }
    if !is_array(value)? {
        return Err(unknown(value));
    }
    let mut inputs = from_array(value)?;
    match (inputs.pop(), inputs.len()) {
        (Some(input), 0) => Ok(input),
        (_, more) => Err(PyValueError::new_err(format!("image: expected one, found a batch of {}", more + 1))),
    }
}

/// A path, bytes, an open file or a PIL image.
fn encoded(value: &Bound<'_, PyAny>, exif: bool) -> PyResult<Option<Input>> {
    if value.is_instance_of::<PyString>() || value.hasattr("__fspath__")? {
        return Ok(Some(Input::Path(value.extract()?)));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(Input::Bytes(bytes.as_bytes().to_vec())));
    }
    if value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>() {
        let bytes = value.py().get_type::<PyBytes>().call1((value,))?;
        return Ok(Some(Input::Bytes(bytes.cast::<PyBytes>()?.as_bytes().to_vec())));
    }
    if value.hasattr("read")? {
        let read = value.call_method0("read")?;
        let bytes = read.cast::<PyBytes>().map_err(|_| {
            PyTypeError::new_err("image: a file must be opened in binary mode: open(path, \"rb\")".to_owned())
        })?;
        return Ok(Some(Input::Bytes(bytes.as_bytes().to_vec())));
    }
    if value.hasattr("convert")? && value.hasattr("mode")? && value.hasattr("getbands")? {
        let rgb = if exif { pil_as_seen(value)? } else { value.call_method1("convert", ("RGB",))? };
        let array = arrays::any(&rgb)?;
        return from_array(array.as_any()).map(|mut inputs| inputs.pop());
    }
    Ok(None)
}

/// Reads a PIL image as its file would be read: rotated per EXIF, 16-bit grey scaled to 8 bits.
fn pil_as_seen<'py>(image: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = image.py();
    let (mode, format): (String, Option<String>) =
        (image.getattr("mode")?.extract()?, image.getattr("format")?.extract()?);
    let image = py.import("PIL.ImageOps")?.call_method1("exif_transpose", (image,))?;
    // Some versions of Pillow open a PNG of 16-bit grey as 32-bit integers.
    let grey_16 = mode.starts_with("I;16") || (mode == "I" && format.as_deref() == Some("PNG"));
    if !grey_16 {
        return image.call_method1("convert", ("RGB",));
    }
    let numbers = py.import("numpy")?.call_method1("asarray", (&image,))?;
    let high = numbers.call_method1("__rshift__", (8,))?.call_method1("astype", ("uint8",))?;
    py.import("PIL.Image")?.call_method1("fromarray", (high,))?.call_method1("convert", ("RGB",))
}

/// An array of numbers; an array of strings or objects is a list of images.
fn is_array(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !value.hasattr("shape")? || !(value.hasattr("__array__")? || value.hasattr("__dlpack__")?) {
        return Ok(false);
    }
    Ok(!matches!(arrays::any(value)?.dtype().kind(), b'O' | b'U' | b'S' | b'T'))
}

/// `[H, W]`, `[H, W, 3]`, `[3, H, W]`, or a batch `[N, H, W, 3]`, `[N, 3, H, W]`.
fn from_array(value: &Bound<'_, PyAny>) -> PyResult<Vec<Input>> {
    let (array, py) = (arrays::any(value)?, value.py());
    let (count, layout) = layout(array.shape())?;
    let allowed = DecodeOptions::default().max_pixels;
    let asked = (layout.height as u64).saturating_mul(layout.width as u64);
    if asked > allowed {
        let what = format!("pixels of an image of shape {:?}", array.shape());
        let hint = "make it smaller: the model looks at a few hundred pixels a side".to_owned();
        return Err(Error::Limit { what, asked, allowed, hint }).or_raise(py);
    }
    let array = arrays::bytes(&array, "image")?;
    let Layout { height, width, steps: (pixel, channel), grey } = layout;
    let size = height * width * if grey { 1 } else { 3 };
    let values = array.as_slice()?;
    let image = |index: usize| {
        let values = &values[index * size..(index + 1) * size];
        let rgb = if (pixel, channel) == (3, 1) {
            values.to_vec()
        } else {
            (0..height * width).flat_map(|at| [0, 1, 2].map(|c| values[at * pixel + c * channel])).collect()
        };
        Input::Image(Image { width, height, rgb })
    };
    Ok((0..count).map(image).collect())
}

struct Layout {
    height: usize,
    width: usize,
    /// Strides in bytes: from one pixel to the next, from one channel to the next.
    steps: (usize, usize),
    grey: bool,
}

fn layout(shape: &[usize]) -> PyResult<(usize, Layout)> {
    let (count, one) = match shape {
        [count, rest @ ..] if rest.len() == 3 => (*count, rest),
        all => (1, all),
    };
    let found = match *one {
        [height, width] | [height, width, 1] => Layout { height, width, steps: (1, 0), grey: true },
        [height, width, 3] => Layout { height, width, steps: (3, 1), grey: false },
        [3, height, width] => Layout { height, width, steps: (1, height * width), grey: false },
        _ => {
            let expected = "[H, W, 3], [3, H, W], [H, W] or a batch [N, H, W, 3], [N, 3, H, W]";
            return Err(arrays::shape_error("image", expected, shape));
        }
    };
    if count == 0 || found.height == 0 || found.width == 0 {
        return Err(arrays::shape_error("image", "at least one image of at least one pixel", shape));
    }
    Ok((count, found))
}

fn unknown(value: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "image: expected a path, encoded bytes, an open binary file, a uint8 array, a PIL image or a tensor, found {}",
        values::type_name(value)
    ))
}
