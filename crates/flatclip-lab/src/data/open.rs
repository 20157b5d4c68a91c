//! From the text of `--data` to a [`Dataset`].

use super::dataset::{Dataset, Note, Split};
use super::known::{Kind, Known};
use super::place::{self, Found};
use super::{aircraft, csv, folder, imagenet, names, pocket, split_set, wds, zhou};
use flatclip::error::Hint;
use flatclip::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Switches that reproduce a known oddity of published code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Compat {
    /// Food101 with the names of labels 16 and 17 (cheese plate, cheesecake) swapped, as in TPT and most descendants.
    pub tpt_food101: bool,
}

impl Compat {
    /// Reads a list like `tpt-food101`.
    pub fn parse(switches: &[String]) -> Result<Self> {
        let mut compat = Self::default();
        for switch in switches {
            match switch.as_str() {
                "tpt-food101" => compat.tpt_food101 = true,
                other => return Err(Error::config("compat", format!("`{other}` is not known; known: tpt-food101"))),
            }
        }
        Ok(compat)
    }
}

/// How to find and read a data set.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Where the known data sets lie.
    pub root: Option<PathBuf>,
    /// The user's own folder for a known data set, by name.
    pub paths: BTreeMap<String, PathBuf>,
    /// A folder with split files, looked at before the data set's own.
    pub split_files: Option<PathBuf>,
    /// Which part.
    pub split: Split,
    /// Class names to use instead, one per line.
    pub classes: Option<PathBuf>,
    /// Templates to use instead, one per line.
    pub templates: Option<PathBuf>,
    /// Oddities to reproduce.
    pub compat: Compat,
}

/// Opens `folder:DIR`, `zhou:DIR`, `csv:FILE`, `wds:SHARDS`, `pocket:DOMAIN`, or a known data set by name.
pub fn open(spec: &str, options: &OpenOptions) -> Result<Dataset> {
    let mut data = match spec.split_once(':') {
        Some(("folder", dir)) => folder::open_folder(Path::new(dir), options.split)?,
        Some(("zhou", dir)) => zhou::open_zhou(Path::new(dir), options.split)?,
        Some(("csv", file)) => {
            let named = options.classes.as_deref().map(flatclip::text::read_class_names).transpose()?;
            csv::open_csv(Path::new(file), options.split, named.as_deref())?
        }
        Some(("wds", shards)) => wds::open_wds(shards, options.split)?,
        Some(("pocket", domain)) => pocket::open_pocket(domain, options.split)?,
        _ => open_known(known_or_error(spec)?, options)?,
    };
    spec.clone_into(&mut data.spec);
    if let Some(path) = &options.classes {
        data.classes = replacement_names(path, data.classes.len())?;
    }
    if let Some(path) = &options.templates {
        data.templates = names::read_templates(path)?;
    }
    if data.samples.is_empty() {
        let path = PathBuf::from(spec);
        let notes: Vec<&str> = data.notes.iter().map(|note| note.text.as_str()).collect();
        let reason = format!("split {} has no sample ({})", options.split.name(), notes.join("; "));
        return Err(Error::Data { path, reason });
    }
    Ok(data)
}

/// The reading rule of a data set by the way it is named: a known benchmark and the synthetic pocket data sets are read as
/// Pillow reads them, as every published number was; whatever is named by its place, or was made in memory, counts as the
/// user's own images and is read as a person sees it. `exif` overrides the rule.
pub(crate) fn reads_exif(spec: &str, exif: Option<bool>) -> bool {
    exif.unwrap_or_else(|| Known::find(spec).is_none() && !spec.starts_with("pocket:"))
}

fn known_or_error(spec: &str) -> Result<&'static Known> {
    Known::find(spec).ok_or_else(|| {
        let hint = if Path::new(spec).is_dir() {
            format!("; for a folder of class folders write folder:{spec}")
        } else {
            String::new()
        };
        let names: Vec<&str> = super::known::KNOWN.iter().map(|known| known.name).collect();
        let reason = format!(
            "`{spec}` is neither folder:DIR, zhou:DIR, csv:FILE, wds:SHARDS, pocket:DOMAIN nor a known data set ({}){hint}",
            names.join(", ")
        );
        let near = flatclip::error::nearest(spec, &names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        Error::config("data", reason + &near)
    })
}

fn replacement_names(path: &Path, count: usize) -> Result<Vec<String>> {
    let lines = flatclip::text::read_class_names(path)?;
    if lines.len() != count {
        let reason = format!("expected {count} class names, one per line in label order, found {}", lines.len());
        return Err(Error::Data { path: path.to_path_buf(), reason });
    }
    Ok(lines)
}

fn places_of(known: &Known, options: &OpenOptions) -> Vec<Found> {
    let named = options.paths.iter().find(|(name, _)| Known::find(name).is_some_and(|k| k.name == known.name));
    place::candidates(known, options.root.as_deref(), named.map(|(_, path)| path.as_path()))
}

impl Known {
    /// The folder in which it would be opened, where there is one; what is in it is not looked at.
    pub fn folder(&self, options: &OpenOptions) -> Option<PathBuf> {
        places_of(self, options).into_iter().next().map(|found| found.folder)
    }
}

/// Opens a known data set and compares it with what is published.
pub(crate) fn open_known(known: &'static Known, options: &OpenOptions) -> Result<Dataset> {
    let places = places_of(known, options);
    if places.is_empty() {
        return Err(not_found(known, options));
    }
    let mut first_error = None;
    for found in &places {
        match open_at(known, found, options) {
            Ok(mut data) => {
                verify(known, &mut data);
                return Ok(data);
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| not_found(known, options)))
}

fn open_at(known: &'static Known, found: &Found, options: &OpenOptions) -> Result<Dataset> {
    match known.kind {
        Kind::Wnids(_) | Kind::Numbers => imagenet::open(known, found, options.split),
        Kind::Aircraft => aircraft::open(known, found, options.split),
        Kind::Zhou(file) => split_set::open(known, file, found, options),
    }
}

fn not_found(known: &Known, options: &OpenOptions) -> Error {
    let Some(root) = &options.root else {
        let reason = format!("{} needs the folder of the data sets, or its own", known.title);
        return Error::config("data", reason).with_hint(Hint::DataRoot(known.name.to_owned()));
    };
    let join = |&(layout, folder, images): &super::known::Place| {
        let images = if images.is_empty() { String::new() } else { format!("/{images}") };
        format!("{folder}{images} ({})", layout.name())
    };
    let tried: Vec<String> = known.places.iter().map(join).collect();
    let reason =
        format!("{} is not here; looked for {}; it can be got from {}", known.title, tried.join(", "), known.mirrors);
    Error::Data { path: root.clone(), reason }.with_hint(Hint::DataRoot(known.name.to_owned()))
}

/// Counts against the published ones: the check that catches most wrong set-ups.
fn verify(known: &Known, data: &mut Dataset) {
    if data.classes.len() != known.classes {
        let text = format!("expected {} classes, found {}", known.classes, data.classes.len());
        data.notes.push(Note::warning(text));
    }
    let found = data.samples.len();
    match known.count(data.split) {
        Some(expected) if expected != found => {
            let text = format!("{found} of {expected} {} images are there", data.split.name());
            data.notes.push(Note::warning(text));
        }
        Some(expected) => data.notes.push(Note::info(format!("all {expected} {} images are there", data.split.name()))),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tree::tree;

    #[test]
    fn an_unknown_name_lists_the_known_ones_and_a_folder_gets_a_hint() {
        let dir = tree(&["a/1.jpg"]);
        let message = open(dir.path().to_str().unwrap(), &OpenOptions::default()).unwrap_err().to_string();
        assert!(message.contains("imagenet_sketch") && message.contains("folder:/"), "{message}");
    }

    #[test]
    fn an_absent_data_set_tells_where_it_looked_and_where_to_get_it() {
        let dir = tree(&["x/1.jpg"]);
        let options = OpenOptions { root: Some(dir.path().into()), ..OpenOptions::default() };
        let message = open("cars", &options).unwrap_err().to_string();
        assert!(message.contains("stanford_cars (CoOp)") && message.contains("Kaggle"), "{message}");
        let error = open("cars", &OpenOptions::default()).unwrap_err();
        assert_eq!(error.hint(), Some(&Hint::DataRoot("stanford_cars".to_owned())));
    }

    #[test]
    fn counts_are_compared_with_the_published_ones() {
        let dir = tree(&["imagenet/images/val/n01440764/a.JPEG"]);
        let options = OpenOptions { root: Some(dir.path().into()), ..OpenOptions::default() };
        let data = open("imagenet", &options).unwrap();
        assert!(
            data.notes.iter().any(|n| n.warning && n.text == "1 of 50000 test images are there"),
            "{:?}",
            data.notes
        );
    }

    #[test]
    fn own_names_and_templates_replace_the_data_sets() {
        let dir = tree(&["d/a/1.jpg", "d/b/1.jpg"]);
        std::fs::write(dir.path().join("names"), "one\ntwo\n").unwrap();
        std::fs::write(dir.path().join("templates"), "my {}\n").unwrap();
        let options = OpenOptions {
            classes: Some(dir.path().join("names")),
            templates: Some(dir.path().join("templates")),
            ..OpenOptions::default()
        };
        let data = open(&format!("folder:{}/d", dir.path().display()), &options).unwrap();
        assert_eq!((data.classes, data.templates), (vec!["one".into(), "two".into()], vec!["my {}".into()]));
    }

    #[test]
    fn a_path_override_wins_under_any_alias() {
        let dir = tree(&["here/n01498041/a.jpg"]);
        let paths = BTreeMap::from([("A".to_owned(), dir.path().join("here"))]);
        let data = open("imagenet-a", &OpenOptions { paths, ..OpenOptions::default() }).unwrap();
        assert_eq!((data.samples.len(), data.samples[0].label), (1, 0));
    }
}
