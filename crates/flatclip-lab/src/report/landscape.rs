//! Landscapes for people: figures, a table of numbers, and the interactive page; and the file that a report reads them from.

use super::compose::read_record;
use super::figure::{Axis, Cells, Figure, FigureImage, Layer};
use super::{Cell, Section, Table};
use crate::flatness::{Flatness, Grid, Ring, Surface};
use flatclip::{Error, Hint, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file of a landscape's folder that holds its numbers.
pub(crate) const LANDSCAPE_FILE: &str = "landscape.json";

const PAGE: &str = include_str!("page/surface.html");

/// What the script of the page reads.
#[derive(Serialize)]
struct PageData<'a> {
    title: &'a str,
    caption: String,
    /// Surfaces of single views are shown by their rise above the prompt.
    of_views: bool,
    unit: String,
    /// How far the axes reach.
    span: f32,
    surfaces: Vec<PageSurface<'a>>,
    flatness: Vec<Flatness>,
}

#[derive(Serialize)]
struct PageSurface<'a> {
    #[serde(flatten)]
    surface: &'a Surface,
    image: &'a Option<String>,
    caption: &'a [String],
}

impl<'a> PageSurface<'a> {
    fn of(LandscapeResult { surface, image, caption, .. }: &'a LandscapeResult) -> Self {
        Self { surface, image, caption }
    }
}

/// Everything that `flatclip landscape` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LandscapeRecord {
    /// Of this layout.
    pub schema_version: u32,
    /// Coordinates of both axes.
    #[serde(flatten)]
    pub grid: Grid,
    /// `per-token`, or the radius that a direction has.
    pub scale: String,
    /// Seed of the directions.
    pub seed: u64,
    /// Random planes that sharpness was looked for on; the surfaces show the first.
    #[serde(default = "one")]
    pub planes: usize,
    /// The largest cosine between the two directions of a plane; they are drawn orthogonal. None in files of earlier versions,
    /// whose directions were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_cosine: Option<f32>,
    /// The file that holds the directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<String>,
    /// The surfaces.
    pub results: Vec<LandscapeResult>,
}

fn one() -> usize {
    1
}

/// One surface with its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LandscapeResult {
    /// The loss on the grid.
    pub surface: Surface,
    /// The loss on circles.
    pub flatness: Flatness,
    /// The view itself as a `data:` address, for the surface of a single view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The caption of the view.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caption: Vec<String>,
}

impl LandscapeRecord {
    /// Reads the record of a landscape's folder; `None` when the folder holds none.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let record: Option<Self> = read_record(folder, LANDSCAPE_FILE, "a landscape", "landscape")?;
        let Some(record) = record else { return Ok(None) };
        let n = record.grid.coordinates.len();
        let fits = |result: &LandscapeResult| {
            result.surface.values.len() == n && result.surface.values.iter().all(|row| row.len() == n)
        };
        if n < 2 || !record.results.iter().all(fits) {
            let reason = format!("its surfaces do not have {n} x {n} values");
            let error = Error::Run { path: folder.join(LANDSCAPE_FILE), reason };
            return Err(error.with_hint(Hint::Again("landscape")));
        }
        Ok(Some(record))
    }

    /// What a step of 1 along an axis is.
    pub fn unit(&self) -> String {
        if self.scale == "per-token" { "token norms".to_owned() } else { format!("steps of length {}", self.scale) }
    }

    /// What a reader must know.
    pub(crate) fn caption(&self) -> String {
        let length = if self.scale == "per-token" {
            "equal to each token's norm".to_owned()
        } else {
            format!("{} over the whole context", self.scale)
        };
        let angle = match self.largest_cosine {
            Some(cosine) if cosine < 1e-3 => "orthogonal random directions".to_owned(),
            Some(cosine) => format!("random directions (largest cosine {cosine:.3})"),
            None => "random directions (their angle is not known)".to_owned(),
        };
        format!(
            "The loss in nats on a {0} x {0} grid of contexts around each prompt (the marked point), along two {angle} of \
             length {length} (seed {1}). Flat means: the loss stays low all around. All surfaces share one colour scale.",
            self.grid.coordinates.len(),
            self.seed
        )
    }

    /// The surfaces as figures show them. Views are compared by how much their entropy rises around the prompt, not by how high it
    /// is there; training losses are shown as they are.
    pub fn shown(&self) -> Vec<Surface> {
        let shown = |result: &LandscapeResult| {
            let Surface { name, values } = &result.surface;
            if result.image.is_none() {
                return result.surface.clone();
            }
            let rise = |row: &Vec<f32>| row.iter().map(|value| value - result.flatness.centre).collect();
            Surface { name: format!("{name}, rise above the prompt"), values: values.iter().map(rise).collect() }
        };
        self.results.iter().map(shown).collect()
    }

    /// One figure per surface, with its view where there is one.
    pub fn figures(&self) -> Vec<Figure> {
        let shown = self.shown();
        let all = (f32::INFINITY, f32::NEG_INFINITY);
        let range = shown.iter().map(Surface::range).fold(all, |(low, high), (l, h)| (low.min(l), high.max(h)));
        let figure = |(result, surface): (&LandscapeResult, &Surface)| {
            let mut figure = surface_figure(surface, &self.grid, &self.unit(), range);
            if let Some(address) = &result.image {
                figure.size.0 += 150.0;
                figure.image = Some(FigureImage { address: address.clone(), caption: result.caption.clone() });
            }
            figure
        };
        self.results.iter().zip(&shown).map(figure).collect()
    }

    /// The flatness numbers of all surfaces.
    pub fn flatness(&self) -> Vec<Flatness> {
        self.results.iter().map(|result| result.flatness.clone()).collect()
    }

    /// The interactive page: one file that needs nothing else, with data, style and script inside.
    pub fn page(&self) -> String {
        let data = PageData {
            title: "Landscape",
            caption: self.caption(),
            of_views: self.results.iter().any(|result| result.image.is_some()),
            unit: self.unit(),
            span: self.grid.coordinates.last().copied().unwrap_or(1.0),
            surfaces: self.results.iter().map(PageSurface::of).collect(),
            flatness: self.flatness(),
        };
        // `</script>` inside a name would end the block early.
        let data = serde_json::to_string(&data).unwrap_or_default().replace("</", "<\\/");
        PAGE.replace("/*DATA*/", &data)
    }

    /// As a part of a report.
    pub fn section(&self, title: &str) -> Section {
        let tables = vec![flatness_table(&self.flatness())];
        Section { tables, figures: self.figures(), ..Section::new(title, self.caption()) }
    }
}

/// Lines of equal loss, between the lowest and the highest colour.
const LEVELS: u8 = 12;

fn levels((low, high): (f32, f32)) -> Vec<f64> {
    (1..LEVELS).map(|i| f64::from(low) + f64::from(high - low) * f64::from(i) / f64::from(LEVELS)).collect()
}

/// Contours over a heat map, the prompt itself marked.
pub(crate) fn surface_figure(surface: &Surface, grid: &Grid, unit: &str, range: (f32, f32)) -> Figure {
    let axis: Vec<f64> = grid.coordinates.iter().map(|&c| f64::from(c)).collect();
    let values: Vec<f64> = surface.values.iter().flatten().map(|&v| f64::from(v)).collect();
    // The axes end where the outermost cells do.
    let half = (axis.get(1).copied().unwrap_or_default() - axis.first().copied().unwrap_or_default()) / 2.0;
    let ends = (axis.first().map_or(-1.0, |a| a - half), axis.last().map_or(1.0, |a| a + half));
    let label = |name: &str| Axis::new(format!("{name} ({unit})")).within(ends.0, ends.1);
    let colours = Some((f64::from(range.0), f64::from(range.1)));
    let cells = Cells { x: axis.clone(), y: axis, values };
    // With a view, two of them are side by side on a page.
    Figure::new(surface.name.clone(), label("first direction"), label("second direction"))
        .with(Layer::Heat { cells: cells.clone(), labels: false, range: colours, unit: "nats" })
        .with(Layer::Contour { cells, levels: levels(range) })
        .with(Layer::Mark { at: (0.0, 0.0), name: "prompt".into() })
        .sized(414.0, 364.0)
}

/// `x,y,value` lines.
pub(crate) fn surface_csv(surface: &Surface, grid: &Grid) -> String {
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
    let mut columns = Table::of("Rise of the loss on circles around the prompt, on random planes", flatness)
        .column("surface", |f| Cell::text(&f.name))
        .column("centre", |f| Cell::number(f64::from(f.centre), 4));
    let rings = flatness.first().map_or(&[][..], |first| &first.rings);
    let cell = |f: &Flatness, i: usize, cell: fn(&Ring) -> Cell| Cell::some(f.rings.get(i), cell);
    for (i, Ring { radius, .. }) in rings.iter().enumerate() {
        let (mean, largest) = (format!("mean rise at {radius}"), format!("largest at {radius}"));
        columns = columns
            .column(mean, |f| cell(f, i, |ring| with_spread(ring.mean_increase, ring.mean_spread)))
            .column(largest, |f| cell(f, i, |ring| with_spread(ring.largest_increase, ring.largest_spread)));
    }
    if let Some(Ring { radius, .. }) = rings.last() {
        let sharpness = |ring: &Ring| Cell::number(f64::from(ring.sharpness), 4);
        columns = columns.column(format!("sharpness at {radius}"), |f| Cell::some(f.rings.last(), sharpness));
    }
    let mut table = columns.table();
    let found = flatness.first().map(|f| f.found_by.as_str()).filter(|found| !found.is_empty());
    if let Some(found) = found {
        let spread = match flatness.first().map(|f| f.planes) {
            Some(planes) if planes > 1 => format!("mean \u{b1} standard deviation over {planes} random planes; "),
            _ => String::new(),
        };
        table.notes.push(format!(
            "{spread}sharpness: the largest rise within the radius, found on {found}; a lower estimate, ascent finds more"
        ));
    }
    table
}

/// A mean, and its standard deviation between planes where there are several.
fn with_spread(mean: f32, spread: Option<f32>) -> Cell {
    match spread {
        Some(spread) => Cell { text: format!("{mean:.4} \u{b1} {spread:.4}"), ..Cell::number(f64::from(mean), 4) },
        None => Cell::number(f64::from(mean), 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bowl() -> LandscapeRecord {
        let grid = Grid::new(5, 1.0).unwrap();
        let value = |x: f32, y: f32| x * x + y * y;
        let values =
            grid.coordinates.iter().map(|&y| grid.coordinates.iter().map(|&x| value(x, y)).collect()).collect();
        let name = "bowl </script>".to_owned();
        let rings = vec![Ring {
            radius: 1.0,
            mean_increase: 1.0,
            largest_increase: 1.0,
            mean_spread: Some(0.5),
            largest_spread: Some(0.25),
            sharpness: 1.5,
        }];
        let found_by = "2 random planes".to_owned();
        let flatness = Flatness { name: name.clone(), centre: 0.0, rings, planes: 2, found_by };
        let surface = Surface { name, values };
        let image = Some("data:image/png;base64,AA==".to_owned());
        let result = LandscapeResult { surface, flatness, image, caption: vec!["view 3".into()] };
        LandscapeRecord {
            schema_version: 2,
            grid,
            scale: "per-token".into(),
            seed: 1,
            planes: 2,
            largest_cosine: Some(0.0),
            directions: Some("directions.safetensors".into()),
            results: vec![result],
        }
    }

    #[test]
    fn a_name_cannot_break_out_of_the_page() {
        assert_eq!(bowl().page().matches("</script>").count(), 2, "one for the data, one for the code");
    }

    #[test]
    fn a_record_is_read_back_as_it_was_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LandscapeRecord::read(dir.path()).unwrap(), None);
        let path = dir.path().join(LANDSCAPE_FILE);
        let mut record = bowl();
        std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        assert_eq!(LandscapeRecord::read(dir.path()).unwrap().as_ref(), Some(&record));
        record.results[0].surface.values[2].pop();
        std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        assert!(LandscapeRecord::read(dir.path()).unwrap_err().to_string().contains("5 x 5"));
        std::fs::write(&path, "{}").unwrap();
        assert!(LandscapeRecord::read(dir.path()).unwrap_err().to_string().contains("landscape.json"));
    }

    #[test]
    fn the_table_tells_the_spread_between_planes_and_how_sharpness_was_found() {
        let table = flatness_table(&bowl().flatness()).to_text();
        assert!(table.contains("1.0000 \u{b1} 0.5000") && table.contains("1.5000"), "{table}");
        assert!(table.contains("found on 2 random planes; a lower estimate"), "{table}");
        assert!(bowl().caption().contains("orthogonal random directions"));
    }

    /// Files of earlier versions have neither planes nor directions.
    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut old = serde_json::to_value(bowl()).unwrap();
        let all = old.as_object_mut().unwrap();
        for key in ["planes", "largest_cosine", "directions"] {
            all.remove(key);
        }
        let flatness = old["results"][0]["flatness"].as_object_mut().unwrap();
        for key in ["planes", "found_by"] {
            flatness.remove(key);
        }
        let ring = old["results"][0]["flatness"]["rings"][0].as_object_mut().unwrap();
        for key in ["mean_spread", "largest_spread", "sharpness"] {
            ring.remove(key);
        }
        std::fs::write(dir.path().join(LANDSCAPE_FILE), old.to_string()).unwrap();
        let read = LandscapeRecord::read(dir.path()).unwrap().unwrap();
        assert!(read.planes == 1 && read.caption().contains("angle is not known"), "{}", read.caption());
    }

    #[test]
    fn every_form_shows_the_same_surface() {
        let record = bowl();
        let result = &record.results[0];
        assert_eq!(surface_csv(&result.surface, &record.grid).lines().count(), 26);
        let svg = record.figures()[0].to_svg();
        assert!(svg.contains("contour") && svg.contains("<image") && svg.contains("view 3"));
        assert!(record.section("s").tables[0].to_text().contains("bowl"));
    }
}
