//! Tests of the command line; one program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "what a test cannot do fails it")]

mod common;

mod analyze;
mod documents;
mod eval;
mod faults;
mod first_steps;
mod models;
mod old_runs;
mod parity;
mod pocket_vit;
mod report;
mod reproduce;
mod schemas;
mod serve;
mod silent_faults;
mod stats;
mod tune;
mod wording;
mod words;
