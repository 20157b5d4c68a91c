//! Prompts: contexts, templates, and their files.
