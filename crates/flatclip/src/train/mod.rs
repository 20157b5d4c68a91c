//! The tuning loop: optimisers, schedules, checkpoints.
