//! Text in images: outlines of an embedded font, filled with smooth edges.

use super::Image;
use crate::{Error, Result};
use tiny_skia::{FillRule, Mask, Path, PathBuilder, Transform};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Part of DejaVu Sans Condensed; `font/NOTICE.md` has its licence.
const FONT: &[u8] = include_bytes!("font/sans.ttf");

/// The embedded font.
pub struct Font(Face<'static>);

impl Font {
    /// The font that is part of the program.
    pub fn embedded() -> Result<Self> {
        let broken = |e: ttf_parser::FaceParsingError| Error::config("font", format!("the embedded font: {e}"));
        Face::parse(FONT, 0).map(Self).map_err(broken)
    }

    /// The glyph of a character; what the font lacks becomes a question mark.
    fn glyph(&self, c: char) -> GlyphId {
        self.0.glyph_index(c).or_else(|| self.0.glyph_index('?')).unwrap_or_default()
    }

    fn scale(&self, size: f32) -> f32 {
        size / f32::from(self.0.units_per_em())
    }

    /// Pixels that a line of text takes.
    pub fn width(&self, text: &str, size: f32) -> f32 {
        let advance = |c| f32::from(self.0.glyph_hor_advance(self.glyph(c)).unwrap_or_default());
        text.chars().map(advance).sum::<f32>() * self.scale(size)
    }

    /// The text, cut where it would be wider than `room`.
    pub(crate) fn fitting(&self, text: &str, size: f32, room: f32) -> String {
        if self.width(text, size) <= room {
            return text.to_owned();
        }
        let cut = |length: usize| text.chars().take(length).collect::<String>().trim_end().to_owned() + "\u{2026}";
        let fits = |line: &String| self.width(line, size) <= room;
        (0..text.chars().count()).rev().map(cut).find(fits).unwrap_or_default()
    }

    /// Adds the outlines of a line of text whose baseline begins at `(x, y)`.
    pub fn add(&self, outlines: &mut PathBuilder, text: &str, size: f32, (x, y): (f32, f32)) {
        let (scale, mut left) = (self.scale(size), x);
        for c in text.chars() {
            let glyph = self.glyph(c);
            self.0.outline_glyph(glyph, &mut Pen { outlines, scale, left, baseline: y });
            left += f32::from(self.0.glyph_hor_advance(glyph).unwrap_or_default()) * scale;
        }
    }
}

/// Font units, upwards, to pixels, downwards.
struct Pen<'a> {
    outlines: &'a mut PathBuilder,
    scale: f32,
    left: f32,
    baseline: f32,
}

impl Pen<'_> {
    fn x(&self, x: f32) -> f32 {
        self.left + self.scale * x
    }

    fn y(&self, y: f32) -> f32 {
        self.baseline - self.scale * y
    }
}

impl OutlineBuilder for Pen<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.outlines.move_to(self.x(x), self.y(y));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.outlines.line_to(self.x(x), self.y(y));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.outlines.quad_to(self.x(x1), self.y(y1), self.x(x), self.y(y));
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.outlines.cubic_to(self.x(x1), self.y(y1), self.x(x2), self.y(y2), self.x(x), self.y(y));
    }

    fn close(&mut self) {
        self.outlines.close();
    }
}

/// Fills outlines with a colour; what lies outside the page is skipped.
pub(crate) fn fill_outlines(page: &mut Image, outlines: &Path, colour: [u8; 3]) {
    let (width, height) = (u32::try_from(page.width).unwrap_or(0), u32::try_from(page.height).unwrap_or(0));
    let Some(mut mask) = Mask::new(width, height) else { return };
    mask.fill_path(outlines, FillRule::Winding, true, Transform::identity());
    for (pixel, &cover) in page.rgb.chunks_exact_mut(3).zip(mask.data()).filter(|(_, cover)| **cover > 0) {
        for (channel, ink) in pixel.iter_mut().zip(colour) {
            let mixed = u32::from(*channel) * u32::from(255 - cover) + u32::from(ink) * u32::from(cover);
            *channel = ((mixed + 127) / 255) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_that_is_promised_has_a_glyph_of_its_own() {
        let font = Font::embedded().unwrap();
        let glyphs: std::collections::BTreeSet<u16> =
            ('!'..='~').chain('\u{c0}'..='\u{ff}').map(|c| font.glyph(c).0).collect();
        assert_eq!(glyphs.len(), 94 + 64);
        assert_eq!(font.glyph('\u{4e2d}'), font.glyph('?'));
    }

    #[test]
    fn text_is_cut_to_its_room_and_painted_within_it() {
        let font = Font::embedded().unwrap();
        assert_eq!(font.fitting("short", 12.0, 100.0), "short");
        let cut = font.fitting("a name that is much too long", 12.0, 60.0);
        assert!(cut.ends_with('\u{2026}') && font.width(&cut, 12.0) <= 60.0, "{cut}");
        let mut page = Image { width: 60, height: 20, rgb: vec![255; 60 * 20 * 3] };
        let mut outlines = PathBuilder::new();
        font.add(&mut outlines, "Hg", 16.0, (2.0, 14.0));
        fill_outlines(&mut page, &outlines.finish().unwrap(), [0, 0, 0]);
        let dark = |x: usize, y: usize| page.rgb[(y * 60 + x) * 3] < 100;
        assert!((0..60).any(|x| dark(x, 8)) && (0..60).all(|x| !dark(x, 0)), "between the lines");
        assert!((0..20).all(|y| !dark(30, y)), "nothing behind the text");
    }
}
