//! `flatclip landscape`: loss surfaces around prompts, as numbers, figures and a page to turn around.

use crate::inputs::classes::ClassArgs;
use crate::inputs::model::{Model, ModelArgs};
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result, bail, ensure};
use flatclip::data::few_shot::{FewShot, Pool, Sampler};
use flatclip::data::{self, OpenOptions, Split};
use flatclip::files::write_atomic;
use flatclip::image::sheet::encode_png;
use flatclip::image::views::{ViewKey, make_views, thumbnails};
use flatclip::image::{self, DecodeOptions, Picture};
use flatclip::landscape::{Directions, Flatness, Grid, Normalisation, Probe, Surface};
use flatclip::methods::{self, Sample, Task};
use flatclip::model::Features;
use flatclip::prompt::Prompt;
use flatclip::report::landscape::{
    LandscapePage, PageSurface, data_address, flatness_table, surface_csv, surface_figure, surface_picture,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Radii at which flatness is told, in units of the directions.
const RADII: [f32; 3] = [0.25, 0.5, 1.0];

/// Options of `flatclip landscape`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// A prompt file or the run directory of `flatclip tune` (repeat to see several side by side)
    #[arg(long, value_name = "FILE|RUN")]
    prompt: Vec<PathBuf>,
    /// Training loss: cross-entropy over shots of this data set
    #[arg(long, value_name = "DATA", required_unless_present = "image")]
    data: Option<String>,
    /// Where known data sets lie
    #[arg(long, value_name = "DIR", env = "FLATCLIP_DATA_ROOT")]
    data_root: Option<PathBuf>,
    /// Images per class of the training loss
    #[arg(long, default_value_t = 16)]
    shots: usize,
    /// Entropy of a selected and a rejected view of this picture
    #[arg(long, value_name = "IMAGE", conflicts_with = "data")]
    image: Option<PathBuf>,
    #[command(flatten)]
    classes: ClassArgs,
    /// Grid points along each axis
    #[arg(long, default_value_t = 31)]
    points: usize,
    /// The axes reach from -span to span
    #[arg(long, default_value_t = 1.0)]
    span: f32,
    /// Length of a direction: per-token (each token moves by its own norm), or a radius such as 0.5 (STSS's sphere)
    #[arg(long, default_value = "per-token", value_name = "per-token|RADIUS")]
    scale: String,
    /// Seed of the directions, the shots and the views
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "landscape")]
    out: PathBuf,
}

/// One panel: a prompt, what is looked at, and, for a view, its picture.
struct Panel {
    prompt: usize,
    probe: Probe,
    picture: Option<Picture>,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let normalisation = match args.scale.as_str() {
        "per-token" => Normalisation::PerToken,
        other => match other.parse::<f32>() {
            Ok(radius) if radius > 0.0 && radius.is_finite() => Normalisation::Radius(radius),
            _ => bail!("--scale: expected per-token or a positive radius, found {other:?}"),
        },
    };
    let grid = Grid::new(args.points, args.span)?;
    let prompts = prompts(&args.prompt)?;
    let model = args.model.load(out)?;
    let (classes, panels) = match (&args.data, &args.image) {
        (Some(data), _) => training_panels(&args, data, &model, &prompts)?,
        (None, Some(file)) => view_panels(&args, file, &model, &prompts, out)?,
        (None, None) => bail!("what to look at? give --data or --image"),
    };
    std::fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let mut results = Vec::new();
    for (index, (name, prompt)) in prompts.iter().enumerate() {
        let mine: Vec<&Panel> = panels.iter().filter(|panel| panel.prompt == index).collect();
        let task = Task::from_prompt(prompt, &model.clip, &model.tokenizer, &classes, args.seed)?;
        results.extend(measure(&args, &task, name, &mine, normalisation, &grid, out)?);
    }
    save(&args, &grid, &panels, &results, out)?;
    Ok(Exit::Done)
}

fn prompts(files: &[PathBuf]) -> Result<Vec<(String, Prompt)>> {
    if files.is_empty() {
        return Ok(vec![("a photo of a".to_owned(), Prompt::templates(&["a photo of a {}."])?)]);
    }
    files
        .iter()
        .map(|path| {
            let file = crate::inputs::prompt::prompt_file(path)?;
            let name = prompt_name(path);
            Ok((name, Prompt::load(&file)?))
        })
        .collect()
}

/// The run directory's whole name (it may contain a point), or the file's name without its ending.
fn prompt_name(path: &Path) -> String {
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    name.map_or_else(|| "prompt".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn training_panels(
    args: &Args,
    spec: &str,
    model: &Model,
    prompts: &[(String, Prompt)],
) -> Result<(Vec<String>, Vec<Panel>)> {
    let options = OpenOptions { root: args.data_root.clone(), split: Split::Train, ..OpenOptions::default() };
    let dataset = data::open(spec, &options)?;
    let ids: Vec<String> = dataset.samples.iter().map(|s| s.id.clone()).collect();
    let labels: Vec<usize> = dataset.samples.iter().map(|s| s.label).collect();
    let pool = Pool { source: spec, ids: &ids, labels: &labels, classes: &dataset.classes };
    let few =
        FewShot { shots: args.shots, held_out: 0, seed: args.seed, sampler: Sampler::Portable, allow_fewer: true };
    let shots = few.draw(&pool)?.train;
    let pictures = shots.iter().map(|&i| Ok(dataset.samples[i].picture(&DecodeOptions::default())?));
    let features = Features::unit(model.plain_features(pictures)?).0;
    let labels: Vec<usize> = shots.iter().map(|&i| labels[i]).collect();
    let panel = |(prompt, (name, _)): (usize, &(String, Prompt))| {
        let name = format!("{name}: cross-entropy, {} images", labels.len());
        let probe = Probe { name, features: features.clone(), labels: Some(labels.clone()) };
        Panel { prompt, probe, picture: None }
    };
    Ok((dataset.classes.clone(), prompts.iter().enumerate().map(panel).collect()))
}

/// The best selected and the worst rejected view under STSS, for every prompt.
fn view_panels(
    args: &Args,
    file: &Path,
    model: &Model,
    prompts: &[(String, Prompt)],
    out: &Output,
) -> Result<(Vec<String>, Vec<Panel>)> {
    let classes = args.classes.read(out)?.context("which classes? give --classes a,b,c or --classes-file FILE")?;
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    let picture = image::decode_from(file, &bytes, &DecodeOptions::default())?;
    let views = model.views(64);
    let id = file.display().to_string();
    let key = ViewKey { seed: args.seed, dataset: "landscape", sample: &id };
    let (features, norms) = Features::unit(model.clip.encode_images(&make_views(&picture, &views, key)?, views.count)?);
    let small = thumbnails(&picture, &views, key)?;
    let mut panels = Vec::new();
    for (index, (name, prompt)) in prompts.iter().enumerate() {
        let task = Task::from_prompt(prompt, &model.clip, &model.tokenizer, &classes, args.seed)?;
        let mut stss = methods::build_adapter("stss", &Default::default())?;
        stss.prepare(&task)?;
        let answer = stss.adapt(&task, &Sample { norms: &norms, ..Sample::new(&id, &features) })?;
        let why = answer.explanation;
        let worst = (0..views.count).max_by(|&a, &b| why.scores[a].total_cmp(&why.scores[b]));
        let best = why.selected.first().copied();
        for (word, view) in [("selected", best), ("rejected", worst)] {
            let Some(view) = view else { continue };
            let name = format!("{name}: {word} view {view}, entropy (score {:.3})", why.scores[view]);
            let probe = Probe { name, features: features.select_rows(&[view]), labels: None };
            panels.push(Panel { prompt: index, probe, picture: Some(small[view].clone()) });
        }
    }
    Ok((classes, panels))
}

/// A finished surface with its numbers.
#[derive(Serialize, Deserialize)]
struct Measured {
    surface: Surface,
    flatness: Flatness,
}

/// Rows of an interrupted run, with what they belong to.
#[derive(Serialize, Deserialize)]
struct Partial {
    settings: String,
    rows: Vec<Vec<Vec<f32>>>,
}

fn measure(
    args: &Args,
    task: &Task<'_>,
    name: &str,
    panels: &[&Panel],
    normalisation: Normalisation,
    grid: &Grid,
    out: &Output,
) -> Result<Vec<Measured>> {
    let side = task.text_side("landscape")?;
    let context = task.start_context("landscape")?;
    let directions = Directions::random(context, normalisation, args.seed)?;
    let probes: Vec<Probe> = panels.iter().map(|panel| panel.probe.clone()).collect();
    let settings = format!("{:?} {normalisation:?} {grid:?} {} {:?}", args.prompt, args.seed, fingerprint(&probes));
    let partial = args.out.join(format!("{}.partial.json", file_name(name)));
    let mut kept = Partial { settings: settings.clone(), rows: resume(&partial, &settings) };
    let bar = out.progress(grid.coordinates.len() as u64, name);
    bar.set_position(kept.rows.len() as u64);
    let surfaces = Surface::compute(
        side.tower,
        side.tokens,
        context,
        &directions,
        grid,
        task.logit_scale,
        &probes,
        kept.rows.clone(),
        |row| {
            kept.rows.push(row.to_vec());
            bar.inc(1);
            // A surface of a large model takes minutes; what is there after a crash need not be computed again.
            let json = serde_json::to_vec(&kept).unwrap_or_default();
            write_atomic(&partial, &json)
        },
    )?;
    bar.finish_and_clear();
    let flatness = Flatness::measure(side.tower, side.tokens, context, &directions, &RADII, task.logit_scale, &probes)?;
    let _ = std::fs::remove_file(&partial); // all of it is in the results now
    Ok(surfaces.into_iter().zip(flatness).map(|(surface, flatness)| Measured { surface, flatness }).collect())
}

fn resume(file: &Path, settings: &str) -> Vec<Vec<Vec<f32>>> {
    let kept = std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice::<Partial>(&bytes).ok());
    kept.filter(|kept| kept.settings == settings).map_or_else(Vec::new, |kept| kept.rows)
}

/// Distinguishes what is looked at: a sum over the features is enough to notice other pictures.
fn fingerprint(probes: &[Probe]) -> Vec<f32> {
    probes.iter().map(|probe| probe.features.data().iter().sum()).collect()
}

/// Letters, digits and dashes of a name.
fn file_name(name: &str) -> String {
    let words: Vec<String> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join("-")
}

fn save(args: &Args, grid: &Grid, panels: &[Panel], results: &[Measured], out: &Output) -> Result<()> {
    ensure!(panels.len() == results.len(), "{} panels, {} surfaces", panels.len(), results.len());
    let unit = if args.scale == "per-token" { "token norms" } else { "radii" };
    let mut surfaces = Vec::new();
    for (measured, panel) in results.iter().zip(panels) {
        let surface = &measured.surface;
        let base = args.out.join(file_name(&surface.name));
        write_atomic(&base.with_extension("csv"), surface_csv(surface, grid).as_bytes())?;
        write_atomic(&base.with_extension("svg"), surface_figure(surface, grid, unit).to_svg().as_bytes())?;
        write_atomic(&base.with_extension("png"), &encode_png(&surface_picture(surface, grid))?)?;
        let picture =
            panel.picture.as_ref().map(|p| Ok::<_, anyhow::Error>(data_address(&encode_png(p)?))).transpose()?;
        surfaces.push(PageSurface { name: &surface.name, values: &surface.values, picture });
    }
    let flatness: Vec<Flatness> = results.iter().map(|m| m.flatness.clone()).collect();
    let caption = format!(
        "The loss on a {0} x {0} grid of contexts around each prompt (the orange point), along two random directions of length {1}. \
         Flat means: the loss stays low all around.",
        grid.coordinates.len(),
        if args.scale == "per-token" { "equal to each token's norm".to_owned() } else { args.scale.clone() }
    );
    let page = LandscapePage { title: "Landscape", caption: &caption, surfaces, flatness: &flatness };
    write_atomic(&args.out.join("landscape.html"), page.to_html().as_bytes())?;
    let document = serde_json::json!({
        "schema_version": 1, "coordinates": grid.coordinates, "scale": args.scale, "seed": args.seed, "results": results,
    });
    write_atomic(&args.out.join("landscape.json"), serde_json::to_string_pretty(&document)?.as_bytes())?;
    if out.is_json() {
        out.json(&document)?;
    } else {
        out.line(flatness_table(&flatness).to_text())?;
    }
    out.note(format_args!("{}: open landscape.html", args.out.display()));
    Ok(())
}
