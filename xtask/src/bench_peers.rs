//! `cargo xtask bench-peers`: the same work in flatclip and in its peers, turn by turn in one run, and one table of ratios.
//!
//! The peers live in a virtual environment outside the repository (made on first use), or in one given by `--python`.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = include_str!("../peers/peers.py");
const PACKAGES: [&str; 4] = ["torch", "open_clip_torch", "transformers", "openvino"];

/// One comparison: a case of `flatclip bench` with its arguments, and a peer's piece of work.
struct Pair {
    title: &'static str,
    ours: &'static [&'static str],
    peer: &'static str,
    /// The ratio that the project holds itself to.
    goal: Option<f64>,
}

static PAIRS: &[Pair] = &[
    Pair {
        title: "ViT-B/16, 64 views, f32, against OpenVINO f32",
        ours: &["encode-views", "--precision", "f32"],
        peer: "openvino-views-f32",
        goal: Some(1.0),
    },
    Pair {
        title: "ViT-B/16, 64 views, f32, against torch f32",
        ours: &["encode-views", "--precision", "f32"],
        peer: "torch-views-f32",
        goal: Some(1.5),
    },
    Pair {
        title: "context step, K=100, against open_clip f32 at 77 positions",
        ours: &["context-step", "--classes", "100"],
        peer: "open_clip-step-100",
        goal: Some(40.0),
    },
    Pair {
        title: "context step, K=100, against torch f32 with a shared prefix",
        ours: &["context-step", "--classes", "100"],
        peer: "shared-step-100",
        goal: None,
    },
    Pair {
        title: "context step, K=1000, against torch f32 with a shared prefix",
        ours: &["context-step", "--classes", "1000"],
        peer: "shared-step-1000",
        goal: Some(1.5),
    },
];

/// Only where tiles work, since elsewhere bf16 is f32 arithmetic on rounded numbers.
static TILE_PAIRS: &[Pair] = &[
    Pair {
        title: "ViT-B/16, 64 views, bf16, against OpenVINO bf16",
        ours: &["encode-views", "--precision", "bf16"],
        peer: "openvino-views-bf16",
        goal: Some(1.5),
    },
    Pair {
        title: "ViT-B/16, 64 views, bf16, against torch bf16",
        ours: &["encode-views", "--precision", "bf16"],
        peer: "torch-views-bf16",
        goal: Some(1.8),
    },
];

struct Options {
    python: Option<PathBuf>,
    repeats: usize,
    threads: usize,
    write: bool,
}

/// Seconds of both sides, turn by turn.
struct Comparison {
    title: &'static str,
    goal: Option<f64>,
    ours: Vec<f64>,
    peer: Vec<f64>,
    failed: Option<String>,
}

/// Runs every comparison and prints the table; `--write` puts it into `docs/benchmarks.md`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let built = Command::new("cargo").args(["build", "--release", "-p", "flatclip-cli"]).current_dir(root).status()?;
    ensure!(built.success(), "flatclip does not build");
    let binary = crate::target_dir(root)?.join("release/flatclip");
    let python = match &options.python {
        Some(python) => python.clone(),
        None => make_environment()?,
    };
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("tokens.json"), tokens())?;
    let mut peers = Peers::start(&python, folder.path(), options.threads)?;
    let tiles: &[Pair] = if flatclip_tensor::isa::detect() == flatclip_tensor::Isa::Amx { TILE_PAIRS } else { &[] };
    let results: Vec<Comparison> =
        PAIRS.iter().chain(tiles).map(|pair| compare(pair, &binary, &mut peers, &options)).collect::<Result<_>>()?;
    let page = page(&results, &options);
    write!(std::io::stdout().lock(), "{page}")?;
    if options.write {
        std::fs::write(root.join("docs/benchmarks.md"), page)?;
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { python: None, repeats: 5, threads: 2, write: false };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word}: a value is missing"));
        match word.as_str() {
            "--python" => options.python = Some(value()?.into()),
            "--repeats" => options.repeats = value()?.parse()?,
            "--threads" => options.threads = value()?.parse()?,
            "--write" => options.write = true,
            _ => bail!("unknown option `{word}`; known are --python FILE, --repeats N, --threads N, --write"),
        }
    }
    ensure!(options.repeats > 0 && options.threads > 0, "--repeats and --threads: expected at least 1");
    Ok(options)
}

/// A virtual environment with the peers, outside the repository.
fn make_environment() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let folder = cache.context("neither XDG_CACHE_HOME nor HOME is set; give --python FILE")?.join("flatclip-peers");
    let python = folder.join("bin/python");
    if !python.exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status()?;
        ensure!(made.success(), "python3 -m venv {} failed", folder.display());
    }
    let probe = "import torch, open_clip, transformers, openvino";
    if !Command::new(&python).args(["-c", probe]).stderr(Stdio::null()).status()?.success() {
        let installed = Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES).status()?;
        ensure!(installed.success(), "pip could not install {}", PACKAGES.join(", "));
    }
    Ok(python)
}

/// What stands behind the context for every ImageNet name: name, full stop, end.
fn tokens() -> String {
    let tokenizer = flatclip::text::Tokenizer::clip();
    let tail = |name: &&str| {
        let mut ids = tokenizer.encode(name);
        ids.extend(tokenizer.encode("."));
        ids.push(tokenizer.eot());
        ids
    };
    let tails: Vec<Vec<u32>> = flatclip::text::imagenet::CLASS_NAMES.iter().map(tail).collect();
    Value::from(tails.into_iter().map(Value::from).collect::<Vec<_>>()).to_string()
}

/// The peers' process.
struct Peers {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peers {
    fn start(python: &Path, folder: &Path, threads: usize) -> Result<Self> {
        let script = folder.join("peers.py");
        std::fs::write(&script, SCRIPT)?;
        let mut process = Command::new(python)
            .arg(&script)
            .env("PEER_THREADS", threads.to_string())
            .env("PEER_TOKENS", folder.join("tokens.json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", python.display()))?;
        let ask = process.stdin.take().context("the pipe was asked for")?;
        let answers = BufReader::new(process.stdout.take().context("the pipe was asked for")?);
        Ok(Self { process, ask, answers })
    }

    /// Seconds of one run, or why there is none.
    fn run(&mut self, work: &str) -> Result<Result<f64, String>> {
        writeln!(self.ask, "{work}")?;
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "the peers' process ended while running {work}");
        let answer: Value = serde_json::from_str(&line)?;
        let error = || answer["error"].as_str().unwrap_or("no seconds in the answer").to_owned();
        Ok(answer["seconds"].as_f64().ok_or_else(error))
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Turn by turn: ours, theirs, ours, theirs.
fn compare(pair: &Pair, binary: &Path, peers: &mut Peers, options: &Options) -> Result<Comparison> {
    writeln!(std::io::stderr().lock(), "{} ...", pair.title)?;
    let mut result = Comparison { title: pair.title, goal: pair.goal, ours: vec![], peer: vec![], failed: None };
    for _ in 0..options.repeats {
        result.ours.push(ours(pair, binary, options.threads)?);
        match peers.run(pair.peer)? {
            Ok(seconds) => result.peer.push(seconds),
            Err(reason) => {
                result.failed = Some(reason);
                break;
            }
        }
    }
    Ok(result)
}

fn ours(pair: &Pair, binary: &Path, threads: usize) -> Result<f64> {
    let output = Command::new(binary)
        .args(["bench", "--json", "--quiet", "--repeats", "1", "--threads", &threads.to_string()])
        .args(pair.ours)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "flatclip bench {} failed", pair.ours.join(" "));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    report["cases"].as_array().and_then(|cases| cases.last()?["median"].as_f64()).context("no case in the report")
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0
}

fn fastest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

fn page(results: &[Comparison], options: &Options) -> String {
    let mut page = format!(
        "# Benchmarks\n\nflatclip and its peers on the same machine in the same run, turn by turn, {} threads, random weights of \
         the real shapes. Seconds are medians over {} turns (fastest in brackets); a ratio above 1 means that flatclip is \
         faster. Made by `cargo xtask bench-peers --write` on {}.\n\n{}, {}.\n\n",
        options.threads,
        options.repeats,
        output_of("date", &["-u", "+%Y-%m-%d"]),
        cpu(),
        load(),
    );
    page += "| work | flatclip s | peer s | ratio of medians (of fastest) | goal |\n|---|---|---|---|---|\n";
    for r in results {
        let goal = r.goal.map_or(String::new(), |goal| format!("{goal}"));
        if let Some(reason) = &r.failed {
            page += &format!("| {} | {:.3} | could not run: {reason} | | {goal} |\n", r.title, median(&r.ours));
            continue;
        }
        let (ours, peer) = (median(&r.ours), median(&r.peer));
        let (ours_best, peer_best) = (fastest(&r.ours), fastest(&r.peer));
        page += &format!(
            "| {} | {ours:.3} ({ours_best:.3}) | {peer:.3} ({peer_best:.3}) | {:.2} ({:.2}) | {goal} |\n",
            r.title,
            peer / ours,
            peer_best / ours_best
        );
    }
    page
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    format!("{}, kernels for {}", name.unwrap_or("unknown CPU"), flatclip_tensor::isa::detect())
}

/// A busy machine spoils numbers: say how busy it was.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minutes = load.split_whitespace().nth(1).unwrap_or("unknown").to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, load average at the end {minutes}")
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
