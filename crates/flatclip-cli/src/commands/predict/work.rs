//! From files to answers: images that may share calls of the tower in batches, decoded beside it; the others one by one.

use super::continued::content_of;
use crate::prelude::*;
use flatclip::classify::{ViewPixels, batch_images};
use flatclip::image::{DecodeOptions, ImageNotes, open_noted};
use flatclip::{Answer, Classifier, Image, ImageInput, Result, Stream};

pub(super) struct Opening<'a> {
    pub(super) classifier: &'a Classifier,
    pub(super) decode: DecodeOptions,
    /// Whether the content of a file is noted.
    pub(super) content: bool,
    /// Whether answers come with their image, which is then alone in its batch.
    pub(super) images: bool,
}

pub(super) struct Opened {
    /// Taken before the image is read: if it is replaced meanwhile, the row is known to be old.
    content: String,
    notes: ImageNotes,
    seen: Seen,
}

enum Seen {
    /// Nothing but pixels, so that a batch of large images takes little memory.
    Views(Result<ViewPixels>),
    Whole(Result<Image>, String),
}

pub(super) struct Done {
    pub(super) content: String,
    pub(super) notes: ImageNotes,
    /// With the image where it was asked for.
    pub(super) answer: Result<(Answer, Option<Image>)>,
}

impl Opening<'_> {
    pub(super) fn batch(&self) -> usize {
        if self.images || !self.classifier.takes_batches() { 1 } else { batch_images(self.classifier.views()) }
    }

    pub(super) fn open(&self, file: &Path) -> Opened {
        let content = if self.content { content_of(file) } else { String::new() };
        let (image, notes) = match open_noted(file, &self.decode) {
            Ok((image, notes)) => (Ok(image), notes),
            Err(error) => (Err(error), ImageNotes::default()),
        };
        let whole = |image: Result<Image>| {
            Seen::Whole(image, file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
        };
        let seen = match image {
            Ok(image) if !self.images => match self.classifier.batch_views(&image) {
                Some(views) => Seen::Views(views),
                None => whole(Ok(image)),
            },
            Err(error) if !self.images && self.classifier.takes_batches() => Seen::Views(Err(error)),
            image => whole(image),
        };
        Opened { content, notes, seen }
    }

    /// The answers of a batch, in its order.
    pub(super) fn answer(&self, batch: Vec<Opened>, stream: &mut Stream) -> Vec<Done> {
        let (mut about, mut views, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for Opened { content, notes, seen } in batch {
            about.push((content, notes));
            match seen {
                Seen::Views(made) => views.push(made),
                Seen::Whole(image, name) => answers.push(image.and_then(|image| {
                    let answer = stream.answer(ImageInput::Named(&image, &name))?;
                    Ok((answer, self.images.then_some(image)))
                })),
            }
        }
        // A batch is of one kind: this file or that has no other way through the tower than the rest.
        let batched = self.classifier.answer_batch(views).into_iter();
        answers.extend(batched.map(|answer| answer.map(|answer| (answer, None))));
        about.into_iter().zip(answers).map(|((content, notes), answer)| Done { content, notes, answer }).collect()
    }
}
