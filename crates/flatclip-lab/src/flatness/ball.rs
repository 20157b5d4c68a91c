//! The ball of contexts within a radius of a prompt, and projected gradient ascent in it.

use flatclip::methods::sam::Ascent;
use flatclip::methods::{Task, TextSide};
use flatclip::model::{ClassTokens, Context, TextTower};
use flatclip::rng::Stream;
use flatclip::{Error, Matrix, Result};
use flatclip_tensor::ops::l2_norm;

/// Contexts that the text tower is given at once.
const BATCH: usize = 16;

/// `|eps| <= radius` around a context, one Euclidean norm over all of its entries.
#[derive(Clone, Copy)]
pub struct Ball<'a> {
    /// The text tower.
    pub tower: &'a dyn TextTower,
    /// The tokens around the context.
    pub classes: &'a ClassTokens,
    /// The prompt.
    pub centre: &'a Context,
    /// The model's factor of cosines.
    pub scale: f32,
    /// rho.
    pub radius: f64,
}

impl<'a> Ball<'a> {
    /// Around the context of a task, or what `user` lacks.
    pub fn of(task: &'a Task, user: &str, radius: f64) -> Result<Self> {
        let (TextSide { tower, tokens }, centre) = (task.text_side(user)?, task.start_context(user)?);
        Ok(Self { tower, classes: tokens, centre, scale: task.logit_scale, radius })
    }

    pub(super) fn check(&self, key: &str) -> Result<()> {
        if self.radius.is_finite() && self.radius >= 0.0 {
            return Ok(());
        }
        Err(Error::config(key, format!("expected a radius of 0 or more, found {}", self.radius)))
    }

    /// The step of no length.
    pub(super) fn zero(&self) -> Vec<f32> {
        vec![0.0; self.centre.data.len()]
    }

    /// A direction with the length of the radius; a zero direction stays.
    pub(super) fn scaled(&self, direction: &[f32]) -> Vec<f32> {
        Ascent::sam(self.radius).epsilon_of(&[(&[direction.len()], direction)], &[direction]).swap_remove(0)
    }

    /// Random steps of full length, from the named streams of a seed.
    pub(super) fn random(&self, count: usize, seed: u64, purpose: &str) -> Vec<Vec<f32>> {
        let draw = |index: usize| {
            let mut stream = Stream::new(seed, &[purpose, &index.to_string()]);
            let direction: Vec<f32> = (0..self.centre.data.len()).map(|_| stream.normal() as f32).collect();
            self.scaled(&direction)
        };
        (0..count).map(draw).collect()
    }

    fn at(&self, eps: &[f32]) -> Context {
        Context { data: self.centre.data.iter().zip(eps).map(|(p, e)| p + e).collect(), ..self.centre.clone() }
    }

    /// Visits `p + eps` for every eps: `see` gets its number and the text features there.
    pub(super) fn visit(&self, steps: &[Vec<f32>], mut see: impl FnMut(usize, &Matrix) -> Result<()>) -> Result<()> {
        for (batch, steps) in steps.chunks(BATCH).enumerate() {
            let contexts: Vec<Context> = steps.iter().map(|eps| self.at(eps)).collect();
            for (index, text) in self.tower.encode(self.classes, &contexts)?.iter().enumerate() {
                see(batch * BATCH + index, text)?;
            }
        }
        Ok(())
    }

    /// Projected gradient ascent from every start: each step has the length of the radius along the gradient, and what leaves the
    /// ball is pulled back onto it, so that the first step from the prompt is SAM's. `see` gets the number of the start and the
    /// text features at every context that is visited, the start included, and gives the gradient on them.
    pub(super) fn ascend(
        &self,
        starts: Vec<Vec<f32>>,
        steps: usize,
        mut see: impl FnMut(usize, &Matrix) -> Result<Matrix>,
    ) -> Result<()> {
        for (batch, mut eps) in starts.chunks(BATCH).map(<[Vec<f32>]>::to_vec).enumerate() {
            for _ in 0..steps {
                let contexts: Vec<Context> = eps.iter().map(|eps| self.at(eps)).collect();
                let pass = self.tower.pass(self.classes, &contexts)?;
                let mut slopes = Vec::with_capacity(eps.len());
                for (index, text) in pass.features().iter().enumerate() {
                    slopes.push(see(batch * BATCH + index, text)?);
                }
                for (eps, gradient) in eps.iter_mut().zip(pass.gradient(&slopes)?) {
                    let step = self.scaled(&gradient.data);
                    eps.iter_mut().zip(&step).for_each(|(e, s)| *e += s);
                    if l2_norm(eps.iter()) > self.radius {
                        *eps = self.scaled(eps);
                    }
                }
            }
            self.visit(&eps, |index, text| see(batch * BATCH + index, text).map(drop))?;
        }
        Ok(())
    }
}
