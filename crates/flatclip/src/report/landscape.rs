//! Landscapes for people: figures, a raster picture, a table of numbers, and the interactive page.

use super::figure::{Axis, Figure, Layer, sequential};
use super::table::{Cell, Table};
use crate::image::Picture;
use crate::image::sheet::draw_text;
use crate::landscape::{Flatness, Grid, Surface};
use serde::Serialize;

const PAGE: &str = include_str!("page/surface.html");

/// Surfaces that belong together, with what a reader must know about them.
#[derive(Clone, Debug, Serialize)]
pub struct LandscapePage<'a> {
    /// The heading.
    pub title: &'a str,
    /// What is shown, in a sentence or two.
    pub caption: &'a str,
    /// The surfaces, side by side.
    pub surfaces: Vec<PageSurface<'a>>,
    /// Their flatness numbers, in the same order.
    pub flatness: &'a [Flatness],
}

/// One surface of the page.
#[derive(Clone, Debug, Serialize)]
pub struct PageSurface<'a> {
    /// Above the surface.
    pub name: &'a str,
    /// `values[iy][ix]`.
    pub values: &'a [Vec<f32>],
    /// The view itself as a `data:` address, where there is one.
    pub picture: Option<String>,
}

impl LandscapePage<'_> {
    /// One file that needs nothing else: data, style and script inside.
    pub fn to_html(&self) -> String {
        let data = serde_json::to_string(self).unwrap_or_default();
        // `</script>` inside a name would end the block early.
        PAGE.replace("/*DATA*/", &data.replace("</", "<\\/"))
    }
}

/// Twelve levels between the smallest and the largest value.
fn levels(low: f32, high: f32) -> Vec<f64> {
    (1..12).map(|i| f64::from(low) + f64::from(high - low) * f64::from(i) / 12.0).collect()
}

/// Contours over a heat map, the prompt itself marked.
pub fn surface_figure(surface: &Surface, grid: &Grid, unit: &str) -> Figure {
    let axis: Vec<f64> = grid.coordinates.iter().map(|&c| f64::from(c)).collect();
    let values: Vec<f64> = surface.values.iter().flatten().map(|&v| f64::from(v)).collect();
    let (low, high) = surface.range();
    let label = |name: &str| Axis::new(format!("{name} ({unit})"));
    let mut figure = Figure::new(surface.name.clone(), label("first direction"), label("second direction"))
        .with(Layer::Heat { x: axis.clone(), y: axis.clone(), values: values.clone(), labels: false })
        .with(Layer::Contour { x: axis.clone(), y: axis, values, levels: levels(low, high) })
        .with(Layer::Mark { at: (0.0, 0.0), name: "prompt".into() });
    figure.size = (500.0, 420.0);
    figure
}

/// Sides of the raster picture, and its margin for numbers.
const PIXELS: usize = 320;
const MARGIN: usize = 40;

/// The same as a raster picture: bilinear colours, contour lines where neighbours lie on two sides of a level.
pub fn surface_picture(surface: &Surface, grid: &Grid) -> Picture {
    let (width, height) = (PIXELS + 2 * MARGIN, PIXELS + 2 * MARGIN);
    let mut page = Picture { width, height, rgb: vec![255; width * height * 3] };
    let (low, high) = surface.range();
    let share = |v: f32| if high > low { f64::from((v - low) / (high - low)) } else { 0.0 };
    let at = |x: usize, y: usize| interpolate(&surface.values, x, y);
    for y in 0..PIXELS {
        for x in 0..PIXELS {
            let value = at(x, y);
            let band = |v: f32| (share(v) * 12.0).floor() as i32;
            let crossing = band(value) != band(at(x + 1, y)) || band(value) != band(at(x, y + 1));
            let colour = if crossing { [40, 40, 40] } else { rgb(&sequential(share(value)).0) };
            // Low y is at the bottom, as in a graph.
            let place = ((MARGIN + PIXELS - 1 - y) * width + MARGIN + x) * 3;
            page.rgb[place..place + 3].copy_from_slice(&colour);
        }
    }
    let ink = [30, 30, 30];
    let ends = (grid.coordinates.first().copied().unwrap_or(0.0), grid.coordinates.last().copied().unwrap_or(0.0));
    draw_text(&mut page, MARGIN, 8, &surface.name, ink);
    draw_text(&mut page, MARGIN, 20, &format!("lowest {low:.4}, highest {high:.4}"), ink);
    draw_text(&mut page, MARGIN, MARGIN + PIXELS + 6, &format!("{:.2}", ends.0), ink);
    draw_text(&mut page, MARGIN + PIXELS - 24, MARGIN + PIXELS + 6, &format!("{:.2}", ends.1), ink);
    draw_text(&mut page, 4, MARGIN + PIXELS - 8, &format!("{:.2}", ends.0), ink);
    draw_text(&mut page, 4, MARGIN, &format!("{:.2}", ends.1), ink);
    draw_text(&mut page, MARGIN + PIXELS / 2 - 2, MARGIN + PIXELS / 2 - 3, "+", [213, 94, 0]);
    page
}

fn interpolate(values: &[Vec<f32>], x: usize, y: usize) -> f32 {
    let place = |pixel: usize, count: usize| {
        let position = pixel.min(PIXELS - 1) as f32 / (PIXELS - 1) as f32 * (count - 1) as f32;
        let index = (position as usize).min(count.saturating_sub(2));
        (index, position - index as f32)
    };
    let ((j, v), (i, u)) = (place(y, values.len()), place(x, values[0].len()));
    let row = |j: usize| values[j][i] + u * (values[j][i + 1] - values[j][i]);
    row(j) + v * (row(j + 1) - row(j))
}

fn rgb(hex: &str) -> [u8; 3] {
    let part = |at: usize| hex.get(at..at + 2).and_then(|h| u8::from_str_radix(h, 16).ok()).unwrap_or(0);
    [part(1), part(3), part(5)]
}

/// `x,y,value` lines.
pub fn surface_csv(surface: &Surface, grid: &Grid) -> String {
    let mut out = String::from("x,y,value\n");
    for (y, row) in grid.coordinates.iter().zip(&surface.values) {
        for (x, value) in grid.coordinates.iter().zip(row) {
            out.push_str(&format!("{x},{y},{value}\n"));
        }
    }
    out
}

/// Mean and largest rise per radius, one row per surface.
pub fn flatness_table(flatness: &[Flatness]) -> Table {
    let radii: Vec<f32> = flatness.first().map(|f| f.rings.iter().map(|r| r.radius).collect()).unwrap_or_default();
    let mut header = vec!["surface".to_owned(), "centre".to_owned()];
    for radius in &radii {
        header.extend([format!("mean rise at {radius}"), format!("largest at {radius}")]);
    }
    let mut table = Table::new("Flatness: rise of the loss on circles around the prompt", header);
    for f in flatness {
        let mut row = vec![Cell::text(&f.name), Cell::number(f64::from(f.centre), 4)];
        for ring in &f.rings {
            row.extend([
                Cell::number(f64::from(ring.mean_increase), 4),
                Cell::number(f64::from(ring.largest_increase), 4),
            ]);
        }
        table.push(row);
    }
    table
}

/// A `data:` address of a PNG file.
pub fn data_address(png: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("data:image/png;base64,");
    for chunk in png.chunks(3) {
        let bits = chunk.iter().enumerate().fold(0u32, |bits, (i, &b)| bits | u32::from(b) << (16 - 8 * i));
        for digit in 0..4 {
            let used = digit <= chunk.len();
            out.push(if used { DIGITS[(bits >> (18 - 6 * digit) & 63) as usize] as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bowl() -> (Surface, Grid) {
        let grid = Grid::new(5, 1.0).unwrap();
        let value = |x: f32, y: f32| x * x + y * y;
        let values =
            grid.coordinates.iter().map(|&y| grid.coordinates.iter().map(|&x| value(x, y)).collect()).collect();
        (Surface { name: "bowl </script>".into(), values }, grid)
    }

    #[test]
    fn base64_as_everybody_writes_it() {
        for (text, code) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(data_address(text.as_bytes()), format!("data:image/png;base64,{code}"));
        }
    }

    #[test]
    fn a_name_cannot_break_out_of_the_page() {
        let (surface, _) = bowl();
        let surfaces = vec![PageSurface { name: &surface.name, values: &surface.values, picture: None }];
        let page = LandscapePage { title: "t", caption: "c", surfaces, flatness: &[] }.to_html();
        assert_eq!(page.matches("</script>").count(), 2, "one for the data, one for the code");
    }

    #[test]
    fn every_form_shows_the_same_surface() {
        let (surface, grid) = bowl();
        assert_eq!(surface_csv(&surface, &grid).lines().count(), 26);
        assert!(surface_figure(&surface, &grid, "token norms").to_svg().contains("contour"));
        let picture = surface_picture(&surface, &grid);
        let pixel = |x: usize, y: usize| &picture.rgb[(y * picture.width + x) * 3..][..3];
        assert_eq!(pixel(MARGIN + PIXELS / 4, MARGIN + PIXELS / 2).len(), 3);
        assert_ne!(
            pixel(MARGIN + 1, MARGIN + 1),
            pixel(MARGIN + PIXELS / 2 + 9, MARGIN + PIXELS / 2 + 9),
            "edge and centre"
        );
    }
}
