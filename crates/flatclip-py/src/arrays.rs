//! Input arrays: anything that numpy, torch or the array protocols support, as f32 or u8. Output arrays: numpy, without a copy.

use crate::errors::OrRaise as _;
use flatclip::{Error, Matrix};
use numpy::{PyArray1, PyArray2, PyArray3, PyArrayDyn, PyArrayMethods as _, PyReadonlyArrayDyn, PyUntypedArray};
use numpy::{PyArrayDescrMethods as _, PyUntypedArrayMethods as _};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Converts a value to a numpy array of any dtype; torch tensors are copied to the CPU.
pub(crate) fn any<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        return Ok(array.clone());
    }
    let py = value.py();
    // A tensor may require a gradient, be on another device or hold bfloat16, which numpy does not support.
    if value.hasattr("detach")? && value.hasattr("cpu")? {
        let tensor = value.call_method0("detach")?.call_method0("cpu")?;
        let array = tensor.call_method0("numpy").or_else(|_| tensor.call_method0("float")?.call_method0("numpy"));
        return Ok(array?.cast_into()?);
    }
    let numpy = py.import("numpy")?;
    if value.hasattr("__dlpack__")? && !value.hasattr("__array__")? {
        return Ok(numpy.call_method1("from_dlpack", (value,))?.cast_into()?);
    }
    Ok(numpy.call_method1("asarray", (value,))?.cast_into()?)
}

/// Real numbers as f32 in C order; copied only if a conversion is needed.
pub(crate) fn floats<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<PyReadonlyArrayDyn<'py, f32>> {
    let array = any(value)?;
    let kind = array.dtype().kind();
    if !matches!(kind, b'f' | b'i' | b'u') {
        let reason = format!("{name}: expected real numbers, found an array of {}", array.dtype());
        return Err(PyTypeError::new_err(reason));
    }
    typed(&array, "float32")
}

/// The values of an array, in C order.
pub(crate) fn values(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<f32>> {
    Ok(floats(value, name)?.as_slice()?.to_vec())
}

/// Real numbers in C order, converted to f32 in parts: a memory-mapped float16 array is never converted as a whole.
pub(crate) enum Numbers<'py> {
    Single(PyReadonlyArrayDyn<'py, f32>),
    /// The bits of float16.
    Half(PyReadonlyArrayDyn<'py, u16>),
    Double(PyReadonlyArrayDyn<'py, f64>),
}

/// The values of [`Numbers`], for threads without the GIL.
pub(crate) enum Values<'a> {
    Single(&'a [f32]),
    Half(&'a [u16]),
    Double(&'a [f64]),
}

/// The array itself if it is float16, float32 or float64 in native byte order, else a float32 copy.
pub(crate) fn numbers<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Numbers<'py>> {
    let array = any(value)?;
    let dtype = array.dtype();
    let plain = dtype.kind() == b'f'
        && dtype.is_native_byteorder() == Some(true)
        && array.is_c_contiguous()
        && array.getattr("flags")?.getattr("aligned")?.extract()?;
    match dtype.itemsize() {
        2 if plain => {
            let bits = array.call_method1("view", ("uint16",))?.cast_into::<PyArrayDyn<u16>>()?;
            Ok(Numbers::Half(bits.try_readonly()?))
        }
        8 if plain => Ok(Numbers::Double(array.as_any().cast::<PyArrayDyn<f64>>()?.try_readonly()?)),
        _ => Ok(Numbers::Single(floats(value, name)?)),
    }
}

impl Numbers<'_> {
    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Self::Single(array) => array.shape(),
            Self::Half(array) => array.shape(),
            Self::Double(array) => array.shape(),
        }
    }

    pub(crate) fn values(&self) -> PyResult<Values<'_>> {
        Ok(match self {
            Self::Single(array) => Values::Single(array.as_slice()?),
            Self::Half(array) => Values::Half(array.as_slice()?),
            Self::Double(array) => Values::Double(array.as_slice()?),
        })
    }
}

impl Values<'_> {
    /// Converts a part as numpy's `astype` does.
    pub(crate) fn floats(&self, range: std::ops::Range<usize>) -> Vec<f32> {
        match self {
            Self::Single(values) => values[range].to_vec(),
            Self::Half(bits) => bits[range].iter().map(|&bits| half::f16::from_bits(bits).to_f32()).collect(),
            Self::Double(values) => values[range].iter().map(|&value| value as f32).collect(),
        }
    }
}

/// An array of bytes, in C order.
pub(crate) fn bytes<'py>(array: &Bound<'py, PyUntypedArray>, name: &str) -> PyResult<PyReadonlyArrayDyn<'py, u8>> {
    if array.dtype().kind() != b'u' || array.dtype().itemsize() != 1 {
        let reason = format!(
            "{name}: expected uint8 pixels from 0 to 255, found {}; pixels that were scaled or normalised cannot be taken back",
            array.dtype()
        );
        return Err(PyTypeError::new_err(reason));
    }
    typed(array, "uint8")
}

/// In C order, aligned and in native byte order; copied only if needed.
fn typed<'py, T: numpy::Element>(
    array: &Bound<'py, PyUntypedArray>,
    dtype: &str,
) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
    let keywords = PyDict::new(array.py());
    keywords.set_item("dtype", dtype)?;
    keywords.set_item("requirements", ["C", "A"])?;
    let array = array.py().import("numpy")?.call_method("require", (array,), Some(&keywords))?;
    Ok(array.cast_into::<PyArrayDyn<T>>()?.try_readonly()?)
}

/// `[rows, cols]`, not empty.
pub(crate) fn matrix(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Matrix> {
    let array = floats(value, name)?;
    let &[rows, cols] = array.shape() else {
        return Err(shape_error(name, "two axes", array.shape()));
    };
    if rows == 0 || cols == 0 {
        return Err(shape_error(name, "at least one row and one column", array.shape()));
    }
    Ok(Matrix::from_vec(rows, cols, array.as_slice()?.to_vec()))
}

pub(crate) fn finite(py: Python<'_>, value: f64, name: &str) -> PyResult<f32> {
    let small = value as f32;
    if small.is_finite() {
        return Ok(small);
    }
    Err(Error::NotFinite { place: name.to_owned(), reason: format!("expected a finite number, found {value}") })
        .or_raise(py)
}

pub(crate) fn shape_error(name: &str, expected: &str, found: &[usize]) -> PyErr {
    PyValueError::new_err(format!("{name}: expected {expected}, found an array of shape {found:?}"))
}

pub(crate) fn vector<T: numpy::Element>(py: Python<'_>, values: Vec<T>) -> Bound<'_, PyArray1<T>> {
    PyArray1::from_vec(py, values)
}

pub(crate) fn rows(py: Python<'_>, matrix: Matrix) -> PyResult<Bound<'_, PyArray2<f32>>> {
    let shape = [matrix.rows(), matrix.cols()];
    vector(py, matrix.into_vec()).reshape(shape)
}

pub(crate) fn cube(py: Python<'_>, shape: [usize; 3], values: Vec<f32>) -> PyResult<Bound<'_, PyArray3<f32>>> {
    vector(py, values).reshape(shape)
}
