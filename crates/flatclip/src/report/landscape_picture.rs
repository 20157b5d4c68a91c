//! A landscape as a raster picture: the view, if there is one, beside bilinear colours with lines of equal loss.

use super::figure::sequential;
use super::landscape::{LandscapeRecord, levels, shared_range};
use crate::image::Picture;
use crate::image::sheet::draw_text;
use crate::landscape::{Grid, Surface};

/// Side of a surface, and the margins for numbers and words around it.
const PIXELS: usize = 320;
const MARGIN: usize = 44;
/// Width of the colour scale with its numbers.
const SCALE: usize = 70;
/// Side of a view beside its surface.
const VIEW: usize = 160;
const INK: [u8; 3] = [30, 30, 30];

/// All surfaces of a record under one another, each with its view (`views`, in the same order), on one colour scale.
pub(crate) fn landscape_picture(record: &LandscapeRecord, views: &[Option<Picture>]) -> Picture {
    let beside = if views.iter().any(Option::is_some) { VIEW + MARGIN / 2 } else { 0 };
    let panel = PIXELS + 2 * MARGIN;
    let (width, height) = (beside + panel + SCALE, panel * record.results.len().max(1));
    let mut page = Picture { width, height, rgb: vec![255; width * height * 3] };
    let shown = record.shown();
    let range = shared_range(shown.iter());
    for (index, (result, surface)) in record.results.iter().zip(&shown).enumerate() {
        let top = index * panel;
        if let Some(Some(view)) = views.get(index) {
            draw_view(&mut page, view, (MARGIN / 2, top + MARGIN), &result.caption);
        }
        draw_surface(&mut page, surface, &record.grid, range, (beside + MARGIN, top + MARGIN));
        draw_scale(&mut page, range, (beside + MARGIN + PIXELS + 14, top + MARGIN));
    }
    page
}

/// The view enlarged without smoothing: what the model saw.
fn draw_view(page: &mut Picture, view: &Picture, (left, top): (usize, usize), caption: &[String]) {
    for y in 0..VIEW {
        for x in 0..VIEW {
            let from = ((y * view.height / VIEW) * view.width + x * view.width / VIEW) * 3;
            let Some(colour) = view.rgb.get(from..from + 3) else { continue };
            put(page, left + x, top + y, [colour[0], colour[1], colour[2]]);
        }
    }
    for (line, text) in caption.iter().enumerate() {
        draw_text(page, left, top + VIEW + 8 + 14 * line, text, INK);
    }
}

fn draw_surface(page: &mut Picture, surface: &Surface, grid: &Grid, range: (f32, f32), (left, top): (usize, usize)) {
    let share = |v: f32| share(v, range);
    let at = |x: usize, y: usize| interpolate(surface, x, y);
    let steps = levels(range).len() as f64 + 1.0;
    let band = |v: f32| (share(v) * steps).floor() as i32;
    for y in 0..PIXELS {
        for x in 0..PIXELS {
            let value = at(x, y);
            let crossing = band(value) != band(at(x + 1, y)) || band(value) != band(at(x, y + 1));
            // Pale lines on dark colours, dark lines on light ones.
            let line = if share(value) < 0.5 { [200, 200, 200] } else { [50, 50, 50] };
            let colour = if crossing { line } else { rgb(&sequential(share(value)).0) };
            // Low y is at the bottom, as in a graph.
            put(page, left + x, top + PIXELS - 1 - y, colour);
        }
    }
    let (low, high) = surface.range();
    draw_text(page, left, top - 30, &surface.name, INK);
    draw_text(page, left, top - 16, &format!("lowest {low:.4}, highest {high:.4} nats"), INK);
    let ends = (grid.coordinates.first().copied().unwrap_or(0.0), grid.coordinates.last().copied().unwrap_or(0.0));
    draw_text(page, left, top + PIXELS + 6, &format!("{:.2}", ends.0), INK);
    draw_text(page, left + PIXELS - 24, top + PIXELS + 6, &format!("{:.2}", ends.1), INK);
    draw_text(page, left + PIXELS / 2 - 45, top + PIXELS + 6, "first direction", INK);
    draw_text(page, left.saturating_sub(34), top + PIXELS - 8, &format!("{:.2}", ends.0), INK);
    draw_text(page, left.saturating_sub(34), top, &format!("{:.2}", ends.1), INK);
    draw_prompt(page, left + PIXELS / 2, top + PIXELS / 2);
}

/// A filled ring around the prompt's place.
fn draw_prompt(page: &mut Picture, x: usize, y: usize) {
    for dy in 0..=10usize {
        for dx in 0..=10usize {
            let distance = (dx as f64 - 5.0).hypot(dy as f64 - 5.0);
            let colour = if distance <= 3.6 { [213, 94, 0] } else { [255, 255, 255] };
            if distance <= 5.0 {
                put(page, x + dx - 5, y + dy - 5, colour);
            }
        }
    }
}

fn draw_scale(page: &mut Picture, (low, high): (f32, f32), (left, top): (usize, usize)) {
    for y in 0..PIXELS {
        let colour = rgb(&sequential(1.0 - y as f64 / (PIXELS - 1) as f64).0);
        (0..12).for_each(|x| put(page, left + x, top + y, colour));
    }
    draw_text(page, left + 16, top, &format!("{high:.3}"), INK);
    draw_text(page, left + 16, top + PIXELS - 8, &format!("{low:.3}"), INK);
    draw_text(page, left + 16, top + PIXELS / 2, "nats", INK);
}

fn put(page: &mut Picture, x: usize, y: usize, colour: [u8; 3]) {
    if x < page.width && y < page.height {
        let place = (y * page.width + x) * 3;
        page.rgb[place..place + 3].copy_from_slice(&colour);
    }
}

fn share(value: f32, (low, high): (f32, f32)) -> f64 {
    if high > low { f64::from((value - low) / (high - low)) } else { 0.0 }
}

fn interpolate(surface: &Surface, x: usize, y: usize) -> f32 {
    let values = &surface.values;
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

/// A `data:` address of a PNG file.
pub(crate) fn data_address(png: &[u8]) -> String {
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
    use super::super::landscape::LandscapeResult;
    use super::*;
    use crate::landscape::Flatness;

    #[test]
    fn base64_as_everybody_writes_it() {
        for (text, code) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(data_address(text.as_bytes()), format!("data:image/png;base64,{code}"));
        }
    }

    #[test]
    fn the_view_stands_beside_its_surface_and_the_centre_is_marked() {
        let grid = Grid::new(5, 1.0).unwrap();
        let value = |x: f32, y: f32| x * x + y * y;
        let values =
            grid.coordinates.iter().map(|&y| grid.coordinates.iter().map(|&x| value(x, y)).collect()).collect();
        let surface = Surface { name: "bowl".into(), values };
        let flatness = Flatness { name: "bowl".into(), centre: 0.0, rings: Vec::new() };
        let result = LandscapeResult { surface, flatness, picture: None, caption: vec!["a view".into()] };
        let record = LandscapeRecord { schema_version: 1, grid, scale: "0.5".into(), seed: 1, results: vec![result] };
        let view = Picture { width: 2, height: 2, rgb: vec![7; 12] };
        let picture = landscape_picture(&record, &[Some(view)]);
        let pixel = |x: usize, y: usize| &picture.rgb[(y * picture.width + x) * 3..][..3];
        let left = VIEW + MARGIN / 2 + MARGIN;
        assert_eq!(pixel(MARGIN / 2 + 5, MARGIN + 5), [7, 7, 7], "the view");
        assert_eq!(pixel(left + PIXELS / 2, MARGIN + PIXELS / 2), [213, 94, 0], "the prompt");
        assert_ne!(
            pixel(left + 1, MARGIN + 1),
            pixel(left + PIXELS / 2 + 9, MARGIN + PIXELS / 2 + 9),
            "edge and centre"
        );
    }
}
