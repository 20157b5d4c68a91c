//! The image of one of our own SVG documents: what the vector file shows, for programs that want pixels.
//!
//! It supports the elements and path commands that figures write, and nothing else.

use super::css::{Sheet, properties};
use super::{BASE64, STYLE};
use base64::Engine as _;
use flatclip::image::lettering::Font;
use flatclip::image::{self, Image};
use flatclip::{Error, Result};
use std::collections::BTreeMap;
use tiny_skia::{
    Color, FillRule, FilterQuality, Paint, Path, PathBuilder, Pixmap, PixmapPaint, Rect, Stroke, StrokeDash, Transform,
};

/// Draws a document with `scale` pixels to a unit.
pub(crate) fn to_image(svg: &str, scale: f32) -> Result<Image> {
    let head = svg.find("<svg").and_then(|at| Tag::read(&svg[at..])).map(|(tag, _)| tag);
    let size = |key: &str| head.as_ref().map_or(0.0, |tag| tag.number(key) * scale).ceil() as u32;
    let pixmap = Pixmap::new(size("width"), size("height"))
        .ok_or_else(|| Error::config("figure", "expected a document with a width and a height"))?;
    let mut painter = Painter {
        pixmap,
        font: Font::embedded()?,
        sheet: Sheet::parse(STYLE.trim_start_matches("<style>")),
        places: vec![Transform::from_scale(scale, scale)],
    };
    painter.document(svg)?;
    Ok(painter.finish())
}

struct Tag<'a> {
    name: &'a str,
    attributes: BTreeMap<&'a str, &'a str>,
    /// Ends itself: `<rect/>`.
    closed: bool,
}

impl<'a> Tag<'a> {
    /// The tag at the beginning of a text, and the text after it. Values are quoted and hold no `>`: they are escaped.
    fn read(text: &'a str) -> Option<(Self, &'a str)> {
        let end = text.find('>')?;
        let (inside, behind) = (text[1..end].trim_end_matches('/'), &text[end + 1..]);
        let (name, mut rest) = inside.split_once([' ', '\n']).unwrap_or((inside, ""));
        let mut attributes = BTreeMap::new();
        while let Some((key, value)) = rest.split_once("=\"") {
            let (value, after) = value.split_once('"')?;
            attributes.insert(key.trim(), value);
            rest = after;
        }
        Some((Self { name, attributes, closed: text[..end].ends_with('/') }, behind))
    }

    fn text(&self, key: &str) -> &'a str {
        self.attributes.get(key).copied().unwrap_or_default()
    }

    fn number(&self, key: &str) -> f32 {
        self.text(key).parse().unwrap_or(0.0)
    }

    fn at(&self, x: &str, y: &str) -> (f32, f32) {
        (self.number(x), self.number(y))
    }
}

struct Style<'a>(BTreeMap<&'a str, &'a str>);

impl Style<'_> {
    fn number(&self, key: &str, otherwise: f32) -> f32 {
        self.0.get(key).and_then(|text| text.trim_end_matches("px").parse().ok()).unwrap_or(otherwise)
    }

    /// The colour of `fill` or `stroke`, where there is one.
    fn paint(&self, key: &str, otherwise: &str) -> Option<Paint<'static>> {
        let hex = self.0.get(key).copied().unwrap_or(otherwise).strip_prefix('#')?;
        let digit = |at: usize| hex.get(at..=at).and_then(|d| u8::from_str_radix(d, 16).ok()).unwrap_or(0);
        let channel = |i: usize| if hex.len() == 3 { 17 * digit(i) } else { 16 * digit(2 * i) + digit(2 * i + 1) };
        let opacity = self.number("opacity", 1.0) * self.number(&format!("{key}-opacity"), 1.0);
        let alpha = (opacity.clamp(0.0, 1.0) * 255.0).round() as u8;
        let mut paint = Paint::default();
        paint.set_color(Color::from_rgba8(channel(0), channel(1), channel(2), alpha));
        paint.anti_alias = self.0.get("shape-rendering") != Some(&"crispEdges");
        Some(paint)
    }

    fn stroke(&self) -> Stroke {
        let lengths = self.0.get("stroke-dasharray").into_iter().flat_map(|text| text.split_whitespace());
        let lengths: Vec<f32> = lengths.filter_map(|length| length.parse().ok()).collect();
        Stroke { width: self.number("stroke-width", 1.0), dash: StrokeDash::new(lengths, 0.0), ..Stroke::default() }
    }
}

struct Painter {
    pixmap: Pixmap,
    font: Font,
    sheet: Sheet<'static>,
    /// Where the open groups stand.
    places: Vec<Transform>,
}

impl Painter {
    fn document(&mut self, svg: &str) -> Result<()> {
        let mut rest = svg;
        while let Some(at) = rest.find('<') {
            let Some((tag, behind)) = Tag::read(&rest[at..]) else { break };
            rest = behind;
            match tag.name {
                "style" | "title" | "text" => {
                    let (words, after) = behind.split_once(&format!("</{}>", tag.name)).unwrap_or((behind, ""));
                    rest = after;
                    if tag.name == "text" {
                        self.words(&tag, &unescaped(words));
                    }
                }
                "g" | "svg" if !tag.closed => self.places.push(self.place(&tag)),
                "/g" | "/svg" => drop(self.places.pop()),
                "image" => self.image(&tag)?,
                _ => self.shape(&tag),
            }
        }
        Ok(())
    }

    /// Position of an element: `translate(x y)` or `rotate(angle x y)` within its group.
    fn place(&self, tag: &Tag<'_>) -> Transform {
        let group = self.places.last().copied().unwrap_or_default();
        let Some((name, values)) = tag.text("transform").split_once('(') else { return group };
        let values: Vec<f32> = numbers(values.trim_end_matches(')'));
        match (name, values.as_slice()) {
            ("translate", [x, y]) => group.pre_translate(*x, *y),
            ("rotate", [angle, x, y]) => group.pre_concat(Transform::from_rotate_at(*angle, *x, *y)),
            _ => group,
        }
    }

    /// Attributes, then the style sheet, then the element's own style.
    fn style<'t>(&self, tag: &Tag<'t>) -> Style<'t> {
        let mut all: BTreeMap<&str, &str> = tag.attributes.clone();
        all.extend(self.sheet.properties(tag.name, tag.text("class")));
        all.extend(properties(tag.text("style")));
        Style(all)
    }

    fn shape(&mut self, tag: &Tag<'_>) {
        let Some(path) = outline(tag) else { return };
        let (place, style) = (self.place(tag), self.style(tag));
        if let Some(paint) = style.paint("fill", "#000000").filter(|_| tag.name != "line") {
            self.pixmap.fill_path(&path, &paint, FillRule::Winding, place, None);
        }
        if let Some(paint) = style.paint("stroke", "none") {
            self.pixmap.stroke_path(&path, &paint, &style.stroke(), place, None);
        }
    }

    fn words(&mut self, tag: &Tag<'_>, text: &str) {
        let (place, style) = (self.place(tag), self.style(tag));
        let (size, (x, y)) = (style.number("font-size", 12.0), tag.at("x", "y"));
        let width = self.font.width(text, size);
        let left = match style.0.get("text-anchor") {
            Some(&"end") => x - width,
            Some(&"middle") => x - width / 2.0,
            _ => x,
        };
        let mut outlines = PathBuilder::new();
        self.font.add(&mut outlines, text, size, (left, y));
        let (Some(path), Some(ink)) = (outlines.finish(), style.paint("fill", "#000000")) else { return };
        if let Some(halo) = style.paint("stroke", "none") {
            self.pixmap.stroke_path(&path, &halo, &style.stroke(), place, None);
        }
        self.pixmap.fill_path(&path, &ink, FillRule::Winding, place, None);
        // The embedded font has one weight: heavier letters are a little wider.
        if style.0.contains_key("font-weight") {
            let heavier = Stroke { width: size / 28.0, ..Stroke::default() };
            self.pixmap.stroke_path(&path, &ink, &heavier, place, None);
        }
    }

    fn image(&mut self, tag: &Tag<'_>) -> Result<()> {
        let Some(decoded_image) = embedded_image(tag.text("href"))? else { return Ok(()) };
        let Image { width: columns, height: rows, rgb } = decoded_image;
        let rgba: Vec<u8> = rgb.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect();
        let size = tiny_skia::IntSize::from_wh(columns as u32, rows as u32);
        let Some(pixels) = size.and_then(|size| Pixmap::from_vec(rgba, size)) else { return Ok(()) };
        let ((x, y), (width, height)) = (tag.at("x", "y"), tag.at("width", "height"));
        let fitted = (width / columns as f32).min(height / rows as f32);
        let place = self.place(tag).pre_translate(x, y).pre_scale(fitted, fitted);
        let paint = PixmapPaint { quality: FilterQuality::Bicubic, ..PixmapPaint::default() };
        self.pixmap.draw_pixmap(0, 0, pixels.as_ref(), &paint, place, None);
        Ok(())
    }

    /// On white, where nothing was drawn.
    fn finish(self) -> Image {
        let (width, height) = (self.pixmap.width() as usize, self.pixmap.height() as usize);
        // Colours are multiplied with their cover already.
        let on_white = |p: &[u8]| [p[0], p[1], p[2]].map(|c| c.saturating_add(255 - p[3]));
        let rgb = self.pixmap.data().chunks_exact(4).flat_map(on_white).collect();
        Image { width, height, rgb }
    }
}

fn outline(tag: &Tag<'_>) -> Option<Path> {
    let mut path = PathBuilder::new();
    match tag.name {
        "rect" => {
            let ((x, y), (width, height)) = (tag.at("x", "y"), tag.at("width", "height"));
            path.push_rect(Rect::from_xywh(x, y, width, height)?);
        }
        "circle" => {
            let (x, y) = tag.at("cx", "cy");
            path.push_circle(x, y, tag.number("r"));
        }
        "line" => {
            let ((x1, y1), (x2, y2)) = (tag.at("x1", "y1"), tag.at("x2", "y2"));
            path.move_to(x1, y1);
            path.line_to(x2, y2);
        }
        "polyline" | "polygon" => {
            for (i, point) in numbers(tag.text("points")).chunks_exact(2).enumerate() {
                if i == 0 { path.move_to(point[0], point[1]) } else { path.line_to(point[0], point[1]) }
            }
            if tag.name == "polygon" {
                path.close();
            }
        }
        "path" => add_commands(&mut path, tag.text("d")),
        _ => return None,
    }
    path.finish()
}

/// Adds the commands M, L, H, V, l, h and z.
fn add_commands(path: &mut PathBuilder, commands: &str) {
    let starts: Vec<usize> = commands.char_indices().filter(|(_, c)| c.is_ascii_alphabetic()).map(|(i, _)| i).collect();
    let (mut x, mut y) = (0.0, 0.0);
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(commands.len());
        let values = numbers(&commands[start + 1..end]);
        match (&commands[start..=start], values.as_slice()) {
            ("M" | "L", [to_x, to_y]) => (x, y) = (*to_x, *to_y),
            ("l", [by_x, by_y]) => (x, y) = (x + by_x, y + by_y),
            ("H", [to]) => x = *to,
            ("h", [by]) => x += by,
            ("V", [to]) => y = *to,
            _ => {}
        }
        match &commands[start..=start] {
            "M" => path.move_to(x, y),
            "z" => path.close(),
            _ => path.line_to(x, y),
        }
    }
}

/// Numbers between spaces and commas.
fn numbers(text: &str) -> Vec<f32> {
    text.split([' ', ',', '\n']).filter_map(|number| number.parse().ok()).collect()
}

fn unescaped(text: &str) -> String {
    let marks = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    marks.iter().fold(text.to_owned(), |text, (code, mark)| text.replace(code, mark))
}

/// The image of a `data:` address; `None` for one that holds none.
fn embedded_image(address: &str) -> Result<Option<Image>> {
    let Some((_, code)) = address.split_once("base64,") else { return Ok(None) };
    let bytes = BASE64.decode(code).map_err(|e| Error::config("figure", e.to_string()))?;
    image::decode(&bytes, &image::DecodeOptions::default()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::{Axis, Figure, FigureImage, Layer, side_by_side};

    fn pixel(image: &Image, x: usize, y: usize) -> [u8; 3] {
        let at = (y * image.width + x) * 3;
        [image.rgb[at], image.rgb[at + 1], image.rgb[at + 2]]
    }

    #[test]
    fn shapes_words_and_groups_are_where_the_document_says() {
        let svg = "<svg width=\"40\" height=\"30\"><style>x{}</style><rect class=\"paper\" width=\"40\" height=\"30\"/>\
            <g transform=\"translate(10 0)\"><rect class=\"cell\" x=\"2\" y=\"3\" width=\"4\" height=\"5\" fill=\"#ff0000\"/></g>\
            <path class=\"whisker\" d=\"M30 5V20M28 5H32\"/><text class=\"title\" x=\"2\" y=\"28\">H &amp; M</text></svg>";
        let image = to_image(svg, 2.0).unwrap();
        assert_eq!((image.width, image.height), (80, 60));
        assert_eq!(pixel(&image, 28, 10), [255, 0, 0]);
        assert_eq!(pixel(&image, 22, 10), [255, 255, 255]);
        assert!(pixel(&image, 60, 30)[0] < 100, "the whisker");
        let dark = |y: usize| (4..60).any(|x| pixel(&image, x, y)[0] < 120);
        assert!(dark(50) && !dark(58), "letters stand on their line");
    }

    #[test]
    fn a_figure_with_every_layer_is_drawn() {
        let png =
            flatclip::image::sheet::encode_png(&Image { width: 2, height: 2, rgb: [9, 200, 9].repeat(4) }).unwrap();
        let [heat, contour] = super::super::tests::grid("nats");
        let mut figure = Figure::new("surface", Axis::new("x (units)"), Axis::new("y"))
            .with(heat)
            .with(contour)
            .with(Layer::Mark { at: (1.0, 0.5), name: "prompt".into() });
        figure.image = Some(FigureImage { address: super::super::data_address(&png), caption: vec!["a view".into()] });
        let image = to_image(&side_by_side("both", &[figure.clone(), figure], 2), 1.0).unwrap();
        assert_eq!((image.width, image.height), (1120, 360));
        let count = |colour: [u8; 3]| image.rgb.chunks_exact(3).filter(|p| **p == colour).count();
        assert!(count([9, 200, 9]) > 2 * 100 * 100, "both views");
        assert!(count([213, 94, 0]) > 2 * 30, "both marks");
        assert!(count([254, 232, 56]) > 0, "the lightest colour");
    }
}
