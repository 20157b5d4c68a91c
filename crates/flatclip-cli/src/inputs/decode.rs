//! `--exif` and `--no-exif`: images as a person sees them, or as published numbers were read.

use flatclip::image::{DecodeOptions, ImageChanges};

/// How images are read.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct DecodeArgs {
    /// Rotate images per EXIF and scale 16-bit grey [default: for your own images: files, folder:, csv:, zhou:, wds:]
    #[arg(long, overrides_with = "no_exif")]
    exif: bool,
    /// Read images as Pillow's `convert("RGB")`, as every published number was [default: for known data sets]
    #[arg(long, overrides_with = "exif")]
    no_exif: bool,
}

impl DecodeArgs {
    /// What was asked for; `None` leaves it to the data.
    pub(crate) fn exif(self) -> Option<bool> {
        (self.exif || self.no_exif).then_some(self.exif)
    }

    /// For images named on the command line, which are the user's own.
    pub(crate) fn options(self) -> DecodeOptions {
        let usual = DecodeOptions::default();
        DecodeOptions { exif: self.exif().unwrap_or(usual.exif), ..usual }
    }
}

/// What was done to images, and how to read them otherwise.
pub(crate) fn changes_line(changes: ImageChanges) -> Option<String> {
    Some(format!("{} (--no-exif reads them as Pillow does)", changes.line()?))
}
