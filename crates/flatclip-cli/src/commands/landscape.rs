//! `flatclip landscape`: loss surfaces around prompts, as numbers, figures and a page to turn around.

use crate::inputs::classes::ClassArgs;
use crate::inputs::model::{Model, ModelArgs};
use crate::inputs::shots::{ShotFeatures, ShotsAsk};
use crate::output::{Exit, Output};
use anyhow::{Context as _, Result, bail, ensure};
use flatclip::files::write_atomic;
use flatclip::image::sheet::encode_png;
use flatclip::image::views::{ViewKey, make_views, thumbnails};
use flatclip::image::{self, DecodeOptions, Picture};
use flatclip::landscape::{Directions, Flatness, Grid, Normalisation, Probe, Surface};
use flatclip::methods::{self, Task, ViewSet};
use flatclip::model::Features;
use flatclip::prompt::Prompt;
use flatclip::report::figure::side_by_side;
use flatclip::report::landscape::{LANDSCAPE_FILE, LandscapeRecord, LandscapeResult, flatness_table, surface_csv};
use flatclip::report::{data_address, landscape_picture};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// What stands below the picture.
    caption: Vec<String>,
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
        let task = Task::from_prompt(prompt, &model.clip, &model.tokenizer, classes.as_slice(), args.seed)?;
        results.extend(measure(&args, &task, name, &mine, normalisation, &grid, out)?);
    }
    save(&args, grid, &panels, results, out)?;
    Ok(Exit::Done)
}

fn prompts(files: &[PathBuf]) -> Result<Vec<(String, Arc<Prompt>)>> {
    if files.is_empty() {
        return Ok(vec![("a photo of a".to_owned(), Arc::new(Prompt::templates(&["a photo of a {}."])?))]);
    }
    files
        .iter()
        .map(|path| {
            let file = crate::inputs::prompt::prompt_file(path)?;
            let name = prompt_name(path);
            Ok((name, Arc::new(Prompt::load(&file)?)))
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
    prompts: &[(String, Arc<Prompt>)],
) -> Result<(Vec<String>, Vec<Panel>)> {
    let ask = ShotsAsk { data: spec, root: args.data_root.clone(), shots: args.shots, seed: args.seed };
    let shots = ShotFeatures::draw(model, &ask)?;
    let panel = |(prompt, (name, _)): (usize, &(String, Arc<Prompt>))| {
        let probe = shots.probe(format!("{name}: cross-entropy, {} images", shots.labels.len()));
        Panel { prompt, probe, picture: None, caption: Vec::new() }
    };
    let panels = prompts.iter().enumerate().map(panel).collect();
    Ok((shots.classes, panels))
}

/// The best selected and the worst rejected view under STSS, for every prompt.
fn view_panels(
    args: &Args,
    file: &Path,
    model: &Model,
    prompts: &[(String, Arc<Prompt>)],
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
        let task = Task::from_prompt(prompt, &model.clip, &model.tokenizer, classes.as_slice(), args.seed)?;
        let mut stss = methods::build_adapter("stss", &Default::default())?.into_episodic()?;
        stss.prepare(&task)?;
        let answer = stss.adapt(&task, &ViewSet { norms: &norms, ..ViewSet::new(&id, &features) })?;
        let why = answer.explanation;
        let worst = (0..views.count).max_by(|&a, &b| why.scores[a].total_cmp(&why.scores[b]));
        let best = why.selected.first().copied();
        for (word, view) in [("selected", best), ("rejected", worst)] {
            let Some(view) = view else { continue };
            let caption = vec![
                format!("{word} (view {view})"),
                format!("says {}", classes[why.predictions[view]]),
                format!("score {:.3}", why.scores[view]),
                format!("entropy {:.3}", why.entropies[view]),
            ];
            let name = format!("{name}: entropy of the {word} view");
            let probe = Probe { name, features: features.select_rows(&[view]), labels: None };
            panels.push(Panel { prompt: index, probe, picture: Some(small[view].clone()), caption });
        }
    }
    Ok((classes, panels))
}

/// Rows of an interrupted run, with what they belong to.
#[derive(Serialize, Deserialize)]
struct Partial {
    settings: String,
    rows: Vec<Vec<Vec<f32>>>,
}

fn measure(
    args: &Args,
    task: &Task,
    name: &str,
    panels: &[&Panel],
    normalisation: Normalisation,
    grid: &Grid,
    out: &Output,
) -> Result<Vec<LandscapeResult>> {
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
    let whole = |((surface, flatness), panel): ((Surface, Flatness), &&Panel)| {
        let png = panel.picture.as_ref().map(encode_png).transpose()?;
        let picture = png.as_deref().map(data_address);
        Ok(LandscapeResult { surface, flatness, picture, caption: panel.caption.clone() })
    };
    surfaces.into_iter().zip(flatness).zip(panels).map(whole).collect()
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

fn save(args: &Args, grid: Grid, panels: &[Panel], results: Vec<LandscapeResult>, out: &Output) -> Result<()> {
    ensure!(panels.len() == results.len(), "{} panels, {} surfaces", panels.len(), results.len());
    let record = LandscapeRecord { schema_version: 1, grid, scale: args.scale.clone(), seed: args.seed, results };
    let figures = record.figures();
    for (result, figure) in record.results.iter().zip(&figures) {
        let base = args.out.join(file_name(&result.surface.name));
        write_atomic(&base.with_extension("csv"), surface_csv(&result.surface, &record.grid).as_bytes())?;
        write_atomic(&base.with_extension("svg"), figure.to_svg().as_bytes())?;
    }
    let views: Vec<Option<Picture>> = panels.iter().map(|panel| panel.picture.clone()).collect();
    write_atomic(&args.out.join("landscape.svg"), side_by_side("Landscape", &figures, 2).as_bytes())?;
    write_atomic(&args.out.join("landscape.png"), &encode_png(&landscape_picture(&record, &views))?)?;
    write_atomic(&args.out.join("landscape.html"), record.page().as_bytes())?;
    write_atomic(&args.out.join(LANDSCAPE_FILE), serde_json::to_string_pretty(&record)?.as_bytes())?;
    if out.is_json() {
        out.json(&record)?;
    } else {
        out.line(flatness_table(&record.flatness()).to_text())?;
    }
    out.note(format_args!(
        "{}: landscape.html to turn around, landscape.png and .svg to show, .csv and .json to compute with",
        args.out.display()
    ));
    Ok(())
}
