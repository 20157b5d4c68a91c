//! Many images: batches for the image tower.

use super::ViewFeatures;
use super::answer::Answer;
use super::classifier::Classifier;
use super::together::NamedPixels;
use crate::Result;
use crate::image::{Image, decoding_bytes};
use rayon::prelude::*;
use std::io::Read as _;
use std::path::Path;

/// Views of a batch at least, and per thread: so many that threads which end first wait little for the last one.
const BATCH_VIEWS: (usize, usize) = (32, 8);

/// Bytes at the beginning of a file that show the size of its image, also behind a thumbnail.
const HEAD: u64 = 128 << 10;
/// Bytes of decoding above which an image is large: about 2.5 megapixels.
const LARGE: u64 = 8 << 20;

/// Images of a batch, of so many views each: no more than the image tower has use for.
pub fn batch_images(views: usize) -> usize {
    let wanted = BATCH_VIEWS.0.max(BATCH_VIEWS.1 * rayon::current_num_threads());
    (wanted / views.max(1)).max(1)
}

/// Works on files in batches of `size`, in their order: `load` makes ready what a file holds, `work` takes all of a batch,
/// and `each` gets the place and the result of every file until it says `false`.
///
/// All threads load the small images of a batch just before the work on it: beside the work, one thread would load them and be
/// late for its share. Large images, and those that are a batch by themselves, are loaded one after the other beside the work on
/// the batch before, so that one batch and the large images of the next are in memory.
pub fn in_batches<I: AsRef<Path> + Sync, L: Send, R: Send, E>(
    files: &[I],
    size: usize,
    load: impl Fn(&I) -> L + Sync,
    mut work: impl FnMut(Vec<L>) -> Vec<R> + Send,
    mut each: impl FnMut(usize, R) -> Result<bool, E>,
) -> Result<(), E> {
    let load_ahead = |batch: &[I]| -> Vec<Option<L>> {
        batch.iter().map(|file| (size <= 1 || is_large(file.as_ref())).then(|| load(file))).collect()
    };
    let load_rest = |batch: &[I], ahead: Vec<Option<L>>| -> Vec<L> {
        let all = batch.par_iter().with_max_len(1).zip(ahead);
        all.map(|(file, ready)| ready.unwrap_or_else(|| load(file))).collect()
    };
    let mut batches = files.chunks(size.max(1));
    let mut next = batches.next().map(|batch| (batch, load_ahead(batch)));
    let mut place = 0;
    while let Some((batch, ahead)) = next.take() {
        let following = batches.next();
        let (done, ready) =
            rayon::join(|| work(load_rest(batch, ahead)), || following.map(|batch| (batch, load_ahead(batch))));
        next = ready;
        for result in done {
            if !each(place, result)? {
                return Ok(());
            }
            place += 1;
        }
    }
    Ok(())
}

/// Whether an image takes so much memory that no other should be decoded at the same time. A file that shows no size at its
/// beginning is judged by its length.
fn is_large(file: &Path) -> bool {
    // What is no regular file, such as a pipe, can be read only once.
    let Some(about) = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file) else { return false };
    let Ok(opened) = std::fs::File::open(file) else { return false };
    let mut head = Vec::new();
    match opened.take(HEAD).read_to_end(&mut head) {
        Ok(_) => decoding_bytes(&head).unwrap_or(about.len()) > LARGE,
        Err(_) => false,
    }
}

/// The pixels of an image's views, ready to share a call of the image tower with those of others.
#[derive(Clone, Debug)]
pub struct ViewPixels(NamedPixels);

impl Classifier {
    /// The pixels of an image's views, for [`Classifier::answer_batch`]; `None` where the method sees each image alone: it learns
    /// from them, asks for more views when it needs them, or runs the tower itself.
    pub fn batch_views(&self, image: &Image) -> Option<Result<ViewPixels>> {
        self.batch_pixels(image).map(|made| made.map(ViewPixels))
    }

    /// One answer per image, their views in one call of the image tower. Every answer is the one that [`Classifier::answer`] gives.
    pub fn answer_batch(&self, images: Vec<Result<ViewPixels>>) -> Vec<Result<Answer>> {
        let mut pixels = Vec::new();
        let mut names: Vec<Result<String>> = Vec::with_capacity(images.len());
        for image in images {
            names.push(image.map(|ViewPixels((id, own))| {
                pixels.extend(own);
                id
            }));
        }
        let (views, good) = (self.views(), names.iter().filter(|name| name.is_ok()).count());
        let encoded = match good {
            0 => Ok(ViewFeatures::none()),
            good => self.encode_pixels(&pixels, good * views).map_err(|error| error.to_string()),
        };
        let mut place = 0;
        let places: Vec<Result<(String, usize)>> = names
            .into_iter()
            .map(|name| {
                name.map(|id| {
                    place += 1;
                    (id, place - 1)
                })
            })
            .collect();
        let answer = |named: Result<(String, usize)>| {
            let (id, at) = named?;
            match &encoded {
                Ok(features) => self.decide_features(&id, &features.part(at * views..(at + 1) * views)),
                // The tower fails for all of them alike; each then says so.
                Err(text) => Err(crate::Error::config("views", text.clone())),
            }
        };
        places.into_par_iter().map(answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::Model;
    use crate::image::sheet::encode_png;

    fn image(seed: u8) -> Image {
        Image { width: 40, height: 30, rgb: (0..3600u32).map(|i| (i * 7 + u32::from(seed) * 31) as u8).collect() }
    }

    #[test]
    fn results_come_in_order_and_stop_when_asked() {
        // No such files: they are loaded by their names.
        let inputs: Vec<String> = (0..23).map(|x| x.to_string()).collect();
        let number = |name: &String| name.parse::<usize>().unwrap();
        for size in [1, 4, 23, 100] {
            let mut seen = Vec::new();
            let work = |batch: Vec<usize>| batch.into_iter().map(|x| x * x).collect();
            in_batches(
                &inputs,
                size,
                |name| number(name) + 1,
                work,
                |place, found| {
                    seen.push((place, found));
                    Ok::<bool, ()>(place < 17)
                },
            )
            .unwrap();
            assert_eq!(seen, (0..18).map(|x| (x, (x + 1) * (x + 1))).collect::<Vec<_>>());
        }
        assert_eq!(in_batches(&inputs, 5, number, |batch| batch, |_, _| Err("stop")), Err("stop"));
        let none: [String; 0] = [];
        assert_eq!(in_batches(&none, 5, number, |batch| batch, |_, _| Err("stop")), Ok(()));
    }

    #[test]
    fn large_images_are_known_by_their_header() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            is_large(&folder.path().join(name))
        };
        let png =
            |side: usize| encode_png(&Image { width: side, height: side, rgb: vec![7; 3 * side * side] }).unwrap();
        assert!(file("large.png", &png(1700)) && !file("small.png", &png(400)));
        assert!(!file("text.txt", b"no image") && file("unknown", &vec![0; (LARGE + 1) as usize]));
        assert!(!is_large(&folder.path().join("absent")));
    }

    #[test]
    fn a_batch_has_the_answers_of_each_alone() {
        let model = Model::load("pocket").unwrap();
        for (method, views) in [("zero-shot", 1), ("stss", 4)] {
            let classifier =
                Classifier::builder(&model).classes(["fish", "lamp"]).method(method).views(views).build().unwrap();
            assert!(classifier.takes_batches());
            let images: Vec<Image> = (0..5).map(image).collect();
            let mut made: Vec<_> = images.iter().map(|image| classifier.batch_views(image).unwrap()).collect();
            made.insert(2, Err(crate::Error::config("image", "damaged")));
            let mut answers = classifier.answer_batch(made);
            assert!(answers.remove(2).unwrap_err().to_string().contains("damaged"));
            for (answer, image) in answers.into_iter().zip(&images) {
                assert_eq!(answer.unwrap(), classifier.answer(image).unwrap());
            }
        }
        let bad = || Err(crate::Error::config("image", "damaged"));
        let classifier = Classifier::builder(&model).classes(["fish", "lamp"]).build().unwrap();
        assert!(classifier.answer_batch(vec![bad(), bad()]).iter().all(Result::is_err));
        let online = Classifier::builder(&model).classes(["fish", "lamp"]).method("tda").build().unwrap();
        assert!(!online.takes_batches() && online.batch_views(&image(1)).is_none());
    }
}
