//! The plane of a landscape: two Gaussian directions, rescaled so that one step means something.

use crate::model::Context;
use crate::rng::Stream;
use crate::{Error, Result};
use flatclip_tensor::ops::l2_norm;

/// How long a direction is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Normalisation {
    /// Each token's part gets the norm of that token (Li et al. 2018, "filter normalisation"); for a class-specific
    /// context, each class's part. A step of 1 is a move of relative size 1.
    PerToken,
    /// The whole direction gets this norm, so that the unit circle is the sphere on which STSS perturbs.
    Radius(f32),
}

impl Normalisation {
    /// `per-token`, or the radius.
    pub fn name(self) -> String {
        match self {
            Self::PerToken => "per-token".to_owned(),
            Self::Radius(radius) => radius.to_string(),
        }
    }
}

impl std::str::FromStr for Normalisation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<f32>() {
            _ if text == "per-token" => Ok(Self::PerToken),
            Ok(radius) if radius > 0.0 && radius.is_finite() => Ok(Self::Radius(radius)),
            _ => Err(Error::config("scale", format!("expected per-token or a positive radius, found {text:?}"))),
        }
    }
}

/// The two axes, of the context's own shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Directions {
    /// First axis.
    pub x: Vec<f32>,
    /// Second axis.
    pub y: Vec<f32>,
}

impl Directions {
    /// Draws both axes from the streams of `seed`; the second is made orthogonal to the first, slice by slice, so that it stays
    /// orthogonal when slices are rescaled. A circle of the plane is then a circle of the context space too.
    pub fn random(context: &Context, normalisation: Normalisation, seed: u64) -> Result<Self> {
        let draw = |axis: &str| {
            let mut stream = Stream::new(seed, &["landscape", axis]);
            (0..context.data.len()).map(|_| stream.normal() as f32).collect()
        };
        let (x, mut y): (Vec<f32>, Vec<f32>) = (draw("x"), draw("y"));
        let length = match normalisation {
            Normalisation::PerToken => slice_length(context),
            Normalisation::Radius(_) => context.data.len().max(1),
        };
        x.chunks(length).zip(y.chunks_mut(length)).for_each(|(x, y)| orthogonalise(y, x));
        Self::from_raw(context, normalisation, x, y)
    }

    /// Rescales two given directions.
    pub fn from_raw(context: &Context, normalisation: Normalisation, x: Vec<f32>, y: Vec<f32>) -> Result<Self> {
        if let Some(wrong) = [&x, &y].into_iter().find(|direction| direction.len() != context.data.len()) {
            let reason = format!("has {} entries, the context has {}", wrong.len(), context.data.len());
            return Err(Error::config("landscape.direction", reason));
        }
        let mut axes = Self { x, y };
        for direction in [&mut axes.x, &mut axes.y] {
            match normalisation {
                Normalisation::PerToken => match_slices(direction, context),
                Normalisation::Radius(radius) => {
                    let scale = radius / (norm(direction) + TINY);
                    direction.iter_mut().for_each(|d| *d *= scale);
                }
            }
        }
        Ok(axes)
    }

    /// The context at `(a, b)` of the plane.
    pub fn at(&self, context: &Context, a: f32, b: f32) -> Context {
        let data = context.data.iter().zip(&self.x).zip(&self.y).map(|((p, x), y)| p + a * x + b * y).collect();
        Context { data, ..context.clone() }
    }

    /// Cosine of the angle between the axes: zero for drawn ones, whatever it is for given ones.
    pub fn cosine(&self) -> f32 {
        (dot(&self.x, &self.y) / f64::from(norm(&self.x) * norm(&self.y)).max(1e-30)) as f32
    }
}

/// Keeps a zero direction from dividing by zero, as the original does.
const TINY: f32 = 1e-10;

fn dot(x: &[f32], y: &[f32]) -> f64 {
    x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
}

/// Subtracts what `y` has along `x`; a slice of one entry stays, because nothing would be left of it.
fn orthogonalise(y: &mut [f32], x: &[f32]) {
    if y.len() < 2 {
        return;
    }
    let along = dot(x, y) / dot(x, x).max(f64::MIN_POSITIVE);
    y.iter_mut().zip(x).for_each(|(y, x)| *y = (f64::from(*y) - along * f64::from(*x)) as f32);
}

/// Entries of a slice along the first dimension: of a token, or of a class of a class-specific context.
fn slice_length(context: &Context) -> usize {
    (context.data.len() / context.classes.unwrap_or(context.tokens).max(1)).max(1)
}

/// `d_i <- d_i ||p_i|| / (||d_i|| + 1e-10)` for each slice along the first dimension.
fn match_slices(direction: &mut [f32], context: &Context) {
    let length = slice_length(context);
    for (d, p) in direction.chunks_mut(length).zip(context.data.chunks(length)) {
        let scale = norm(p) / (norm(d) + TINY);
        d.iter_mut().for_each(|d| *d *= scale);
    }
}

fn norm(values: &[f32]) -> f32 {
    l2_norm(values) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context { classes: None, tokens: 2, width: 3, data: vec![3.0, 0.0, 4.0, 0.0, 0.5, 0.0] }
    }

    #[test]
    fn a_token_step_has_the_length_of_its_token() {
        let axes = Directions::random(&context(), Normalisation::PerToken, 1).unwrap();
        assert!((norm(&axes.x[..3]) - 5.0).abs() < 1e-5);
        assert!((norm(&axes.y[3..]) - 0.5).abs() < 1e-5);
    }

    #[test]
    fn a_radius_is_the_length_of_the_whole() {
        let axes = Directions::random(&context(), Normalisation::Radius(0.25), 1).unwrap();
        assert!((norm(&axes.x) - 0.25).abs() < 1e-6);
        assert_ne!(axes.x, axes.y);
        assert_eq!(axes.at(&context(), 0.0, 0.0), context());
    }

    /// In few dimensions two random directions are far from orthogonal.
    #[test]
    fn drawn_axes_are_orthogonal_for_every_normalisation_and_given_ones_tell_their_angle() {
        for seed in 1..6 {
            for how in [Normalisation::PerToken, Normalisation::Radius(0.5)] {
                let axes = Directions::random(&context(), how, seed).unwrap();
                assert!(axes.cosine().abs() < 1e-6, "{how:?}, seed {seed}: {}", axes.cosine());
            }
        }
        let given = Directions::from_raw(&context(), Normalisation::Radius(1.0), vec![1.0; 6], vec![2.0; 6]).unwrap();
        assert!((given.cosine() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_direction_of_another_shape_is_refused() {
        assert!(Directions::from_raw(&context(), Normalisation::PerToken, vec![1.0], vec![1.0]).is_err());
    }
}
