//! Tuners and adapters, one file each, one registry.
//!
//! An adapter answers for one test image from its views. Most are made of three shapes, each written once:
//!
//! * a **selector** ranks the views and keeps some ([`select`]: entropy, sharpness, cosine then entropy),
//! * an **updater** moves the prompt by gradients of a loss on the kept views ([`update`], [`optim`]),
//! * an **aggregator** turns logits into one answer ([`aggregate`]: view 0, mean probability, majority, ...).
//!
//! Online adapters keep class caches ([`cache`]). The numbers all of them share are in [`probability`].

pub mod adapters;
pub mod aggregate;
pub mod bank;
pub mod cache;
pub mod maple;
pub mod optim;
pub mod policy;
pub mod probability;
pub mod query;
pub mod select;
pub mod sharpness;
mod spec;
mod start;
pub mod statistics;
mod task;
pub mod tuners;
pub mod update;

pub use adapters::ADAPTERS;
pub use spec::{Adapter, AdapterSpec, CloneAdapter, Kind, Needs, adapter, build_adapter};
pub use task::{Answer, Explanation, Sample, Task, TextSide, TextStore};
pub use tuners::TUNERS;
