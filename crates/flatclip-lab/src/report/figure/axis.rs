//! Scales, round ticks, and the frame around a figure.

use super::super::table::html;
use super::Area;

/// One axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    label: String,
    /// Fixed range; else the data's, widened to round ticks.
    range: Option<(f64, f64)>,
    /// Names instead of numbers, at 0, 1, 2, ...
    pub(crate) categories: Vec<String>,
    /// Ticks at exactly these values.
    ticks: Vec<f64>,
}

/// Mean width of a character, in pixels.
const CHARACTER: f64 = 6.5;
/// Names that are turned all the way.
const UPRIGHT: f64 = 90.0;

impl Axis {
    pub(crate) fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    pub(crate) fn within(self, low: f64, high: f64) -> Self {
        Self { range: Some((low, high)), ..self }
    }

    pub(crate) fn with_ticks(self, ticks: Vec<f64>) -> Self {
        Self { ticks, ..self }
    }

    pub(crate) fn categories<S: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = S>) -> Self {
        Self { label: label.into(), categories: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Width of the longest name, in pixels.
    pub(super) fn widest(&self) -> f64 {
        self.categories.iter().map(|name| name.chars().count()).max().unwrap_or_default() as f64 * CHARACTER
    }

    /// By how many degrees the names below a figure are turned, so that they do not overlap.
    fn turn(&self, width: f64) -> f64 {
        let room = width / self.categories.len().max(1) as f64;
        match room {
            _ if self.widest() <= room => 0.0,
            _ if room < 3.0 * CHARACTER => UPRIGHT,
            _ => 25.0,
        }
    }

    /// Pixels below a figure for names and label.
    pub(super) fn depth(&self, width: f64) -> f64 {
        let turn = self.turn(width);
        let label = if self.label.is_empty() { 20.0 } else { 36.0 };
        match turn {
            UPRIGHT => label + self.widest(),
            0.0 => 46.0,
            turn => label + turn.to_radians().sin() * self.widest(),
        }
    }

    pub(super) fn scale(&self, data: (f64, f64)) -> Scale {
        if !self.categories.is_empty() {
            let ticks = (0..self.categories.len()).map(|i| i as f64).collect();
            return Scale { low: -0.5, high: self.categories.len() as f64 - 0.5, ticks };
        }
        let (low, high) = self.range.unwrap_or(data);
        let (low, high) = if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) };
        let (low, high) = if high > low { (low, high) } else { (low - 0.5, low + 0.5) };
        let step = round_step((high - low) / 5.0);
        let (first, last) = ((low / step).floor() * step, (high / step).ceil() * step);
        let (low, high) = if self.range.is_some() { (low, high) } else { (first, last) };
        let ticks = if self.ticks.is_empty() {
            let count = ((last - first) / step).round() as usize;
            (0..=count)
                .map(|i| first + step * i as f64)
                .filter(|t| *t >= low - 1e-9 * step && *t <= high + 1e-9 * step)
                .collect()
        } else {
            self.ticks.clone()
        };
        Scale { low, high, ticks }
    }

    fn tick_label(&self, value: f64, scale: &Scale) -> String {
        if let Some(name) = self.categories.get(value.max(0.0) as usize) {
            return name.clone();
        }
        let step = scale.ticks.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(f64::INFINITY, f64::min);
        let digits = if step.is_finite() && step > 0.0 { (-step.log10()).ceil().clamp(0.0, 6.0) as usize } else { 2 };
        // 0.25 needs two digits although its logarithm says one.
        let digits = if ((step * 10f64.powi(digits as i32)).fract() - 0.5).abs() < 0.1 { digits + 1 } else { digits };
        let value = if value.abs() < 1e-12 { 0.0 } else { value };
        format!("{value:.digits$}")
    }
}

/// The step 1, 2, 2.5 or 5 times a power of ten that is not below `raw`.
fn round_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= raw * 0.999).unwrap_or(10.0);
    factor * power
}

/// A linear map from data to `[0, 1]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    pub(super) fn share(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

/// Frame, grid lines, tick labels, axis labels.
pub(super) fn draw(area: &Area, x: &Axis, y: &Axis) -> String {
    let mut out = String::new();
    for &tick in &area.y.ticks {
        let py = area.py(tick);
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{py:.2}\" y2=\"{py:.2}\"/>",
            area.left, area.right
        ));
        let label = html(&y.tick_label(tick, &area.y));
        out.push_str(&format!(
            "<text class=\"tick end\" x=\"{}\" y=\"{:.2}\">{label}</text>\n",
            area.left - 6.0,
            py + 4.0
        ));
    }
    let turn = x.turn(area.right - area.left);
    for &tick in &area.x.ticks {
        let (px, py) = (area.px(tick), area.bottom + 16.0);
        let label = html(&x.tick_label(tick, &area.x));
        // An upright name ends at the middle of its line of text.
        let px = if turn == UPRIGHT { px + 4.0 } else { px };
        let turned = if turn > 0.0 { format!(" transform=\"rotate(-{turn} {px:.2} {py})\"") } else { String::new() };
        let class = if turn > 0.0 { "tick end" } else { "tick mid" };
        out.push_str(&format!("<text class=\"{class}\" x=\"{px:.2}\" y=\"{py}\"{turned}>{label}</text>\n"));
    }
    let beside = area.origin + 14.0;
    let (middle_x, middle_y) = ((area.left + area.right) / 2.0, (area.top + area.bottom) / 2.0);
    out.push_str(&format!(
        "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>\
         <line class=\"axis\" x1=\"{0}\" x2=\"{0}\" y1=\"{3}\" y2=\"{2}\"/>\n",
        area.left, area.right, area.bottom, area.top
    ));
    out.push_str(&format!(
        "<text class=\"label mid\" x=\"{middle_x}\" y=\"{}\">{}</text>\n",
        area.bottom + x.depth(area.right - area.left) - 8.0,
        html(&x.label)
    ));
    out.push_str(&format!(
        "<text class=\"label mid\" x=\"{beside}\" y=\"{middle_y}\" transform=\"rotate(-90 {beside} {middle_y})\">{}</text>\n",
        html(&y.label)
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_data() {
        let scale = Axis::new("").scale((0.13, 0.97));
        assert_eq!(scale.ticks.len(), 6, "{scale:?}");
        assert!(scale.low <= 0.13 && scale.high >= 0.97);
        assert_eq!(Axis::new("").tick_label(0.2 + 0.1, &scale), "0.3");
        let fixed = Axis::new("").within(0.0, 1.0).scale((5.0, 9.0));
        assert_eq!((fixed.low, fixed.high), (0.0, 1.0));
    }

    #[test]
    fn categories_are_centred() {
        let scale = Axis::categories("", ["a", "b"]).scale((0.0, 0.0));
        assert_eq!((scale.share(0.0), scale.share(1.0)), (0.25, 0.75));
    }
}
