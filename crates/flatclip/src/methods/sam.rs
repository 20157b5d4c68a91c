//! The perturbation eps of sharpness-aware methods: the step, of a given length, that raises the loss most.
//!
//! | name | eps | reference |
//! |---|---|---|
//! | sam | rho g / ‖g‖ | Foret et al. 2021 |
//! | asam | rho t² g / ‖t g‖, t = \|p\| + eta | Kwon et al. 2021 |
//! | fisher-sam | rho f g / sqrt(gᵀ f g), f = 1 / (1 + eta g²) | Kim et al. 2022 |

use super::bank::RadiusUnit;
use crate::options::{OptionValue as _, Table};
use crate::prompt::Tensor;
use flatclip_tensor::ops::l2_norm;

crate::choices! {
    /// Which geometry the perturbation is the worst case of.
    pub enum SamVariant {
        /// A ball.
        Sam = "sam",
        /// A ball scaled by the size of each entry.
        Asam = "asam",
        /// A ball of the diagonal Fisher information.
        FisherSam = "fisher-sam",
    }
}

crate::choices! {
    /// Over which entries a perturbation has the length of the radius.
    pub enum NormScope {
        /// All entries of the context together.
        Whole = "whole",
        /// The entries of each token.
        PerToken = "per-token",
        /// The entries of each class of a class-specific context; a shared context has one group.
        PerClass = "per-class",
    }
}

impl NormScope {
    /// The scope among the options of a method; the whole context where none is given.
    pub fn of(options: &Table) -> Self {
        options.get("norm").and_then(Self::from_value).unwrap_or(Self::Whole)
    }

    /// In how many groups a perturbation has the length of the radius.
    pub fn count(self, parameters: &[Tensor]) -> usize {
        self.groups(&shaped(parameters)).len()
    }

    /// The ranges (tensor, start, end) that share one norm.
    fn groups(self, parameters: &[Shaped<'_>]) -> Vec<Vec<(usize, usize, usize)>> {
        if self == NormScope::Whole {
            return vec![parameters.iter().enumerate().map(|(i, (_, values))| (i, 0, values.len())).collect()];
        }
        let mut groups = Vec::new();
        for (index, (shape, values)) in parameters.iter().enumerate() {
            let size = match (self, shape) {
                (NormScope::PerToken, [.., width]) => *width,
                (_, [_, tokens, width]) => tokens * width,
                _ => values.len(),
            };
            groups.extend((0..values.len()).step_by(size.max(1)).map(|start| vec![(index, start, start + size)]));
        }
        groups
    }
}

fn shaped(parameters: &[Tensor]) -> Vec<Shaped<'_>> {
    parameters.iter().map(|p| (p.shape.as_slice(), p.values.as_slice())).collect()
}

/// A parameter: its shape and its values.
pub type Shaped<'a> = (&'a [usize], &'a [f32]);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ascent {
    pub variant: SamVariant,
    /// What has the length rho.
    pub norm: NormScope,
    pub radius: f64,
    /// What rho is measured in.
    pub unit: RadiusUnit,
    /// ASAM's or FisherSAM's eta.
    pub eta: f64,
}

impl Ascent {
    /// SAM's own: one ball around all parameters.
    pub fn sam(radius: f64) -> Self {
        let (variant, norm, unit) = (SamVariant::Sam, NormScope::Whole, RadiusUnit::Absolute);
        Self { variant, norm, radius, unit, eta: 0.0 }
    }

    /// eps for each parameter. A group whose gradient is zero or not finite gets none.
    pub fn epsilon(&self, parameters: &[Tensor], gradient: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let gradient: Vec<&[f32]> = gradient.iter().map(Vec::as_slice).collect();
        self.epsilon_of(&shaped(parameters), &gradient)
    }

    /// The same for values that are not [`Tensor`]s.
    pub fn epsilon_of(&self, parameters: &[Shaped<'_>], gradient: &[&[f32]]) -> Vec<Vec<f32>> {
        let mut epsilon: Vec<Vec<f32>> = gradient.iter().map(|g| vec![0.0; g.len()]).collect();
        for group in self.norm.groups(parameters) {
            // eps = rho · direction / sqrt(Σ direction · g): direction is g, t² g or f g.
            let mut total = 0.0;
            for &(tensor, start, end) in &group {
                for at in start..end {
                    let g = f64::from(gradient[tensor][at]);
                    total += self.metric(parameters[tensor].1[at], g) * g * g;
                }
            }
            let length = total.sqrt();
            if !(length.is_finite() && length > 0.0) {
                continue;
            }
            // A relative radius is a share of the norm of the same entries.
            let unit = match self.unit {
                RadiusUnit::Absolute => 1.0,
                RadiusUnit::Relative => {
                    l2_norm(group.iter().flat_map(|&(tensor, start, end)| &parameters[tensor].1[start..end]))
                }
            };
            let scale = self.radius * unit / (length + 1e-12);
            for &(tensor, start, end) in &group {
                for at in start..end {
                    let g = f64::from(gradient[tensor][at]);
                    epsilon[tensor][at] = (scale * self.metric(parameters[tensor].1[at], g) * g) as f32;
                }
            }
        }
        epsilon
    }

    /// What an entry's gradient is multiplied by to give its direction.
    fn metric(&self, value: f32, gradient: f64) -> f64 {
        match self.variant {
            SamVariant::Sam => 1.0,
            SamVariant::Asam => (f64::from(value).abs() + self.eta).powi(2),
            SamVariant::FisherSam => 1.0 / (1.0 + self.eta * gradient * gradient),
        }
    }
}

/// The parameters moved by eps. The originals stay as they are: nothing is subtracted afterwards.
pub fn moved(parameters: &[Tensor], epsilon: &[Vec<f32>]) -> Vec<Tensor> {
    let mut moved = parameters.to_vec();
    for (tensor, epsilon) in moved.iter_mut().zip(epsilon) {
        tensor.values.iter_mut().zip(epsilon).for_each(|(p, e)| *p += e);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::adapters::registry_tests::assert_close;

    fn tensor(shape: &[usize], values: &[f32]) -> Vec<Tensor> {
        vec![Tensor::new("context", shape.to_vec(), values.to_vec())]
    }

    fn ascent(variant: SamVariant, norm: NormScope) -> Ascent {
        Ascent { variant, norm, radius: 0.5, unit: RadiusUnit::Absolute, eta: 0.01 }
    }

    #[test]
    fn sam_has_the_length_rho_along_the_gradient() {
        let p = tensor(&[2, 2], &[1.0, -2.0, 0.5, 0.0]);
        let g = vec![vec![3.0, 0.0, 0.0, -4.0]];
        assert_eq!(ascent(SamVariant::Sam, NormScope::Whole).epsilon(&p, &g)[0], [0.3, 0.0, 0.0, -0.4]);
        assert_eq!(ascent(SamVariant::Sam, NormScope::PerToken).epsilon(&p, &g)[0], [0.5, 0.0, 0.0, -0.5]);
    }

    #[test]
    fn each_class_of_a_class_specific_context_has_its_own_length() {
        let p = tensor(&[2, 1, 2], &[1.0; 4]);
        let g = vec![vec![3.0, 4.0, 0.6, 0.8]];
        let epsilon = ascent(SamVariant::Sam, NormScope::PerClass).epsilon(&p, &g);
        assert_close(&epsilon[0], &[0.3, 0.4, 0.3, 0.4], 1e-6);
    }

    #[test]
    fn a_relative_radius_is_a_share_of_the_norm_of_the_same_entries() {
        let p = tensor(&[2, 1, 2], &[3.0, 4.0, 0.0, 0.5]);
        let g = vec![vec![1.0, 0.0, 0.0, -2.0]];
        let relative = |norm| Ascent { radius: 0.1, unit: RadiusUnit::Relative, ..ascent(SamVariant::Sam, norm) };
        for norm in [NormScope::PerClass, NormScope::PerToken] {
            assert_close(&relative(norm).epsilon(&p, &g)[0], &[0.5, 0.0, 0.0, -0.05], 1e-6);
        }
        let whole = relative(NormScope::Whole).epsilon(&p, &g);
        assert!((l2_norm(&whole[0]) - 0.1 * 25.25f64.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn asam_and_fisher_follow_their_formulas() {
        let p = tensor(&[1, 2], &[2.0, -1.0]);
        let g = vec![vec![0.3, 0.7]];
        let t = [2.01f64, 1.01];
        let length = ((t[0] * 0.3).powi(2) + (t[1] * 0.7).powi(2)).sqrt();
        let asam = ascent(SamVariant::Asam, NormScope::Whole).epsilon(&p, &g);
        for at in 0..2 {
            let expected = 0.5 * t[at] * t[at] * f64::from(g[0][at]) / length;
            assert!((f64::from(asam[0][at]) - expected).abs() < 1e-6);
        }
        let fisher = Ascent { eta: 1.0, ..ascent(SamVariant::FisherSam, NormScope::Whole) }.epsilon(&p, &g);
        let f = [1.0f64 / 1.09, 1.0 / 1.49];
        let length = (0.09 * f[0] + 0.49 * f[1]).sqrt();
        for at in 0..2 {
            let expected = 0.5 * f[at] * f64::from(g[0][at]) / length;
            assert!((f64::from(fisher[0][at]) - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn no_direction_gives_no_perturbation() {
        let p = tensor(&[1, 2], &[2.0, -1.0]);
        for g in [[0.0, 0.0], [f32::NAN, 1.0], [f32::INFINITY, 1.0]] {
            assert_eq!(ascent(SamVariant::Sam, NormScope::Whole).epsilon(&p, &[g.to_vec()])[0], [0.0, 0.0]);
        }
    }
}
