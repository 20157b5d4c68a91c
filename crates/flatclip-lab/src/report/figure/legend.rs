//! Names of the series above the axes, each with a piece of what is drawn: a dashed line with its marker, or a bar.

use super::super::table::html;
use super::layers::bar_class;
use super::palette::{DASHES, SERIES, marker};
use super::{Area, Layer};

/// Pixels between two lines of names.
pub(super) const LINE: f64 = 16.0;
/// Pixels of the sign before a name, and between sign and name.
const SIGN: f64 = 28.0;
const GAP: f64 = 5.0;
/// Mean width of a character.
const CHARACTER: f64 = 6.3;

/// One name.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    name: String,
    series: usize,
    is_line: bool,
}

impl Entry {
    fn width(&self) -> f64 {
        SIGN + GAP + 13.0 + CHARACTER * self.name.chars().count() as f64
    }

    /// The name as far as there is room for it, with its beginning and its end.
    fn shown(&self, room: f64) -> String {
        let most = ((room - SIGN - GAP) / CHARACTER).max(8.0) as usize;
        let letters: Vec<char> = self.name.chars().collect();
        if letters.len() <= most {
            return self.name.clone();
        }
        let half = (most - 1) / 2;
        letters[..half].iter().chain(&['…']).chain(&letters[letters.len() - half..]).collect()
    }
}

/// The names that the legend lists, in lines that fit into the room.
pub(super) fn lines(layers: &[Layer], room: f64) -> Vec<Vec<Entry>> {
    let series = layers.iter().filter_map(|layer| match layer {
        Layer::Line { name, .. } => Some((name, true)),
        Layer::Bars { name, .. } => Some((name, false)),
        _ => None,
    });
    let named = series.enumerate().filter(|(_, (name, _))| !name.is_empty());
    let (mut lines, mut used): (Vec<Vec<Entry>>, f64) = (Vec::new(), f64::INFINITY);
    for (series, (name, is_line)) in named {
        let entry = Entry { name: name.clone(), series, is_line };
        if used + entry.width() > room {
            lines.push(Vec::new());
            used = 0.0;
        }
        used += entry.width();
        if let Some(line) = lines.last_mut() {
            line.push(entry);
        }
    }
    lines
}

/// Lines of names above the axes.
pub(super) fn draw(lines: &[Vec<Entry>], area: &Area, out: &mut String) {
    for (number, line) in lines.iter().enumerate() {
        let (mut x, y) = (area.left, 35.0 + LINE * number as f64);
        for entry in line {
            out.push_str("<g class=\"key\">");
            out.push_str(&sign(entry, x, y));
            let shown = entry.shown(area.right - x);
            let (left, base) = (x + SIGN + GAP, y + 4.0);
            out.push_str(&format!("<text class=\"tick\" x=\"{left:.1}\" y=\"{base}\">{}</text></g>\n", html(&shown)));
            x += entry.width();
        }
    }
}

/// What the series looks like in the figure.
fn sign(entry: &Entry, x: f64, y: f64) -> String {
    let (series, class) = (entry.series, format!("s{}", entry.series % SERIES));
    let middle = marker(series, x + SIGN / 2.0, y, &format!("{class} edge"));
    if entry.is_line {
        let (dash, right) = (DASHES[series % DASHES.len()], x + SIGN);
        return format!(
            "<polyline class=\"line {class}\" stroke-dasharray=\"{dash}\" points=\"{x:.1},{y} {right:.1},{y}\"/>{middle}"
        );
    }
    let (class, top) = (bar_class(series), y - 4.0);
    format!("<rect class=\"swatch {class}\" x=\"{x:.1}\" y=\"{top}\" width=\"{SIGN}\" height=\"8\"/>{middle}")
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Figure};
    use super::*;
    use std::collections::BTreeSet;

    fn keys(svg: &str) -> Vec<&str> {
        svg.lines().filter(|line| line.contains("class=\"key\"")).collect()
    }

    #[test]
    fn twelve_lines_differ_in_the_legend_by_colour_dash_and_marker() {
        let mut figure = Figure::new("t", Axis::new("x"), Axis::new("y"));
        for i in 0..12 {
            let points = vec![(0.0, f64::from(i)), (1.0, f64::from(i))];
            figure.layers.push(Layer::line(format!("prompt + method {i}"), points));
        }
        let svg = figure.to_svg();
        let found = keys(&svg);
        assert_eq!(found.len(), 12);
        // The sign before the name, without position and colour.
        let look = |key: &&str| {
            let after = |mark: &str| key.split(mark).nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned();
            let (colour, dash) = (after("line s"), after("stroke-dasharray=\""));
            let shape = key.split("/>").nth(1).unwrap();
            let shape = match shape.split_once(" d=\"") {
                Some((_, path)) => path.split_once('l').unwrap().1.to_owned(),
                None => shape.split(' ').next().unwrap().to_owned(),
            };
            (colour, dash, shape)
        };
        let looks: BTreeSet<_> = found.iter().map(look).collect();
        assert_eq!(looks.len(), 12, "{looks:?}");
        // Also for those who see no colours.
        let grey: BTreeSet<_> = looks.iter().map(|(_, dash, shape)| (dash, shape)).collect();
        assert_eq!(grey.len(), 12, "{grey:?}");
    }

    #[test]
    fn a_long_legend_takes_no_room_from_the_axes_and_long_names_are_cut() {
        let with = |count: usize, name: &str| {
            let mut figure = Figure::new("t", Axis::categories("", ["a"]), Axis::new("y"));
            for i in 0..count {
                figure.layers.push(Layer::Bars { name: format!("{name} {i}"), values: vec![1.0] });
            }
            figure.to_svg()
        };
        let height =
            |svg: &str| svg.split("height=\"").nth(1).and_then(|s| s.split('"').next()?.parse::<f64>().ok()).unwrap();
        assert!(height(&with(12, "a rather long name")) > height(&with(2, "a rather long name")) + 50.0);
        assert!(with(12, "x").contains("bar again s0"), "a colour that comes again looks different");
        let long = with(1, &"template + zero, ".repeat(20));
        assert!(keys(&long)[0].contains('…') && keys(&long)[0].contains(" 0</text>"), "{:?}", keys(&long));
    }
}
