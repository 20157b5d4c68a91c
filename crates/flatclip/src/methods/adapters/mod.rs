//! The adapters, one file each. A line in [`ADAPTERS`] makes one known to the CLI, the docs, sweeps and reports.

pub mod dpe;
pub mod mta;
pub mod presets;
pub mod tda;
pub mod tps;
pub mod vte;
pub mod zero;
pub mod zero_shot;

use super::AdapterSpec;

/// Every adapter.
pub static ADAPTERS: &[&AdapterSpec] =
    &[&zero_shot::SPEC, &vte::SPEC, &zero::SPEC, &mta::SPEC, &tps::SPEC, &tda::SPEC, &dpe::SPEC];

#[cfg(test)]
mod registry_tests;
