//! Runs of prompt x adapter x data set, metrics, caches.

pub mod metrics;
