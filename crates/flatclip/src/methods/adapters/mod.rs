//! The adapters, one file each. A line in [`ADAPTERS`] makes one known to the CLI, the docs, sweeps and reports.

pub mod adapt;
pub mod adapt_set;
pub mod adte;
pub mod adte_stream;
pub mod awt;
pub mod bca;
pub mod boostadapter;
pub mod c_tpt;
pub mod difftpt;
pub mod dlae;
pub mod dmn;
pub mod dota;
pub mod dpe;
pub mod ecalp;
mod groups;
pub mod mcp;
pub mod mta;
pub mod oga;
pub mod onzeta;
pub mod presets;
pub mod promptalign;
pub mod r_tpt;
pub mod sar;
pub mod se;
pub mod stata;
pub mod sts;
pub mod stss;
pub mod tda;
pub mod tps;
pub mod tpt;
pub mod transclip;
mod transduction;
pub mod use_prompt;
pub mod vte;
pub mod zero;
pub mod zero_shot;

use super::AdapterSpec;

/// What most adapters use.
mod prelude {
    pub(super) use super::groups::{adamw_steps, data_preset, doubt, negative_cache, positive_cache, view_selection};
    pub(super) use super::presets::{self, Benchmark};
    #[cfg(test)]
    pub(super) use super::registry_tests::{assert_close, assert_gradient, names, ready, task, unit_rows, views};
    pub(super) use crate::methods::optim::{AdamW, AdamWSettings, Optimiser, require_finite};
    pub(super) use crate::methods::probability::*;
    pub(super) use crate::methods::query::Query;
    pub(super) use crate::methods::select::{LowestScore, Score, Selection, ViewLogits, keep_count, ranking};
    pub(super) use crate::methods::{
        Adapter, AdapterSpec, BatchAdapter, Build, Decision, Needs, OnlineAdapter, Task, Verified, ViewSet,
    };
    pub(super) use crate::{Error, Result};
    pub(super) use flatclip_tensor::Matrix;
}

pub static ADAPTERS: &[&AdapterSpec] = &[
    &stss::SPEC,
    &zero_shot::SPEC,
    &vte::SPEC,
    &zero::SPEC,
    &mta::SPEC,
    &tps::SPEC,
    &sts::SPEC,
    &se::SPEC,
    &awt::SPEC,
    &tpt::SPEC,
    &c_tpt::SPEC,
    &use_prompt::SPEC,
    &r_tpt::SPEC,
    &difftpt::SPEC,
    &promptalign::SPEC,
    &sar::SPEC,
    &tda::SPEC,
    &dpe::SPEC,
    &dlae::SPEC,
    &boostadapter::SPEC,
    &dmn::SPEC,
    &mcp::SPEC,
    &dota::SPEC,
    &oga::SPEC,
    &adapt::SPEC,
    &onzeta::SPEC,
    &bca::SPEC,
    &ecalp::SPEC,
    &adte_stream::SPEC,
    &stata::SPEC,
    &transclip::SPEC,
    &adapt_set::SPEC,
    &adte::SPEC,
];

#[cfg(test)]
mod identity_tests;
#[cfg(test)]
pub(super) mod registry_tests;
#[cfg(test)]
mod tower_tests;
