//! Data sets: classes, templates and labelled samples, read from the layouts that people already have on disk.
//!
//! [`open`] takes the text of `--data` (`folder:DIR`, `zhou:DIR`, `csv:FILE`, `wds:SHARDS`, `pocket:DOMAIN` or a known name under a data
//! root) and gives a [`Dataset`]. A loader verifies what it can (class folders by name, counts of the published
//! splits) and lists its findings in [`Dataset::notes`]: a shifted label list is the most common reason for a wrong
//! number, and nothing later can detect it.

mod aircraft;
mod check;
mod csv;
mod dassl_list;
mod dataset;
pub mod feature_bank;
pub mod few_shot;
mod folder;
mod imagenet;
mod known;
mod locate;
pub(crate) mod mersenne;
mod names;
mod open;
mod place;
mod pocket;
mod scan;
mod split_set;
pub(crate) mod train_images;
#[cfg(test)]
pub(crate) mod tree;
mod wds;
mod zhou;

pub use check::{CheckRow, State, check};
pub(crate) use dassl_list::read_dassl_list;
pub use dataset::{Dataset, Family, Note, Sample, Source, Split};
pub(crate) use dataset::{IMPORTED, shortened};
pub(crate) use imagenet::imagenet_labels;
pub use known::{KNOWN, Known};
pub(crate) use open::reads_exif;
pub use open::{Compat, OpenOptions, open};
