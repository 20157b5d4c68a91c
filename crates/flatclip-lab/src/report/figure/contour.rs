//! Lines of equal value on a cells (marching squares).

use super::Cells;

/// Segments `((x, y), (x, y))` in data coordinates where the cells crosses `level`.
pub(super) fn segments(Cells { x, y, values }: &Cells, level: f64) -> Vec<((f64, f64), (f64, f64))> {
    let mut found = Vec::new();
    if x.len() < 2 || y.len() < 2 || values.len() != x.len() * y.len() {
        return found;
    }
    for j in 0..y.len() - 1 {
        for i in 0..x.len() - 1 {
            let at = |dj: usize, di: usize| values[(j + dj) * x.len() + i + di];
            // Corners in order around the cell: every edge joins two neighbours.
            let corners = [
                (x[i], y[j], at(0, 0)),
                (x[i + 1], y[j], at(0, 1)),
                (x[i + 1], y[j + 1], at(1, 1)),
                (x[i], y[j + 1], at(1, 0)),
            ];
            let crossings: Vec<(f64, f64)> =
                (0..4).filter_map(|edge| crossing(corners[edge], corners[(edge + 1) % 4], level)).collect();
            // Four crossings are a saddle: joined in order, either way is right.
            found.extend(crossings.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        }
    }
    found
}

fn crossing(a: (f64, f64, f64), b: (f64, f64, f64), level: f64) -> Option<(f64, f64)> {
    let crosses = (a.2 < level) != (b.2 < level) && a.2.is_finite() && b.2.is_finite();
    crosses.then(|| {
        let t = (level - a.2) / (b.2 - a.2);
        (a.0 + t * (b.0 - a.0), a.1 + t * (b.1 - a.1))
    })
}

#[cfg(test)]
mod tests {
    use super::super::positions;
    use super::*;

    #[test]
    fn the_level_line_of_a_plane_is_straight() {
        let mut cells = Cells { x: positions(3), y: positions(2), values: vec![0.0, 1.0, 2.0, 0.0, 1.0, 2.0] };
        let lines = segments(&cells, 1.5);
        assert_eq!(lines.len(), 1);
        assert!(lines.iter().all(|((x0, _), (x1, _))| *x0 == 1.5 && *x1 == 1.5));
        assert!(segments(&cells, 5.0).is_empty());
        cells.values.pop();
        assert!(segments(&cells, 1.0).is_empty());
    }
}
