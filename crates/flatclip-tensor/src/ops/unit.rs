//! L2 normalisation of rows and its gradient.

use super::real::{Real, dot};

/// Euclidean norm of all values, added up in `f64`.
pub fn l2_norm<'a>(values: impl IntoIterator<Item = &'a f32>) -> f64 {
    values.into_iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
}

/// Divides each row of `width` values by its Euclidean norm and returns the norms. A row of zeros stays zero.
pub fn normalise<T: Real>(x: &mut [T], width: usize) -> Vec<T> {
    x.chunks_exact_mut(width.max(1))
        .map(|row| {
            let norm = dot(row, row).sqrt();
            if norm > T::ZERO {
                row.iter_mut().for_each(|x| *x = *x / norm);
            }
            norm
        })
        .collect()
}

/// `dx = (dy - y (y·dy)) / norm`, with `y` the unit rows and `norms` what [`normalise`] returned.
pub fn normalise_backward<T: Real>(y: &[T], norms: &[T], dy: &[T], dx: &mut [T]) {
    let width = y.len() / norms.len().max(1);
    assert!(y.len() == dy.len() && y.len() == dx.len() && y.len() == norms.len() * width);
    for (row, &norm) in norms.iter().enumerate() {
        let at = row * width..(row + 1) * width;
        let (y, dy, dx) = (&y[at.clone()], &dy[at.clone()], &mut dx[at]);
        if norm <= T::ZERO {
            dx.fill(T::ZERO);
            continue;
        }
        let along = dot(y, dy);
        for i in 0..width {
            dx[i] = (dy[i] - y[i] * along) / norm;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::{assert_gradient, values};

    #[test]
    fn gradient_is_the_derivative() {
        let (x, dy) = (values(1, 27), values(2, 27));
        let mut y = x.clone();
        let norms = normalise(&mut y, 9);
        let mut dx = vec![0.0; 27];
        normalise_backward(&y, &norms, &dy, &mut dx);
        assert_gradient(&x, &dx, 1e-6, |x| {
            let mut y = x.to_vec();
            normalise(&mut y, 9);
            y.iter().zip(&dy).map(|(y, d)| y * d).sum()
        });
    }

    #[test]
    fn the_norm_is_added_up_in_f64() {
        assert_eq!(l2_norm(&[3.0, 4.0]), 5.0);
        assert_eq!(l2_norm([&[1e30f32][..], &[]].concat().iter()), f64::from(1e30f32));
        assert_eq!(l2_norm(&[]), 0.0);
    }

    #[test]
    fn a_zero_row_has_no_direction_and_no_gradient() {
        let mut x = vec![0.0f32; 4];
        let norms = normalise(&mut x, 4);
        let mut dx = vec![1.0; 4];
        normalise_backward(&x, &norms, &[1.0; 4], &mut dx);
        assert_eq!((norms, x, dx), (vec![0.0], vec![0.0; 4], vec![0.0; 4]));
    }
}
