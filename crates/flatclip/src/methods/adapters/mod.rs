//! The adapters, one file each. A line in [`ADAPTERS`] makes one known to the CLI, the docs, sweeps and reports.

pub mod zero_shot;

use super::AdapterSpec;

/// Every adapter.
pub static ADAPTERS: &[&AdapterSpec] = &[&zero_shot::SPEC];

#[cfg(test)]
mod registry_tests;
