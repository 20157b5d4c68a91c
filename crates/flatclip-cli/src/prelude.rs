//! What most commands use.

pub(crate) use crate::inputs::{
    CacheArgs, ClassArgs, DataArgs, DecodeArgs, FindArgs, ModelArgs, PlaceArgs, PromptArgs,
};
pub(crate) use crate::inputs::{RootArgs, ViewArgs};
pub(crate) use crate::output::{Exit, Output};
pub(crate) use anyhow::{Context as _, Result, bail, ensure};
pub(crate) use flatclip::files::write_atomic;
pub(crate) use flatclip::settings::parse_settings;
pub(crate) use serde_json::{Value, json};
pub(crate) use std::path::{Path, PathBuf};
