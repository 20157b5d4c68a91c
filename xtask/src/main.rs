//! Whatever needs more than cargo. `cargo xtask test` is what must pass before a change lands.

mod bench_peers;
mod check;
mod real;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask TASK

  bench-peers [--python FILE] [--repeats N] [--threads N] [--write]
          flatclip and torch, open_clip, OpenVINO on the same work, turn by turn; --write updates docs/benchmarks.md
  real    FOLDER TOWER_DIR [--views N] [--limit N] [--cache DIR] [--precision f32|bf16]
          a real image tower on real photos, against reference features and labels; a table of adapters; bf16 is compared with f32
  test    format, lints as errors, all tests, documentation: what must pass before a change lands";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("bench-peers") => bench_peers::run(&arguments[1..]),
        Some("real") => real::run(&arguments[1..]),
        Some("test") => check::run(),
        Some(other) => bail!("unknown task `{other}`\n\n{USAGE}"),
        None => bail!("{USAGE}"),
    }
}
