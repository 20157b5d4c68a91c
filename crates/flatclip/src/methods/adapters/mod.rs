//! The adapters, one file each. A line in [`ADAPTERS`] makes one known to the CLI, the docs, sweeps and reports.

pub mod c_tpt;
pub mod difftpt;
pub mod dpe;
mod groups;
pub mod mta;
pub mod presets;
pub mod promptalign;
pub mod r_tpt;
pub mod sar;
pub mod stss;
pub mod tda;
pub mod tps;
pub mod tpt;
pub mod vte;
pub mod zero;
pub mod zero_shot;

use super::AdapterSpec;

/// Every adapter.
pub static ADAPTERS: &[&AdapterSpec] = &[
    &stss::SPEC,
    &zero_shot::SPEC,
    &vte::SPEC,
    &zero::SPEC,
    &mta::SPEC,
    &tps::SPEC,
    &tpt::SPEC,
    &c_tpt::SPEC,
    &r_tpt::SPEC,
    &difftpt::SPEC,
    &promptalign::SPEC,
    &sar::SPEC,
    &tda::SPEC,
    &dpe::SPEC,
];

#[cfg(test)]
mod identity_tests;
#[cfg(test)]
mod registry_tests;
#[cfg(test)]
mod tower_tests;
