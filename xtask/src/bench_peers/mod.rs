//! `cargo xtask bench-peers`: the same work in flatclip and in its peers, turn by turn in one run, and one table of ratios.

mod environment;
mod groups;
mod page;
mod start;
mod turns;

use anyhow::{Result, ensure};
use groups::{GROUPS, Group, Side};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use turns::{Turn, Turns};

/// Between turns: threads of the last side stop spinning.
const PAUSE: Duration = Duration::from_millis(300);

/// Photos over which the peers' features are compared with f32.
const PHOTOS: usize = 200;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Three turns of 16 views, where --repeats and --views do not say otherwise
    #[arg(long)]
    quick: bool,
    /// Virtual environment of the peers, made when it is not there [default: flatclip-peers in the cache folder of this user]
    #[arg(long, value_name = "FOLDER")]
    venv: Option<PathBuf>,
    /// Run only groups with TEXT in their names
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Turns that count [default: 5]
    #[arg(long, value_name = "N")]
    repeats: Option<NonZeroUsize>,
    /// Threads of both sides
    #[arg(long, value_name = "N", default_value = "2")]
    threads: NonZeroUsize,
    /// Views per image [default: 64]
    #[arg(long, value_name = "N")]
    views: Option<NonZeroUsize>,
    /// A library for the peers' process, such as one that answers CPUID leaves that a hypervisor hides
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
    /// A real image tower (a directory in Hugging Face's layout) for the peers' ViT-B/16 rows, with --photos: the page then says
    /// how far their features are from f32
    #[arg(long, value_name = "FOLDER", requires = "photos")]
    tower: Option<PathBuf>,
    /// Photos for the tower
    #[arg(long, value_name = "FOLDER", requires = "tower")]
    photos: Option<PathBuf>,
    /// Also time a clean build of the command line, and the start of a program to its first answer
    #[arg(long)]
    start: bool,
    /// Put the table into docs/benchmarks.md
    #[arg(long)]
    write: bool,
}

impl Arguments {
    fn options(self) -> Options {
        let (repeats, views) = if self.quick { (3, 16) } else { (5, 64) };
        Options {
            venv: self.venv,
            preload: self.preload,
            only: self.only,
            repeats: self.repeats.map_or(repeats, NonZeroUsize::get),
            threads: self.threads.get(),
            views: self.views.map_or(views, NonZeroUsize::get),
            real: self.tower.zip(self.photos),
            start: self.start,
            write: self.write,
        }
    }
}

/// The arguments with their defaults.
struct Options {
    venv: Option<PathBuf>,
    preload: Option<PathBuf>,
    only: Option<String>,
    repeats: usize,
    threads: usize,
    views: usize,
    /// Tower and photos.
    real: Option<(PathBuf, PathBuf)>,
    start: bool,
    write: bool,
}

/// Turns of every side of a group, or why a side could not run.
type Times = Vec<Result<Vec<Turn>, String>>;

/// Runs every comparison and prints the table; `--write` puts it into `docs/benchmarks.md`.
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let options = arguments.options();
    let root = crate::root()?;
    let binary = crate::build(root)?;
    let python = environment::python(options.venv.as_deref())?;
    let folder = tempfile::tempdir()?;
    environment::fill(folder.path())?;
    let tiles = flatclip_tensor::isa::detect() == flatclip_tensor::Isa::Amx;
    let (mut results, mut notes) = (Vec::new(), Vec::new());
    for group in GROUPS.iter().filter(|group| options.only.as_ref().is_none_or(|only| group.name.contains(only))) {
        let times = if group.tiles && !tiles {
            None
        } else {
            eprintln!("{} ...", group.name);
            Some(compare(group, &binary, &python, folder.path(), &options)?)
        };
        results.push((group, times));
    }
    ensure!(!results.is_empty(), "--only: no group has this in its name");
    if options.real.is_some() {
        notes.push(cosines(&python, folder.path(), &options)?);
    }
    if options.start {
        notes.push(start::rows(root, &binary, folder.path())?);
    }
    let versions = Turns::peers(&python, folder.path(), true, None)?.ask("versions")?;
    let words: Vec<String> = std::env::args().skip(2).collect();
    let page = page::page(&results, &options, &words, &versions) + &notes.concat();
    print!("{page}");
    if options.write {
        let file = root.join("docs/benchmarks.md");
        let old = std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(&file, page + page::notes_of(&old))?;
    }
    Ok(())
}

/// What the peers are told.
fn write_settings(folder: &Path, threads: usize, views: usize, options: &Options) -> Result<()> {
    let mut settings = serde_json::json!({ "threads": threads, "views": views });
    if let Some((tower, photos)) = &options.real {
        settings["tower"] = serde_json::json!(std::path::absolute(tower)?);
        settings["photos"] = serde_json::json!(std::path::absolute(photos)?);
    }
    Ok(std::fs::write(folder.join("settings.json"), settings.to_string())?)
}

/// How far the peers' features are from torch's in f32 on the real tower: some are fast and wrong.
fn cosines(python: &Path, folder: &Path, options: &Options) -> Result<String> {
    write_settings(folder, options.threads, PHOTOS, options)?;
    let mut peers = Turns::peers(python, folder, true, None)?;
    let mut table =
        format!("\n| peer, {PHOTOS} photos on a real ViT-B/16 image tower | lowest cosine to torch f32 |\n|---|---|\n");
    for name in ["openvino-views-f32", "onnx-views-f32", "openvino-views-int8", "onnx-views-int8"] {
        let answer = peers.ask(&format!("cosine {name}"))?;
        let shown = answer["cosine"].as_f64().map_or_else(|| answer["error"].to_string(), |cos| format!("{cos:.6}"));
        table += &format!("| {name} | {shown} |\n");
    }
    Ok(table)
}

/// Turn by turn: every side once, and again. Each of our sides has a process of its own, the peers share one (or two,
/// where one is left untuned).
fn compare(group: &Group, binary: &Path, python: &Path, folder: &Path, options: &Options) -> Result<Times> {
    let threads = if group.one_thread { 1 } else { options.threads };
    write_settings(folder, threads, options.views, options)?;
    // Their process makes the photo that both sides read: it has, when it answers.
    let mut tuned = Turns::peers(python, folder, true, options.preload.as_deref())?;
    tuned.ask("versions")?;
    let mut peers = BTreeMap::from([(true, tuned)]);
    let mut processes: BTreeMap<usize, Turns> = BTreeMap::new();
    let mut times: Times = vec![Ok(Vec::new()); group.sides.len()];
    let (threads, views) = (threads.to_string(), options.views.to_string());
    // One turn more than counts: the first loads and warms up.
    for turn in 0..=options.repeats {
        for (index, side) in group.sides.iter().enumerate() {
            let Ok(done) = &mut times[index] else { continue };
            let answer = match side {
                Side::Ours { arguments, skip } => {
                    let process = match processes.entry(index) {
                        Entry::Occupied(entry) => entry.into_mut(),
                        Entry::Vacant(entry) => {
                            // What a group fixes itself comes later, and wins.
                            let fixed = ["--threads", &threads, "--views", &views];
                            let fixed = &fixed[..if arguments.contains(&"--views") { 2 } else { 4 }];
                            entry.insert(Turns::ours(binary, folder, &[fixed, arguments].concat(), *skip)?)
                        }
                    };
                    process.run("run")?
                }
                Side::Peer(name) | Side::Untuned(name) => {
                    let tuned = matches!(side, Side::Peer(_));
                    if let Entry::Vacant(entry) = peers.entry(tuned) {
                        entry.insert(Turns::peers(python, folder, tuned, options.preload.as_deref())?);
                    }
                    match peers.get_mut(&tuned).map(|process| process.run(name)) {
                        Some(Ok(answer)) => answer,
                        // A peer that dies (say, of an instruction that a hypervisor forbids) is a row, not the end.
                        Some(Err(error)) => {
                            peers.remove(&tuned);
                            Err(error.to_string())
                        }
                        None => Err("it was not started".to_owned()),
                    }
                }
            };
            match answer {
                Ok(run) if turn > 0 => done.push(run),
                Ok(_) => {}
                Err(reason) => times[index] = Err(reason),
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(times)
}
