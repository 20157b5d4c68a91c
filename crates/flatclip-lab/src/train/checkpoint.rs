//! The whole state of a run in one file: parameters, moments, average, step, and how long the logs were.
//!
//! Random draws need no state here: every stream is keyed by epoch or step, so the step determines all of them.

use super::averaging::{Averager, Mean, Segment};
use super::trainer::{OptimState, Trainer};
use crate::tuners::Tuner;
use flatclip::error::quoted;
use flatclip::{Error, Result, files, sealed};
use safetensors::tensor::Dtype;
use serde::{Deserialize, Serialize};
use std::path::Path;

const FORMAT: u32 = 1;

/// Bytes of the logs that belong to a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogLengths {
    pub(crate) metrics: u64,
    pub(crate) events: u64,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    /// Names the run that it belongs to; empty in files of earlier versions.
    #[serde(default)]
    run: String,
    step: usize,
    optimiser_steps: i32,
    logs: LogLengths,
    mean_count: u64,
    valley_count: u64,
    threshold: Option<f64>,
    valley_done: bool,
    /// Loss and count of each waiting SWAD segment.
    segments: Vec<(f64, u64)>,
    /// SWAD's steps older than the segments; not in files of earlier versions, which dropped them.
    #[serde(default)]
    earlier_count: u64,
    #[serde(default)]
    evaluations: u64,
    #[serde(default)]
    converged_at: u64,
}

/// Named bytes of a checkpoint.
type Entry = (String, Dtype, Vec<usize>, Vec<u8>);

/// Writes the state; the earlier file stays until the new one is complete.
pub(crate) fn save(path: &Path, run: &str, trainer: &Trainer, tuner: &dyn Tuner, logs: LogLengths) -> Result<()> {
    let OptimState { moments, steps } = trainer.optim.state();
    let average = &trainer.averager;
    let header = Header {
        format: FORMAT,
        run: run.to_owned(),
        step: trainer.done,
        optimiser_steps: steps,
        logs,
        mean_count: average.mean.count,
        valley_count: average.valley.count,
        threshold: average.threshold,
        valley_done: average.done,
        segments: average.segments.iter().map(|s| (s.loss, s.mean.count)).collect(),
        earlier_count: average.earlier.count,
        evaluations: average.evaluations,
        converged_at: average.converged_at,
    };
    let mut entries: Vec<Entry> = Vec::new();
    for p in tuner.parameters() {
        entries.push((format!("parameter.{}", p.name), Dtype::F32, p.shape.clone(), bytes32(&p.values)));
    }
    for (index, moment) in moments.iter().enumerate() {
        entries.push((format!("moment.{index}"), Dtype::F32, vec![moment.len()], bytes32(moment)));
    }
    let named = [("mean", &average.mean), ("valley", &average.valley), ("earlier", &average.earlier)];
    let mut means: Vec<(String, &Mean)> = named.map(|(name, mean)| (name.to_owned(), mean)).into();
    means.extend(average.segments.iter().enumerate().map(|(i, s)| (format!("segment.{i}"), &s.mean)));
    for (name, mean) in means.into_iter().filter(|(_, mean)| !mean.values.is_empty()) {
        entries.push((name, Dtype::F64, vec![mean.values.len()], bytes64(&mean.values)));
    }
    let fail = |reason: String| Error::Run { path: path.to_path_buf(), reason };
    let json = serde_json::to_string(&header).map_err(|e| fail(e.to_string()))?;
    let mut sealed = Vec::new();
    for (name, dtype, shape, bytes) in &entries {
        sealed.push(sealed::Entry { name: name.clone(), dtype: *dtype, shape: shape.clone(), bytes });
    }
    files::write_atomic(path, &sealed::seal(sealed, &json).map_err(fail)?)
}

/// Reads a state into a trainer and tuner that were made the same way. A damaged file, or one of another run, changes
/// neither.
pub(crate) fn load(path: &Path, run: &str, trainer: &mut Trainer, tuner: &mut dyn Tuner) -> Result<LogLengths> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let fail = |reason: String| Error::Run { path: path.to_path_buf(), reason };
    let (tensors, json) = sealed::open(&bytes).map_err(fail)?;
    let json = &json.ok_or_else(|| fail("not a checkpoint".into()))?;
    let header: Header = serde_json::from_str(json).map_err(|e| fail(format!("not a checkpoint: {e}")))?;
    if header.format != FORMAT {
        return Err(fail(format!("checkpoint format {}, this version reads {FORMAT}", header.format)));
    }
    if !header.run.is_empty() && header.run != run {
        return Err(fail("belongs to another run: what run.json says has changed since it was written".into()));
    }
    if let Some((name, view)) = tensors.iter().find(|(_, view)| !matches!(view.dtype(), Dtype::F32 | Dtype::F64)) {
        return Err(fail(format!("tensor `{}` has type {:?}, which no checkpoint has", quoted(name), view.dtype())));
    }
    let view =
        |name: &str, dtype: Dtype| tensors.iter().find(|(n, view)| n == name && view.dtype() == dtype).map(|t| &t.1);
    let missing = |name: &str| fail(format!("`{name}` is missing: the checkpoint is of another run"));
    let f32s = |name: &str| view(name, Dtype::F32).map(|view| numbers(view.data(), f32::from_le_bytes));
    for parameter in tuner.parameters_mut() {
        let name = format!("parameter.{}", parameter.name);
        let (values, len) = (f32s(&name).ok_or_else(|| missing(&name))?, parameter.values.len());
        if values.len() != len {
            let found = values.len();
            return Err(fail(format!("`{name}` has {found} values, expected {len}: another run's checkpoint")));
        }
        parameter.values = values;
    }
    let moments = (0..).map_while(|i| f32s(&format!("moment.{i}"))).collect();
    trainer.optim.restore(OptimState { moments, steps: header.optimiser_steps });
    let mean = |name: &str, count: u64| -> Result<Mean> {
        let values = match view(name, Dtype::F64) {
            Some(view) => numbers(view.data(), f64::from_le_bytes),
            None if count > 0 => return Err(missing(name)),
            None => Vec::new(),
        };
        Ok(Mean { count, values })
    };
    let segment =
        |(i, &(loss, count)): (usize, &(f64, u64))| Ok(Segment { loss, mean: mean(&format!("segment.{i}"), count)? });
    trainer.averager = Averager {
        mean: mean("mean", header.mean_count)?,
        segments: header.segments.iter().enumerate().map(segment).collect::<Result<_>>()?,
        earlier: mean("earlier", header.earlier_count)?,
        valley: mean("valley", header.valley_count)?,
        threshold: header.threshold,
        done: header.valley_done,
        evaluations: header.evaluations,
        converged_at: header.converged_at,
    };
    trainer.done = header.step;
    Ok(header.logs)
}

/// Little-endian numbers.
fn numbers<const N: usize, T>(bytes: &[u8], of: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|&bytes| of(bytes)).collect()
}

fn bytes32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn bytes64(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
