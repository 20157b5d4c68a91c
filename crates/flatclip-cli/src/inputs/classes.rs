//! Class names from a list, a file, or the embedded ImageNet names.

use crate::output::Output;
use anyhow::{Result, bail, ensure};
use flatclip::text::imagenet::CLASS_NAMES;
use flatclip::text::templates::{TIED, duplicates};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub(crate) struct ClassArgs {
    /// Class names, separated by commas; `imagenet` alone stands for the 1000 ImageNet names
    #[arg(long, value_delimiter = ',', value_name = "A,B,..")]
    classes: Vec<String>,
    /// A file with one class name per line (CoOp's `classnames.txt` with leading wnids works, too)
    #[arg(long, value_name = "FILE", conflicts_with = "classes")]
    classes_file: Option<PathBuf>,
}

impl ClassArgs {
    pub(crate) fn read(&self, out: &Output) -> Result<Option<Vec<String>>> {
        let classes: Vec<String> = match (&self.classes_file, self.classes.as_slice()) {
            (Some(path), _) => flatclip::text::read_class_names(path)?,
            (None, []) => return Ok(None),
            (None, [one]) if one == "imagenet" => CLASS_NAMES.iter().map(|&name| name.to_owned()).collect(),
            (None, names) => names.iter().map(|name| name.trim().to_owned()).collect(),
        };
        ensure!(!classes.is_empty(), "--classes: the list of classes is empty");
        if let Some(empty) = classes.iter().position(|c| c.is_empty()) {
            bail!("--classes: class {} has no name", empty + 1);
        }
        // A list that is not ImageNet's is refused where a classifier is made of it.
        for (name, places) in duplicates(&classes) {
            out.note(format_args!("class {name:?} occurs {} times (at {places:?}): {TIED}", places.len()));
        }
        Ok(Some(classes))
    }
}

/// ` (did you mean "fish"?)` for a name that is nearly one of `known`, else nothing.
pub(crate) fn did_you_mean(name: &str, known: &[impl AsRef<str>]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    flatclip::error::nearest(name, &known).map(|near| format!(" (did you mean {near:?}?)")).unwrap_or_default()
}
