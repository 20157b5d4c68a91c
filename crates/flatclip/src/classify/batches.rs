//! Many files: batches for the image tower, loaded ahead.

use crate::Result;
use crate::image::decoding_bytes;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::image::sheet::encode_png;

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
}
