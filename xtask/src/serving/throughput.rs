//! Images per second and p99, against what `flatclip bench` says of the tower and against a server as users write it.

use super::http::{get, post_form};
use super::load::{Outcome, Until, run as load};
use super::running::Running;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds of each measurement
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Clients at once
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// A Python with open_clip, FastAPI and uvicorn; by default an environment is made in the user's cache
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Leave the FastAPI server out
    #[arg(long)]
    no_peer: bool,
    /// Print only, do not write docs/guide/serving-measured.md
    #[arg(long)]
    no_page: bool,
}

const PACKAGES: [&str; 5] = ["open_clip_torch", "fastapi", "uvicorn", "python-multipart", "pillow"];
const PAGE: &str = "docs/guide/serving-measured.md";
const VIEWS: usize = 64;

/// A row of the table.
struct Row {
    model: String,
    what: String,
    outcome: Outcome,
    beside: String,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let root = crate::root()?;
    let binary = crate::build(root)?;
    let folder = tempfile::tempdir()?;
    let python = match (&arguments.python, arguments.no_peer) {
        (_, true) => None,
        (Some(python), _) => Some(python.clone()),
        (None, _) => Some(crate::tools::python("fastapi", &PACKAGES)?),
    };
    let small = root.join("crates/flatclip-pocket/models/pocket-vit/config.json");
    let mut rows = Vec::new();
    for (model, peer) in [("pocket-vit", small.display().to_string()), ("random:ViT-B-32", "ViT-B-32".to_owned())] {
        rows.extend(measure(arguments, &binary, folder.path(), model)?);
        let Some(python) = &python else { continue };
        let fastapi = Peer::start(python, root, &peer)?;
        let outcome = measured(arguments, fastapi.address, "zero-shot", 1)?;
        let ours =
            rows.iter().rev().find(|row| row.model == model && row.what.starts_with("1 view")).context("no row")?;
        let beside = format!(
            "flatclip does {:.1} times as many, at {:.2} of its p99",
            ours.outcome.per_second() / outcome.per_second(),
            ours.outcome.quantile(0.99) / outcome.quantile(0.99)
        );
        rows.push(Row { model: model.to_owned(), what: "1 view, FastAPI + open_clip".to_owned(), outcome, beside });
    }
    let table = table(&rows);
    println!("{table}");
    if !arguments.no_page {
        std::fs::write(root.join(PAGE), page(&table, arguments))?;
    }
    Ok(())
}

fn request(method: &str, views: usize) -> Result<Vec<u8>> {
    let rgb = (0..500 * 375 * 3u32).map(|place| (place / 1500 % 255) as u8 ^ (place % 77) as u8).collect();
    let png = flatclip::image::sheet::encode_png(&flatclip::Image { width: 500, height: 375, rgb })?;
    let views = views.to_string();
    let fields =
        [("classes", "fish,lamp,snail,boat,clock,bicycle,butterfly,airplane"), ("method", method), ("views", &views)];
    Ok(post_form("/v1/classify", &fields, &[&png]))
}

/// The load of `seconds`, or of what it takes to answer every client four times if that is longer.
fn measured(arguments: &Arguments, address: SocketAddr, method: &str, views: usize) -> Result<Outcome> {
    let requests = [request(method, views)?];
    let first = load(address, arguments.clients, Until::Seconds(arguments.seconds / 10.0), None, &requests)?;
    ensure!(first.count(200) > 0, "nothing was answered: {:?}", first.statuses);
    let seconds = arguments.seconds.max(4.0 * arguments.clients as f64 / first.per_second());
    let outcome = load(address, arguments.clients, Until::Seconds(seconds), None, &requests)?;
    ensure!(outcome.count(200) > 0 && outcome.statuses.len() == 1, "{:?}", outcome.statuses);
    Ok(outcome)
}

fn measure(arguments: &Arguments, binary: &Path, folder: &Path, model: &str) -> Result<Vec<Row>> {
    // Before and after: a machine drifts.
    let bench = || -> Result<f64> {
        let output = Command::new(binary)
            .args([
                "bench",
                "encode-views",
                "views",
                "--model",
                model,
                "--views",
                &VIEWS.to_string(),
                "--json",
                "--quiet",
            ])
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout)?;
        let of = |name: &str| {
            let case = json["cases"]
                .as_array()?
                .iter()
                .find(|case| case["case"].as_str().is_some_and(|text| text.starts_with(name)))?;
            case["median"].as_f64()
        };
        of("encode-views").context("no case encode-views")
    };
    let before = bench()?;
    // Sixteen images of 64 views wait longer for a large tower than the usual deadline allows.
    let config = folder.join("serve.toml");
    std::fs::write(&config, "[limits]\ndeadline_ms = 300000\n")?;
    let server = Running::start(binary, folder, &["--config", &config.display().to_string(), "--model", model])?;
    let many = measured(arguments, server.address, "zero", VIEWS)?;
    let one = measured(arguments, server.address, "zero-shot", 1)?;
    drop(server);
    let tower = 1.0 / ((before + bench()?) / 2.0);
    let share = many.per_second() / tower;
    let row = |what: String, outcome, beside| Row { model: model.to_owned(), what, outcome, beside };
    Ok(vec![
        row(format!("{VIEWS} views"), many, format!("{share:.2} of the tower alone, which does {tower:.1} per second")),
        row("1 view".to_owned(), one, String::new()),
    ])
}

fn table(rows: &[Row]) -> String {
    let mut text =
        String::from("| model | per image | images/s | p50 ms | p99 ms | beside it |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let (p50, p99) = (row.outcome.quantile(0.5), row.outcome.quantile(0.99));
        text += &format!(
            "| {} | {} | {:.1} | {p50:.1} | {p99:.1} | {} |\n",
            row.model,
            row.what,
            row.outcome.per_second(),
            row.beside
        );
    }
    text
}

fn page(table: &str, arguments: &Arguments) -> String {
    let clients = arguments.clients;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "# Serving, measured\n\nWritten by `cargo xtask serving throughput` ({clients} clients, at least {} s each, PNG of 500 x 375, {cores} \
         cores; the\nclients run on the same machine).\n\n{table}\n\"The tower alone\" is `flatclip bench encode-views`: no decoding, no \
         making of views, no HTTP.\n",
        arguments.seconds
    )
}

/// The other server.
struct Peer {
    child: Child,
    address: SocketAddr,
}

impl Peer {
    fn start(python: &Path, root: &Path, model: &str) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let child = Command::new(python)
            .arg(root.join("tools/checks/fastapi_server.py"))
            .args([port.to_string(), threads.to_string(), model.to_owned()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let peer = Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)) };
        let start = Instant::now();
        while get(peer.address, "/healthz").map_or(0, |answer| answer.status) != 200 {
            ensure!(start.elapsed() < Duration::from_secs(180), "the FastAPI server does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
