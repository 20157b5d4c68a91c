//! Drawing of the layers.

use super::super::table::html;
use super::palette::{DASHES, SERIES, marker, sequential};
use super::{Area, Cells, Layer, contour};

/// The class of a bar: its colour, and beyond the colours an outline.
pub(super) fn bar_class(series: usize) -> String {
    format!("bar{} s{}", if series < SERIES { "" } else { " again" }, series % SERIES)
}

/// The range of all finite data.
pub(super) fn ranges(layers: &[Layer]) -> ((f64, f64), (f64, f64)) {
    let (mut xs, mut ys): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for layer in layers {
        match layer {
            Layer::Line { points, band, .. } => {
                xs.extend(points.iter().map(|point| point.0));
                ys.extend(points.iter().chain(band.iter().flatten()).map(|point| point.1));
                ys.extend(band.iter().flatten().map(|edges| edges.0));
            }
            Layer::Guide { from, to } => {
                xs.extend([from.0, to.0]);
                ys.extend([from.1, to.1]);
            }
            Layer::Deviations { values, spread } => ys.extend(values.iter().zip(spread).map(|(v, s)| v + s)),
            Layer::Counts { bins, .. } => xs.extend(bins.iter().flat_map(|bin| [bin.0, bin.1])),
            Layer::Bars { values, .. } => ys.extend([0.0].iter().chain(values)),
            Layer::Heat { cells, .. } => {
                xs.extend(edges(&cells.x));
                ys.extend(edges(&cells.y));
            }
            Layer::Contour { cells, .. } => {
                xs.extend(&cells.x);
                ys.extend(&cells.y);
            }
            Layer::Mark { at, .. } => {
                xs.push(at.0);
                ys.push(at.1);
            }
        }
    }
    (finite_range(&xs), finite_range(&ys))
}

/// Cell borders halfway between centres.
fn edges(centres: &[f64]) -> Vec<f64> {
    match centres {
        [] => Vec::new(),
        [only] => vec![only - 0.5, only + 0.5],
        many => {
            let last = many.len() - 1;
            let mut edges = vec![many[0] - (many[1] - many[0]) / 2.0];
            edges.extend(many.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0));
            edges.push(many[last] + (many[last] - many[last - 1]) / 2.0);
            edges
        }
    }
}

pub(super) fn draw(layers: &[Layer], area: &Area, out: &mut String) {
    let groups = layers.iter().filter(|layer| matches!(layer, Layer::Bars { .. })).count();
    let colours = layers.iter().find_map(|layer| match layer {
        Layer::Heat { cells, range, .. } => Some(range.unwrap_or_else(|| finite_range(&cells.values))),
        _ => None,
    });
    let (mut series, mut bar) = (0, 0);
    for layer in layers {
        match layer {
            Layer::Line { points, band, .. } => {
                draw_line(points, band.as_deref(), series, area, out);
                series += 1;
            }
            Layer::Bars { values, .. } => {
                draw_bars(values, (bar, groups), series, area, out);
                (series, bar) = (series + 1, bar + 1);
            }
            Layer::Deviations { values, spread } => {
                draw_deviations(values, spread, (bar - usize::from(bar > 0), groups), area, out);
            }
            Layer::Counts { bins, counts } => draw_counts(bins, counts, area, out),
            Layer::Guide { from, to } => out.push_str(&format!(
                "<line class=\"guide\" x1=\"{:.2}\" y1=\"{:.2}\" x2=\"{:.2}\" y2=\"{:.2}\"/>\n",
                area.px(from.0),
                area.py(from.1),
                area.px(to.0),
                area.py(to.1)
            )),
            Layer::Heat { cells, labels, range, unit } => {
                let (low, high) = range.unwrap_or_else(|| finite_range(&cells.values));
                draw_heat(cells, *labels, (low, high), area, out);
                if low.is_finite() {
                    draw_scale_bar(low, high, unit, area, out);
                }
            }
            Layer::Contour { cells, levels } => {
                let (low, high) = colours.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
                for &level in levels {
                    // White lines on dark cells, dark lines on light ones.
                    let dark = (level - low) / (high - low) < 0.5;
                    draw_contour(cells, level, if dark { "contour pale" } else { "contour" }, area, out);
                }
            }
            Layer::Mark { at, name } => {
                let (px, py) = (area.px(at.0), area.py(at.1));
                out.push_str(&format!("<circle class=\"dot s1 ring\" cx=\"{px:.2}\" cy=\"{py:.2}\" r=\"4.5\"/>"));
                let (x, y) = (px + 7.0, py + 4.0);
                out.push_str(&format!("<text class=\"mark\" x=\"{x:.2}\" y=\"{y:.2}\">{}</text>\n", html(name)));
            }
        }
    }
}

fn draw_line(points: &[(f64, f64)], band: Option<&[(f64, f64)]>, series: usize, area: &Area, out: &mut String) {
    let class = format!("s{}", series % SERIES);
    let finite: Vec<usize> =
        (0..points.len()).filter(|&i| points[i].0.is_finite() && points[i].1.is_finite()).collect();
    if let Some(band) = band.filter(|band| band.len() == points.len()) {
        let at = |i: usize, y: f64| format!("{:.2},{:.2}", area.px(points[i].0), area.py(y));
        let inside: Vec<usize> =
            finite.iter().copied().filter(|&i| band[i].0.is_finite() && band[i].1.is_finite()).collect();
        let upper = inside.iter().map(|&i| at(i, band[i].1));
        let lower = inside.iter().rev().map(|&i| at(i, band[i].0));
        let outline: Vec<String> = upper.chain(lower).collect();
        out.push_str(&format!("<polygon class=\"band {class}\" points=\"{}\"/>\n", outline.join(" ")));
    }
    let at = |&i: &usize| format!("{:.2},{:.2}", area.px(points[i].0), area.py(points[i].1));
    let path: Vec<String> = finite.iter().map(at).collect();
    let dash = DASHES[series % DASHES.len()];
    out.push_str(&format!(
        "<polyline class=\"line {class}\" stroke-dasharray=\"{dash}\" points=\"{}\"/>\n",
        path.join(" ")
    ));
    for &i in &finite {
        let (px, py) = (area.px(points[i].0), area.py(points[i].1));
        out.push_str(&marker(series, px, py, &class));
    }
    out.push('\n');
}

fn draw_bars(values: &[f64], (group, groups): (usize, usize), series: usize, area: &Area, out: &mut String) {
    for (i, &value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
        let (left, width) = bar_place(i, values.len(), (group, groups), area);
        let (zero, top) = (area.py(0.0f64.clamp(area.y.low, area.y.high)), area.py(value));
        let wide = (width - 1.0).max(0.5);
        out.push_str(&format!(
            "<rect class=\"{}\" x=\"{left:.2}\" y=\"{:.2}\" width=\"{wide:.2}\" height=\"{:.2}\"/>\n",
            bar_class(series),
            top.min(zero),
            (zero - top).abs()
        ));
        // Colours alone do not tell many bars apart.
        if groups > SERIES && wide >= 6.0 {
            out.push_str(&marker(series, left + wide / 2.0, top, &format!("s{} edge", series % SERIES)));
        }
    }
}

/// Left edge and width of a bar.
fn bar_place(category: usize, categories: usize, (group, groups): (usize, usize), area: &Area) -> (f64, f64) {
    let slot = (area.right - area.left) / categories.max(1) as f64;
    let width = slot * 0.8 / groups.max(1) as f64;
    (area.px(category as f64) - slot * 0.4 + width * group as f64, width)
}

fn draw_deviations(values: &[f64], spread: &[f64], place: (usize, usize), area: &Area, out: &mut String) {
    for (i, (&value, &by)) in values.iter().zip(spread).enumerate() {
        if !value.is_finite() || !by.is_finite() || by <= 0.0 {
            continue;
        }
        let (left, width) = bar_place(i, values.len(), place, area);
        let (middle, half) = (left + (width - 1.0) / 2.0, (width * 0.25).min(5.0));
        let (high, low) = (area.py(value + by), area.py((value - by).max(area.y.low)));
        out.push_str(&format!(
            "<path class=\"whisker\" d=\"M{middle:.2} {low:.2}V{high:.2}M{0:.2} {high:.2}H{1:.2}M{0:.2} {low:.2}H{1:.2}\"/>\n",
            middle - half,
            middle + half
        ));
    }
}

/// The part of the height that the fullest bin takes.
const COUNTS_HEIGHT: f64 = 0.16;

fn draw_counts(bins: &[(f64, f64)], counts: &[f64], area: &Area, out: &mut String) {
    let most = counts.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    let full = (area.bottom - area.top) * COUNTS_HEIGHT;
    for (&(from, to), &count) in bins.iter().zip(counts).filter(|(_, count)| **count > 0.0) {
        let (left, right, height) = (area.px(from), area.px(to), full * count / most);
        out.push_str(&format!(
            "<rect class=\"count\" x=\"{left:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{height:.2}\"><title>{count} samples</title></rect>",
            area.bottom - height,
            (right - left - 1.0).max(0.5)
        ));
    }
    let text = format!("bars: samples, at most {most} in a bin");
    out.push_str(&format!(
        "<text class=\"tick\" x=\"{:.2}\" y=\"{:.2}\">{text}</text>\n",
        area.left + 6.0,
        area.bottom - full - 5.0
    ));
}

fn draw_contour(cells: &Cells, level: f64, class: &str, area: &Area, out: &mut String) {
    let mut path = String::new();
    for ((x0, y0), (x1, y1)) in contour::segments(cells, level) {
        path.push_str(&format!("M{:.2} {:.2}L{:.2} {:.2}", area.px(x0), area.py(y0), area.px(x1), area.py(y1)));
    }
    out.push_str(&format!("<path class=\"{class}\" d=\"{path}\"/>\n"));
}

fn finite_range(values: &[f64]) -> (f64, f64) {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)))
}

fn draw_heat(cells: &Cells, labels: bool, (low, high): (f64, f64), area: &Area, out: &mut String) {
    let Cells { x, y, values } = cells;
    let share = |value: f64| if high > low { (value - low) / (high - low) } else { 0.5 };
    let (xs, ys) = (edges(x), edges(y));
    for (index, &value) in values.iter().enumerate().take(x.len() * y.len()).filter(|(_, v)| v.is_finite()) {
        let (i, j) = (index % x.len(), index / x.len());
        let (left, right) = (area.px(xs[i]), area.px(xs[i + 1]));
        let (top, bottom) = (area.py(ys[j + 1]), area.py(ys[j]));
        let (colour, light) = sequential(share(value));
        let (width, height) = ((right - left).abs() + 0.3, (bottom - top).abs() + 0.3);
        out.push_str(&format!(
            "<rect class=\"cell\" x=\"{left:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{colour}\"/>"
        ));
        if labels {
            let ink = if light { "#111" } else { "#fff" };
            let (px, py) = ((left + right) / 2.0, (top + bottom) / 2.0 + 3.5);
            out.push_str(&format!(
                "<text class=\"value\" x=\"{px:.2}\" y=\"{py:.2}\" style=\"fill:{ink}\">{value:.1}</text>"
            ));
        }
    }
    out.push('\n');
}

fn draw_scale_bar(low: f64, high: f64, unit: &str, area: &Area, out: &mut String) {
    let (left, steps) = (area.right + 14.0, 32);
    let height = (area.bottom - area.top) / steps as f64;
    for step in 0..steps {
        let (colour, _) = sequential(step as f64 / (steps - 1) as f64);
        let top = area.bottom - height * (step + 1) as f64;
        out.push_str(&format!(
            "<rect class=\"cell\" x=\"{left}\" y=\"{top:.2}\" width=\"12\" height=\"{:.2}\" fill=\"{colour}\"/>",
            height + 0.3
        ));
    }
    out.push_str(&format!("<text class=\"tick\" x=\"{left}\" y=\"{:.2}\">{}</text>\n", area.top - 7.0, html(unit)));
    for (value, y) in [(high, area.top + 9.0), (low, area.bottom)] {
        out.push_str(&format!("<text class=\"tick\" x=\"{}\" y=\"{y:.2}\">{}</text>\n", left + 16.0, short(value)));
    }
}

fn short(value: f64) -> String {
    if value.abs() >= 10.0 { format!("{value:.1}") } else { format!("{value:.3}") }
}
