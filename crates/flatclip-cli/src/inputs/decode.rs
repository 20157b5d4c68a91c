//! `--exif` and `--no-exif`: pictures as people see them, or as published numbers rest on.

use flatclip::image::{DecodeOptions, PictureNotes};

/// How pictures are read.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct DecodeArgs {
    /// Turn pictures as their EXIF entry says, and scale 16-bit grey [default: for your own photos in predict, embed and tune]
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

/// How often something was done to a picture.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    turned: usize,
    scaled_grey: usize,
}

impl Changes {
    pub(crate) fn count(&mut self, notes: PictureNotes) {
        self.turned += usize::from(notes.turned);
        self.scaled_grey += usize::from(notes.scaled_grey);
    }

    /// One line, if there is something to say.
    pub(crate) fn line(self) -> Option<String> {
        let pictures = |count: usize| if count == 1 { "1 picture".to_owned() } else { format!("{count} pictures") };
        let mut parts = Vec::new();
        if self.turned > 0 {
            parts.push(format!("{} turned as EXIF says", pictures(self.turned)));
        }
        if self.scaled_grey > 0 {
            parts.push(format!("{} of 16-bit grey scaled to 8 bits", pictures(self.scaled_grey)));
        }
        (!parts.is_empty()).then(|| format!("{} (--no-exif reads them as Pillow does)", parts.join(", ")))
    }
}
