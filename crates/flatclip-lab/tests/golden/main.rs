//! Golden cases: inputs and outputs that the methods' original code computed, one named test per file.
//!
//! The directory is `FLATCLIP_GOLDEN`, or the copies in `fixtures/golden`. A case whose method has no line in
//! `FAMILIES` is listed as `not covered`; once the method is registered in the library, that is an error.
#![allow(clippy::print_stdout, reason = "the largest difference of each case is for people")]
#![allow(unreachable_pub)]

#[path = "cases.rs"]
mod cases;
mod claims;

use cases::case::{self, Case};
use cases::{Check, check_of};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};

fn main() {
    let arguments = Arguments::from_args();
    let directory = match std::env::var_os("FLATCLIP_GOLDEN") {
        Some(directory) => PathBuf::from(directory),
        None => claims::fixtures(),
    };
    let files = case_files(&directory);
    assert!(!files.is_empty(), "{}: no golden cases (*.safetensors, *.json); is the path right?", directory.display());
    println!("{} golden cases in {}", files.len(), directory.display());
    let mut uncovered = Vec::new();
    let claimed = case_files(&claims::fixtures());
    let claims = Trial::test("claims have cases in the clone", move || claims::check(&claimed).map_err(Failed::from));
    let trials = files
        .into_iter()
        .map(|file| {
            let name = case_name(&file);
            let method = case::method_of(&file);
            let check = method.as_ref().ok().and_then(|method| check_of(method));
            match (check, method) {
                (Some(check), _) => Trial::test(name, move || run(&file, check)),
                (None, Ok(method)) => {
                    uncovered.push(format!("{name} ({method})"));
                    Trial::test(format!("{name} not covered"), move || not_covered(&method))
                        .with_ignored_flag(!is_registered(&method_of_file(&file)))
                }
                (None, Err(reason)) => Trial::test(name, move || Err(Failed::from(reason))),
            }
        })
        .chain([claims])
        .collect();
    if !uncovered.is_empty() {
        println!("not covered: {}", uncovered.join(", "));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn case_files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors" || e == "json"))
        .collect();
    files.sort();
    files
}

fn case_name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn method_of_file(file: &Path) -> String {
    case::method_of(file).unwrap_or_default()
}

fn run(file: &Path, check: Check) -> Result<(), Failed> {
    let case = Case::load(file)?;
    println!("{}: {}", case_name(file), check(&case)?.verdict()?);
    Ok(())
}

/// Whether the library claims the method, so that a missing check is a fault.
fn is_registered(method: &str) -> bool {
    flatclip::methods::adapter(method).is_ok() || flatclip_lab::tuners::tuner(method).is_ok()
}

fn not_covered(method: &str) -> Result<(), Failed> {
    Err(Failed::from(format!("method `{method}` is registered but no golden check is; add it to FAMILIES")))
}
