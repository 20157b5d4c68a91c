//! `cargo xtask fault`: attacks on the readers and on the binary, counted. Each test runs in a process of its own, so that a
//! crash, a hang or a peak of memory belongs to one test and to one named case; a JSON line per test goes to stdout, and
//! `docs/robustness.md` is written from all lines, of this run and of earlier ones.

mod anchors;
mod bad_input;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod crash;
mod determinism;
mod disk;
mod diverge;
mod folders;
mod fuzz;
mod hub;
mod kill;
mod mutate;
mod page;
mod planted;
mod program;
mod ray;
mod readers;
mod replaced;
mod row;
mod server;
mod supervise;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod trace;
mod trial;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use std::path::PathBuf;

pub(crate) use row::Row;
pub(crate) use trial::Trial;

/// What is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Every suite below but fuzz and anchors
    All,
    /// Damaged and crafted files, odd arguments
    BadInput,
    /// Hard kills, signals, damaged checkpoints, two processes at once
    Kill,
    /// Full disks and short memory
    Disk,
    /// Threads, shards, instructions, locales
    Determinism,
    /// Downloads from a hub that behaves badly
    Hub,
    /// Ten minutes of new damage for each group of readers; not part of `all`
    Fuzz,
    /// The same attacks on other programs, for comparison; not part of `all`
    Anchors,
    /// Crowds, lies, faults and the end of a server
    Server,
    /// Faults planted in the harness itself: it must find them
    #[value(hide = true)]
    Planted,
}

/// One test: what is done, when it passes, and the function that does it.
pub(crate) struct Test {
    /// Short and stable: rows of the page are merged by it.
    pub name: &'static str,
    pub suite: Suite,
    pub what: &'static str,
    pub rule: &'static str,
    /// Seconds after which one case counts as a hang.
    pub patience: u64,
    /// Reports each case to the trial; an error is a fault of the test itself.
    pub run: fn(&mut Trial) -> Result<()>,
}

/// Every test. A suite is a module with a `TESTS`.
fn tests() -> impl Iterator<Item = &'static Test> {
    [
        bad_input::TESTS,
        kill::TESTS,
        crashes(),
        diverge::TESTS,
        ray::TESTS,
        replaced::TESTS,
        disk::TESTS,
        determinism::TESTS,
        hub::TESTS,
        fuzz::TESTS,
        anchors::TESTS,
        server::TESTS,
        planted::TESTS,
    ]
    .into_iter()
    .flatten()
}

/// Watching a program's calls is written for one system.
fn crashes() -> &'static [Test] {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return crash::TESTS;
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    return &[];
}

#[derive(clap::Args)]
pub struct Arguments {
    /// Which tests
    #[arg(value_enum, default_value = "all")]
    suite: Suite,
    /// Of the full counts, this part is tried (at least one case of each kind)
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Only these tests, by name
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Do not write docs/robustness.md
    #[arg(long)]
    no_page: bool,
    /// Run nothing: put the lines that a run printed into docs/robustness.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_page", "binary", "only"])]
    rows: Option<PathBuf>,
    /// The binary to attack, instead of building it
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Run one test in this process and report to the one that started it
    #[arg(long, hide = true)]
    worker: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.scale > 0.0 && arguments.scale <= 100.0, "--scale: expected a number in (0, 100]");
    if let Some(name) = &arguments.worker {
        let test = tests().find(|test| test.name == name).with_context(|| format!("no test {name}"))?;
        return trial::work(test, arguments.scale, arguments.binary.clone().unwrap_or_default());
    }
    let root = crate::root()?;
    if let Some(file) = &arguments.rows {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        return text.lines().try_for_each(|line| page::merge(root, &Row::parse(line)?));
    }
    let chosen = choose(arguments)?;
    let binary = match &arguments.binary {
        Some(binary) => binary.clone(),
        None if arguments.suite == Suite::Planted => PathBuf::new(),
        None => crate::build(root)?,
    };
    let mut rows = Vec::new();
    for test in chosen {
        let row = supervise::run(test, arguments.scale, &binary)?;
        println!("{}", row.line());
        eprintln!("{}", row.sentence());
        if !arguments.no_page && test.suite != Suite::Planted {
            page::merge(root, &row)?;
        }
        rows.push(row);
    }
    let names = |which: fn(&&Row) -> bool| rows.iter().filter(which).map(|row| row.test.as_str()).collect::<Vec<_>>();
    let skipped = names(|row| row.is_skipped());
    if !skipped.is_empty() {
        eprintln!("{} of {} tests were skipped: {}", skipped.len(), rows.len(), skipped.join(", "));
    }
    let failed = names(|row| !row.is_good() && !row.is_skipped());
    if !failed.is_empty() {
        bail!("{} of {} tests failed: {}", failed.len(), rows.len(), failed.join(", "));
    }
    Ok(())
}

/// The part of it that stands in `cargo xtask test`.
pub fn quick(binary: PathBuf) -> Result<()> {
    // The server has quick tests of its own; its loads take minutes at any scale.
    let apart = [Suite::Planted, Suite::Fuzz, Suite::Anchors, Suite::Server];
    let only = tests().filter(|test| !apart.contains(&test.suite)).map(|test| test.name.to_owned()).collect();
    let (binary, worker, rows) = (Some(binary), None, None);
    run(&Arguments { suite: Suite::All, scale: QUICK, only, no_page: true, rows, binary, worker })
}

/// Of the full counts.
const QUICK: f64 = 0.1;

fn choose(arguments: &Arguments) -> Result<Vec<&'static Test>> {
    if let Some(unknown) = arguments.only.iter().find(|name| tests().all(|test| test.name != name.as_str())) {
        let names: Vec<&str> = tests().map(|test| test.name).collect();
        bail!("--only: no test is called {unknown:?}; there are {}", names.join(", "));
    }
    let in_suite = |test: &&Test| match arguments.suite {
        Suite::All => ![Suite::Planted, Suite::Fuzz, Suite::Anchors].contains(&test.suite),
        suite => test.suite == suite,
    };
    let named = |test: &&Test| arguments.only.is_empty() || arguments.only.iter().any(|name| name == test.name);
    Ok(tests().filter(in_suite).filter(named).collect())
}
