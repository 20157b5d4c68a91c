//! Class names from a list, a file, or the embedded ImageNet names.

use crate::output::Output;
use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, PathBuf};

/// Which classes to tell apart.
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
    /// The class names, or `None` when none were given.
    pub(crate) fn read(&self, out: &Output) -> Result<Option<Vec<String>>> {
        let classes = match (&self.classes_file, self.classes.as_slice()) {
            (Some(path), _) => read_file(path)?,
            (None, []) => return Ok(None),
            (None, [one]) if one == "imagenet" => {
                flatclip::text::imagenet::CLASS_NAMES.iter().map(|&name| name.to_owned()).collect()
            }
            (None, names) => names.iter().map(|name| name.trim().to_owned()).collect::<Vec<_>>(),
        };
        ensure!(!classes.is_empty(), "--classes: the list of classes is empty");
        if let Some(empty) = classes.iter().position(|c| c.is_empty()) {
            bail!("--classes: class {} has no name", empty + 1);
        }
        for (name, places) in flatclip::text::templates::duplicates(&classes) {
            out.warn(format_args!(
                "class {name:?} occurs {} times (at {places:?}): only the first can ever be answered",
                places.len()
            ));
        }
        Ok(Some(classes))
    }
}

fn read_file(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    ensure!(!lines.is_empty(), "{}: no class names; expected one per line", path.display());
    if lines.iter().all(|line| without_wnid(line).is_some()) {
        return Ok(lines.into_iter().filter_map(without_wnid).map(str::to_owned).collect());
    }
    Ok(lines.into_iter().map(str::to_owned).collect())
}

/// `n01440764 tench` without its wnid.
fn without_wnid(line: &str) -> Option<&str> {
    let (wnid, name) = line.split_once(' ')?;
    let digits = wnid.strip_prefix('n')?;
    (digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_digit())).then_some(name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wnids_are_dropped_only_when_every_line_has_one() {
        assert_eq!(without_wnid("n01440764 great white shark"), Some("great white shark"));
        assert_eq!(without_wnid("nightingale bird"), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("classes.txt");
        std::fs::write(&file, "n01440764 tench\n\nplain name\n").unwrap();
        assert_eq!(read_file(&file).unwrap(), ["n01440764 tench", "plain name"]);
    }
}
