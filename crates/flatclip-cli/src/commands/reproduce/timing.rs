//! Time and memory of methods for an item that shows them: `flatclip bench`, which measures each in a process of its own.

use crate::inputs::model::PrecisionArg;
use crate::output::Output;
use anyhow::{Context as _, Result, ensure};
use flatclip::Model;
use flatclip_lab::reproduce::{BENCH, ReproduceRequest};
use std::process::{Command, Stdio};

/// The words of the command; `None` for an item that measures nothing.
pub(super) fn words(request: &ReproduceRequest, model: &str) -> Option<Vec<String>> {
    let methods = request.recipe.bench.join(",");
    let views = request.views.unwrap_or(64).to_string();
    let words = ["bench", "--json", "--methods", &methods, "--model", model, "--views", &views];
    (!methods.is_empty()).then(|| words.map(str::to_owned).to_vec())
}

/// Measures what is not there yet.
pub(super) fn measure(request: &ReproduceRequest, model: &Model, precision: PrecisionArg, out: &Output) -> Result<()> {
    let Some(words) = words(request, model.name()) else { return Ok(()) };
    let file = request.out.join(BENCH);
    if file.is_file() {
        return Ok(());
    }
    out.note(format_args!("measuring {} methods, each in a process of its own ...", request.recipe.bench.len()));
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command.args(&words).args(["--precision", precision.precision().name(), "--quiet"]);
    let threads = rayon::current_num_threads().to_string();
    command.args(["--threads", &threads, "--isa", flatclip_tensor::isa::current().name()]);
    let ended = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    ensure!(ended.status.success(), "flatclip {}: ended with {}", words.join(" "), ended.status);
    std::fs::create_dir_all(&request.out).with_context(|| request.out.display().to_string())?;
    Ok(flatclip::files::write_atomic(&file, &ended.stdout)?)
}
