//! Checkpoints on disk: formats, key names, architecture inference.
