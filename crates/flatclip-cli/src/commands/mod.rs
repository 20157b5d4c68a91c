//! One file per verb.

mod analyze;
mod bench;
mod cache;
mod completions;
mod config;
mod convert;
mod data;
mod demo;
mod embed;
mod eval;
mod landscape;
mod manual;
mod methods;
mod methods_page;
mod models;
mod pocket;
mod predict;
mod prompt;
mod report;
mod reproduce;
mod schema;
#[cfg(feature = "serve")]
mod serve;
mod stats;
mod sweep;
mod tune;
mod version;

use crate::output::{Exit, Output};
use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// What the theory says of sharpness scores, measured on a nearer and a farther data set
    Analyze(analyze::Args),
    /// Time every stage on this machine: GFLOP/s, share of the measured product rate, peak memory
    Bench(bench::Args),
    /// Manage the feature cache: list, export and remove entries
    Cache(cache::Args),
    /// What a shell completes: bash, zsh, fish, elvish or powershell
    Completions(completions::Args),
    /// Every option of the adapters with its default; or what a run was asked for
    Config(config::Args),
    /// Write a checkpoint in canonical form: one safetensors file with OpenAI's tensor names
    Convert(convert::Args),
    /// What data sets are on disk, whether they are whole, what to do about the rest
    Data(data::Args),
    /// The whole idea on the embedded model and the drawn world, from nothing to a report
    Demo(demo::Args),
    /// Features of images or texts
    Embed(embed::Args),
    /// Measure adapters on data sets; every run is a directory that can be resumed, sharded and reported
    Eval(eval::Args),
    /// Loss surfaces around a prompt: of a few-shot set, or of single views of an image
    Landscape(landscape::Args),
    /// Manual pages, one for each command
    Man(manual::Args),
    /// Which models are known, which are on disk; or what a checkpoint is
    Models(models::Args),
    /// Draw images of the pocket world: a contact sheet, or a folder to play with
    Pocket(pocket::Args),
    /// Which class is in each image
    Predict(predict::Args),
    /// Tables and a page of finished runs, published numbers beside ours; merge shards
    Report(report::Args),
    /// Every table and figure of the paper: plan, run, go on, and put the numbers beside the published ones
    Reproduce(reproduce::Args),
    /// What the JSON of a command looks like, as a JSON schema
    Schema(schema::Args),
    /// Answer over HTTP, with a page on which one sees which views decide
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    /// Token statistics of training images, which PromptAlign aligns test images with
    Stats(stats::Args),
    /// A grid of settings from kept features, with a table and figures
    Sweep(sweep::Args),
    /// Show, import or export prompts
    Prompt(prompt::Args),
    /// Learn a prompt from a few labelled images per class
    Tune(tune::Args),
    /// The methods: list them, or show one with its options, cost and reference
    Methods(methods::Args),
    /// What this binary is and which instructions it would use here
    Version(version::Args),
}

impl Command {
    /// Whether it runs until it is told to end, so that its log is what people see of it.
    pub(crate) fn is_service(&self) -> bool {
        #[cfg(feature = "serve")]
        return matches!(self, Self::Serve(_));
        #[cfg(not(feature = "serve"))]
        false
    }

    pub(crate) fn run(self, out: &Output) -> anyhow::Result<Exit> {
        match self {
            Self::Analyze(args) => analyze::run(args, out),
            Self::Bench(args) => bench::run(args, out),
            Self::Cache(args) => cache::run(args, out),
            Self::Completions(args) => completions::run(args, out),
            Self::Config(args) => config::run(args, out),
            Self::Convert(args) => convert::run(args, out),
            Self::Data(args) => data::run(args, out),
            Self::Demo(args) => demo::run(args, out),
            Self::Embed(args) => embed::run(args, out),
            Self::Eval(args) => eval::run(args, out),
            Self::Landscape(args) => landscape::run(args, out),
            Self::Man(args) => manual::run(args, out),
            Self::Models(args) => models::run(args, out),
            Self::Pocket(args) => pocket::run(args, out),
            Self::Predict(args) => predict::run(args, out),
            Self::Report(args) => report::run(args, out),
            Self::Reproduce(args) => reproduce::run(args, out),
            Self::Schema(args) => schema::run(args, out),
            #[cfg(feature = "serve")]
            Self::Serve(args) => serve::run(args, out),
            Self::Stats(args) => stats::run(args, out),
            Self::Sweep(args) => sweep::run(args, out),
            Self::Prompt(args) => prompt::run(args, out),
            Self::Tune(args) => tune::run(args, out),
            Self::Methods(args) => methods::run(args, out),
            Self::Version(args) => version::run(args, out),
        }
    }
}
