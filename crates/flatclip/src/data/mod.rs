//! Data sets, splits, few-shot sampling.

pub mod few_shot;
pub mod mersenne;
