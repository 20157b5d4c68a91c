//! Data sets, splits, few-shot sampling.
