//! Figures as SVG in one style: axes with round ticks, lines with bands, bars, heat maps with contours.
//!
//! Colours are told apart by people with any colour vision, and series also differ in dash and marker. Ink and paper are
//! CSS variables, so that a figure fits print, light and dark pages.

mod axis;
mod contour;
mod layers;
mod palette;

pub use axis::Axis;
pub use palette::sequential;

use super::table::html;
use axis::Scale;

/// One thing that is drawn into the axes, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// Points joined by a line, with markers.
    Line {
        /// Name in the legend; empty for none.
        name: String,
        /// Data coordinates.
        points: Vec<(f64, f64)>,
        /// Lower and upper edge at every point, drawn as a band.
        band: Option<Vec<(f64, f64)>>,
    },
    /// A thin dashed line without legend, e.g. the diagonal of a reliability diagram.
    Guide {
        /// From.
        from: (f64, f64),
        /// To.
        to: (f64, f64),
    },
    /// Bars over the categories of the x axis; several layers stand side by side.
    Bars {
        /// Name in the legend.
        name: String,
        /// One per category; NaN leaves a gap.
        values: Vec<f64>,
    },
    /// A grid of cells, coloured from dark (low) to light (high).
    Heat {
        /// Cell centres along x.
        x: Vec<f64>,
        /// Cell centres along y.
        y: Vec<f64>,
        /// Row by row, from low y to high y.
        values: Vec<f64>,
        /// Write the number into every cell.
        labels: bool,
    },
    /// Lines of equal value over a grid.
    Contour {
        /// Grid points along x.
        x: Vec<f64>,
        /// Grid points along y.
        y: Vec<f64>,
        /// Row by row, from low y to high y.
        values: Vec<f64>,
        /// At these values.
        levels: Vec<f64>,
    },
    /// A marked point with a word beside it.
    Mark {
        /// Data coordinates.
        at: (f64, f64),
        /// The word.
        name: String,
    },
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Above the axes.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// Back to front.
    pub layers: Vec<Layer>,
    /// Pixels.
    pub size: (f64, f64),
}

/// The plotting area inside a figure.
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Scale,
    y: Scale,
}

impl Area {
    fn px(&self, x: f64) -> f64 {
        self.left + self.x.share(x) * (self.right - self.left)
    }

    fn py(&self, y: f64) -> f64 {
        self.bottom - self.y.share(y) * (self.bottom - self.top)
    }
}

impl Figure {
    /// A figure of usual size.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, layers: Vec::new(), size: (560.0, 360.0) }
    }

    /// The same with one more layer.
    pub fn with(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// A standalone SVG document; also fit to be put into an HTML page.
    pub fn to_svg(&self) -> String {
        let (width, height) = self.size;
        let has_scale_bar = self.layers.iter().any(|layer| matches!(layer, Layer::Heat { .. }));
        let right = width - if has_scale_bar { 74.0 } else { 16.0 };
        let left = (self.y.widest() + 28.0).max(58.0);
        let names = layers::legend_lines(layers::legend(&self.layers), right - left);
        let top = 36.0 + 16.0 * names.len() as f64;
        let (xs, ys) = layers::ranges(&self.layers);
        let area = Area {
            left,
            right,
            top,
            bottom: height - self.x.depth(right - left),
            x: self.x.scale(xs),
            y: self.y.scale(ys),
        };
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fc\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{}\">\n{}",
            html(&self.title),
            palette::STYLE
        );
        out.push_str(&format!("<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"));
        out.push_str(&format!("<text class=\"title\" x=\"{}\" y=\"20\">{}</text>\n", area.left, html(&self.title)));
        out.push_str(&axis::draw(&area, &self.x, &self.y));
        layers::draw(&self.layers, &area, &mut out);
        layers::draw_legend(&names, &area, &mut out);
        out.push_str("</svg>\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: Vec<(f64, f64)>) -> Layer {
        Layer::Line { name: "a <b>".into(), points, band: None }
    }

    #[test]
    fn names_are_escaped_and_every_tag_is_closed() {
        let figure = Figure::new("x & y", Axis::new("radius"), Axis::new("top-1"))
            .with(line(vec![(0.0, 1.0), (1.0, 3.0)]))
            .with(Layer::Guide { from: (0.0, 0.0), to: (1.0, 1.0) })
            .with(Layer::Mark { at: (0.5, 2.0), name: "here".into() });
        let svg = figure.to_svg();
        assert!(svg.contains("x &amp; y") && svg.contains("a &lt;b&gt;"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn empty_constant_and_infinite_data_still_give_a_figure() {
        for points in [vec![], vec![(2.0, 5.0)], vec![(0.0, f64::NAN), (1.0, f64::INFINITY), (2.0, 1.0)]] {
            let svg = Figure::new("t", Axis::new("x"), Axis::new("y")).with(line(points)).to_svg();
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn a_long_legend_is_wrapped_inside_the_figure() {
        let mut figure = Figure::new("t", Axis::categories("", ["a"]), Axis::new("y"));
        for i in 0..12 {
            figure.layers.push(Layer::Bars { name: format!("a rather long name {i}"), values: vec![1.0] });
        }
        let svg = figure.to_svg();
        let swatches = svg.lines().filter(|line| line.contains("rx=\"2\""));
        let left = |line: &str| line.split("x=\"").nth(1).and_then(|s| s.split('"').next()?.parse::<f64>().ok());
        assert_eq!(swatches.clone().count(), 12);
        assert!(swatches.filter_map(left).all(|x| x < 500.0), "{svg}");
    }

    #[test]
    fn bars_heat_and_contours_are_drawn() {
        let grid = || (vec![0.0, 1.0, 2.0], vec![0.0, 1.0], vec![0.0, 1.0, 4.0, 1.0, 2.0, 5.0]);
        let (x, y, values) = grid();
        let heat = Figure::new("h", Axis::new("x"), Axis::new("y"))
            .with(Layer::Heat { x, y, values, labels: true })
            .with({
                let (x, y, values) = grid();
                Layer::Contour { x, y, values, levels: vec![1.5, 3.0] }
            })
            .to_svg();
        assert_eq!(heat.matches("class=\"cell\"").count(), 6);
        assert!(heat.contains("class=\"contour\""));
        let bars = Figure::new("b", Axis::categories("m", ["a", "b"]), Axis::new("y"))
            .with(Layer::Bars { name: "one".into(), values: vec![1.0, 2.0] })
            .with(Layer::Bars { name: "two".into(), values: vec![3.0, f64::NAN] })
            .to_svg();
        assert_eq!(bars.matches("class=\"bar").count(), 3);
    }
}
