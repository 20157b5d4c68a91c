//! `data check`: what of the 15 data sets lies under a root, whether it is whole, and what to do about the rest.

use super::dataset::{Note, Split};
use super::known::{KNOWN, Known};
use super::open::{OpenOptions, open_known};
use serde::Serialize;

/// How a data set was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Classes and samples as published.
    Complete,
    /// Readable, but something differs from what is published.
    Incomplete,
    /// A folder is there, but it cannot be read as this data set.
    Broken,
    /// Nothing of it is there.
    Absent,
}

impl State {
    /// As tables and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Broken => "broken",
            Self::Absent => "absent",
        }
    }
}

/// The result of the check of one data set.
#[derive(Clone, Debug, Serialize)]
pub struct CheckRow {
    /// The data set's name.
    pub name: &'static str,
    /// As in tables.
    pub title: &'static str,
    /// The verdict.
    pub state: State,
    /// Which split was looked at.
    pub split: Split,
    /// Classes found, published.
    pub classes: (usize, usize),
    /// Samples found, published (0 if not published).
    pub samples: (usize, usize),
    /// Fingerprint of the class names.
    pub classes_hash: String,
    /// What was found, and what is not as it should be.
    pub notes: Vec<Note>,
    /// Known oddities of this data set that change numbers.
    pub traps: Vec<&'static str>,
    /// What to do next; empty when nothing is needed.
    pub advice: String,
}

/// Looks at every known data set (or the listed ones) under the root.
pub fn check(options: &OpenOptions, only: &[&'static Known]) -> Vec<CheckRow> {
    KNOWN
        .iter()
        .filter(|known| only.is_empty() || only.iter().any(|k| k.name == known.name))
        .map(|known| check_one(known, options))
        .collect()
}

fn check_one(known: &'static Known, options: &OpenOptions) -> CheckRow {
    let published = known.count(options.split).unwrap_or_default();
    let mut row = CheckRow {
        name: known.name,
        title: known.title,
        state: State::Absent,
        split: options.split,
        classes: (0, known.classes),
        samples: (0, published),
        classes_hash: String::new(),
        notes: Vec::new(),
        traps: traps(known),
        advice: String::new(),
    };
    match open_known(known, options) {
        Ok(data) => {
            row.state = if data.notes.iter().any(|note| note.warning) { State::Incomplete } else { State::Complete };
            row.classes.0 = data.classes.len();
            row.samples.0 = data.samples.iter().filter(|sample| sample.is_there()).count();
            row.classes_hash = data.classes_hash();
            row.notes = data.notes;
            if row.samples.0 < published {
                row.advice = format!("complete the copy: {}", known.mirrors);
            }
        }
        Err(_) if known.folder(options).is_none() => row.advice = advice_if_absent(known),
        Err(error) => {
            row.state = State::Broken;
            row.advice = error.to_string();
        }
    }
    row
}

fn advice_if_absent(known: &Known) -> String {
    let folders: Vec<String> =
        known.places.iter().take(2).map(|(layout, folder, _)| format!("{folder}/ ({})", layout.name())).collect();
    format!("put it into {}, or name its own folder; source: {}", folders.join(" or "), known.mirrors)
}

/// What changes numbers although the copy is whole.
fn traps(known: &Known) -> Vec<&'static str> {
    match known.name {
        "food101" => vec![
            "TPT, MTA, C-TPT and others swap the names of labels 16 and 17 (about 2 points); the compat switch tpt-food101 reproduces them",
        ],
        "imagenetv2" => {
            vec!["folder names are numbers and are read as numbers; sorted as texts every label would be wrong"]
        }
        "imagenet_a" | "imagenet_r" => vec!["scored over its own 200 classes; folders are matched by wnid"],
        "oxford_pets" => vec!["a few .jpg files are GIF or PNG inside; they are decoded by content"],
        "imagenet" => vec!["`missile` and `sunglasses` each name two classes: ties go to the lower label"],
        "eurosat" => vec!["names must be CoOp's long ones; raw folder names are replaced"],
        "ucf101" => vec!["frames extracted by another decoder change the numbers"],
        "dtd" | "oxford_flowers" | "fgvc_aircraft" => {
            vec!["papers after TPT use `a photo of a {}.` here, not CoOp's template"]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tree::tree;

    #[test]
    fn each_state_is_told_with_what_to_do() {
        let dir = tree(&["imagenet-a/n01498041/a.jpg", "ImageNet/val/flat.JPEG", "dtd/images/x/1.jpg"]);
        let rows = check(&OpenOptions { root: Some(dir.path().into()), ..OpenOptions::default() }, &[]);
        assert_eq!(rows.len(), 15);
        let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!((row("imagenet_a").state, row("imagenet_a").samples), (State::Incomplete, (1, 7500)));
        assert_eq!(row("imagenet").state, State::Broken);
        assert!(row("imagenet").advice.contains("valprep"));
        assert!(row("dtd").advice.contains("split_zhou_DescribableTextures"));
        assert_eq!(row("stanford_cars").state, State::Absent);
        assert!(row("stanford_cars").advice.contains("Kaggle"));
    }
}
