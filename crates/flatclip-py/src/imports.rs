//! Features of other programs: import into the feature cache, and access to imported features.

use crate::arrays::{self, Numbers, Values};
use crate::errors::OrRaise as _;
use crate::model::strings;
use crate::values::Given;
use crate::{dataset::Dataset, work};
use flatclip::Matrix;
use flatclip_lab::eval::cache::{self, FeatureParts, FeatureRows, Imported};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Imported features: `evaluate` and `sweep` take them instead of a model.
#[pyclass(module = "flatclip", frozen, from_py_object)]
#[derive(Clone)]
pub(crate) struct Features {
    pub(crate) features: Imported,
    root: PathBuf,
}

#[pymethods]
impl Features {
    /// Opens features by the name that they were imported under.
    #[new]
    #[pyo3(signature = (name, cache=None))]
    fn new(py: Python<'_>, name: String, cache: Option<PathBuf>) -> PyResult<Self> {
        let root = cache.unwrap_or_else(flatclip::cache_folder);
        let features = Imported::open(&root, &name).or_raise(py)?;
        Ok(Self { features, root })
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.features.name()
    }

    /// The model that made them.
    #[getter]
    fn model(&self) -> &str {
        self.features.model()
    }

    /// Samples, views and width.
    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        (self.features.dataset().samples.len(), self.features.views(), self.features.width())
    }

    /// Class names, by label.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.features.dataset().classes.clone()
    }

    /// The factor on cosine similarities.
    #[getter]
    fn logit_scale(&self) -> f32 {
        self.features.logit_scale()
    }

    /// Digest of features, labels, ids and text features: the same for the same values.
    #[getter]
    fn digest(&self) -> &str {
        self.features.digest()
    }

    /// Writes them to a safetensors file that `import_features` accepts; returns the number of samples.
    fn export(&self, py: Python<'_>, out: PathBuf) -> PyResult<usize> {
        let (root, id) = (self.root.clone(), self.features.id().to_owned());
        work::run(py, None, move |_| {
            let (bytes, count) = cache::export(&root, &id)?;
            flatclip::files::write_atomic(&out, &bytes)?;
            Ok(count)
        })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String, PathBuf))> {
        let own = slf.get();
        Ok((slf.get_type().into_any(), (own.features.name().to_owned(), own.root.clone())))
    }

    fn __repr__(&self) -> String {
        let ((samples, views, width), name) = (self.shape(), self.features.name());
        format!("<flatclip.Features {name}: {samples} samples, {views} views, width {width}>")
    }
}

/// The arguments of an import other than the features.
fn parts(beside: &Given<'_>) -> PyResult<FeatureParts<'static>> {
    let given = |name: &str| beside.get::<Option<Bound<'_, PyAny>>>(name);
    let names = |name: &str| given(name)?.map(|names| strings(&names, name)).transpose();
    let rows = |name: &str, axes: usize| given(name)?.map(|rows| exact(&rows, name, axes)).transpose();
    Ok(FeatureParts {
        features: None,
        ids: names("ids")?,
        labels: beside.get("labels")?,
        classes: names("classes")?,
        text: rows("text_features", 2)?.map(|(rows, _)| rows),
        bank: rows("text_bank", 3)?,
        logit_scale: beside.get("logit_scale")?,
        model: beside.get("model")?,
    })
}

/// Numbers that float32 holds exactly.
fn exact_numbers<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Numbers<'py>> {
    match arrays::numbers(value, name)? {
        Numbers::Double(_) => Err(PyTypeError::new_err(format!(
            "{name}: expected float32 or float16 numbers, found float64, which float32 does not hold exactly; give \
             {name}.astype(\"float32\")"
        ))),
        other => Ok(other),
    }
}

/// `[.., K, D]` as rows, and K.
fn exact(value: &Bound<'_, PyAny>, name: &str, axes: usize) -> PyResult<(Matrix, usize)> {
    let numbers = exact_numbers(value, name)?;
    let shape = numbers.shape();
    if shape.len() != axes || shape.contains(&0) {
        return Err(arrays::shape_error(name, if axes == 2 { "[K, D]" } else { "[R + 1, K, D]" }, shape));
    }
    let (classes, width, total) = (shape[axes - 2], shape[axes - 1], shape.iter().product::<usize>());
    Ok((Matrix::from_vec(total / width, width, numbers.values()?.floats(0..total)), classes))
}

/// Imports features from a file, or from an array `[N, D]` or `[N, V, D]` that is read one sample at a time.
#[pyfunction]
#[pyo3(signature = (source, name, beside, *, data=None, cache=None, replace=false, progress=None))]
pub(crate) fn import_features(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    name: String,
    beside: Given<'_>,
    data: Option<&Bound<'_, Dataset>>,
    cache: Option<PathBuf>,
    replace: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Features> {
    let root = cache.unwrap_or_else(flatclip::cache_folder);
    let (said, data) = (parts(&beside)?, data.map(|data| data.get().data.clone()));
    let done = if let Ok(file) = source.extract::<PathBuf>() {
        let root = root.clone();
        work::run(py, progress, move |watch| {
            let parts = FeatureParts::open(&file)?.with(said)?;
            cache::import(&root, parts.request(name, data.as_ref(), replace)?, watch)
        })?
    } else {
        let numbers = exact_numbers(source, "features")?;
        let shape = match *numbers.shape() {
            [samples, width] => [samples, 1, width],
            [samples, views, width] => [samples, views, width],
            ref other => return Err(arrays::shape_error("features", "[N, D] or [N, V, D]", other)),
        };
        let norms: Option<Bound<'_, PyAny>> = beside.get("norms")?;
        let norms = norms.map(|norms| arrays::values(&norms, "norms")).transpose()?;
        let (values, each) = (numbers.values()?, shape[1] * shape[2]);
        let dtype = if matches!(values, Values::Half(_)) { "f16" } else { "f32" }.to_owned();
        work::run_borrowing(py, progress, |watch| {
            let (values, mut place) = (&values, 0..0);
            let next = move || {
                place = place.end..place.end + each;
                Ok(values.floats(place.clone()))
            };
            let rows = FeatureRows { shape, dtype, next: Box::new(next), norms };
            let parts = FeatureParts { features: Some(rows), ..said };
            cache::import(&root, parts.request(name, data.as_ref(), replace)?, watch)
        })?
    };
    Ok(Features { features: done, root })
}
