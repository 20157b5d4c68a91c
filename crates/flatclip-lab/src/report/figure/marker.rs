//! The signs of series: every series has its own colour, dash and marker.

/// Circle, square, triangle, diamond, and a triangle that points down.
pub(super) fn marker(series: usize, x: f64, y: f64, class: &str) -> String {
    match series % 5 {
        0 => format!("<circle class=\"dot {class}\" cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"3\"/>"),
        1 => {
            format!("<rect class=\"dot {class}\" x=\"{:.2}\" y=\"{:.2}\" width=\"6\" height=\"6\"/>", x - 3.0, y - 3.0)
        }
        2 => format!("<path class=\"dot {class}\" d=\"M{x:.2} {:.2}l4 7h-8z\"/>", y - 4.5),
        3 => format!("<path class=\"dot {class}\" d=\"M{x:.2} {:.2}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\"/>", y - 4.5),
        _ => format!("<path class=\"dot {class}\" d=\"M{x:.2} {:.2}l-4 -7h8z\"/>", y + 4.5),
    }
}
