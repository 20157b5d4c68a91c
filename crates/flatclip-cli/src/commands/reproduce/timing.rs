//! Time and memory of methods for an item that shows them: `flatclip bench`, which measures each in a process of its own.

use crate::commands::bench::itself;
use crate::prelude::*;
use flatclip::Model;
use flatclip::model::Precision;
use flatclip_lab::reproduce::{BENCH, ReproduceRequest};
use std::process::Stdio;

/// The words of the command; `None` for an item that measures nothing.
pub(super) fn words(request: &ReproduceRequest, model: &str) -> Option<Vec<String>> {
    let methods = request.recipe.bench.join(",");
    let views = request.views.unwrap_or(64).to_string();
    let words = ["bench", "--json", "--methods", &methods, "--model", model, "--views", &views];
    (!methods.is_empty()).then(|| words.map(str::to_owned).to_vec())
}

pub(super) fn measure(request: &ReproduceRequest, model: &Model, precision: Precision, out: &Output) -> Result<()> {
    let (file, words) = (request.out.join(BENCH), words(request, model.name()));
    let Some(words) = words.filter(|_| !file.is_file()) else { return Ok(()) };
    out.note(format_args!("measuring {} methods, each in a process of its own ...", request.recipe.bench.len()));
    let mut command = itself()?;
    command.args(&words).args(["--precision", precision.name()]);
    let ended = command.stderr(Stdio::inherit()).output()?;
    ensure!(ended.status.success(), "flatclip {}: ended with {}", words.join(" "), ended.status);
    std::fs::create_dir_all(&request.out).with_context(|| request.out.display().to_string())?;
    Ok(flatclip::files::write_atomic(&file, &ended.stdout)?)
}
