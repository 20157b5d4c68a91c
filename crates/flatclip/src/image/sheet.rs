//! Contact sheets: a grid of small pictures with frames and short labels, and their PNG file.

use super::{Columns, Crop, Interpolation, Output, Picture};
use crate::{Error, Result};
use ::image::{ExtendedColorType, ImageEncoder as _, codecs::png::PngEncoder};

/// Glyphs of the ASCII characters 32 to 126, sixteen in a line: five columns of seven dots each, the lowest bit on top.
const FONT: [&str; 6] = [
    "0000000000 00005F0000 0007000700 147F147F14 242A7F2A12 2313086462 3649562050 0005030000 001C224100 0041221C00 2A1C7F1C2A 08083E0808 0050300000 0808080808 0060600000 2010080402",
    "3E5149453E 00427F4000 4261514946 2141454B31 1814127F10 2745454539 3C4A494930 0171090503 3649494936 064949291E 0036360000 0056360000 0814224100 1414141414 0041221408 0201510906",
    "324979413E 7E1111117E 7F49494936 3E41414122 7F4141221C 7F49494941 7F09090901 3E4149497A 7F0808087F 00417F4100 2040413F01 7F08142241 7F40404040 7F020C027F 7F0408107F 3E4141413E",
    "7F09090906 3E4151215E 7F09192946 4649494931 01017F0101 3F4040403F 1F2040201F 3F4038403F 6314081463 0708700807 6151494543 007F414100 0204081020 0041417F00 0402010204 4040404040",
    "0001020400 2054545478 7F48444438 3844444420 384444487F 3854545418 087E090102 0C5252523E 7F08040478 00447D4000 2040443D00 7F10284400 00417F4000 7C04180478 7C08040478 3844444438",
    "7C14141408 081414187C 7C08040408 4854545420 043F444020 3C4040207C 1C2040201C 3C4030403C 4428102844 0C5050503C 4464544C44 0008364100 00007F0000 0041360800 0804081008",
];
/// Columns and rows of a character, with the space around it.
const ADVANCE: usize = 6;
const LINE: usize = 9;
const PAPER: [u8; 3] = [250, 250, 250];
const INK: [u8; 3] = [30, 30, 30];
/// Space between tiles, and the width of a frame.
const GAP: usize = 6;
const FRAME: usize = 3;

/// One picture of a sheet.
#[derive(Clone, Debug)]
pub struct Tile<'a> {
    /// What is shown, scaled to fit.
    pub picture: &'a Picture,
    /// Lines below it; what does not fit is cut.
    pub label: String,
    /// Colour of its frame.
    pub frame: Option<[u8; 3]>,
}

/// Draws tiles of `size x size` pixels in rows of `columns`.
pub fn sheet(tiles: &[Tile<'_>], columns: usize, size: usize) -> Result<Picture> {
    sheet_with_legend(tiles, columns, size, &[])
}

/// The same with lines of text above.
pub fn sheet_with_legend(tiles: &[Tile<'_>], columns: usize, size: usize, legend: &[String]) -> Result<Picture> {
    if tiles.is_empty() || columns == 0 || size == 0 {
        let found = format!("{} tiles of {size} pixels in {columns} columns", tiles.len());
        return Err(Error::config("sheet", format!("expected at least one of each, found {found}")));
    }
    let columns = columns.min(tiles.len());
    let lines = tiles.iter().map(|tile| tile.label.lines().count()).max().unwrap_or(0);
    let (wide, high) = (size + GAP + 2 * FRAME, size + GAP + 2 * FRAME + lines * LINE);
    let head = if legend.is_empty() { 0 } else { GAP + legend.len() * (LINE + 3) };
    let mut page = blank(GAP + columns * wide, head + GAP + tiles.len().div_ceil(columns) * high);
    for (line, text) in legend.iter().enumerate() {
        draw_text(&mut page, GAP, GAP + line * (LINE + 3), text, INK);
    }
    for (i, tile) in tiles.iter().enumerate() {
        let (x, y) = (GAP + i % columns * wide, head + GAP + i / columns * high);
        if let Some(colour) = tile.frame {
            fill(&mut page, x, y, size + 2 * FRAME, size + 2 * FRAME, colour);
        }
        fill(&mut page, x + FRAME, y + FRAME, size, size, PAPER);
        paste(&mut page, x + FRAME, y + FRAME, &fit(tile.picture, size)?, size);
        for (line, text) in tile.label.lines().enumerate() {
            let fitting: String = text.chars().take((size + 2 * FRAME) / ADVANCE).collect();
            draw_text(&mut page, x, y + size + 2 * FRAME + 1 + line * LINE, &fitting, INK);
        }
    }
    Ok(page)
}

/// Writes a line of text with its upper left corner at (x, y); what is not ASCII becomes a question mark.
pub(crate) fn draw_text(page: &mut Picture, x: usize, y: usize, text: &str, colour: [u8; 3]) {
    for (place, c) in text.chars().enumerate() {
        for (column, dots) in glyph(c).into_iter().enumerate() {
            for row in (0..7).filter(|row| dots >> row & 1 == 1) {
                fill(page, x + place * ADVANCE + column, y + row, 1, 1, colour);
            }
        }
    }
}

/// The PNG file of a picture.
pub fn encode_png(picture: &Picture) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (width, height) = (u32::try_from(picture.width), u32::try_from(picture.height));
    let size = width.ok().zip(height.ok());
    let (width, height) = size.ok_or_else(|| Error::config("picture", "more than 2^32 pixels on a side"))?;
    let written = PngEncoder::new(&mut bytes).write_image(&picture.rgb, width, height, ExtendedColorType::Rgb8);
    written.map_err(|e| Error::Image { path: "picture.png".into(), reason: e.to_string() })?;
    Ok(bytes)
}

fn blank(width: usize, height: usize) -> Picture {
    Picture { width, height, rgb: PAPER.repeat(width * height) }
}

fn glyph(c: char) -> [u8; 5] {
    let code = if (' '..='~').contains(&c) { c as usize } else { '?' as usize } - 32;
    let columns = FONT[code / 16].get(code % 16 * 11..code % 16 * 11 + 10).unwrap_or("0000000000");
    std::array::from_fn(|i| u8::from_str_radix(&columns[2 * i..2 * i + 2], 16).unwrap_or(0))
}

/// Fills a rectangle; what lies outside the page is left out.
fn fill(page: &mut Picture, x: usize, y: usize, width: usize, height: usize, colour: [u8; 3]) {
    let right = (x + width).min(page.width);
    for row in y..(y + height).min(page.height) {
        for column in x..right {
            page.rgb[(row * page.width + column) * 3..][..3].copy_from_slice(&colour);
        }
    }
}

/// The picture scaled so that its longer side is `size`.
fn fit(picture: &Picture, size: usize) -> Result<Picture> {
    let longer = picture.width.max(picture.height);
    let scaled = |side: usize| (side * size / longer).max(1);
    let (width, height) = (scaled(picture.width), scaled(picture.height));
    if (width, height) == (picture.width, picture.height) {
        return Ok(picture.clone());
    }
    let columns = Columns::new(&picture.rgb, 3, picture.width, picture.height);
    let whole = Crop::whole(picture.width, picture.height);
    let planes = columns.resize(whole, Output::whole(width, height), Interpolation::Bicubic)?;
    let pixels = width * height;
    let rgb = (0..pixels).flat_map(|i| [0, 1, 2].map(|c| planes[c * pixels + i])).collect();
    Ok(Picture { width, height, rgb })
}

/// Puts a picture into the middle of a square.
fn paste(page: &mut Picture, x: usize, y: usize, picture: &Picture, size: usize) {
    let (x, y) = (x + (size - picture.width) / 2, y + (size - picture.height) / 2);
    for (row, line) in picture.rgb.chunks_exact(picture.width * 3).enumerate() {
        page.rgb[((y + row) * page.width + x) * 3..][..line.len()].copy_from_slice(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_holds_every_tile_its_frame_and_its_label() {
        let red = Picture { width: 8, height: 4, rgb: [200, 0, 0].repeat(32) };
        let tile = Tile { picture: &red, label: "A\nlong label".into(), frame: Some([0, 0, 255]) };
        let page = sheet(&[tile.clone(), Tile { frame: None, ..tile.clone() }, tile], 2, 20).unwrap();
        assert_eq!((page.width, page.height), (6 + 2 * 32, 6 + 2 * 50));
        let count = |colour: [u8; 3]| page.rgb.chunks_exact(3).filter(|p| **p == colour).count();
        assert_eq!(count([200, 0, 0]), 3 * 20 * 10);
        assert_eq!(count([0, 0, 255]), 2 * (26 * 26 - 20 * 20));
        assert!(count(INK) > 3 * 16);
        let again = crate::image::decode(&encode_png(&page).unwrap(), &Default::default()).unwrap();
        assert_eq!(again, page);
    }

    #[test]
    fn text_outside_the_page_is_left_out() {
        let mut page = blank(10, 5);
        draw_text(&mut page, 4, 2, "Wide é", INK);
        assert!(page.rgb.contains(&INK[0]));
    }

    #[test]
    fn glyphs_of_all_printable_characters_differ() {
        let glyphs: std::collections::BTreeSet<[u8; 5]> = (' '..='~').map(glyph).collect();
        assert_eq!(glyphs.len(), 95);
        assert_eq!(glyph('é'), glyph('?'));
    }

    #[test]
    fn nothing_to_show_is_an_error() {
        assert_eq!(sheet(&[], 3, 20).unwrap_err().code(), "option.invalid");
    }
}
