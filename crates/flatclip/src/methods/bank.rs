//! The text bank: text features at a prompt and around it, computed once per prompt and class list. Around it are
//! perturbed contexts, or other prompts that were given.

use super::adapters::tpt::cocoop_context;
use super::maple::MapleParameters;
use super::probability::mean_entropy;
use super::sam::NormScope;
use super::task::TextSide;
use super::update::on_text;
use super::{Task, TextStore};
use crate::digest::Digest;
use crate::model::Context;
use crate::options::{OptionValue as _, mismatch};
use crate::progress::Progress;
use crate::prompt::{PromptContent, normalise_rows};
use crate::rng::Stream;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

crate::choices! {
    /// What the radius is measured in.
    pub enum RadiusUnit {
        /// The radius itself.
        Absolute = "absolute",
        /// The length of the context (over the same entries).
        Relative = "relative",
    }
}

/// A radius around a context: its length, and the share of the context's norm that it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Radius {
    /// In the units of the context.
    pub length: f64,
    /// As a share of the context's norm.
    pub share: f64,
}

impl RadiusUnit {
    /// A radius in this unit, around a context of this norm.
    pub fn radius(self, value: f64, norm: f64) -> Radius {
        match self {
            Self::Absolute => Radius { length: value, share: value / norm.max(f64::MIN_POSITIVE) },
            Self::Relative => Radius { length: value * norm, share: value },
        }
    }

    /// The unit among the options of a method; absolute where none is said.
    pub fn of(options: &toml::Table) -> Self {
        let word = options.get("radius_unit").and_then(toml::Value::as_str);
        if word == Some("relative") { Self::Relative } else { Self::Absolute }
    }
}

crate::choices! {
    /// How directions are drawn.
    pub enum Directions {
        /// Independent, standard normal.
        Gaussian = "gaussian",
        /// Every second one is minus the one before.
        Antithetic = "antithetic",
        /// Orthogonal to the ones before (as far as there is room).
        Orthogonal = "orthogonal",
        /// J'u with J the text features' slope by the context and u normal: where the text features move most.
        Jacobian = "jacobian",
        /// A normal one, bent by one step towards where the classes' own text features are less distinct.
        Ascent = "ascent",
    }
}

/// How a context is perturbed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomPerturbation {
    /// How many perturbed contexts.
    pub count: usize,
    /// How far they are from the context.
    pub radius: f64,
    /// What the radius is measured in.
    pub unit: RadiusUnit,
    /// Over which entries it is measured.
    pub norm: NormScope,
    /// How directions are drawn.
    pub directions: Directions,
}

impl RandomPerturbation {
    /// Directions of the shape of `context`. They depend on the seed and the shape alone, so data sets share
    /// them.
    pub fn draw(&self, context: &Context, seed: u64) -> Vec<Vec<f32>> {
        let mut drawn: Vec<Vec<f32>> = Vec::with_capacity(self.count);
        for index in 0..self.count {
            let next = match self.directions {
                Directions::Antithetic if index % 2 == 1 => drawn[index - 1].iter().map(|x| -x).collect(),
                _ => {
                    let mut stream = Stream::new(seed, &["stss", "directions", &index.to_string()]);
                    (0..context.data.len()).map(|_| stream.normal() as f32).collect()
                }
            };
            drawn.push(next);
        }
        if self.directions == Directions::Orthogonal {
            drawn.chunks_mut(context.data.len().max(1)).for_each(orthogonalise);
        }
        drawn
    }

    /// `context + radius * noise / ||noise||`, group by group.
    pub fn apply(&self, context: &Context, noise: &[f32]) -> Context {
        let group = match self.norm {
            NormScope::Whole => context.data.len(),
            NormScope::PerClass => context.tokens * context.width,
            NormScope::PerToken => context.width,
        };
        let mut moved = context.clone();
        for (values, noise) in moved.data.chunks_mut(group.max(1)).zip(noise.chunks(group.max(1))) {
            let unit = match self.unit {
                RadiusUnit::Absolute => 1.0,
                RadiusUnit::Relative => l2_norm(values.iter()),
            };
            // A direction without length (it cannot be drawn, but it can be given) moves nothing.
            let scale = self.radius * unit / l2_norm(noise).max(f64::MIN_POSITIVE);
            values.iter_mut().zip(noise).for_each(|(x, &n)| *x = (f64::from(*x) + scale * f64::from(n)) as f32);
        }
        moved
    }

    /// The drawn directions, turned as [`Directions`] says where that needs the text tower.
    fn turned(&self, at: &Around<'_>, drawn: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        match self.directions {
            Directions::Jacobian => {
                let pass = at.side.tower.pass(at.side.tokens, std::slice::from_ref(at.context))?;
                (0..drawn.len())
                    .map(|index| {
                        let mut stream = Stream::new(at.seed, &["stss", "cotangents", &index.to_string()]);
                        let values = (0..at.base.data().len()).map(|_| stream.normal() as f32).collect();
                        let u = Matrix::from_vec(at.base.rows(), at.base.cols(), values);
                        Ok(pass.gradient(&[u])?.swap_remove(0).data)
                    })
                    .collect()
            }
            Directions::Ascent => drawn
                .into_iter()
                .map(|noise| {
                    let moved = self.apply(at.context, &noise);
                    let pass = at.side.tower.pass(at.side.tokens, std::slice::from_ref(&moved))?;
                    // The classes' text features stand for images: text needs no image to become less distinct.
                    let loss = on_text(at.base, &pass.features()[0], at.scale, mean_entropy);
                    let up = pass.gradient(&[loss.gradient])?.swap_remove(0).data;
                    let (a, b) = (l2_norm(&noise), l2_norm(&up).max(f64::MIN_POSITIVE));
                    let sum = |(&n, &u): (&f32, &f32)| (f64::from(n) / a + f64::from(u) / b) as f32;
                    Ok(noise.iter().zip(&up).map(sum).collect())
                })
                .collect(),
            _ => Ok(drawn),
        }
    }

    /// Whether anything is perturbed at all.
    pub fn is_none(&self) -> bool {
        self.count == 0 || self.radius == 0.0
    }
}

/// The place that is perturbed.
#[derive(Clone, Copy)]
struct Around<'a> {
    /// The text tower and the tokens around the context.
    side: TextSide<'a>,
    /// Text features at the context.
    base: &'a Matrix,
    context: &'a Context,
    /// Factor on cosines.
    scale: f32,
    /// Seed of the directions.
    seed: u64,
    /// Who watches, and may cancel between contexts.
    progress: Option<&'a Arc<dyn Progress + Send + Sync>>,
}

/// Gram-Schmidt, each vector in turn. Lengths do not matter here: they are normalised when applied.
fn orthogonalise(vectors: &mut [Vec<f32>]) {
    for index in 1..vectors.len() {
        let (before, rest) = vectors.split_at_mut(index);
        for other in before.iter() {
            let along: f64 = rest[0].iter().zip(other).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            let square = l2_norm(other).powi(2).max(f64::MIN_POSITIVE);
            rest[0]
                .iter_mut()
                .zip(other)
                .for_each(|(x, &o)| *x = (f64::from(*x) - along / square * f64::from(o)) as f32);
        }
    }
}

/// Text features `[K, D]` at the context and at each perturbed context: `[1 + R, K, D]` together.
#[derive(Clone, Debug, PartialEq)]
pub struct TextBank {
    base: Matrix,
    perturbed: Vec<Matrix>,
}

impl TextBank {
    /// Of text features at a prompt and at others beside it, all `[K, D]`.
    pub fn from_prompts(base: Matrix, beside: Vec<Matrix>) -> Result<Self> {
        let size = |m: &Matrix| (m.rows(), m.cols());
        if let Some(other) = beside.iter().find(|other| size(other) != size(&base)) {
            let (expected, found) = (size(&base), size(other));
            return Err(Error::config(
                "text bank",
                format!("expected text features of size {expected:?}, found {found:?}"),
            ));
        }
        Ok(Self { base, perturbed: beside })
    }

    /// A bank without perturbations.
    pub fn flat(base: Matrix) -> Self {
        Self { base, perturbed: Vec::new() }
    }

    /// A bank of features that were made elsewhere: `[(1 + R) K, D]`, those at the context itself first. Rows are scaled to
    /// unit norm.
    pub fn new(mut rows: Matrix, classes: usize) -> Result<Self> {
        let (count, cols) = (rows.rows(), rows.cols());
        if classes == 0 || count == 0 || cols == 0 || count % classes != 0 {
            let reason = format!("expected [(1 + R) * {classes}, D] rows of text features, found [{count}, {cols}]");
            return Err(Error::config("text bank", reason));
        }
        normalise_rows(&mut rows)?;
        let fault = || Error::config("text bank", "inconsistent text bank shape");
        Self::from_rows(&rows, classes, count / classes - 1).ok_or_else(fault)
    }

    /// Encodes the perturbed contexts; `base` are the text features at the context itself.
    pub fn encode(side: TextSide<'_>, base: Matrix, perturbed: &[Context]) -> Result<Self> {
        Ok(Self { base, perturbed: side.tower.encode(side.tokens, perturbed)? })
    }

    /// The same with progress in texts, and cancellable between contexts.
    fn encode_with(side: TextSide<'_>, base: Matrix, perturbed: &[Context], progress: &dyn Progress) -> Result<Self> {
        let classes = base.rows();
        progress.start("text bank", Some((classes * perturbed.len()) as u64));
        let mut rows = Vec::with_capacity(perturbed.len());
        for contexts in perturbed.chunks((CONTEXT_TEXTS / classes.max(1)).max(1)) {
            rows.extend(side.tower.encode(side.tokens, contexts)?);
            progress.advance((classes * rows.len()) as u64, "");
            if progress.cancelled() {
                return Err(Error::Interrupted(format!("after {} of {} contexts", rows.len(), perturbed.len())));
            }
        }
        progress.finish();
        Ok(Self { base, perturbed: rows })
    }

    /// The bank around the prompt of a task, whatever its kind; a ready bank is taken as it is. `None` for a CoCoOp prompt:
    /// every image has a context, and a bank, of its own ([`TextBank::of_image`]).
    pub fn of_task(task: &Task, how: &RandomPerturbation, method: &str) -> Result<Option<Self>> {
        let kind = task.prompt.as_deref().map(|prompt| &prompt.content);
        let towards = matches!(how.directions, Directions::Jacobian | Directions::Ascent);
        if towards && matches!(kind, Some(PromptContent::CoCoOp { .. } | PromptContent::Maple { .. })) {
            let expected = "gaussian, antithetic or orthogonal for a maple or cocoop prompt";
            return Err(mismatch(method, "directions", expected, how.directions.to_value()));
        }
        if let Some(ready) = &task.bank {
            return Ok(Some(Self::clone(ready)));
        }
        if how.is_none() {
            return Ok(Some(Self::flat(task.text_features().clone())));
        }
        let side = task.text_side(method)?;
        match kind {
            Some(PromptContent::CoCoOp { .. }) => Ok(None),
            Some(PromptContent::Maple { .. }) => {
                let parameters = MapleParameters::of(task.prompt.as_deref(), method)?;
                Self::around_maple(side, task.text_features(), &parameters, how, task.seed).map(Some)
            }
            _ => {
                let at = Around {
                    side,
                    base: task.text_features(),
                    context: task.start_context(method)?,
                    scale: task.logit_scale,
                    seed: task.seed,
                    progress: task.progress.as_ref(),
                };
                let id = task.need_clip(method)?.features_id();
                Self::load_or_encode(&at, how, &id, task.store.as_deref()).map(Some)
            }
        }
    }

    /// The bank around the context that a CoCoOp prompt makes for the image with this feature.
    pub fn of_image(task: &Task, feature: &[f32], how: &RandomPerturbation, method: &str) -> Result<Self> {
        let Some(PromptContent::CoCoOp { context, meta, .. }) = task.prompt.as_deref().map(|prompt| &prompt.content)
        else {
            return Err(Error::method(method, "prepare was not called"));
        };
        let side = task.text_side(method)?;
        let start = cocoop_context(context, meta, feature);
        let base = side.tower.encode(side.tokens, std::slice::from_ref(&start))?.swap_remove(0);
        let moved: Vec<Context> = how.draw(&start, task.seed).iter().map(|noise| how.apply(&start, noise)).collect();
        Self::encode(side, base, &moved)
    }

    /// The bank of a maple prompt: the context and its deep prompts are moved together, the visual prompts stay.
    fn around_maple(
        side: TextSide<'_>,
        base: &Matrix,
        at: &MapleParameters,
        how: &RandomPerturbation,
        seed: u64,
    ) -> Result<Self> {
        let all = at.text_tensor();
        let encode = |noise: &Vec<f32>| at.with_text_tensor(&how.apply(&all, noise)).text_features(side);
        let perturbed = how.draw(&all, seed).iter().map(encode).collect::<Result<_>>()?;
        Ok(Self { base: base.clone(), perturbed })
    }

    /// The bank of a prompt: from the store, or computed and stored.
    fn load_or_encode(
        at: &Around<'_>,
        how: &RandomPerturbation,
        model_hash: &str,
        store: Option<&dyn TextStore>,
    ) -> Result<Self> {
        let Around { side, base, context, seed, .. } = *at;
        let key = key(side, base, context, how, seed, model_hash);
        let stored = store.and_then(|s| s.load(&key)).and_then(|rows| Self::from_rows(&rows, base.rows(), how.count));
        if let Some(bank) = stored {
            return Ok(bank);
        }
        let noises = how.turned(at, how.draw(context, seed))?;
        let contexts: Vec<Context> = noises.iter().map(|noise| how.apply(context, noise)).collect();
        let bank = match at.progress {
            None => Self::encode(side, base.clone(), &contexts)?,
            Some(progress) => Self::encode_with(side, base.clone(), &contexts, progress.as_ref())?,
        };
        if let Some(store) = store {
            store.save(&key, &bank.to_rows());
        }
        Ok(bank)
    }

    /// Text features at the context itself.
    pub fn base(&self) -> &Matrix {
        &self.base
    }

    /// Text features at the perturbed contexts.
    pub fn perturbed(&self) -> &[Matrix] {
        &self.perturbed
    }

    /// The mean over the context and its perturbations, normalised.
    pub fn mean(&self) -> Matrix {
        let mut mean = self.base.clone();
        for other in &self.perturbed {
            mean.data_mut().iter_mut().zip(other.data()).for_each(|(m, x)| *m += x);
        }
        super::probability::normalise_rows(&mut mean);
        mean
    }

    /// `[(1 + R) K, D]`, the base first.
    pub fn to_rows(&self) -> Matrix {
        let mut data = self.base.data().to_vec();
        self.perturbed.iter().for_each(|m| data.extend_from_slice(m.data()));
        Matrix::from_vec(self.base.rows() * (1 + self.perturbed.len()), self.base.cols(), data)
    }

    /// The inverse of [`TextBank::to_rows`]; `None` if the rows do not fit.
    pub fn from_rows(rows: &Matrix, classes: usize, count: usize) -> Option<Self> {
        if rows.rows() != classes.checked_mul(count + 1)? || classes == 0 {
            return None;
        }
        let part = |index: usize| rows.select_rows(&(index * classes..(index + 1) * classes).collect::<Vec<_>>());
        Some(Self { base: part(0), perturbed: (1..=count).map(part).collect() })
    }
}

/// Texts of the contexts that are encoded between two looks at whether to stop.
const CONTEXT_TEXTS: usize = 1024;

/// Names everything that the bank's numbers depend on.
fn key(
    side: TextSide<'_>,
    base: &Matrix,
    context: &Context,
    how: &RandomPerturbation,
    seed: u64,
    model: &str,
) -> String {
    let told = format!("{how:?} {seed} {:?} {:?}", context.shape(), side.tokens);
    let digest = Digest::default().bytes(model).bytes(told).floats(&context.data).floats(base.data());
    format!("text-bank-{}", digest.key())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(norm: NormScope, unit: RadiusUnit, directions: Directions) -> RandomPerturbation {
        RandomPerturbation { count: 6, radius: 0.5, unit, norm, directions }
    }

    fn context() -> Context {
        Context::per_class(2, 3, 4, (0..24).map(|i| 0.1 * i as f32 - 0.7).collect())
    }

    #[test]
    fn a_perturbation_has_the_length_of_the_radius_over_its_group() {
        let context = context();
        for (norm, group) in [(NormScope::Whole, 24), (NormScope::PerClass, 12), (NormScope::PerToken, 4)] {
            for unit in [RadiusUnit::Absolute, RadiusUnit::Relative] {
                let how = how(norm, unit, Directions::Gaussian);
                let moved = how.apply(&context, &how.draw(&context, 1)[0]);
                let step: Vec<f32> = moved.data.iter().zip(&context.data).map(|(a, b)| a - b).collect();
                for (step, values) in step.chunks(group).zip(context.data.chunks(group)) {
                    let expected = if unit == RadiusUnit::Absolute { 0.5 } else { 0.5 * l2_norm(values) };
                    assert!((l2_norm(step) - expected).abs() < 1e-5, "{norm:?} {unit:?}");
                }
            }
        }
    }

    #[test]
    fn directions_are_what_they_are_called() {
        let context = context();
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let pairs = how(NormScope::Whole, RadiusUnit::Absolute, Directions::Antithetic).draw(&context, 1);
        pairs.chunks(2).for_each(|pair| assert!(pair[0].iter().zip(&pair[1]).all(|(a, b)| *a == -b)));
        let orthogonal = how(NormScope::Whole, RadiusUnit::Absolute, Directions::Orthogonal).draw(&context, 1);
        for a in 0..6 {
            (0..a).for_each(|b| assert!(dot(&orthogonal[a], &orthogonal[b]).abs() < 1e-3));
        }
    }

    #[test]
    fn draws_do_not_depend_on_their_number() {
        let gaussian = how(NormScope::Whole, RadiusUnit::Absolute, Directions::Gaussian);
        let few = RandomPerturbation { count: 2, ..gaussian }.draw(&context(), 9);
        assert_eq!(few, gaussian.draw(&context(), 9)[..2]);
    }

    #[test]
    fn rows_round_trip_and_wrong_rows_are_refused() {
        let part = |k: f32| Matrix::from_vec(2, 3, (0..6).map(|i| i as f32 + k).collect());
        let bank = TextBank { base: part(0.0), perturbed: vec![part(10.0), part(20.0)] };
        assert_eq!(TextBank::from_rows(&bank.to_rows(), 2, 2), Some(bank.clone()));
        assert_eq!(TextBank::from_rows(&bank.to_rows(), 2, 3), None);
    }

    #[test]
    fn rows_from_elsewhere_are_made_unit_and_checked() {
        let rows = |n: usize| Matrix::from_vec(n, 2, (0..2 * n).map(|i| 1.0 + i as f32).collect());
        let bank = TextBank::new(rows(6), 2).unwrap();
        assert_eq!((bank.base().rows(), bank.perturbed().len()), (2, 2));
        assert!(bank.to_rows().iter_rows().all(|row| (l2_norm(row) - 1.0).abs() < 1e-6));
        assert!(TextBank::new(rows(5), 2).is_err() && TextBank::new(Matrix::zeros(2, 2), 2).is_err());
    }
}
