//! The parts of an import: what an npz or safetensors file holds, and what a caller adds to it.

use super::import::{FeatureRows, ImportRequest, MOST_SAMPLES};
use crate::data::Dataset;
use flatclip::error::quoted;
use flatclip::weights::ArrayFile;
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;
use serde::Deserialize;
use std::path::Path;

/// The most numbers of text features: 10 000 classes, 17 texts, width 1024, and half as much again.
const MOST_TEXT: usize = 1 << 28;

/// What is known of features; a file need not hold all of it.
#[derive(Default)]
pub struct FeatureParts<'a> {
    /// `features` `[N, D]` or `[N, V, D]`, and `norms` `[N]` or `[N, V]`; absent in a file of text features.
    pub features: Option<FeatureRows<'a>>,
    /// `ids`: an array of texts (npz), or in the document.
    pub ids: Option<Vec<String>>,
    /// `labels`.
    pub labels: Option<Vec<i64>>,
    /// `classes`: names, as `ids`.
    pub classes: Option<Vec<String>>,
    /// `text_features` `[K, D]`.
    pub text: Option<Matrix>,
    /// `text_bank` `[R + 1, K, D]` as `[(R + 1) K, D]`, and K.
    pub bank: Option<(Matrix, usize)>,
    /// `logit_scale`: a number.
    pub logit_scale: Option<f64>,
    /// `model`: a text.
    pub model: Option<String>,
}

/// The JSON document under the key `flatclip` of a safetensors file's metadata; `cache export` writes it.
#[derive(Default, Deserialize)]
struct Document {
    ids: Option<Vec<String>>,
    labels: Option<Vec<i64>>,
    classes: Option<Vec<String>>,
    logit_scale: Option<f64>,
    model: Option<String>,
}

impl<'a> FeatureParts<'a> {
    /// Opens a file; the features are read later, sample after sample.
    pub fn open(path: &Path) -> Result<Self> {
        let file = ArrayFile::open(path)?;
        let fault = |reason: String| Error::Data { path: path.to_path_buf(), reason };
        let document = match file.metadata("flatclip") {
            Some(text) => {
                serde_json::from_str(text).map_err(|e| fault(format!("its document is not as expected: {e}")))?
            }
            None => Document::default(),
        };
        let has = |name: &str| file.shape(name).is_some();
        let texts = |name: &str, own: Option<Vec<String>>| {
            if has(name) { file.texts(name, MOST_SAMPLES).map(Some) } else { Ok(own) }
        };
        if !["features", "text_features", "text_bank"].into_iter().any(has) {
            let known: Vec<String> = file.names().map(quoted).collect();
            let reason =
                format!("expected arrays `features`, `text_features` or `text_bank`, found {}", known.join(", "));
            return Err(fault(reason));
        }
        let model = match texts("model", document.model.map(|name| vec![name]))? {
            Some(words) => words.into_iter().next(),
            None => None,
        };
        Ok(Self {
            features: if has("features") { Some(rows(&file)?) } else { None },
            ids: texts("ids", document.ids)?,
            labels: if has("labels") { Some(file.integers("labels", MOST_SAMPLES)?) } else { document.labels },
            classes: texts("classes", document.classes)?,
            text: matrix(&file, "text_features", 2)?.map(|(rows, _)| rows),
            bank: matrix(&file, "text_bank", 3)?,
            logit_scale: if has("logit_scale") { Some(scalar(&file)?) } else { document.logit_scale },
            model,
        })
    }

    /// What both say together. A part that both have must be the same in both; features cannot be compared.
    pub fn with(self, other: Self) -> Result<Self> {
        fn one<T: PartialEq>(name: &str, a: Option<T>, b: Option<T>) -> Result<Option<T>> {
            match (a, b) {
                (Some(a), Some(b)) if a != b => {
                    let reason = "two sources give it, and they differ: they are of other images, classes or models";
                    Err(Error::config(name, reason))
                }
                (a, b) => Ok(a.or(b)),
            }
        }
        if self.features.is_some() && other.features.is_some() {
            return Err(Error::config("features", "expected one array of features, found two"));
        }
        Ok(Self {
            features: self.features.or(other.features),
            ids: one("ids", self.ids, other.ids)?,
            labels: one("labels", self.labels, other.labels)?,
            classes: one("classes", self.classes, other.classes)?,
            text: one("text features", self.text, other.text)?,
            bank: one("text bank", self.bank, other.bank)?,
            logit_scale: one("logit_scale", self.logit_scale, other.logit_scale)?,
            model: one("model", self.model, other.model)?,
        })
    }

    /// The request to import them under a name.
    pub fn request(mut self, name: String, data: Option<&'a Dataset>, replace: bool) -> Result<ImportRequest<'a>> {
        let missing = |what: &str| Error::config(what, "expected it in the file or as an argument, found none");
        let features = self.features.take().ok_or_else(|| missing("features"))?;
        let logit_scale = self.logit_scale.ok_or_else(|| missing("logit_scale"))?;
        Ok(ImportRequest { name, features, logit_scale, beside: self, data, replace })
    }
}

fn rows(file: &ArrayFile) -> Result<FeatureRows<'static>> {
    let shape = match *file.shape("features").unwrap_or_default() {
        [samples, width] => [samples, 1, width],
        [samples, views, width] => [samples, views, width],
        ref other => return Err(wrong_shape(file, "features", "[N, D] or [N, V, D]", other)),
    };
    let norms = match file.shape("norms") {
        None => None,
        Some(found) if found.iter().product::<usize>() == shape[0].saturating_mul(shape[1]) => {
            Some(file.all_floats("norms", MOST_TEXT)?)
        }
        Some(found) => return Err(wrong_shape(file, "norms", &format!("[{}, {}]", shape[0], shape[1]), found)),
    };
    let mut floats = file.floats("features")?;
    let (dtype, mut left) = (floats.dtype().to_owned(), shape[0]);
    let next = move || {
        let values = floats.read(shape[1] * shape[2])?;
        left -= 1;
        if left == 0 {
            floats.finish()?;
        }
        Ok(values)
    };
    Ok(FeatureRows { shape, dtype, next: Box::new(next), norms })
}

/// `[.., K, D]` as rows, and K.
fn matrix(file: &ArrayFile, name: &str, axes: usize) -> Result<Option<(Matrix, usize)>> {
    let Some(shape) = file.shape(name) else { return Ok(None) };
    let (&[.., classes, width], true) = (shape, shape.len() == axes && shape.iter().all(|&size| size > 0)) else {
        let expected = if axes == 2 { "[K, D]" } else { "[R + 1, K, D]" };
        return Err(wrong_shape(file, name, expected, shape));
    };
    let values = file.all_floats(name, MOST_TEXT)?;
    Ok(Some((Matrix::from_vec(values.len() / width, width, values), classes)))
}

fn scalar(file: &ArrayFile) -> Result<f64> {
    // A number of Python's own is saved as float64.
    let value = file.one_number("logit_scale")?;
    if value.is_finite() {
        return Ok(value);
    }
    Err(Error::NotFinite { place: format!("{}: logit_scale", file.path().display()), reason: format!("found {value}") })
}

fn wrong_shape(file: &ArrayFile, name: &str, expected: &str, found: &[usize]) -> Error {
    let reason = format!("`{name}`: expected {expected}, found an array of shape {found:?}");
    Error::Data { path: file.path().to_path_buf(), reason }
}
