//! What a classifier answers.

use super::{Classifier, ViewFeatures};
use crate::Result;
use crate::image::Image;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// One image as a caller has it; made by `into` from what it refers to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ImageInput<'a> {
    /// A decoded image.
    Image(&'a Image),
    /// A decoded image and the name of its file, by which its generated views are found (DiffTPT).
    Named(&'a Image, &'a str),
    /// An image file.
    Path(&'a Path),
    /// An encoded image.
    Bytes(&'a [u8]),
    /// The features of its views.
    Features(&'a ViewFeatures),
}

/// What a method is given: an image with the name of its file, or features.
pub(super) enum Decoded<'a> {
    Image(Cow<'a, Image>, Cow<'a, str>),
    Features(&'a ViewFeatures),
}

impl<'a> ImageInput<'a> {
    /// Decoded as this classifier reads images.
    pub(super) fn decoded(self, classifier: &Classifier) -> Result<Decoded<'a>> {
        Ok(match self {
            Self::Image(image) => Decoded::Image(Cow::Borrowed(image), Cow::Borrowed("")),
            Self::Named(image, name) => Decoded::Image(Cow::Borrowed(image), Cow::Borrowed(name)),
            Self::Path(path) => {
                let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
                Decoded::Image(Cow::Owned(classifier.open(path)?), name)
            }
            Self::Bytes(bytes) => Decoded::Image(Cow::Owned(classifier.decode(bytes)?), Cow::Borrowed("")),
            Self::Features(views) => Decoded::Features(views),
        })
    }
}

/// What `into` makes of a reference.
macro_rules! inputs {
    ($($from:ty => $variant:ident),+ $(,)?) => {$(
        impl<'a> From<&'a $from> for ImageInput<'a> {
            fn from(input: &'a $from) -> Self {
                Self::$variant(input)
            }
        }
    )+};
}

inputs! { Image => Image, Path => Path, PathBuf => Path, [u8] => Bytes, ViewFeatures => Features }
