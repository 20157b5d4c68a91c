//! The text bank: text features at a prompt and around it, computed once per prompt and class list. Around it are
//! perturbed contexts, or other prompts that were given.

mod perturbation;

pub use perturbation::{Directions, Radius, RadiusUnit, RandomPerturbation};

use super::Task;
use super::adapters::tpt::cocoop_context;
use super::maple::MapleParameters;
use super::task::TextSide;
use crate::digest::Digest;
use crate::model::Context;
use crate::options::{OptionValue as _, mismatch};
use crate::progress::Progress;
use crate::prompt::{PromptContent, normalise_rows};
use crate::{Error, Result};
use flatclip_tensor::Matrix;

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
        Self::encode_with(side, base, perturbed, &())
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
            return Ok(Some(Self { base: task.text_features().clone(), perturbed: Vec::new() }));
        }
        let side = task.text_side(method)?;
        match kind {
            Some(PromptContent::CoCoOp { .. }) => Ok(None),
            Some(PromptContent::Maple { .. }) => {
                // The context and its deep prompts are moved together, the visual prompts stay.
                let parameters = MapleParameters::of(task.prompt.as_deref(), method)?;
                let all = parameters.text_tensor();
                let encode =
                    |noise: &Vec<f32>| parameters.with_text_tensor(&how.apply(&all, noise)).text_features(side);
                let perturbed = how.draw(&all, task.seed).iter().map(encode).collect::<Result<_>>()?;
                Ok(Some(Self { base: task.text_features().clone(), perturbed }))
            }
            _ => Self::load_or_encode(task, side, how, method).map(Some),
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
        let base = side.encode(&start)?;
        let moved: Vec<Context> = how.draw(&start, task.seed).iter().map(|noise| how.apply(&start, noise)).collect();
        Self::encode(side, base, &moved)
    }

    /// The bank of a prompt: from the store, or computed and stored.
    fn load_or_encode(task: &Task, side: TextSide<'_>, how: &RandomPerturbation, method: &str) -> Result<Self> {
        let (base, context, store) = (task.text_features(), task.start_context(method)?, task.store.as_deref());
        // Names everything that the bank's numbers depend on.
        let told = format!("{how:?} {} {:?} {:?}", task.seed, context.shape(), side.tokens);
        let digest = Digest::default().bytes(task.need_clip(method)?.features_id()).bytes(told);
        let key = format!("text-bank-{}", digest.floats(&context.data).floats(base.data()).key());
        let stored = store.and_then(|s| s.load(&key)).and_then(|rows| Self::from_rows(&rows, base.rows(), how.count));
        if let Some(bank) = stored {
            return Ok(bank);
        }
        let noises = how.turned(task, side, context)?;
        let contexts: Vec<Context> = noises.iter().map(|noise| how.apply(context, noise)).collect();
        let progress: &dyn Progress = match &task.progress {
            Some(progress) => progress.as_ref(),
            None => &(),
        };
        let bank = Self::encode_with(side, base.clone(), &contexts, progress)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip_tensor::ops::l2_norm;

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
