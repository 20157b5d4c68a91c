//! `--exif` and `--no-exif`: pictures as people see them, or as published numbers rest on.

use flatclip::image::{DecodeOptions, PictureChanges};

/// How pictures are read.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct DecodeArgs {
    /// Turn pictures as their EXIF entry says, and scale 16-bit grey [default: for your own photos in predict, embed,
    /// tune and landscape]
    #[arg(long, overrides_with = "no_exif")]
    exif: bool,
    /// Read pictures as Pillow's `convert("RGB")` does, and so every published number [default: elsewhere]
    #[arg(long, overrides_with = "exif")]
    no_exif: bool,
}

impl DecodeArgs {
    /// The options; `photos` says what holds where nothing was said.
    pub(crate) fn options(self, photos: bool) -> DecodeOptions {
        if self.exif || (photos && !self.no_exif) { DecodeOptions::photos() } else { DecodeOptions::default() }
    }
}

/// What was done to pictures in words, and how to have them as they are.
pub(crate) fn changes_line(changes: PictureChanges) -> Option<String> {
    Some(format!("{} (--no-exif reads them as Pillow does)", changes.line()?))
}
