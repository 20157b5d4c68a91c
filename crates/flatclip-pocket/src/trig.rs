//! Sine and cosine that give the same bits on every platform; those of the standard library call the platform's own.

/// `(sin, cos)` of an angle in degrees.
pub(crate) fn sin_cos(degrees: f32) -> (f32, f32) {
    let turns = f64::from(degrees) / 360.0;
    let turns = turns - turns.floor();
    let quarter = (turns * 4.0 + 0.5).floor();
    // What is left is within an eighth of a turn of an axis, where the series converge fast.
    let x = (turns - quarter / 4.0) * std::f64::consts::TAU;
    let square = x * x;
    let sin = x * (1.0 - square / 6.0 * (1.0 - square / 20.0 * (1.0 - square / 42.0 * (1.0 - square / 72.0))));
    let cos = 1.0 - square / 2.0 * (1.0 - square / 12.0 * (1.0 - square / 30.0 * (1.0 - square / 56.0)));
    let (sin, cos) = match quarter as u32 % 4 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    };
    (sin as f32, cos as f32)
}

#[cfg(test)]
mod tests {
    #[test]
    fn agrees_with_the_standard_library() {
        for step in -800..800 {
            let degrees = step as f32 * 0.9;
            let (sin, cos) = super::sin_cos(degrees);
            let radians = f64::from(degrees).to_radians();
            assert!((f64::from(sin) - radians.sin()).abs() < 1e-6, "{degrees}");
            assert!((f64::from(cos) - radians.cos()).abs() < 1e-6, "{degrees}");
        }
    }
}
