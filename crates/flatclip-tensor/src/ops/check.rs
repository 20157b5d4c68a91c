//! Shared by the gradient tests: reproducible values, and central differences in f64.

/// Reproducible values in about (-1, 1).
pub(crate) fn values(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..8).for_each(|_| {
        next();
    });
    (0..count).map(|_| next()).collect()
}

/// Fails unless `gradient` is the derivative of `f` at `x`, entry by entry, within `tolerance` of the largest entry.
pub(crate) fn assert_gradient(x: &[f64], gradient: &[f64], tolerance: f64, f: impl Fn(&[f64]) -> f64) {
    assert_eq!(x.len(), gradient.len());
    let step = 1e-5;
    let scale = gradient.iter().fold(1e-3f64, |m, g| m.max(g.abs()));
    let mut at = x.to_vec();
    for i in 0..x.len() {
        at[i] = x[i] + step;
        let up = f(&at);
        at[i] = x[i] - step;
        let down = f(&at);
        at[i] = x[i];
        let slope = (up - down) / (2.0 * step);
        assert!(
            (slope - gradient[i]).abs() <= tolerance * scale,
            "entry {i}: {} but the slope is {slope}",
            gradient[i]
        );
    }
}

/// The error function of the C library.
pub(crate) fn erf(x: f64) -> f64 {
    // SAFETY: it is pure and defined for every argument.
    unsafe extern "C" {
        safe fn erf(x: f64) -> f64;
    }
    erf(x)
}
