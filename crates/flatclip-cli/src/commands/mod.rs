//! One file per verb.

mod about;
mod analyze;
mod bench;
mod cache;
mod convert;
mod data;
mod demo;
mod embed;
mod eval;
mod landscape;
mod methods;
mod models;
mod pocket;
mod predict;
mod prompt;
mod report;
mod reproduce;
#[cfg(feature = "serve")]
mod serve;
mod stats;
mod sweep;
mod tune;

use crate::output::{Exit, Output};
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure the sharpness scores and the bounds of the theory on a near and a far data set
    Analyze(analyze::Args),
    /// Time every stage on this machine: GFLOP/s, share of the measured product rate, peak memory
    Bench(bench::Args),
    /// Manage the feature cache: list, export and remove entries
    #[command(subcommand)]
    Cache(cache::Verb),
    /// Generate shell completions for bash, zsh, fish, elvish or powershell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Show the options of methods with their defaults, or the settings of a run
    Config(about::ConfigArgs),
    /// Write a checkpoint in canonical form: one safetensors file with OpenAI's tensor names
    Convert(convert::Args),
    /// List and check data sets on disk
    #[command(subcommand)]
    Data(data::Verb),
    /// Run a demonstration on the embedded model and the synthetic pocket dataset
    Demo(demo::Args),
    /// Compute features of images or texts
    Embed(embed::Args),
    /// Evaluate adapters on data sets; runs can be resumed, sharded and reported
    Eval(eval::Args),
    /// Compute loss surfaces around a prompt, over a few-shot set or over single views of an image
    Landscape(landscape::Args),
    /// Generate manual pages
    Man {
        /// Folder for the pages: flatclip.1, flatclip-predict.1, ... [default: print flatclip.1]
        #[arg(long, short, value_name = "DIR")]
        out: Option<std::path::PathBuf>,
    },
    /// List known models, or describe a checkpoint
    Models(models::Args),
    /// Export images of the synthetic pocket dataset
    #[command(subcommand)]
    Pocket(pocket::What),
    /// Classify images
    Predict(predict::Args),
    /// Make tables, figures and a page from finished runs; merge shards
    Report(report::Args),
    /// Reproduce the tables and figures of the paper: plan, run, resume, compare with published numbers
    Reproduce(reproduce::Args),
    /// Print the JSON schema of a command's output
    Schema {
        /// The command, e.g. predict; `error` for what is written to stderr [default: list them]
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
    /// Serve predictions over HTTP, with a web page that shows the selected views
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    /// Compute token statistics of training images for PromptAlign
    Stats(stats::Args),
    /// Evaluate a grid of settings from cached features
    Sweep(sweep::Args),
    /// Show, import or export prompts
    #[command(subcommand)]
    Prompt(prompt::Command),
    /// Learn a prompt from a few labelled images per class
    Tune(tune::Args),
    /// List methods, or show one with its options, cost and reference
    Methods(methods::Args),
    /// Show the version and the instruction set in use
    Version,
}

impl Command {
    /// Whether it runs until it is stopped, so that its log is its output.
    pub(crate) fn is_service(&self) -> bool {
        #[cfg(feature = "serve")]
        return matches!(self, Self::Serve(_));
        #[cfg(not(feature = "serve"))]
        false
    }

    pub(crate) fn run(self, out: &Output) -> anyhow::Result<Exit> {
        match self {
            Self::Analyze(args) => analyze::run(args, out)?,
            Self::Bench(args) => bench::run(args, out)?,
            Self::Cache(verb) => cache::run(verb, out)?,
            Self::Completions { shell } => about::completions(shell, out)?,
            Self::Config(args) => about::config(args, out)?,
            Self::Convert(args) => convert::run(args, out)?,
            Self::Demo(args) => demo::run(args, out)?,
            Self::Landscape(args) => landscape::run(args, out)?,
            Self::Man { out: folder } => about::manual(folder.as_deref(), out)?,
            Self::Models(args) => models::run(args, out)?,
            Self::Pocket(verb) => pocket::run(verb, out)?,
            Self::Schema { command } => about::schema(command.as_deref(), out)?,
            #[cfg(feature = "serve")]
            Self::Serve(args) => serve::run(args, out)?,
            Self::Prompt(verb) => prompt::run(verb, out)?,
            Self::Methods(args) => methods::run(args, out)?,
            Self::Version => about::version(out)?,
            Self::Data(verb) => return data::run(verb, out),
            Self::Embed(args) => return embed::run(args, out),
            Self::Eval(args) => return eval::run(args, out),
            Self::Predict(args) => return predict::run(args, out),
            Self::Report(args) => return report::run(args, out),
            Self::Reproduce(args) => return reproduce::run(args, out),
            Self::Stats(args) => return stats::run(args, out),
            Self::Sweep(args) => return sweep::run(args, out),
            Self::Tune(args) => return tune::run(args, out),
        }
        Ok(Exit::Done)
    }
}
