//! Loss surfaces around a prompt: two random directions in context space, a grid, and the loss on it.
//!
//! One pass of the text tower over the grid serves every image and view that is asked for: a [`Probe`] only needs its
//! image features.

mod directions;

pub use directions::{Directions, Normalisation};

use crate::methods::probability::{cross_entropy, entropies, logits};
use crate::model::{ClassTokens, Context, TextTower};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// What is looked at: unit-norm image features, with labels for cross-entropy, without for entropy.
#[derive(Clone, Debug)]
pub struct Probe {
    /// A name for tables and figures.
    pub name: String,
    /// Unit-norm image features, `[n, D]`.
    pub features: Matrix,
    /// Labels of the rows: the loss is their mean cross-entropy. Without labels it is the mean entropy of the rows.
    pub labels: Option<Vec<usize>>,
}

/// The coordinates of both axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// Coordinates of an axis, ascending.
    pub coordinates: Vec<f32>,
}

impl Grid {
    /// `points` coordinates from `-span` to `span`.
    pub fn new(points: usize, span: f32) -> Result<Self> {
        if !(2..=1001).contains(&points) {
            let expected = if points < 2 { "at least 2" } else { "at most 1001" };
            return Err(Error::config("landscape.points", format!("expected {expected}, found {points}")));
        }
        if !(span.is_finite() && span > 0.0) {
            return Err(Error::config("landscape.span", format!("expected a positive number, found {span}")));
        }
        let step = 2.0 * f64::from(span) / (points - 1) as f64;
        let coordinates = (0..points).map(|i| (step * i as f64 - f64::from(span)) as f32).collect();
        Ok(Self { coordinates })
    }
}

/// A loss over the grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Surface {
    /// The probe's name.
    pub name: String,
    /// `values[iy][ix]`: rows are the second axis, as an image of the plane has them.
    pub values: Vec<Vec<f32>>,
}

impl Surface {
    /// One surface per probe. `rows` holds the rows of an interrupted run (outer index: row, inner: probe); `on_row` gets
    /// each new one as it is finished and may keep it.
    pub fn compute(
        tower: &dyn TextTower,
        classes: &ClassTokens,
        context: &Context,
        directions: &Directions,
        grid: &Grid,
        logit_scale: f32,
        probes: &[Probe],
        mut rows: Vec<Vec<Vec<f32>>>,
        mut on_row: impl FnMut(&[Vec<f32>]) -> Result<()>,
    ) -> Result<Vec<Self>> {
        for &b in grid.coordinates.iter().skip(rows.len()) {
            let contexts: Vec<Context> = grid.coordinates.iter().map(|&a| directions.at(context, a, b)).collect();
            let row = losses(tower, classes, &contexts, logit_scale, probes)?;
            on_row(&row)?;
            rows.push(row);
        }
        let values = |probe: usize| rows.iter().map(|row| row[probe].clone()).collect();
        Ok(probes.iter().enumerate().map(|(i, probe)| Self { name: probe.name.clone(), values: values(i) }).collect())
    }

    /// The smallest and the largest value.
    pub fn range(&self) -> (f32, f32) {
        let all = self.values.iter().flatten();
        all.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
    }
}

/// The loss of each probe at each context: `[probe][context]`.
pub fn losses(
    tower: &dyn TextTower,
    classes: &ClassTokens,
    contexts: &[Context],
    logit_scale: f32,
    probes: &[Probe],
) -> Result<Vec<Vec<f32>>> {
    let text = tower.encode(classes, contexts)?;
    probes
        .iter()
        .map(|probe| text.par_iter().map(|text| loss(probe, text, logit_scale)).collect::<Result<Vec<f32>>>())
        .collect()
}

/// Mean cross-entropy (with labels) or mean entropy (without) of a probe under given text features.
pub fn loss(probe: &Probe, text: &Matrix, logit_scale: f32) -> Result<f32> {
    check_probe(probe, text)?;
    let logits = logits(&probe.features, text, logit_scale);
    let losses: Vec<f32> = match &probe.labels {
        Some(labels) => logits.iter_rows().zip(labels).map(|(row, &label)| cross_entropy(row, label)).collect(),
        None => entropies(&logits),
    };
    Ok((losses.iter().map(|&l| f64::from(l)).sum::<f64>() / losses.len() as f64) as f32)
}

/// Refuses a probe that does not fit text features.
pub fn check_probe(probe: &Probe, text: &Matrix) -> Result<()> {
    let (n, k) = (probe.features.rows(), text.rows());
    let reason = match &probe.labels {
        _ if n == 0 || probe.features.cols() != text.cols() => {
            format!("features [{n}, {}] do not fit text features of {}", probe.features.cols(), text.cols())
        }
        Some(labels) if labels.len() != n || labels.iter().any(|&l| l >= k) => {
            format!("{} labels for {n} rows and {k} classes", labels.len())
        }
        _ => return Ok(()),
    };
    Err(Error::config("landscape.probe", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_its_centre_and_its_ends() {
        let grid = Grid::new(7, 0.5).unwrap();
        assert_eq!((grid.coordinates[0], grid.coordinates[3], grid.coordinates[6]), (-0.5, 0.0, 0.5));
        assert!(Grid::new(1, 1.0).is_err() && Grid::new(5, f32::NAN).is_err());
    }

    #[test]
    fn a_probe_that_does_not_fit_is_refused() {
        let probe = |labels: Option<Vec<usize>>| Probe { name: "p".into(), features: Matrix::zeros(2, 3), labels };
        let text = Matrix::zeros(4, 3);
        assert!(loss(&probe(Some(vec![0, 4])), &text, 100.0).is_err());
        assert!(loss(&probe(Some(vec![0])), &text, 100.0).is_err());
        assert!(loss(&probe(None), &Matrix::zeros(4, 5), 100.0).is_err());
        assert!((loss(&probe(None), &text, 100.0).unwrap() - 4f32.ln()).abs() < 1e-6);
    }
}
