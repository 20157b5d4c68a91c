//! The whole state of a run in one file: parameters, moments, average, step, and how long the logs were.
//!
//! Random draws need no state here: every stream is keyed by epoch or step, so the step determines all of them.

use super::averaging::{Mean, Segment};
use super::trainer::{OptimState, Trainer};
use crate::tuners::Tuner;
use flatclip::error::quoted;
use flatclip::{Error, Result, files, sealed};
use safetensors::tensor::{Dtype, TensorView};
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
    files::write_atomic(path, &encode(&entries, &header).map_err(|reason| fault(path, reason))?)
}

/// Reads a state into a trainer and tuner that were made the same way. A damaged file, or one of another run, changes
/// neither.
pub(crate) fn load(path: &Path, run: &str, trainer: &mut Trainer, tuner: &mut dyn Tuner) -> Result<LogLengths> {
    let bytes = std::fs::read(path).map_err(Error::io(path))?;
    let fail = |reason: String| fault(path, reason);
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
    let file = Arrays(tensors);
    for parameter in tuner.parameters_mut() {
        let name = format!("parameter.{}", parameter.name);
        let values = file.f32(&name, parameter.values.len()).map_err(fail)?;
        parameter.values = values;
    }
    let moments = (0..).map_while(|i| file.any_f32(&format!("moment.{i}"))).collect();
    trainer.optim.restore(OptimState { moments, steps: header.optimiser_steps });
    let mean = |name: &str, count: u64| -> Result<Mean> {
        let is_there = count > 0 || file.view(name, Dtype::F64).is_some();
        let values = if is_there { file.f64(name).map_err(fail)? } else { Vec::new() };
        Ok(Mean { count, values })
    };
    trainer.averager.mean = mean("mean", header.mean_count)?;
    trainer.averager.valley = mean("valley", header.valley_count)?;
    trainer.averager.earlier = mean("earlier", header.earlier_count)?;
    trainer.averager.segments = header
        .segments
        .iter()
        .enumerate()
        .map(|(i, &(loss, count))| Ok(Segment { loss, mean: mean(&format!("segment.{i}"), count)? }))
        .collect::<Result<_>>()?;
    trainer.averager.threshold = header.threshold;
    trainer.averager.done = header.valley_done;
    trainer.averager.evaluations = header.evaluations;
    trainer.averager.converged_at = header.converged_at;
    trainer.done = header.step;
    Ok(header.logs)
}

fn fault(path: &Path, reason: String) -> Error {
    Error::Run { path: path.to_path_buf(), reason }
}

fn bytes32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn bytes64(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn encode(entries: &[Entry], header: &Header) -> Result<Vec<u8>, String> {
    let json = serde_json::to_string(header).map_err(|e| e.to_string())?;
    let mut all = Vec::with_capacity(entries.len());
    for (name, dtype, shape, bytes) in entries {
        all.push(sealed::Entry { name: name.clone(), dtype: *dtype, shape: shape.clone(), bytes });
    }
    sealed::seal(all, &json)
}

struct Arrays<'a>(Vec<(String, TensorView<'a>)>);

impl<'a> Arrays<'a> {
    fn view(&self, name: &str, dtype: Dtype) -> Option<&TensorView<'a>> {
        self.0.iter().find(|(found, view)| found == name && view.dtype() == dtype).map(|(_, view)| view)
    }

    fn any_f32(&self, name: &str) -> Option<Vec<f32>> {
        let view = self.view(name, Dtype::F32)?;
        Some(view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    fn f32(&self, name: &str, len: usize) -> Result<Vec<f32>, String> {
        let values =
            self.any_f32(name).ok_or_else(|| format!("`{name}` is missing: the checkpoint is of another run"))?;
        if values.len() != len {
            return Err(format!("`{name}` has {} values, expected {len}: another run's checkpoint", values.len()));
        }
        Ok(values)
    }

    fn f64(&self, name: &str) -> Result<Vec<f64>, String> {
        let view = self
            .view(name, Dtype::F64)
            .ok_or_else(|| format!("`{name}` is missing: the checkpoint is of another run"))?;
        let number = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
        Ok(view.data().chunks_exact(8).map(number).collect())
    }
}
