//! Figures as SVG in one style: axes with round ticks, lines with bands, bars, heat maps with contours.
//!
//! Colours are distinguishable with any colour vision, and series also differ in dash and marker. A style sheet knows
//! light pages, dark pages and print.

mod axis;
mod contour;
mod css;
mod layers;
mod legend;
mod palette;
mod raster;

pub(crate) use axis::Axis;
pub(crate) use palette::STYLE;
pub(crate) use raster::to_image;

use super::table::html;
use axis::Scale;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// One thing that is drawn into the axes, in order. The legend lists names that are not empty. Of a heat map, `labels` writes
/// the number into every cell, and `range` has the values of the darkest and the lightest colour (else the lowest and the highest
/// value): surfaces that are compared share one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Layer {
    /// Points joined by a line, with markers; a band has a lower and an upper edge at every point.
    Line { name: String, points: Vec<(f64, f64)>, band: Option<Vec<(f64, f64)>> },
    /// A thin dashed line, e.g. the diagonal of a reliability diagram.
    Guide { from: (f64, f64), to: (f64, f64) },
    /// Bars over the categories of the x axis; NaN leaves a gap. Several layers stand side by side.
    Bars { name: String, values: Vec<f64> },
    /// Whiskers on the bars of the layer before, as far up as down; NaN or 0 for none.
    Deviations { values: Vec<f64>, spread: Vec<f64> },
    /// How many samples stand behind each part of the x axis: low bars along it.
    Counts { bins: Vec<(f64, f64)>, counts: Vec<f64> },
    /// Cells around the points of a grid, coloured from dark (low) to light (high).
    Heat { cells: Cells, labels: bool, range: Option<(f64, f64)>, unit: &'static str },
    /// Lines of equal value, at these levels, over a grid.
    Contour { cells: Cells, levels: Vec<f64> },
    /// A marked point with a label.
    Mark { at: (f64, f64), name: String },
}

/// Values at points along x and y, row by row, from low y to high y.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cells {
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<f64>,
    pub(crate) values: Vec<f64>,
}

impl Layer {
    pub(crate) fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self::Line { name: name.into(), points, band: None }
    }
}

/// The places of categories: 0, 1, 2, ...
pub(crate) fn positions(count: usize) -> Vec<f64> {
    (0..count).map(|i| i as f64).collect()
}

/// A figure: layers from back to front between two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) layers: Vec<Layer>,
    /// Pixels.
    pub(crate) size: (f64, f64),
    /// An image left of the axes, e.g. the view whose surface is drawn.
    pub(crate) image: Option<FigureImage>,
}

/// A raster image, as a `data:` address, and the lines of text below it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FigureImage {
    pub(crate) address: String,
    pub(crate) caption: Vec<String>,
}

/// A `data:` address of a PNG file.
pub(crate) fn data_address(png: &[u8]) -> String {
    format!("data:image/png;base64,{}", BASE64.encode(png))
}

/// Lines of names that fit into the size of a figure.
const USUAL_LINES: usize = 2;

/// Pixels that an image takes, with its margin.
const IMAGE: f64 = 150.0;

struct Area {
    /// Where the figure begins, right of its image.
    origin: f64,
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
    pub(crate) fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, layers: Vec::new(), size: (560.0, 360.0), image: None }
    }

    pub(crate) fn with(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    pub(crate) fn sized(self, width: f64, height: f64) -> Self {
        Self { size: (width, height), ..self }
    }

    /// Where the figure and its axes begin and end from left to right.
    fn across(&self) -> (f64, f64, f64) {
        let has_scale_bar = self.layers.iter().any(|layer| matches!(layer, Layer::Heat { .. }));
        let right = self.size.0 - if has_scale_bar { 74.0 } else { 16.0 };
        let origin = if self.image.is_some() { IMAGE } else { 0.0 };
        (origin, origin + (self.y.widest() + 28.0).max(58.0), right)
    }

    /// Its size with a long legend, which does not shrink the axes.
    pub(super) fn full_size(&self) -> (f64, f64) {
        let (_, left, right) = self.across();
        let beyond = legend::lines(&self.layers, right - left).len().saturating_sub(USUAL_LINES);
        (self.size.0, self.size.1 + legend::LINE * beyond as f64)
    }

    /// A standalone SVG document; also fit to be put into an HTML page.
    pub fn to_svg(&self) -> String {
        let (origin, left, right) = self.across();
        let names = legend::lines(&self.layers, right - left);
        let top = 36.0 + legend::LINE * names.len() as f64;
        let (xs, ys) = layers::ranges(&self.layers);
        let size = self.full_size();
        let bottom = size.1 - self.x.depth(right - left);
        let area = Area { origin, left, right, top, bottom, x: self.x.scale(xs), y: self.y.scale(ys) };
        let mut out = open(size, &self.title);
        out.push_str(&format!("<text class=\"title\" x=\"16\" y=\"20\">{}</text>\n", html(&self.title)));
        if let Some(image) = &self.image {
            draw_image(image, area.top, &mut out);
        }
        out.push_str(&axis::draw(&area, &self.x, &self.y));
        layers::draw(&self.layers, &area, &mut out);
        legend::draw(&names, &area, &mut out);
        out.push_str("</svg>\n");
        out
    }
}

/// Several figures side by side as one SVG document, `across` in a row.
pub(crate) fn side_by_side(title: &str, figures: &[Figure], across: usize) -> String {
    let across = across.clamp(1, figures.len().max(1));
    let (width, height) = figures.iter().fold((0.0f64, 0.0f64), |(w, h), f| {
        let size = f.full_size();
        (w.max(size.0), h.max(size.1))
    });
    let size = (width * across as f64, height * figures.len().div_ceil(across) as f64);
    let mut out = open(size, title);
    for (index, figure) in figures.iter().enumerate() {
        let (x, y) = (width * (index % across) as f64, height * (index / across) as f64);
        out.push_str(&format!("<g transform=\"translate({x} {y})\">{}</g>\n", figure.to_svg()));
    }
    out.push_str("</svg>\n");
    out
}

/// The head of a document: size, style, paper.
fn open((width, height): (f64, f64), title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fc\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{}\">\n{}<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n",
        html(title),
        palette::STYLE
    )
}

fn draw_image(image: &FigureImage, top: f64, out: &mut String) {
    let side = IMAGE - 22.0;
    out.push_str(&format!(
        "<image x=\"16\" y=\"{top}\" width=\"{side}\" height=\"{side}\" href=\"{}\"/>\n",
        html(&image.address)
    ));
    for (line, text) in image.caption.iter().enumerate() {
        let y = top + side + 16.0 * (line + 1) as f64;
        out.push_str(&format!("<text class=\"tick\" x=\"16\" y=\"{y}\">{}</text>\n", html(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A heat map and the contours of the same values.
    pub(super) fn grid(unit: &'static str) -> [Layer; 2] {
        let cells = Cells { x: positions(3), y: positions(2), values: vec![0.0, 1.0, 4.0, 1.0, 2.0, 5.0] };
        let levels = vec![1.5, 3.0];
        [Layer::Heat { cells: cells.clone(), labels: true, range: None, unit }, Layer::Contour { cells, levels }]
    }

    #[test]
    fn base64_as_everybody_writes_it() {
        for (text, code) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(data_address(text.as_bytes()), format!("data:image/png;base64,{code}"));
        }
    }

    #[test]
    fn names_are_escaped_and_every_tag_is_closed() {
        let figure = Figure::new("x & y", Axis::new("radius"), Axis::new("top-1"))
            .with(Layer::line("a <b>", vec![(0.0, 1.0), (1.0, 3.0)]))
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
            let svg = Figure::new("t", Axis::new("x"), Axis::new("y")).with(Layer::line("", points)).to_svg();
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
        let swatches = svg.lines().filter(|line| line.contains("class=\"key\""));
        let left = |line: &str| line.split(" x=\"").nth(1).and_then(|s| s.split('"').next()?.parse::<f64>().ok());
        assert_eq!(swatches.clone().count(), 12);
        assert!(swatches.filter_map(left).all(|x| x < 500.0), "{svg}");
    }

    #[test]
    fn figures_side_by_side_keep_their_images_and_close_every_tag() {
        let line = Layer::line("", vec![(0.0, 1.0), (1.0, 2.0)]);
        let mut figure = Figure::new("t", Axis::new("x"), Axis::new("y")).with(line);
        figure.image = Some(FigureImage { address: "data:,".into(), caption: vec!["view <3>".into()] });
        let svg = side_by_side("both", &[figure.clone(), figure], 2);
        assert_eq!(svg.matches("<image").count(), 2);
        assert!(svg.contains("view &lt;3&gt;") && svg.contains("width=\"1120\""));
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }

    #[test]
    fn bars_heat_and_contours_are_drawn() {
        let [heat, contour] = grid("%");
        let heat = Figure::new("h", Axis::new("x"), Axis::new("y")).with(heat).with(contour).to_svg();
        assert_eq!(heat.matches("class=\"value\"").count(), 6);
        assert!(heat.contains("class=\"contour"));
        let bars = Figure::new("b", Axis::categories("m", ["a", "b"]), Axis::new("y"))
            .with(Layer::Bars { name: "one".into(), values: vec![1.0, 2.0] })
            .with(Layer::Bars { name: "two".into(), values: vec![3.0, f64::NAN] })
            .to_svg();
        assert_eq!(bars.matches("class=\"bar").count(), 3);
    }
}
