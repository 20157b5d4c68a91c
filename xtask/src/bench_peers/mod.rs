//! `cargo xtask bench-peers`: the same work in flatclip and in its peers, turn by turn in one run, and one table of ratios.

mod environment;
mod groups;
mod page;
mod turns;

use anyhow::{Context as _, Result, bail, ensure};
use groups::{GROUPS, Group, Side};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::time::Duration;
use turns::{Turn, Turns};

/// Between turns: threads of the last side stop spinning.
const PAUSE: Duration = Duration::from_millis(300);

struct Options {
    venv: Option<PathBuf>,
    /// A library for the peers' process, such as one that answers CPUID leaves that a hypervisor hides.
    preload: Option<PathBuf>,
    only: Option<String>,
    repeats: usize,
    threads: usize,
    views: usize,
    write: bool,
}

/// Turns of every side of a group, or why a side could not run.
type Times = Vec<Result<Vec<Turn>, String>>;

/// Runs every comparison and prints the table; `--write` puts it into `docs/benchmarks.md`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let root = crate::root()?;
    let binary = crate::build(root)?;
    let python = environment::python(options.venv.as_deref())?;
    let folder = tempfile::tempdir()?;
    environment::fill(folder.path())?;
    let tiles = flatclip_tensor::isa::detect() == flatclip_tensor::Isa::Amx;
    let mut results = Vec::new();
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
    let versions = Turns::peers(&python, folder.path(), true, None)?.ask("versions")?;
    let page = page::page(&results, &options, arguments, &versions);
    print!("{page}");
    if options.write {
        let file = root.join("docs/benchmarks.md");
        let old = std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(&file, page + page::notes_of(&old))?;
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options =
        Options { venv: None, preload: None, only: None, repeats: 5, threads: 2, views: 64, write: false };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word}: a value is missing"));
        match word.as_str() {
            "--venv" => options.venv = Some(value()?.into()),
            "--preload" => options.preload = Some(value()?.into()),
            "--only" => options.only = Some(value()?.clone()),
            "--repeats" => options.repeats = value()?.parse()?,
            "--threads" => options.threads = value()?.parse()?,
            "--views" => options.views = value()?.parse()?,
            "--quick" => (options.repeats, options.views) = (3, 16),
            "--write" => options.write = true,
            _ => bail!("unknown option `{word}`\n\n{}", crate::USAGE),
        }
    }
    let smallest = options.repeats.min(options.threads).min(options.views);
    ensure!(smallest > 0, "--repeats, --threads and --views: expected at least 1");
    Ok(options)
}

/// Turn by turn: every side once, and again. Each of our sides has a process of its own, the peers share one (or two,
/// where one is left untuned).
fn compare(group: &Group, binary: &Path, python: &Path, folder: &Path, options: &Options) -> Result<Times> {
    let threads = if group.one_thread { 1 } else { options.threads };
    std::fs::write(folder.join("settings.json"), format!(r#"{{"threads": {threads}, "views": {}}}"#, options.views))?;
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
