//! Data sets: classes, templates and labelled samples, read from the layouts that people already have on disk.
//!
//! `open` takes the text of `--data` (`folder:DIR`, `zhou:DIR`, `csv:FILE`, `wds:SHARDS` or a known name under a data
//! root) and gives a [`Dataset`]. A loader verifies what it can (class folders by name, counts of the published
//! splits) and says what it found in [`Dataset::notes`]: a shifted label list is the most common reason for a wrong
//! number, and nothing later can detect it.

mod dataset;
pub mod few_shot;
mod folder;
pub mod mersenne;
mod names;
mod scan;
#[cfg(test)]
pub(crate) mod tree;

pub use dataset::{Dataset, Family, Note, Sample, Source, Split};
pub use folder::open_folder;
pub use names::{fill, read_templates, readable};
