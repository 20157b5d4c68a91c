//! Tuners and adapters, one file each, one registry.
