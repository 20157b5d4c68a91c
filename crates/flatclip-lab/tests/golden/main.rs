//! Golden cases: inputs and outputs that the methods' original code computed, one named test per file.
//!
//! The directory is `FLATCLIP_GOLDEN`, or the copies in `fixtures/golden`. A case whose method has no line in
//! [`FAMILIES`] is listed as `not covered`; once the method is registered in the library, that is an error.
#![allow(clippy::print_stdout, reason = "the largest difference of each case is for people")]
// Families are modules of one binary: `pub` between them is as far as it goes.
#![allow(unreachable_pub)]

mod adapt;
mod adte;
mod augmix;
mod awt;
mod backbone;
mod bca;
mod boostadapter;
mod c_tpt;
mod case;
mod claims;
mod clip;
mod cocoop;
mod coop;
mod difftpt;
mod dlae;
mod dmn;
mod dota;
mod dpe;
mod ecalp;
mod ece;
mod gda_clip;
mod inputs;
mod landscape;
mod maple;
mod mcp;
mod mta;
mod oga;
mod onzeta;
mod preprocess;
mod promptalign;
mod r_tpt;
mod sar;
mod se;
mod stss;
mod tda;
mod tip_adapter;
mod tokenizer;
mod tps;
mod tpt;
mod transductive;
mod vte;
mod zero;

use case::{Case, Report};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};

/// A check of one case: recomputes its outputs and compares each with the file.
type Check = fn(&Case) -> Result<Report, String>;

/// Which check serves which `spec.method`.
#[rustfmt::skip] // one line each
const FAMILIES: &[(&str, Check)] = &[
    ("backbone-logits", backbone::run),
    ("clip-image", clip::run),
    ("clip-logits", clip::run),
    ("clip-text", clip::run),
    ("cocoop", cocoop::run),
    ("coop", coop::coop),
    ("coop-siglip", backbone::coop),
    ("ece", ece::run),
    ("maple", maple::run),
    ("sapt", coop::sapt),
    ("tip-adapter", tip_adapter::run),
    ("tokenizer", tokenizer::run),
    ("tokenizer-siglip", tokenizer::sentencepiece),
    ("tokenizer-siglip2", tokenizer::sentencepiece),
    ("preprocess-clip", preprocess::clip),
    ("preprocess-rrc", preprocess::crops),
    ("preprocess-v2", preprocess::of_models),
    ("preprocess-jpegdecode", preprocess::jpeg),
    ("augmix-ops", augmix::operations),
    ("augmix-mix", augmix::mixing),
    ("landscape", landscape::run),
    ("c-tpt", c_tpt::run),
    ("dpe", dpe::run),
    ("fga-stss", stss::run),
    ("fga-stss-siglip", stss::run),
    ("mta", mta::pixels),
    ("promptalign", promptalign::run),
    ("sar", sar::run),
    ("sar-bn", sar::run),
    ("mta-features", mta::features),
    ("tda", tda::run),
    ("tpt", tpt::run),
    ("tpt-cocoop", tpt::run),
    ("zero", zero::pixels),
    ("zero-features", zero::features),
    ("adapt", adapt::run),
    ("adte", adte::run),
    ("awt", awt::run),
    ("bca", bca::run),
    ("boostadapter", boostadapter::run),
    ("difftpt", difftpt::run),
    ("dlae", dlae::run),
    ("dmn", dmn::run),
    ("dota", dota::run),
    ("ecalp", ecalp::run),
    ("gda-clip", gda_clip::run),
    ("mcp", mcp::run),
    ("oga", oga::run),
    ("onzeta", onzeta::run),
    ("r-tpt", r_tpt::run),
    ("se", se::run),
    ("stata", transductive::stata),
    ("tps", tps::run),
    ("transclip", transductive::transclip),
    ("vte", vte::run),
    ("zeroshot-siglip", backbone::zero_shot),
];

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
            let check = method.as_ref().ok().and_then(|m| FAMILIES.iter().find(|(name, _)| name == m));
            match (check, method) {
                (Some(&(_, check)), _) => Trial::test(name, move || run(&file, check)),
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
    let report = check(&case)?;
    println!("{}: {}", case_name(file), report.summary());
    report.verdict().map_err(Failed::from)
}

/// Whether the library claims the method, so that a missing check is a fault.
fn is_registered(method: &str) -> bool {
    flatclip::methods::adapter(method).is_ok() || flatclip_lab::tuners::tuner(method).is_ok()
}

fn not_covered(method: &str) -> Result<(), Failed> {
    Err(Failed::from(format!("method `{method}` is registered but no golden check is; add it to FAMILIES")))
}
