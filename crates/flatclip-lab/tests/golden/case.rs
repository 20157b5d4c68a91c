//! One golden case: its tensors, its spec, and the comparison with tolerances.

use flatclip::model::{ClassTokens, Clip, Context, Features, LoadOptions, Position};
use flatclip::weights::Checkpoint;
use flatclip_tensor::Matrix;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a check or a part of it gives; `?` takes errors of the library and texts alike.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// A tensor of a case, as stored.
#[derive(Clone, Debug)]
pub enum Data {
    /// Real numbers.
    F32(Vec<f32>),
    /// Indices, labels, token ids, counts.
    I64(Vec<i64>),
    /// Image bytes.
    U8(Vec<u8>),
}

/// A loaded case.
pub struct Case {
    /// The `spec` of the file: method, hyperparameters, tolerances, notes. For JSON cases, the whole document.
    pub spec: Value,
    path: PathBuf,
    tensors: BTreeMap<String, (Vec<usize>, Data)>,
    /// Computes in place of our kernels.
    other: Option<Arc<Clip>>,
}

/// The method a file is about, without loading its tensors.
pub fn method_of(file: &Path) -> Result<String, String> {
    let spec = Case::load(file)?.spec;
    let spec = spec.get("spec").unwrap_or(&spec);
    spec["method"].as_str().map(str::to_owned).ok_or_else(|| format!("{}: spec has no `method`", file.display()))
}

impl Case {
    /// Reads a case from a `.safetensors` or `.json` file.
    pub fn load(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let bytes = std::fs::read(path).map_err(|e| format!("{name}: {e}"))?;
        if path.extension().is_some_and(|e| e == "json") {
            let spec = serde_json::from_slice(&bytes).map_err(|e| format!("{name}: {e}"))?;
            return Ok(Self { spec, path: path.to_path_buf(), tensors: BTreeMap::new(), other: None });
        }
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|e| format!("{name}: {e}"))?;
        let spec = metadata.metadata().as_ref().and_then(|m| m.get("spec")).ok_or(format!("{name}: no `spec`"))?;
        let spec = serde_json::from_str(spec).map_err(|e| format!("{name}: spec: {e}"))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|e| format!("{name}: {e}"))?;
        let mut tensors = BTreeMap::new();
        for (key, view) in file.iter() {
            let bytes = view.data();
            let data = match view.dtype() {
                Dtype::F32 => Data::F32(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()),
                Dtype::I64 => Data::I64(bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect()),
                Dtype::U8 => Data::U8(bytes.to_vec()),
                other => return Err(format!("{name}: {key} has dtype {other:?}, expected F32, I64 or U8")),
            };
            tensors.insert(key.to_owned(), (view.shape().to_vec(), data));
        }
        Ok(Self { spec, path: path.to_path_buf(), tensors, other: None })
    }

    /// The folder of the case file (its images are in the subfolder `images`).
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// A file or folder of the case, in the folder of cases or beside it.
    pub fn beside(&self, name: &str) -> Result<PathBuf, String> {
        let places = [self.folder().join(name), self.folder().join("..").join(name)];
        let found = places.into_iter().find(|path| path.exists());
        found.ok_or_else(|| format!("no {name} in {} or beside it", self.folder().display()))
    }

    /// The model of the case, in the folder of cases or beside it: the folder `MODEL_DIR/NAME`, or
    /// `models/NAME.openai.safetensors`, or `.jit.pt` where that is not there.
    pub fn model_path(&self) -> Result<PathBuf, String> {
        let model = self.spec["model"].as_str().ok_or("this case has no model")?;
        if let Some(dir) = self.spec["model_dir"].as_str() {
            return self.beside(&format!("{dir}/{model}"));
        }
        let places = [self.folder().join("models"), self.folder().join("../models")];
        let files = ["openai.safetensors", "jit.pt"].map(|kind| format!("{model}.{kind}"));
        let mut candidates = files.iter().flat_map(|file| places.iter().map(move |place| place.join(file)));
        candidates.find(|path| path.exists()).ok_or_else(|| {
            format!("no models/{} or {} in {} or beside it", files[0], files[1], self.folder().display())
        })
    }

    /// The same case, computed by other towers of its model.
    #[allow(dead_code, reason = "for the Python bindings, which include this file")]
    pub fn on(self, other: Clip) -> Self {
        Self { other: Some(Arc::new(other)), ..self }
    }

    /// Whether the steps inside of towers can be compared: those of our kernels only.
    pub fn has_steps(&self) -> bool {
        self.other.is_none()
    }

    /// The case's model, loaded in f32.
    pub fn clip(&self) -> Fallible<Arc<Clip>> {
        if let Some(other) = &self.other {
            return Ok(Arc::clone(other));
        }
        let checkpoint = Checkpoint::open(self.model_path()?)?;
        Ok(Arc::new(Clip::load(&checkpoint, LoadOptions::default())?))
    }

    /// A context tensor: shared `[n_ctx, width]` or class-specific `[K, n_ctx, width]`.
    pub fn context(&self, name: &str) -> Fallible<Context> {
        let data = self.f32(name)?.to_vec();
        match *self.shape(name)? {
            [tokens, width] => Ok(Context::shared(tokens, width, data)),
            [classes, tokens, width] => Ok(Context::per_class(classes, tokens, width, data)),
            ref other => Err(format!("`{name}` has shape {other:?}, expected 2 or 3 dimensions").into()),
        }
    }

    /// The token rows of `in.tokens`, padding included.
    pub fn token_rows(&self, name: &str) -> Result<Vec<Vec<u32>>, String> {
        let width = *self.shape(name)?.last().ok_or("tokens have no dimension")?;
        self.i64(name)?
            .chunks(width)
            .map(|row| row.iter().map(|&id| u32::try_from(id).map_err(|_| format!("token id {id}"))).collect())
            .collect()
    }

    /// The classes of `in.tokens` and `in.name_lens` (when given) around a context of `n_ctx` tokens.
    pub fn class_tokens(&self, n_ctx: usize) -> Fallible<ClassTokens> {
        let rows = self.token_rows("in.tokens")?;
        // The name's length matters for `middle` and `front` only.
        let lengths = if self.has("in.name_lens") { self.indices("in.name_lens")? } else { vec![0; rows.len()] };
        if self.spec["method"].as_str().is_some_and(|method| method.ends_with("-siglip")) {
            // Rows without start token, in full.
            return Ok(ClassTokens::from_rows(&rows, &lengths, n_ctx, Position::End)?);
        }
        let position = match self.hyper("class_token_position").as_str() {
            None | Some("end") => Position::End,
            Some("middle") => Position::Middle,
            Some("front") => Position::Front,
            Some(other) => return Err(format!("unknown class position {other:?}").into()),
        };
        Ok(ClassTokens::from_ids(&rows, &lengths, n_ctx, position)?)
    }

    /// Raw image features of a pixel tensor `[.., 3, H, W]`.
    pub fn raw_image_features(&self, clip: &Clip, name: &str) -> Fallible<Matrix> {
        let shape = self.shape(name)?;
        let count = shape[..shape.len() - 3].iter().product();
        Ok(clip.encode_images(self.f32(name)?, count)?)
    }

    /// Unit-norm image features of a pixel tensor `[.., 3, H, W]`.
    pub fn image_features(&self, clip: &Clip, name: &str) -> Fallible<Matrix> {
        Ok(Features::unit(self.raw_image_features(clip, name)?).0)
    }

    /// Unit-norm features of hand-written prompts: one row per token row.
    pub fn text_features(&self, clip: &Clip, name: &str) -> Fallible<Matrix> {
        Ok(Features::unit(clip.text()?.encode_tokens(&self.token_rows(name)?)?).0)
    }

    /// Whether the case has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Shape of a tensor.
    pub fn shape(&self, name: &str) -> Result<&[usize], String> {
        Ok(&self.entry(name)?.0)
    }

    fn entry(&self, name: &str) -> Result<&(Vec<usize>, Data), String> {
        self.tensors.get(name).ok_or_else(|| format!("the case has no tensor `{name}`"))
    }

    /// A real tensor.
    pub fn f32(&self, name: &str) -> Result<&[f32], String> {
        match &self.entry(name)?.1 {
            Data::F32(data) => Ok(data),
            other => Err(format!("`{name}` is not F32 but {other:?}")),
        }
    }

    /// An integer tensor.
    pub fn i64(&self, name: &str) -> Result<&[i64], String> {
        match &self.entry(name)?.1 {
            Data::I64(data) => Ok(data),
            other => Err(format!("`{name}` is not I64 but {other:?}")),
        }
    }

    /// An integer tensor as indices.
    pub fn indices(&self, name: &str) -> Result<Vec<usize>, String> {
        self.i64(name)?.iter().map(|&i| usize::try_from(i).map_err(|_| format!("`{name}` holds {i}"))).collect()
    }

    /// A byte tensor.
    pub fn u8(&self, name: &str) -> Result<&[u8], String> {
        match &self.entry(name)?.1 {
            Data::U8(data) => Ok(data),
            other => Err(format!("`{name}` is not U8 but {other:?}")),
        }
    }

    /// A hyperparameter (`Null` when absent); `positive/alpha` is one of a group.
    pub fn hyper(&self, key: &str) -> &Value {
        self.spec.pointer(&format!("/hyperparameters/{key}")).unwrap_or(&Value::Null)
    }

    /// A real hyperparameter.
    pub fn number(&self, key: &str) -> Result<f64, String> {
        let value = self.hyper(key);
        value.as_f64().ok_or_else(|| format!("hyperparameter `{key}` is {value}, expected a number"))
    }

    /// A whole hyperparameter.
    pub fn count(&self, key: &str) -> Result<usize, String> {
        let value = self.hyper(key);
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| format!("hyperparameter `{key}` is {value}, expected a count"))
    }

    /// The tolerance under `key` of `spec.tolerance` (or the whole of it, if it is one rule), else `fallback`.
    pub fn tolerance(&self, key: &str, fallback: Tolerance) -> Tolerance {
        let all = &self.spec["tolerance"];
        Tolerance::read(&all[key]).or_else(|| Tolerance::read(all)).unwrap_or(fallback)
    }
}

/// How far a number may be off: `|x - y| <= atol + rtol |y| + to_max * max|y|`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    /// Absolute part.
    pub atol: f64,
    /// Part relative to the expected value.
    pub rtol: f64,
    /// Part relative to the largest expected value.
    pub to_max: f64,
    /// Share of entries that may lie outside (sign-like optimiser steps near a zero gradient).
    pub outliers: f64,
}

impl Tolerance {
    /// An absolute tolerance.
    pub const fn atol(atol: f64) -> Self {
        Self { atol, rtol: 0.0, to_max: 0.0, outliers: 0.0 }
    }

    /// The same with a share of entries that may lie outside.
    pub const fn with_outliers(mut self, share: f64) -> Self {
        self.outliers = share;
        self
    }

    fn read(rule: &Value) -> Option<Self> {
        let number = |key: &str| rule.get(key).and_then(Value::as_f64);
        let (atol, rtol, to_max) = (number("atol"), number("rtol"), number("atol_rel_to_max"));
        if atol.is_none() && rtol.is_none() && to_max.is_none() {
            return None;
        }
        Some(Self {
            atol: atol.unwrap_or(0.0),
            rtol: rtol.unwrap_or(0.0),
            to_max: to_max.unwrap_or(0.0),
            outliers: 0.0,
        })
    }
}

/// A number of a real output.
pub trait Real {
    /// As files store it.
    fn real(&self) -> f32;
}

impl Real for f32 {
    fn real(&self) -> f32 {
        *self
    }
}

impl Real for f64 {
    fn real(&self) -> f32 {
        *self as f32
    }
}

impl<T: Real> Real for &T {
    fn real(&self) -> f32 {
        (*self).real()
    }
}

/// A number of a whole output: an index, a label, a count, yes or no.
pub trait Whole {
    /// As files store it.
    fn whole(&self) -> i64;
}

impl Whole for usize {
    fn whole(&self) -> i64 {
        *self as i64
    }
}

impl Whole for i64 {
    fn whole(&self) -> i64 {
        *self
    }
}

impl Whole for bool {
    fn whole(&self) -> i64 {
        i64::from(*self)
    }
}

impl<T: Whole> Whole for &T {
    fn whole(&self) -> i64 {
        (*self).whole()
    }
}

/// The outputs of a case as they were recomputed, and how they compare with those of the file.
pub struct Report<'c> {
    /// What is compared with.
    pub case: &'c Case,
    /// Outputs that are collected sample by sample, and compared at the end.
    reals: BTreeMap<String, Vec<f32>>,
    wholes: BTreeMap<String, Vec<i64>>,
    compared: usize,
    worst: Option<(String, f64)>,
    faults: Vec<String>,
}

impl<'c> Report<'c> {
    /// Nothing compared yet.
    pub fn of(case: &'c Case) -> Self {
        let (reals, wholes) = (BTreeMap::new(), BTreeMap::new());
        Self { case, reals, wholes, compared: 0, worst: None, faults: Vec::new() }
    }

    /// Collects what a sample adds to a real output. The whole is compared as [`Self::close`] does, unless it is settled before.
    pub fn real(&mut self, name: &str, values: impl IntoIterator<Item = impl Real>) {
        self.reals.entry(name.to_owned()).or_default().extend(values.into_iter().map(|value| value.real()));
    }

    /// Collects what a sample adds to a whole output.
    pub fn whole(&mut self, name: &str, values: impl IntoIterator<Item = impl Whole>) {
        self.wholes.entry(name.to_owned()).or_default().extend(values.into_iter().map(|value| value.whole()));
    }

    /// Compares a collected real output with a tolerance of its own.
    pub fn settle(&mut self, name: &str, tolerance: Tolerance) {
        let found = self.reals.remove(name).unwrap_or_default();
        self.close_to(name, found, tolerance);
    }

    /// Compares a real output with the tolerance that the file names for it.
    pub fn close(&mut self, name: &str, actual: impl IntoIterator<Item = impl Real>) {
        self.close_or(name, actual, Tolerance::atol(1e-3));
    }

    /// The same with another tolerance where the file names none.
    pub fn close_or(&mut self, name: &str, actual: impl IntoIterator<Item = impl Real>, fallback: Tolerance) {
        self.close_to(name, actual, self.case.tolerance(name, fallback));
    }

    /// Compares a real output with this tolerance.
    pub fn close_to(&mut self, name: &str, actual: impl IntoIterator<Item = impl Real>, tolerance: Tolerance) {
        let actual: Vec<f32> = actual.into_iter().map(|value| value.real()).collect();
        match self.case.f32(&format!("out.{name}")) {
            Ok(expected) => self.compare(name, &actual, expected, tolerance),
            Err(fault) => self.faults.push(fault.to_string()),
        }
    }

    /// Compares a whole output.
    pub fn equal(&mut self, name: &str, actual: impl IntoIterator<Item = impl Whole>) {
        let actual: Vec<i64> = actual.into_iter().map(|value| value.whole()).collect();
        match self.case.i64(&format!("out.{name}")) {
            Ok(expected) => self.same(name, &actual, expected),
            Err(fault) => self.faults.push(fault.to_string()),
        }
    }

    /// Compares the percent of right ones among the classes collected so far as output `of`.
    pub fn accuracy(&mut self, name: &str, of: &str) -> Result<(), String> {
        let labels = self.case.i64("in.labels")?;
        let found = self.wholes.get(of).map_or(&[][..], Vec::as_slice);
        let right = found.iter().zip(labels).filter(|(a, b)| a == b).count();
        self.close(name, [100.0 * right as f32 / labels.len() as f32]);
        Ok(())
    }

    /// Compares real numbers with others than those of an output.
    pub fn compare(&mut self, name: &str, actual: &[f32], expected: &[f32], tolerance: Tolerance) {
        self.compared += 1;
        if actual.len() != expected.len() {
            self.faults.push(format!("{name}: {} values, expected {}", actual.len(), expected.len()));
            return;
        }
        let largest = expected.iter().fold(0.0f64, |m, &y| m.max(f64::from(y).abs()));
        let (mut outside, mut worst, mut at) = (0usize, 0.0f64, 0);
        for (i, (&x, &y)) in actual.iter().zip(expected).enumerate() {
            let (x, y) = (f64::from(x), f64::from(y));
            let difference = if x == y || (x.is_nan() && y.is_nan()) { 0.0 } else { (x - y).abs() };
            let allowed = tolerance.atol + tolerance.rtol * y.abs() + tolerance.to_max * largest;
            outside += usize::from(difference.is_nan() || difference > allowed);
            if difference.is_nan() || difference > worst {
                (worst, at) = (difference, i);
            }
        }
        if self.worst.as_ref().is_none_or(|(_, w)| worst > *w) {
            self.worst = Some((name.to_owned(), worst));
        }
        if outside as f64 > tolerance.outliers * actual.len() as f64 {
            self.faults.push(format!(
                "{name}: {outside} of {} outside {tolerance:?}; largest difference {worst:.3e} at {at}: {} expected {}",
                actual.len(),
                actual[at],
                expected[at]
            ));
        }
    }

    /// Compares anything that must be equal.
    pub fn same<T: PartialEq + std::fmt::Debug>(&mut self, name: &str, actual: &[T], expected: &[T]) {
        self.compared += 1;
        if actual != expected {
            let at = actual.iter().zip(expected).position(|(x, y)| x != y);
            let what = match at {
                Some(i) => format!("differs first at {i}: {:?} expected {:?}", actual[i], expected[i]),
                None => format!("{} values, expected {}", actual.len(), expected.len()),
            };
            self.faults.push(format!("{name}: {what}"));
        }
    }

    /// States a promise that has no tensor of its own.
    pub fn check(&mut self, name: &str, holds: bool, detail: impl std::fmt::Display) {
        self.compared += 1;
        if !holds {
            self.faults.push(format!("{name}: {detail}"));
        }
    }

    /// Compares what was collected. One line for people, or every fault; a check that compared nothing is one.
    pub fn verdict(mut self) -> Result<String, String> {
        for (name, found) in std::mem::take(&mut self.reals) {
            self.close(&name, found);
        }
        for (name, found) in std::mem::take(&mut self.wholes) {
            self.equal(&name, found);
        }
        if self.compared == 0 {
            self.faults.push("the check compared nothing".to_owned());
        }
        let summary = match &self.worst {
            Some((name, worst)) => format!("{} outputs, largest difference {worst:.1e} ({name})", self.compared),
            None => format!("{} outputs, all equal", self.compared),
        };
        if self.faults.is_empty() { Ok(summary) } else { Err(format!("{summary}\n{}", self.faults.join("\n"))) }
    }
}
