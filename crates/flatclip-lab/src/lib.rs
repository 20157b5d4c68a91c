//! The laboratory of flatclip: data sets, tuners, evaluation, loss landscapes, reports and recipes on top of the inference
//! library [`flatclip`].
//!
//! | for | take |
//! |---|---|
//! | a data set | [`data::open`] |
//! | a prompt learned from a few photos | [`tune`], [`TuneRequest`] |
//! | numbers | [`evaluate`], [`sweep`], [`report`] |
//! | every table of the paper | [`reproduce::reproduce`], [`reproduce::Recipe`] |
//! | the shape of the loss | [`landscape`], [`analyze`] |
//!
//! Data flows one way, and a module uses modules to its left only:
//!
//! ```text
//! data -> tuners -> train, eval, flatness -> report -> studies -> bench -> reproduce -> demo
//! ```

pub mod run_dir;

pub mod data;

pub mod tuners;

pub mod catalogue;

pub mod eval;
pub mod flatness;
pub mod train;

pub mod report;

mod studies;

pub mod bench;

pub mod reproduce;

pub mod demo;

pub use eval::{
    EvaluateRequest, EvaluatedRun, NamedPrompt, PromptChoice, StatisticsRequest, Subject, ViewChoice, evaluate,
    statistics,
};
pub use studies::{
    AnalyzeRequest, ClassRadius, LandscapeOf, LandscapeRequest, SweepRequest, SweptData, analyze, landscape, sweep,
};
pub use train::{TuneRequest, TuneSummary, tune};
