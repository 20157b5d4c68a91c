//! Adapters, one file each, one registry.
//!
//! An adapter answers test images from their views. Its kind is its type: [`Adapter`] (episodic: each image on its own),
//! [`OnlineAdapter`] (a stream) or [`BatchAdapter`] (a set). Most are made of three shapes, each written once:
//!
//! * a **selector** ranks the views and selects some ([`select`]: entropy, cosine then entropy; STSS has its own),
//! * an **updater** moves the prompt by gradients of a loss on the selected views ([`update`], [`optim`]),
//! * an **aggregator** turns logits into one answer ([`aggregate`]: view 0, mean probability, majority, ...).
//!
//! Online adapters keep class caches ([`cache`]). The numbers all of them share are in [`probability`].

#[doc(hidden)]
pub mod adapters;
pub mod aggregate;
pub mod bank;
#[doc(hidden)]
pub mod cache;
mod confidence;
#[doc(hidden)]
pub mod gaussian;
mod linalg;
#[doc(hidden)]
pub mod maple;
#[doc(hidden)]
pub mod optim;
pub mod policy;
pub mod probability;
mod prototypes;
#[doc(hidden)]
pub mod query;
mod registry;
#[doc(hidden)]
pub mod sam;
pub mod select;
mod spec;
#[doc(hidden)]
pub mod statistics;
mod task;
#[doc(hidden)]
pub mod update;

pub use adapters::ADAPTERS;
pub use confidence::Confidence;
pub use registry::{Registry, adapter, build_adapter};
#[doc(hidden)]
pub use registry::{TUNER_NAMES, unknown_method};
pub use spec::{
    Adapter, AdapterSpec, AnyAdapter, BatchAdapter, Build, DynamicMethod, Fork, Kind, Needs, OnlineAdapter, Verified,
};
pub use task::{Decision, Explanation, Task, TextSide, TextStore, ViewSet};
