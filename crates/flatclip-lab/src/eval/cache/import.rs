//! Features made elsewhere become an entry of the feature cache: checked, and written sample after sample, so that memory does
//! not grow with them.

use super::import_file::FeatureParts;
use super::imported::{Imported, Manifest, TEXT};
use super::segment;
use crate::data::{Dataset, Family, IMPORTED, Split};
use flatclip::digest::Digest;
use flatclip::error::quoted;
use flatclip::progress::Progress;
use flatclip::prompt::{Tensor, encode_arrays};
use flatclip::{Error, Result, TextFeatures, ViewFeatures, files};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

/// The most samples: ImageNet-21k has 14 million images.
pub(super) const MOST_SAMPLES: usize = 50_000_000;
/// The most numbers of one sample: 4096 views of width 16384.
const MOST_NUMBERS: usize = 1 << 26;
/// Longer ids do not fit into an entry.
const MOST_LETTERS: usize = 4096;
/// How far the norm of a unit vector in half precision may be from 1.
const UNIT: f64 = 2e-3;
/// How far two text features of one class may be apart, entry by entry: half precision rounds by less.
const SAME_TEXT: f32 = 2e-3;

/// The features of all samples, one sample after the other.
pub struct FeatureRows<'a> {
    /// `[samples, views, width]`.
    pub shape: [usize; 3],
    /// Their type where they come from: `f32`, `f16`, ...
    pub dtype: String,
    /// `[views, width]` of the next sample; view 0 is the image itself.
    pub next: Box<dyn FnMut() -> Result<Vec<f32>> + Send + 'a>,
    /// Norms that unit-norm features had, `[samples, views]`. Features are then stored as they are, else scaled when they are used.
    pub norms: Option<Vec<f32>>,
}

/// Features made elsewhere, with what belongs to them.
pub struct ImportRequest<'a> {
    /// How runs name them.
    pub name: String,
    /// The features of the images.
    pub features: FeatureRows<'a>,
    /// The factor on cosines.
    pub logit_scale: f64,
    /// What else is known of them: numbers stand for missing ids, those of `data` for missing labels and classes, `name` for a
    /// missing model.
    pub beside: FeatureParts<'a>,
    /// The data set whose images they are: its samples must be exactly those of the features.
    pub data: Option<&'a Dataset>,
    /// Replace earlier features of this name.
    pub replace: bool,
}

/// Writes features into the cache below `root`.
pub fn import(root: &Path, request: ImportRequest<'_>, progress: &dyn Progress) -> Result<Imported> {
    let earlier = Imported::find(root, &request.name)?;
    if let Some(earlier) = earlier.as_ref().filter(|_| !request.replace) {
        let reason =
            format!("features `{}` exist already ({}); replace them, or choose another name", request.name, earlier);
        return Err(Error::config("name", reason));
    }
    let checked = Checked::new(request)?;
    let features = root.join("features");
    std::fs::create_dir_all(&features).map_err(Error::io(&features))?;
    let mut builder = tempfile::Builder::new();
    let aside = files::shared(builder.prefix(".import-")).tempdir_in(&features).map_err(Error::io(&features))?;
    let manifest = checked.write(aside.path(), progress)?;
    let key = manifest.key();
    let id = key.write(aside.path())?;
    let place = features.join(&id);
    if place.exists() {
        // The same features once more.
        return Imported::open(root, &id);
    }
    std::fs::rename(aside.path(), &place).map_err(Error::io(&place))?;
    // It has another name now.
    let _ = aside.keep();
    if let Some(earlier) = earlier {
        super::remove(root, &earlier)?;
    }
    Imported::open(root, &id)
}

/// A request whose parts fit each other.
struct Checked<'a> {
    manifest: Manifest,
    /// In the order of the features.
    ids: Vec<String>,
    features: FeatureRows<'a>,
    text: Vec<Tensor>,
}

impl<'a> Checked<'a> {
    fn new(request: ImportRequest<'a>) -> Result<Self> {
        let ImportRequest { name, features, logit_scale, beside, data, .. } = request;
        let FeatureParts { ids, labels, classes, text, bank, model, .. } = beside;
        check_name(&name)?;
        let [samples, views, width] = features.shape;
        check_shape(&features)?;
        let ids = checked_ids(ids, samples, data.is_some())?;
        let rows = TextRows::new(text, bank, width)?;
        let scale = checked_scale(logit_scale)?;
        let classes = match (classes, data) {
            (Some(own), Some(data)) if own != data.classes => {
                let reason = format!("those of the features are not those of {}: give one of the two", data.name);
                return Err(Error::config("classes", reason));
            }
            (Some(own), _) => own,
            (None, Some(data)) => data.classes.clone(),
            (None, None) => {
                let none = || Error::config("classes", "expected class names, a data set or text features, found none");
                (0..rows.classes.ok_or_else(none)?).map(|class| class.to_string()).collect()
            }
        };
        if let Some(found) = rows.classes.filter(|&found| found != classes.len()) {
            let reason = format!("{found} text features for {} classes", classes.len());
            return Err(Error::config("text features", reason));
        }
        let labels = labels.map(|labels| checked_labels(&labels, samples, classes.len())).transpose()?;
        let stream = match (data, labels) {
            (Some(data), labels) => of_data(data, &ids, labels.as_deref())?,
            (None, Some(labels)) => ids.iter().cloned().zip(labels).collect(),
            (None, None) => {
                return Err(Error::config("labels", "expected labels, or a data set that has them, found neither"));
            }
        };
        let (ordered, labels) = stream.into_iter().unzip();
        let manifest = Manifest {
            schema_version: 1,
            name: name.clone(),
            model: model.unwrap_or_else(|| name.clone()),
            dataset: data.map_or_else(|| name, |data| data.name.clone()),
            split: data.map_or(Split::Test, |data| data.split),
            family: data.map_or(Family::Custom, |data| data.family),
            views,
            width,
            dtype: features.dtype.clone(),
            unit: features.norms.is_some(),
            logit_scale: scale,
            classes,
            ids: ordered,
            labels,
            digest: String::new(),
        };
        Ok(Self { manifest, ids, features, text: rows.tensors })
    }

    /// Writes segment, text features and manifest; the digest is of everything that decides an answer.
    fn write(mut self, folder: &Path, progress: &dyn Progress) -> Result<Manifest> {
        let Manifest { views, width, .. } = self.manifest;
        let mut file = std::io::BufWriter::with_capacity(1 << 20, segment::create(folder)?);
        let stamp = format!("{IMPORTED} {IMPORTED}");
        // By id, so that the order in the file does not count.
        let mut digests = BTreeMap::new();
        progress.start(&format!("importing {}", self.manifest.name), Some(self.ids.len() as u64));
        for (index, id) in self.ids.iter().enumerate() {
            let unit = Matrix::from_vec(views, width, (self.features.next)()?);
            let given = self.features.norms.as_ref().map(|norms| &norms[index * views..(index + 1) * views]);
            let norms = checked_norms(id, &unit, given)?;
            digests.insert(id, Digest::default().floats(unit.data()).floats(&norms).key());
            let bytes = segment::encode(id, &stamp, &ViewFeatures { unit, norms });
            file.write_all(&bytes).map_err(Error::io(folder))?;
            if index % 64 == 63 || index + 1 == self.ids.len() {
                progress.advance(index as u64 + 1, "");
            }
            if progress.cancelled() {
                let (done, all) = (index + 1, self.ids.len());
                return Err(Error::Interrupted(format!("after {done} of {all} samples; nothing was kept")));
            }
        }
        let file = file.into_inner().map_err(|error| Error::io(folder)(error.into_error()))?;
        file.sync_all().map_err(Error::io(folder))?;
        progress.finish();
        if !self.text.is_empty() {
            let bytes = encode_arrays(&self.text, "{}").map_err(|reason| Error::config("text features", reason))?;
            files::write_atomic(&folder.join(TEXT), &bytes)?;
        }
        let mut digest = digests.into_iter().fold(Digest::default(), |all, (id, own)| all.part(id).part(own));
        for Tensor { name, shape, values } in &self.text {
            digest = shape.iter().fold(digest.part(name), |all, &size| all.number(size)).floats(values);
        }
        self.manifest.digest = self.manifest.add_to(digest).hex();
        self.manifest.write(folder)?;
        Ok(self.manifest)
    }
}

/// Text features as they are stored, and how many classes they are of.
struct TextRows {
    tensors: Vec<Tensor>,
    classes: Option<usize>,
}

impl TextRows {
    fn new(text: Option<Matrix>, bank: Option<(Matrix, usize)>, width: usize) -> Result<Self> {
        let mut found = Self { tensors: Vec::new(), classes: None };
        let base = bank.as_ref().map(|(rows, classes)| rows.select_rows(&(0..*classes).collect::<Vec<_>>()));
        if let (Some(text), Some(base)) = (&text, &base) {
            same_text(text, base)?;
        }
        if let Some(text) = text {
            found.add("text features", "text_features", vec![text.rows(), text.cols()], text, width)?;
        }
        if let Some((rows, classes)) = bank {
            let shape = vec![rows.rows() / classes.max(1), classes, rows.cols()];
            found.add("text bank", "text_bank", shape, rows, width)?;
        }
        Ok(found)
    }

    fn add(&mut self, what: &str, name: &str, shape: Vec<usize>, rows: Matrix, width: usize) -> Result<()> {
        if rows.cols() != width {
            let found = rows.cols();
            let reason =
                format!("width {found}, but the features of the images have width {width}: they are of another model");
            return Err(Error::config(what, reason));
        }
        let fine = |row: &[f32]| row.iter().all(|x| x.is_finite()) && row.iter().any(|&x| x != 0.0);
        if let Some(row) = rows.iter_rows().position(|row| !fine(row)) {
            let reason = "it holds NaN, infinity or only zeros".to_owned();
            return Err(Error::NotFinite { place: format!("{what}, row {row}"), reason });
        }
        self.classes = shape.iter().rev().nth(1).copied();
        self.tensors.push(Tensor { name: name.to_owned(), shape, values: rows.into_vec() });
        Ok(())
    }
}

/// The scale as it is stored: refused where it looks like its logarithm.
fn checked_scale(scale: f64) -> Result<f32> {
    let small = scale as f32;
    if !(small.is_finite() && small > 0.0) {
        return Err(Error::config("logit_scale", format!("expected a positive number, found {scale}")));
    }
    TextFeatures::new(Matrix::from_vec(1, 1, vec![1.0]), small).map(|_| small)
}

/// The first part of a bank are the text features at the prompt itself.
fn same_text(text: &Matrix, base: &Matrix) -> Result<()> {
    let unit = |rows: &Matrix| flatclip::model::Features::unit(rows.clone()).0;
    let apart = |a: &Matrix, b: &Matrix| a.data().iter().zip(b.data()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let same_shape = (text.rows(), text.cols()) == (base.rows(), base.cols());
    if same_shape && apart(&unit(text), &unit(base)) <= SAME_TEXT {
        return Ok(());
    }
    let reason = format!(
        "its first part [{}, {}] is not the text features [{}, {}]: they are of other classes, another prompt or another model",
        base.rows(),
        base.cols(),
        text.rows(),
        text.cols()
    );
    Err(Error::config("text bank", reason))
}

fn check_name(name: &str) -> Result<()> {
    let fine = |c: char| c.is_alphanumeric() || "._-+=@ ".contains(c);
    if !name.is_empty() && name.len() <= 100 && name.chars().all(fine) {
        return Ok(());
    }
    let reason = format!("expected up to 100 letters, digits and ._-+=@, found `{}`", quoted(name));
    Err(Error::config("name", reason))
}

fn check_shape(features: &FeatureRows<'_>) -> Result<()> {
    let [samples, views, width] = features.shape;
    if samples == 0 || views == 0 || width == 0 {
        let reason = format!("expected at least one sample, view and column, found {:?}", features.shape);
        return Err(Error::config("features", reason));
    }
    let limit = |what: &str, asked: usize, allowed: usize| {
        let hint = "this is no array of features".to_owned();
        Err(Error::Limit { what: what.to_owned(), asked: asked as u64, allowed: allowed as u64, hint })
    };
    if samples > MOST_SAMPLES {
        return limit("samples", samples, MOST_SAMPLES);
    }
    if views.checked_mul(width).is_none_or(|numbers| numbers > MOST_NUMBERS) || views > flatclip::classify::MOST_VIEWS {
        return limit("numbers of one sample", views.saturating_mul(width), MOST_NUMBERS);
    }
    match &features.norms {
        Some(norms) if norms.len() != samples * views => {
            let reason = format!("expected [{samples}, {views}], found {} numbers", norms.len());
            Err(Error::config("norms", reason))
        }
        _ => Ok(()),
    }
}

fn checked_ids(ids: Option<Vec<String>>, samples: usize, for_data: bool) -> Result<Vec<String>> {
    let Some(ids) = ids else {
        if for_data {
            let reason = "expected the id of every row, to find its image in the data set, found none";
            return Err(Error::config("ids", reason));
        }
        return Ok((0..samples).map(|index| format!("{index:06}")).collect());
    };
    if ids.len() != samples {
        return Err(Error::config("ids", format!("{} ids for {samples} samples", ids.len())));
    }
    let mut seen = BTreeSet::new();
    for id in &ids {
        if id.is_empty() || id.len() > MOST_LETTERS {
            let reason = format!("expected 1 to {MOST_LETTERS} letters, found `{}`", quoted(id));
            return Err(Error::config("ids", reason));
        }
        if !seen.insert(id) {
            return Err(Error::config("ids", format!("`{}` is a duplicate", quoted(id))));
        }
    }
    Ok(ids)
}

fn checked_labels(labels: &[i64], samples: usize, classes: usize) -> Result<Vec<usize>> {
    if labels.len() != samples {
        return Err(Error::config("labels", format!("{} labels for {samples} samples", labels.len())));
    }
    let label = |(row, &label): (usize, &i64)| {
        usize::try_from(label).ok().filter(|&label| label < classes).ok_or_else(|| {
            Error::config("labels", format!("row {row} has label {label}, expected 0 to {}", classes.saturating_sub(1)))
        })
    };
    labels.iter().enumerate().map(label).collect()
}

/// The samples of the data set in its own order. Each must have features, and each feature its sample.
fn of_data(data: &Dataset, ids: &[String], labels: Option<&[usize]>) -> Result<Vec<(String, usize)>> {
    let rows: BTreeMap<&str, usize> = ids.iter().enumerate().map(|(row, id)| (id.as_str(), row)).collect();
    let known: BTreeSet<&str> = data.samples.iter().map(|sample| sample.id.as_str()).collect();
    let fault = |reason: String| Err(Error::Data { path: data.name.clone().into(), reason });
    let missing: Vec<&str> = known.iter().copied().filter(|id| !rows.contains_key(id)).collect();
    if let Some(first) = missing.first() {
        let (count, all) = (missing.len(), known.len());
        return fault(format!("{count} of {all} samples have no features, the first is `{}`", quoted(first)));
    }
    let foreign: Vec<&String> = ids.iter().filter(|id| !known.contains(id.as_str())).collect();
    if let Some(first) = foreign.first() {
        let (count, all) = (foreign.len(), ids.len());
        return fault(format!("{count} of {all} features are of no sample, the first is `{}`", quoted(first)));
    }
    for sample in &data.samples {
        let own = labels.map(|labels| labels[rows[sample.id.as_str()]]);
        if let Some(own) = own.filter(|&own| own != sample.label) {
            let reason =
                format!("`{}` has label {own} with its features, and {} here", quoted(&sample.id), sample.label);
            return fault(reason);
        }
    }
    Ok(data.samples.iter().map(|sample| (sample.id.clone(), sample.label)).collect())
}

/// The norms to store: those that were given with unit-norm features, else those of the features.
fn checked_norms(id: &str, rows: &Matrix, given: Option<&[f32]>) -> Result<Vec<f32>> {
    let place = |view: usize| format!("features of `{}`, view {view}", quoted(id));
    let mut norms = Vec::with_capacity(rows.rows());
    for (view, row) in rows.iter_rows().enumerate() {
        let norm = l2_norm(row);
        if !(norm.is_finite() && norm > 0.0) {
            let reason = "it holds NaN, infinity or only zeros".to_owned();
            return Err(Error::NotFinite { place: place(view), reason });
        }
        match given.map(|given| given[view]) {
            None => norms.push(norm as f32),
            Some(own) if !(own.is_finite() && own > 0.0) => {
                return Err(Error::NotFinite { place: place(view), reason: format!("its norm is {own}") });
            }
            Some(_) if (norm - 1.0).abs() > UNIT => {
                let reason = format!("norms are given, so a unit vector is expected; found one of norm {norm:.4}");
                return Err(Error::config(place(view), reason));
            }
            Some(own) => norms.push(own),
        }
    }
    Ok(norms)
}
