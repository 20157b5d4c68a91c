//! Templates: sentences with `{}` where the class name goes.

use super::imagenet;
use crate::{Error, Result};

/// A named set of templates whose text features are averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ensemble {
    /// The 7 templates of CoOp's and Tip-Adapter's zero-shot classifier.
    ImageNet7,
    /// The 80 templates of CLIP's paper.
    ImageNet80,
    /// Four starts for C-TPT's ensemble rows. Their number and wording are not confirmed: the published code has no ensemble,
    /// and the paper's text was not available.
    CTpt4,
}

impl Ensemble {
    /// All of them, for messages and completion.
    pub const ALL: [Self; 3] = [Self::ImageNet7, Self::ImageNet80, Self::CTpt4];

    /// The name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::ImageNet7 => "imagenet7",
            Self::ImageNet80 => "imagenet80",
            Self::CTpt4 => "c-tpt4",
        }
    }

    /// Its templates.
    pub fn templates(self) -> &'static [&'static str] {
        match self {
            Self::ImageNet7 => &imagenet::TEMPLATES_7,
            Self::ImageNet80 => &imagenet::TEMPLATES_80,
            Self::CTpt4 => &["a photo of a {}.", "a photo of the {}.", "an image of a {}.", "an image of the {}."],
        }
    }

    /// All names, for a message.
    pub(crate) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl std::str::FromStr for Ensemble {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|e| e.name() == name);
        found.ok_or_else(|| Error::config("ensemble", format!("expected one of {}, found {name:?}", Self::names())))
    }
}

/// The sentence of a class: underscores are spaces, as in every original. A template has exactly one `{}`.
pub fn fill(template: &str, class: &str) -> Result<String> {
    match template.split_once("{}") {
        Some((before, after)) if !after.contains("{}") => Ok(format!("{before}{}{after}", class.replace('_', " "))),
        _ => {
            Err(Error::config("template", format!("expected exactly one {{}} for the class name, found {template:?}")))
        }
    }
}

/// What becomes of classes of one name.
pub const TIED: &str = "their texts are equal, so their scores tie and either may be answered";

/// Class names that occur more than once, each with its labels: worth a warning, since their answers tie.
pub fn duplicates<S: AsRef<str>>(classes: &[S]) -> Vec<(String, Vec<usize>)> {
    let mut places = std::collections::BTreeMap::<&str, Vec<usize>>::new();
    for (label, class) in classes.iter().enumerate() {
        places.entry(class.as_ref()).or_default().push(label);
    }
    places.into_iter().filter(|(_, labels)| labels.len() > 1).map(|(name, labels)| (name.to_owned(), labels)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imagenet_has_two_names_twice() {
        let expected = [("missile".to_owned(), vec![657, 744]), ("sunglasses".to_owned(), vec![836, 837])];
        assert_eq!(duplicates(&imagenet::CLASS_NAMES), expected);
    }

    #[test]
    fn a_template_holds_the_name_once_and_ensembles_are_found_by_name() {
        assert_eq!(fill("a photo of a {}.", "tree_frog").unwrap(), "a photo of a tree frog.");
        assert!(fill("a photo", "x").is_err() && fill("{} {}", "x").is_err());
        assert_eq!("imagenet80".parse::<Ensemble>().unwrap().templates().len(), 80);
        assert!("imagenet8".parse::<Ensemble>().unwrap_err().to_string().contains("imagenet80"));
    }
}
