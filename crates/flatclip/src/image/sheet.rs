//! Contact sheets: a grid of small images with frames and short labels, and their PNG file.

use super::lettering::{Font, fill_outlines};
use super::{Columns, Crop, Image, Interpolation, Output};
use crate::{Error, Result};
use ::image::{ExtendedColorType, ImageEncoder as _, codecs::png::PngEncoder};
use tiny_skia::PathBuilder;

const PAPER: [u8; 3] = [250, 250, 250];
const INK: [u8; 3] = [30, 30, 30];
/// Height of letters and of a line, as parts of a tile's side, and their least sizes in pixels.
const LETTERS: (f32, f32) = (0.1, 10.0);
const LINE: f32 = 1.3;
/// Space between tiles, and the width of a frame, as parts of a tile's side.
const GAP: f32 = 0.06;
const FRAME: f32 = 0.03;

/// One image of a sheet.
#[derive(Clone, Debug)]
pub struct Tile<'a> {
    /// What is shown, scaled to fit.
    pub image: &'a Image,
    /// Lines below it; what does not fit is cut.
    pub label: String,
    /// Colour of its frame.
    pub frame: Option<[u8; 3]>,
}

/// Draws tiles of `size x size` pixels in rows of `columns`, below the lines of a legend.
pub fn sheet(tiles: &[Tile<'_>], columns: usize, size: usize, legend: &[String]) -> Result<Image> {
    if tiles.is_empty() || columns == 0 || size == 0 {
        let found = format!("{} tiles of {size} pixels in {columns} columns", tiles.len());
        return Err(Error::config("sheet", format!("expected at least one of each, found {found}")));
    }
    let layout = Layout::new(tiles, columns, size, legend.len());
    let (font, mut outlines) = (Font::embedded()?, PathBuilder::new());
    let mut page =
        blank(layout.gap + layout.columns * layout.wide, layout.head + layout.gap + layout.rows * layout.high);
    let room = (page.width - 2 * layout.gap) as f32;
    for (line, text) in legend.iter().enumerate() {
        let baseline = (layout.gap + line * layout.line) as f32 + layout.letters;
        let text = font.fitting(text, layout.letters, room);
        font.add(&mut outlines, &text, layout.letters, (layout.gap as f32, baseline));
    }
    for (i, tile) in tiles.iter().enumerate() {
        let (row, column) = (i / layout.columns, i % layout.columns);
        let (x, y) = (layout.gap + column * layout.wide, layout.head + layout.gap + row * layout.high);
        let framed = size + 2 * layout.frame;
        if let Some(colour) = tile.frame {
            fill(&mut page, x, y, framed, framed, colour);
        }
        fill(&mut page, x + layout.frame, y + layout.frame, size, size, PAPER);
        paste(&mut page, x + layout.frame, y + layout.frame, &fit(tile.image, size)?, size);
        for (line, text) in tile.label.lines().enumerate() {
            let baseline = (y + framed + line * layout.line) as f32 + 1.1 * layout.letters;
            let text = font.fitting(text, layout.letters, framed as f32);
            font.add(&mut outlines, &text, layout.letters, (x as f32, baseline));
        }
    }
    if let Some(outlines) = outlines.finish() {
        fill_outlines(&mut page, &outlines, INK);
    }
    Ok(page)
}

/// Pixels of a sheet.
struct Layout {
    columns: usize,
    rows: usize,
    gap: usize,
    frame: usize,
    letters: f32,
    line: usize,
    /// Above the tiles.
    head: usize,
    /// From one tile to the next.
    wide: usize,
    high: usize,
}

impl Layout {
    fn new(tiles: &[Tile<'_>], columns: usize, size: usize, legend: usize) -> Self {
        let part = |share: f32| (size as f32 * share).round().max(2.0) as usize;
        let (gap, frame) = (part(GAP), part(FRAME));
        let letters = (size as f32 * LETTERS.0).max(LETTERS.1);
        let line = (letters * LINE).ceil() as usize;
        let lines = tiles.iter().map(|tile| tile.label.lines().count()).max().unwrap_or(0);
        let columns = columns.min(tiles.len());
        let (wide, high) = (size + gap + 2 * frame, size + gap + 2 * frame + lines * line);
        let head = if legend == 0 { 0 } else { gap + legend * line };
        Self { columns, rows: tiles.len().div_ceil(columns), gap, frame, letters, line, head, wide, high }
    }
}

/// The PNG file of an image.
pub fn encode_png(image: &Image) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (width, height) = (u32::try_from(image.width), u32::try_from(image.height));
    let size = width.ok().zip(height.ok());
    let (width, height) = size.ok_or_else(|| Error::config("image", "more than 2^32 pixels on a side"))?;
    let written = PngEncoder::new(&mut bytes).write_image(&image.rgb, width, height, ExtendedColorType::Rgb8);
    written.map_err(|e| Error::Image { path: "image.png".into(), reason: e.to_string() })?;
    Ok(bytes)
}

fn blank(width: usize, height: usize) -> Image {
    Image { width, height, rgb: PAPER.repeat(width * height) }
}

/// Fills a rectangle; what lies outside the page is skipped.
fn fill(page: &mut Image, x: usize, y: usize, width: usize, height: usize, colour: [u8; 3]) {
    let right = (x + width).min(page.width);
    for row in y..(y + height).min(page.height) {
        for column in x..right {
            page.rgb[(row * page.width + column) * 3..][..3].copy_from_slice(&colour);
        }
    }
}

/// The image scaled so that its longer side is `size`.
fn fit(image: &Image, size: usize) -> Result<Image> {
    let longer = image.width.max(image.height);
    let scaled = |side: usize| (side * size / longer).max(1);
    let (width, height) = (scaled(image.width), scaled(image.height));
    if (width, height) == (image.width, image.height) {
        return Ok(image.clone());
    }
    let columns = Columns::new(&image.rgb, 3, image.width, image.height);
    let whole = Crop::whole(image.width, image.height);
    let planes = columns.resize(whole, Output::whole(width, height), Interpolation::Bicubic)?;
    let pixels = width * height;
    let rgb = (0..pixels).flat_map(|i| [0, 1, 2].map(|c| planes[c * pixels + i])).collect();
    Ok(Image { width, height, rgb })
}

/// Puts an image into the middle of a square.
fn paste(page: &mut Image, x: usize, y: usize, image: &Image, size: usize) {
    let (x, y) = (x + (size - image.width) / 2, y + (size - image.height) / 2);
    for (row, line) in image.rgb.chunks_exact(image.width * 3).enumerate() {
        page.rgb[((y + row) * page.width + x) * 3..][..line.len()].copy_from_slice(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_holds_every_tile_its_frame_and_its_label() {
        let red = Image { width: 8, height: 4, rgb: [200, 0, 0].repeat(32) };
        let tile = Tile { image: &red, label: "A\nlong label".into(), frame: Some([0, 0, 255]) };
        let page = sheet(&[tile.clone(), Tile { frame: None, ..tile.clone() }, tile.clone()], 2, 20, &[]).unwrap();
        let layout = Layout::new(&[tile], 2, 20, 0);
        assert_eq!((page.width, page.height), (layout.gap + 2 * layout.wide, layout.gap + 2 * layout.high));
        let count = |colour: [u8; 3]| page.rgb.chunks_exact(3).filter(|p| **p == colour).count();
        assert_eq!(count([200, 0, 0]), 3 * 20 * 10);
        let framed = 20 + 2 * layout.frame;
        assert_eq!(count([0, 0, 255]), 2 * (framed * framed - 20 * 20));
        let dark = page.rgb.chunks_exact(3).filter(|p| p.iter().all(|&channel| channel < 120)).count();
        assert!(dark > 3 * 8, "{dark}");
        let again = crate::image::decode(&encode_png(&page).unwrap(), &Default::default()).unwrap();
        assert_eq!(again, page);
    }

    #[test]
    fn nothing_to_show_is_an_error() {
        assert_eq!(sheet(&[], 3, 20, &[]).unwrap_err().code(), "option.invalid");
    }
}
