//! Loss surfaces around prompts, as numbers, figures and a page to turn around.

use super::shots::ShotFeatures;
use crate::data::Dataset;
use crate::eval::NamedPrompt;
use crate::flatness::{Directions, Flatness, Grid, Normalisation, Probe, Surface};
use crate::report::figure::{side_by_side, to_image};
use crate::report::{LANDSCAPE_FILE, LandscapeRecord, LandscapeResult, data_address, surface_csv};
use crate::run_dir::RunDir;
use flatclip::classify::check_origin;
use flatclip::digest::{Digest, matrix_hash};
use flatclip::files::write_atomic;
use flatclip::image::sheet::encode_png;
use flatclip::methods::Task;
use flatclip::model::Context;
use flatclip::prompt::{Prompt, Tensor, encode_plain};
use flatclip::{Classifier, Error, Image, Matrix, Model, Progress, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Radii at which flatness is reported, in units of the directions.
const RADII: [f32; 3] = [0.25, 0.5, 1.0];
/// More planes than this are a mistake.
const MOST_PLANES: usize = 1000;
const DIRECTIONS_FILE: &str = "directions.safetensors";
/// Views of an image, of which a selected and a rejected one are shown.
const VIEWS: usize = 64;

/// Pixels of the PNG to a unit of the SVG: sharp in print.
const PNG_SCALE: f32 = 3.0;

/// Which loss is looked at.
#[derive(Clone, Debug)]
pub enum LandscapeOf {
    /// Cross-entropy over some images of each class.
    Training {
        /// Where they are drawn from.
        data: Dataset,
        /// Images per class.
        shots: usize,
    },
    /// Entropy of the best selected and the worst rejected view of an image under STSS.
    Views {
        /// The image.
        image: Image,
        /// The class names.
        classes: Vec<String>,
    },
}

impl LandscapeOf {
    /// Views of the first image of a data set, with its classes; `exif` overrides the data set's reading rule.
    pub fn first_of(data: &Dataset, exif: Option<bool>) -> Result<Self> {
        let first = data.samples.first().ok_or_else(|| Error::config(&data.name, "has no images"))?;
        Ok(Self::Views { image: first.image(&data.decode_options(exif))?, classes: data.classes.clone() })
    }
}

/// What to look at, and how.
#[derive(Clone, Debug)]
pub struct LandscapeRequest {
    /// The prompts, side by side.
    pub prompts: Vec<NamedPrompt>,
    /// The loss.
    pub of: LandscapeOf,
    /// Grid points along each axis.
    pub points: usize,
    /// The axes reach from minus to plus this.
    pub span: f32,
    /// Length of a direction.
    pub scale: Normalisation,
    /// Random planes that sharpness is looked for on: those of the seed and of the ones that follow it. The surface shows the
    /// first.
    pub planes: usize,
    /// Seed of the directions, the shots and the views.
    pub seed: u64,
    /// Rotate images per EXIF and scale 16-bit grey, or read them as Pillow does; `None`: by the kind of the data set.
    pub exif: Option<bool>,
    /// Where the files go.
    pub out: PathBuf,
}

impl LandscapeRequest {
    /// The defaults for this loss: the usual template, 31 points from -1 to 1 in units of the tokens' norms.
    pub fn new(of: LandscapeOf, out: impl Into<PathBuf>) -> Result<Self> {
        let usual = NamedPrompt { name: "a photo of a".to_owned(), ..Prompt::templates(&[Prompt::TEMPLATE])?.into() };
        let scale = Normalisation::PerToken;
        let (points, span, planes, seed) = (31, 1.0, 5, 1);
        Ok(Self { prompts: vec![usual], of, points, span, scale, planes, seed, exif: None, out: out.into() })
    }
}

/// One panel of a prompt: what is looked at, and, for a view, its image.
struct Panel {
    probe: Probe,
    image: Option<Image>,
    caption: Vec<String>,
}

/// Computes the surfaces and writes CSV, SVG, PNG, JSON and a page. Rows of a run that was stopped are not computed again.
pub fn landscape(request: &LandscapeRequest, model: &Model, progress: &dyn Progress) -> Result<LandscapeRecord> {
    let grid = Grid::new(request.points, request.span)?;
    if !(1..=MOST_PLANES).contains(&request.planes) {
        let reason = format!("expected 1 to {MOST_PLANES}, found {}", request.planes);
        return Err(Error::config("landscape.planes", reason));
    }
    request.prompts.iter().try_for_each(|named| check_origin(&named.prompt, model))?;
    let names = unique_names(&request.prompts);
    let prompts = || request.prompts.iter().map(|named| named.prompt.as_ref()).zip(&names);
    let (classes, panels): (_, Vec<Vec<Panel>>) = match &request.of {
        LandscapeOf::Training { data, shots } => {
            let shots = ShotFeatures::draw(model, data, *shots, request.seed, request.exif)?;
            let probe = |name| shots.probe(format!("{name}: cross-entropy, {} images", shots.labels.len()));
            let panel = |name| vec![Panel { probe: probe(name), image: None, caption: Vec::new() }];
            (&data.classes, names.iter().map(panel).collect())
        }
        LandscapeOf::Views { image, classes } => {
            let panels = prompts().map(|(prompt, name)| view_panels(prompt, name, request.seed, model, image, classes));
            (classes, panels.collect::<Result<_>>()?)
        }
    };
    let dir = RunDir::claim(&request.out)?;
    let (mut results, mut axes, mut cosine) = (Vec::new(), Vec::new(), 0.0f32);
    for ((NamedPrompt { prompt, .. }, name), panels) in request.prompts.iter().zip(&names).zip(panels) {
        let task = Task::from_prompt(prompt, model.clip(), model.tokenizer(), classes.clone(), request.seed)?;
        let context = task.start_context("landscape")?;
        let planes = planes(request, context)?;
        cosine = planes.iter().map(|plane| plane.cosine().abs()).fold(cosine, f32::max);
        results.extend(measure(request, &task, name, panels, &grid, &planes, &dir, progress)?);
        axes.extend(tensors(name, request.seed, context, planes));
    }
    let record = LandscapeRecord {
        schema_version: 2,
        grid,
        scale: request.scale.name(),
        seed: request.seed,
        planes: request.planes,
        largest_cosine: Some(cosine),
        directions: Some(DIRECTIONS_FILE.to_owned()),
        results,
    };
    save(&record, &axes, &dir.path)?;
    Ok(record)
}

/// The random planes of a request, the surface's first.
fn planes(request: &LandscapeRequest, context: &Context) -> Result<Vec<Directions>> {
    let seeds = (0..request.planes as u64).map(|i| request.seed.wrapping_add(i));
    seeds.map(|seed| Directions::random(context, request.scale, seed)).collect()
}

/// The axes of a prompt's planes as named tensors of the context's shape: `NAME.seed-1.x`, `NAME.seed-1.y`, ...
fn tensors(name: &str, seed: u64, context: &Context, planes: Vec<Directions>) -> Vec<Tensor> {
    let named = |(i, plane): (usize, Directions)| {
        let base = format!("{}.seed-{}", file_name(name), seed.wrapping_add(i as u64));
        let axis = |axis: &str, values| Tensor::new(format!("{base}.{axis}"), context.shape(), values);
        [axis("x", plane.x), axis("y", plane.y)]
    };
    planes.into_iter().enumerate().flat_map(named).collect()
}

/// The prompts' names, numbered where two have the same: their files must not overwrite each other.
fn unique_names(prompts: &[NamedPrompt]) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let numbered = |NamedPrompt { name, .. }: &NamedPrompt| {
        let times = seen.entry(file_name(name)).or_default();
        *times += 1;
        if *times > 1 { format!("{name} ({times})") } else { name.clone() }
    };
    prompts.iter().map(numbered).collect()
}

/// The best selected and the worst rejected view under STSS.
fn view_panels(
    prompt: &Prompt,
    name: &str,
    seed: u64,
    model: &Model,
    image: &Image,
    classes: &[String],
) -> Result<Vec<Panel>> {
    let stss = Classifier::builder(model).classes(classes.iter().cloned()).prompt(prompt.clone());
    let stss = stss.method("stss").views(VIEWS).seed(seed).build()?;
    let (answer, features) = stss.answer_and_features(image)?;
    let small = stss.view_images(image)?;
    let scores = &answer.explanation().scores;
    let worst = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let best = answer.explanation().selected.first().copied();
    let panel = |(word, view): (&str, Option<usize>)| {
        let (view, seen) = (view?, answer.view(view?));
        let caption = vec![
            format!("{word} (view {view})"),
            format!("says {}", seen.label.unwrap_or_default()),
            format!("score {:.3}", seen.score.unwrap_or(f32::NAN)),
            format!("entropy {:.3}", seen.entropy.unwrap_or(f32::NAN)),
        ];
        let name = format!("{name}: entropy of the {word} view");
        let probe = Probe { name, features: features.unit.select_rows(&[view]), labels: None };
        Some(Panel { probe, image: Some(small[view].clone()), caption })
    };
    Ok([("selected", best), ("rejected", worst)].into_iter().filter_map(panel).collect())
}

/// Rows of an interrupted run, with what they belong to.
#[derive(Serialize, Deserialize)]
struct Partial {
    /// Everything that the numbers depend on.
    key: String,
    rows: Vec<Vec<Vec<f32>>>,
    /// Of both.
    #[serde(default)]
    digest: String,
}

impl Partial {
    fn digest(&self) -> String {
        let rows = self.rows.iter().flatten();
        rows.fold(Digest::default().part(&self.key), |digest, row| digest.number(row.len()).floats(row)).hex()
    }
}

fn measure(
    request: &LandscapeRequest,
    task: &Task,
    name: &str,
    panels: Vec<Panel>,
    grid: &Grid,
    planes: &[Directions],
    dir: &RunDir,
    progress: &dyn Progress,
) -> Result<Vec<LandscapeResult>> {
    let side = task.text_side("landscape")?;
    let context = task.start_context("landscape")?;
    let probes: Vec<Probe> = panels.iter().map(|panel| panel.probe.clone()).collect();
    let partial = dir.file(&format!("{}.partial.json", file_name(name)));
    let key = key(request, task, grid, &probes)?;
    let mut kept = Partial { rows: resume(&partial, &key, progress), key, digest: String::new() };
    progress.start(name, Some(grid.coordinates.len() as u64));
    let before = kept.rows.clone();
    let on_row = |row: &[Vec<f32>]| {
        kept.rows.push(row.to_vec());
        kept.digest = kept.digest();
        progress.advance(kept.rows.len() as u64, "");
        // A surface of a large model takes minutes; what is there after a crash need not be computed again.
        write_atomic(&partial, &serde_json::to_vec(&kept).unwrap_or_default())?;
        if progress.cancelled() {
            let text = format!("{name}: {} of {} rows are done", kept.rows.len(), grid.coordinates.len());
            return Err(Error::Interrupted(text));
        }
        Ok(())
    };
    let scale = task.logit_scale;
    let surfaces = Surface::compute(side.tower, side.tokens, context, &planes[0], grid, scale, &probes, before, on_row);
    progress.finish();
    let flatness = Flatness::measure(task, planes, &RADII, &probes)?;
    let whole = |((surface, flatness), panel): ((Surface, Flatness), Panel)| {
        let png = panel.image.as_ref().map(encode_png).transpose()?;
        let image = png.as_deref().map(data_address);
        Ok(LandscapeResult { surface, flatness, image, caption: panel.caption })
    };
    let results = surfaces?.into_iter().zip(flatness).zip(panels).map(whole).collect();
    let _ = std::fs::remove_file(&partial); // all of it is in the results now
    results
}

/// Names everything that a surface depends on: model, context, class list, directions, grid and what is looked at.
fn key(request: &LandscapeRequest, task: &Task, grid: &Grid, probes: &[Probe]) -> Result<String> {
    let context = task.start_context("landscape")?;
    let tokens = Matrix::from_vec(1, context.data.len(), context.data.clone());
    let probes: Vec<String> = probes.iter().map(|p| format!("{} {:?}", matrix_hash(&p.features), p.labels)).collect();
    let model = task.need_clip("landscape")?.features_id();
    let settings = format!("{:?} {grid:?} {} orthogonal", request.scale, request.seed);
    Ok(format!("{model} {} {} {settings} {probes:?}", matrix_hash(&tokens), matrix_hash(task.text_features())))
}

/// The rows of a run that was stopped; none, with a warning, if they are damaged or of something else.
fn resume(file: &Path, key: &str, progress: &dyn Progress) -> Vec<Vec<Vec<f32>>> {
    let Ok(bytes) = std::fs::read(file) else { return Vec::new() };
    let reason = match serde_json::from_slice::<Partial>(&bytes) {
        Ok(kept) if kept.digest != kept.digest() => "are damaged",
        Ok(kept) if kept.key != key => "are of another prompt, model, grid or data",
        Ok(kept) => return kept.rows,
        Err(_) => "are damaged",
    };
    progress.warn(&format!("{}: the rows of a stopped run {reason}; starting again", file.display()));
    Vec::new()
}

/// Letters, digits and dashes of a name.
fn file_name(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

fn save(record: &LandscapeRecord, axes: &[Tensor], out: &Path) -> Result<()> {
    let fault = |reason: String| Error::config(DIRECTIONS_FILE, reason);
    write_atomic(&out.join(DIRECTIONS_FILE), &encode_plain(axes, "{\"kind\":\"directions\"}").map_err(fault)?)?;
    let figures = record.figures();
    for (result, figure) in record.results.iter().zip(&figures) {
        let base = out.join(file_name(&result.surface.name));
        write_atomic(&base.with_extension("csv"), surface_csv(&result.surface, &record.grid).as_bytes())?;
        write_atomic(&base.with_extension("svg"), figure.to_svg().as_bytes())?;
    }
    let svg = side_by_side("Landscape", &figures, 2);
    write_atomic(&out.join("landscape.svg"), svg.as_bytes())?;
    write_atomic(&out.join("landscape.png"), &encode_png(&to_image(&svg, PNG_SCALE)?)?)?;
    write_atomic(&out.join("landscape.html"), record.page().as_bytes())?;
    let json = serde_json::to_string_pretty(record).map_err(|e| Error::config(LANDSCAPE_FILE, e.to_string()))?;
    write_atomic(&out.join(LANDSCAPE_FILE), json.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_of_the_same_name_get_files_of_their_own() {
        let prompt = |name: &str| NamedPrompt {
            name: name.to_owned(),
            ..Prompt::templates(&[Prompt::TEMPLATE]).unwrap().into()
        };
        let names = unique_names(&[prompt("prompt"), prompt("sapt"), prompt("Prompt!"), prompt("prompt")]);
        assert_eq!(names, ["prompt", "sapt", "Prompt! (2)", "prompt (3)"]);
        let files: std::collections::BTreeSet<String> = names.iter().map(|name| file_name(name)).collect();
        assert_eq!(files.len(), 4);
    }
}
