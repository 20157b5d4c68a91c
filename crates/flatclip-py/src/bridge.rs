//! Towers that a Python object computes: PyTorch on a device (`python/flatclip/torch`), or the user's functions
//! (`python/flatclip/_encoder.py`). Both implement the methods that are called here; arrays are passed as numpy arrays.
//!
//! A call first locks the bridge and then acquires the GIL: a device runs one call at a time.

use crate::{arrays, lock};
use flatclip::model::{
    BatchNormPass, BatchNorms, ClassTokens, Context, ContextPass, DeepPass, ImageTower, NormAffine, Passes, TextTower,
    VisionGradient, VisionInput, VisionPass,
};
use flatclip::options::OptionValue as _;
use flatclip::{Error, Matrix, Result};
use numpy::{PyArray1, PyArrayMethods as _, PyUntypedArrayMethods as _};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::{Arc, Mutex};

/// The Python object, and the state that all calls share.
#[derive(Debug)]
pub(crate) struct Bridge {
    object: Py<PyAny>,
    passes: Passes,
    image_size: usize,
    /// Width of the joint space.
    width: usize,
    takes_bytes: bool,
    batch_views: usize,
    turn: Mutex<()>,
    /// The last class list as a Python object: consecutive passes usually have the same one.
    tokens: Mutex<Option<(ClassTokens, Arc<Py<PyAny>>)>>,
}

impl Bridge {
    pub(crate) fn new(object: &Bound<'_, PyAny>, image_size: usize, width: usize) -> PyResult<Arc<Self>> {
        let has = |name: &str| object.getattr("passes")?.contains(name);
        let passes = Passes {
            contexts: has("contexts")?,
            context_gradient: has("context_gradient")?,
            deep: has("deep")?,
            vision: has("vision")?,
            norms: has("norms")?,
        };
        let takes_bytes = object.getattr("takes_bytes")?.extract()?;
        let batch_views = object.getattr("batch_views")?.extract()?;
        let (turn, tokens) = (Mutex::default(), Mutex::default());
        let object = object.clone().unbind();
        Ok(Arc::new(Self { object, passes, image_size, width, takes_bytes, batch_views, turn, tokens }))
    }

    /// Calls a method of the object and reads its result; an exception becomes an error that names the method.
    fn call<T>(
        &self,
        method: &str,
        work: impl for<'py> FnOnce(Python<'py>, &Bound<'py, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        let _turn = lock(&self.turn);
        Python::attach(|py| work(py, self.object.bind(py)).map_err(|error| failed(py, method, &error)))
    }

    /// `[count, 3, size, size]` of either type, copied once. numpy allocates the memory because it requests huge pages: a `Vec`
    /// of this size (38 MB for 256 views) would be mapped again for each call, with a page fault for every 4 KB.
    fn pixels<'py, T: numpy::Element + Copy>(
        &self,
        py: Python<'py>,
        parts: &[&[T]],
        count: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let size = self.image_size;
        let array = PyArray1::zeros(py, count * 3 * size * size, false);
        let mut values = array.try_readwrite()?;
        let mut rest = values.as_slice_mut()?;
        for part in parts {
            let (to, after) = rest.split_at_mut(part.len());
            to.copy_from_slice(part);
            rest = after;
        }
        drop(values);
        Ok(array.reshape([count, 3, size, size])?.into_any())
    }

    fn images<T: numpy::Element + Copy>(&self, parts: &[&[T]], count: usize) -> Result<Matrix> {
        let values: usize = parts.iter().map(|part| part.len()).sum();
        if count.checked_mul(3 * self.image_size * self.image_size) != Some(values) {
            let reason = format!("{values} values, expected {count} x 3 x {0} x {0}", self.image_size);
            return Err(Error::config("pixels", reason));
        }
        self.call("images", |py, object| {
            let found = object.call_method1("images", (self.pixels(py, parts, count)?,))?;
            matrix(&found, "images", count, self.width)
        })
    }

    /// The class list as Python's `ClassTokens`.
    fn tokens(&self, py: Python<'_>, tokens: &ClassTokens) -> PyResult<Arc<Py<PyAny>>> {
        let mut kept = lock(&self.tokens);
        if let Some((of, python)) = &*kept
            && of == tokens
        {
            return Ok(Arc::clone(python));
        }
        let names: Vec<&[u32]> = tokens.classes.iter().map(|class| class.name.as_slice()).collect();
        let rests: Vec<&[u32]> = tokens.classes.iter().map(|class| class.rest.as_slice()).collect();
        let position = tokens.position.to_value();
        let class = py.import("flatclip._towers")?.getattr("ClassTokens")?;
        let made = Arc::new(class.call1((tokens.n_ctx, position.as_str(), tokens.sot, names, rests))?.unbind());
        *kept = Some((tokens.clone(), Arc::clone(&made)));
        Ok(made)
    }

    /// Features `[K, D]` of each context, and the Python object of the pass if requested.
    fn contexts(
        &self,
        tokens: &ClassTokens,
        contexts: &[Context],
        blocks: Option<usize>,
    ) -> Result<(Vec<Matrix>, Py<PyAny>)> {
        let Some(first) = contexts.first() else { return Err(Error::config("context", "expected at least one")) };
        if contexts.iter().any(|context| context.shape() != first.shape()) {
            return Err(Error::config("context", "contexts of one call are either all shared or all class-specific"));
        }
        let (count, classes) = (contexts.len(), tokens.classes.len());
        self.call("contexts", |py, object| {
            let data: Vec<f32> = contexts.iter().flat_map(|context| context.data.iter().copied()).collect();
            let shape: Vec<usize> = std::iter::once(count).chain(first.shape()).collect();
            let array = arrays::vector(py, data).reshape(shape)?;
            let tokens = self.tokens(py, tokens)?;
            let found = object.call_method1("contexts", (tokens.bind(py), array, blocks))?;
            let (features, record): (Bound<'_, PyAny>, Bound<'_, PyAny>) = found.extract()?;
            let all = shaped(&features, "contexts", &[count, classes, self.width])?;
            let one = |rows: &[f32]| Matrix::from_vec(classes, self.width, rows.to_vec());
            Ok((all.chunks(classes * self.width).map(one).collect(), record.unbind()))
        })
    }

    fn deep(
        &self,
        tokens: &ClassTokens,
        context: &Context,
        deep: &[Matrix],
        gradient: bool,
    ) -> Result<(Matrix, Py<PyAny>)> {
        self.call("deep", |py, object| {
            let array = arrays::vector(py, context.data.clone()).reshape([context.tokens, context.width])?;
            let tokens = self.tokens(py, tokens)?;
            let found = object.call_method1("deep", (tokens.bind(py), array, list(py, deep)?, gradient))?;
            let (features, record): (Bound<'_, PyAny>, Bound<'_, PyAny>) = found.extract()?;
            let rows = tokens.bind(py).call_method0("__len__")?.extract()?;
            Ok((matrix(&features, "deep", rows, self.width)?, record.unbind()))
        })
    }
}

/// The error for an exception of a call. If the exception names the user's function, the error keeps that name.
fn failed(py: Python<'_>, method: &str, error: &PyErr) -> Error {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return Error::Interrupted(format!("in {method} of the model"));
    }
    let value = error.value(py);
    let part = |name: &str| value.getattr(name).and_then(|part| part.extract::<String>());
    match (part("call"), part("reason")) {
        (Ok(call), Ok(reason)) => Error::Device { call, reason },
        _ => Error::Device { call: method.to_owned(), reason: error.to_string() },
    }
}

/// Checks that an array has this shape and only finite values.
fn shaped(value: &Bound<'_, PyAny>, name: &str, shape: &[usize]) -> PyResult<Vec<f32>> {
    let array = arrays::floats(value, name)?;
    if array.shape() != shape {
        return Err(arrays::shape_error(name, &format!("an array of shape {shape:?}"), array.shape()));
    }
    let values = array.as_slice()?.to_vec();
    match values.iter().position(|x| !x.is_finite()) {
        None => Ok(values),
        Some(at) => {
            let reason = format!("{name}: expected finite numbers, found {} at element {at}", values[at]);
            Err(pyo3::exceptions::PyValueError::new_err(reason))
        }
    }
}

fn matrix(value: &Bound<'_, PyAny>, name: &str, rows: usize, cols: usize) -> PyResult<Matrix> {
    Ok(Matrix::from_vec(rows, cols, shaped(value, name, &[rows, cols])?))
}

/// Matrices as a list of arrays.
fn list<'py>(py: Python<'py>, matrices: &[Matrix]) -> PyResult<Bound<'py, PyList>> {
    let arrays = matrices.iter().map(|matrix| arrays::rows(py, matrix.clone())).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, arrays)
}

/// Vectors as a list of arrays.
fn vectors<'py>(py: Python<'py>, all: &[&[f32]]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, all.iter().map(|values| PyArray1::from_slice(py, values)))
}

/// Checks that a list has arrays of these sizes.
fn like(value: &Bound<'_, PyAny>, name: &str, sizes: &[usize]) -> PyResult<Vec<Vec<f32>>> {
    let found: Vec<Bound<'_, PyAny>> = value.extract()?;
    if found.len() != sizes.len() {
        let reason = format!("{name}: expected {} arrays, found {}", sizes.len(), found.len());
        return Err(pyo3::exceptions::PyValueError::new_err(reason));
    }
    found.iter().zip(sizes).map(|(array, &size)| shaped(&array.call_method0("ravel")?, name, &[size])).collect()
}

#[derive(Debug)]
pub(crate) struct ImageBridge(pub(crate) Arc<Bridge>);

impl ImageTower for ImageBridge {
    fn encode(&self, pixels: &[f32], count: usize) -> Result<Matrix> {
        self.0.images(&[pixels], count)
    }

    fn batch_views(&self) -> usize {
        self.0.batch_views
    }

    fn takes_bytes(&self) -> bool {
        self.0.takes_bytes
    }

    fn encode_bytes(&self, pixels: &[&[u8]], count: usize) -> Result<Matrix> {
        self.0.images(pixels, count)
    }

    fn passes(&self) -> Passes {
        self.0.passes
    }

    fn pass<'a>(&'a self, pixels: &[f32], count: usize, input: VisionInput<'_>) -> Result<Box<dyn VisionPass + 'a>> {
        let bridge = &self.0;
        let pass = bridge.call("vision", |py, object| {
            let norms = input.norms.map(|norms| vectors(py, &norms.tensors())).transpose()?;
            let pixels = bridge.pixels(py, &[pixels], count)?;
            let found = object.call_method1("vision", (pixels, list(py, input.prompts)?, norms, input.recorded > 0))?;
            type Found<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, usize, Bound<'py, PyAny>);
            let (features, lengths, tokens, record): Found<'_> = found.extract()?;
            Ok(Vision {
                bridge: Arc::clone(bridge),
                prompts: input.prompts.iter().map(|prompt| (prompt.rows(), prompt.cols())).collect(),
                features: matrix(&features, "vision", count, bridge.width)?,
                lengths: shaped(&lengths, "vision", &[count])?,
                tokens,
                record: record.unbind(),
            })
        })?;
        Ok(Box::new(pass))
    }

    fn token_width(&self) -> Result<usize> {
        self.0.call("token_width", |_, object| object.getattr("token_width")?.extract())
    }

    fn norm_affine(&self) -> Result<NormAffine> {
        let tensors = self.0.call("norms", |_, object| {
            let found: Vec<Bound<'_, PyAny>> = object.call_method0("norms")?.extract()?;
            found.iter().map(|array| arrays::values(array, "norms")).collect()
        })?;
        NormAffine::from_tensors(tensors)
    }

    fn batch_norms(&self) -> Result<BatchNorms> {
        let named: Vec<(String, Vec<f32>)> = self.0.call("batch_norms", |_, object| {
            let found: Vec<(String, Bound<'_, PyAny>)> = object.call_method0("batch_norms")?.extract()?;
            found.into_iter().map(|(name, array)| Ok((name, arrays::values(&array, "batch_norms")?))).collect()
        })?;
        Ok(BatchNorms::from_tensors(named))
    }

    fn batch_norm_pass<'a>(
        &'a self,
        pixels: &[f32],
        count: usize,
        norms: &BatchNorms,
    ) -> Result<Box<dyn BatchNormPass + 'a>> {
        let bridge = &self.0;
        let pass = bridge.call("batch_norm_pass", |py, object| {
            let pixels = bridge.pixels(py, &[pixels], count)?;
            let found = object.call_method1("batch_norm_pass", (pixels, vectors(py, &norms.all())?))?;
            let (features, record): (Bound<'_, PyAny>, Bound<'_, PyAny>) = found.extract()?;
            let features = matrix(&features, "batch_norm_pass", count, bridge.width)?;
            Ok(BatchNormed { bridge: Arc::clone(bridge), norms: norms.clone(), features, record: record.unbind() })
        })?;
        Ok(Box::new(pass))
    }
}

#[derive(Debug)]
pub(crate) struct TextBridge {
    pub(crate) bridge: Arc<Bridge>,
    pub(crate) width: usize,
    pub(crate) context_length: usize,
    /// Whether it has its own tokenizer.
    pub(crate) takes_strings: bool,
}

impl TextTower for TextBridge {
    fn width(&self) -> usize {
        self.width
    }

    fn context_length(&self) -> usize {
        self.context_length
    }

    fn passes(&self) -> Passes {
        self.bridge.passes
    }

    fn embed(&self, ids: &[u32]) -> Result<Matrix> {
        self.bridge.call("embed", |_, object| {
            matrix(&object.call_method1("embed", (ids.to_vec(),))?, "embed", ids.len(), self.width)
        })
    }

    fn encode_tokens(&self, texts: &[Vec<u32>]) -> Result<Matrix> {
        self.bridge.call("texts", |_, object| {
            matrix(&object.call_method1("texts", (texts.to_vec(),))?, "texts", texts.len(), self.bridge.width)
        })
    }

    fn encode_strings(&self, texts: &[String]) -> Option<Result<Matrix>> {
        self.takes_strings.then(|| {
            self.bridge.call("strings", |_, object| {
                matrix(&object.call_method1("strings", (texts.to_vec(),))?, "strings", texts.len(), self.bridge.width)
            })
        })
    }

    fn encode(&self, tokens: &ClassTokens, contexts: &[Context]) -> Result<Vec<Matrix>> {
        Ok(self.bridge.contexts(tokens, contexts, None)?.0)
    }

    fn pass_through(&self, blocks: usize, tokens: &ClassTokens, contexts: &[Context]) -> Result<Box<dyn ContextPass>> {
        let (features, record) = self.bridge.contexts(tokens, contexts, Some(blocks.min(u32::MAX as usize)))?;
        let (bridge, like) = (Arc::clone(&self.bridge), contexts.to_vec());
        Ok(Box::new(Contexts { bridge, like, features, record }))
    }

    fn deep_pass(&self, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<Box<dyn DeepPass>> {
        let (features, record) = self.bridge.deep(tokens, context, deep, true)?;
        let bridge = Arc::clone(&self.bridge);
        Ok(Box::new(Deep { bridge, context: context.clone(), deep: deep.len(), features, record }))
    }

    fn encode_deep(&self, tokens: &ClassTokens, context: &Context, deep: &[Matrix]) -> Result<Matrix> {
        Ok(self.bridge.deep(tokens, context, deep, false)?.0)
    }
}

#[derive(Debug)]
struct Contexts {
    bridge: Arc<Bridge>,
    like: Vec<Context>,
    features: Vec<Matrix>,
    record: Py<PyAny>,
}

impl ContextPass for Contexts {
    fn features(&self) -> &[Matrix] {
        &self.features
    }

    fn gradient(&self, d_features: &[Matrix]) -> Result<Vec<Context>> {
        let sizes = |all: &[Matrix]| all.iter().map(|m| (m.rows(), m.cols())).collect::<Vec<_>>();
        if sizes(d_features) != sizes(&self.features) {
            let reason = format!("shapes {:?}, expected {:?}", sizes(d_features), sizes(&self.features));
            return Err(Error::config("feature gradient", reason));
        }
        let shape = [self.like.len(), self.features[0].rows(), self.features[0].cols()];
        let gradient = self.bridge.call("gradient of contexts", |py, _| {
            let d = arrays::cube(py, shape, d_features.iter().flat_map(|d| d.data().iter().copied()).collect())?;
            let found = self.record.bind(py).call_method1("gradient", (d,))?;
            let expected: Vec<usize> = std::iter::once(self.like.len()).chain(self.like[0].shape()).collect();
            shaped(&found, "gradient of contexts", &expected)
        })?;
        let one = gradient.chunks(self.like[0].data.len().max(1));
        Ok(self.like.iter().zip(one).map(|(like, d)| Context { data: d.to_vec(), ..like.clone() }).collect())
    }
}

#[derive(Debug)]
struct Deep {
    bridge: Arc<Bridge>,
    context: Context,
    deep: usize,
    features: Matrix,
    record: Py<PyAny>,
}

impl DeepPass for Deep {
    fn features(&self) -> &Matrix {
        &self.features
    }

    fn gradient(&self, d_features: &Matrix) -> Result<(Context, Vec<Matrix>)> {
        let (tokens, width) = (self.context.tokens, self.context.width);
        let mut all = self.bridge.call("gradient of deep prompts", |py, _| {
            let found = self.record.bind(py).call_method1("gradient", (arrays::rows(py, d_features.clone())?,))?;
            like(&found, "gradient of deep prompts", &vec![tokens * width; self.deep + 1])
        })?;
        let context = Context { data: all.remove(0), ..self.context.clone() };
        Ok((context, all.into_iter().map(|d| Matrix::from_vec(tokens, width, d)).collect()))
    }
}

#[derive(Debug)]
struct Vision {
    bridge: Arc<Bridge>,
    prompts: Vec<(usize, usize)>,
    features: Matrix,
    lengths: Vec<f32>,
    tokens: usize,
    record: Py<PyAny>,
}

impl VisionPass for Vision {
    fn features(&self) -> &Matrix {
        &self.features
    }

    fn norms(&self) -> &[f32] {
        &self.lengths
    }

    fn tokens_per_image(&self) -> usize {
        self.tokens
    }

    fn tokens(&self, block: usize) -> Result<Matrix> {
        self.bridge
            .call("tokens", |py, _| arrays::matrix(&self.record.bind(py).call_method1("tokens", (block,))?, "tokens"))
    }

    fn gradient(&self, d_features: &Matrix, d_tokens: &[(usize, Vec<f32>)]) -> Result<VisionGradient> {
        let (prompts, norms) = self.bridge.call("gradient of the image tower", |py, _| {
            let given = d_tokens.iter().map(|(block, d)| (*block, PyArray1::from_slice(py, d)));
            let d_tokens = PyList::new(py, given)?;
            let d = arrays::rows(py, d_features.clone())?;
            let found = self.record.bind(py).call_method1("gradient", (d, d_tokens))?;
            let found = found.cast_into::<PyTuple>()?;
            let sizes: Vec<usize> = self.prompts.iter().map(|(rows, cols)| rows * cols).collect();
            let prompts = like(&found.get_item(0)?, "gradient of visual prompts", &sizes)?;
            let norms: Vec<Bound<'_, PyAny>> = found.get_item(1)?.extract()?;
            let norms = norms.iter().map(|array| arrays::values(array, "gradient of norms"));
            Ok((prompts, norms.collect::<PyResult<Vec<_>>>()?))
        })?;
        let prompts = prompts.into_iter().zip(&self.prompts);
        Ok(VisionGradient {
            prompts: prompts.map(|(d, &(rows, cols))| Matrix::from_vec(rows, cols, d)).collect(),
            norms: NormAffine::from_tensors(norms)?,
        })
    }
}

#[derive(Debug)]
struct BatchNormed {
    bridge: Arc<Bridge>,
    norms: BatchNorms,
    features: Matrix,
    record: Py<PyAny>,
}

impl BatchNormPass for BatchNormed {
    fn features(&self) -> &Matrix {
        &self.features
    }

    fn gradient(&self, d_features: &Matrix) -> Result<BatchNorms> {
        let values = self.bridge.call("gradient of batch norms", |py, _| {
            let found = self.record.bind(py).call_method1("gradient", (arrays::rows(py, d_features.clone())?,))?;
            let sizes: Vec<usize> = self.norms.all().iter().map(|values| values.len()).collect();
            like(&found, "gradient of batch norms", &sizes)
        })?;
        self.norms.with_values(values)
    }
}
