//! The checks of golden cases, one module for each family. The Python package is tested with the same checks, on towers that
//! torch computes (`crates/flatclip-py/src/golden.rs`), so nothing here names the root of the crate.
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
pub mod case;
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

use case::{Case, Fallible, Report};

/// A check of one case: recomputes its outputs and compares each with the file.
pub type Check = for<'c> fn(&'c Case) -> Fallible<Report<'c>>;

/// Which check serves which `spec.method`.
#[rustfmt::skip] // one line each
pub const FAMILIES: &[(&str, Check)] = &[
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

/// The check of a method's cases.
pub fn check_of(method: &str) -> Option<Check> {
    FAMILIES.iter().find(|(name, _)| *name == method).map(|(_, check)| *check)
}
