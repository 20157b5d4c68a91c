//! What a data set is, whatever it was read from.

use super::folder::{PLAIN_TEMPLATE, base_name};
use super::names;
use flatclip::digest::{self, Digest};
use flatclip::image::{self, DecodeOptions, Image, ImageNotes};
use flatclip::{Error, Result};
use flatclip_pocket::{Domain, World};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most bytes that one encoded image may have; larger files are refused before they are read.
const MAX_IMAGE_BYTES: u64 = 512 << 20;

/// The stamp of a sample that has features only: the digest of the import replaces that of the image.
pub(crate) const IMPORTED: &str = "imported";

/// Which part of a data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Labelled samples to learn from.
    Train,
    /// Labelled samples to choose hyper-parameters on.
    Val,
    /// What the published numbers are measured on.
    #[default]
    Test,
}

impl Split {
    /// The word in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}

impl std::str::FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Train, Self::Val, Self::Test];
        let found = all.into_iter().find(|split| split.name() == text);
        found.ok_or_else(|| Error::config("split", format!("`{text}` is not one of train, val, test")))
    }
}

/// Which column group of a table a data set belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// ImageNet and its four shifted variants: the domain generalisation tables.
    Imagenet,
    /// The ten fine-grained sets: the cross-dataset tables.
    FineGrained,
    /// Drawn by the pocket dataset.
    Pocket,
    /// The user's own data.
    #[default]
    Custom,
}

/// Where the image of a sample is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A file of its own.
    File(PathBuf),
    /// A member of an uncompressed tar archive.
    Member {
        /// The archive.
        archive: Arc<Path>,
        /// Where the member's bytes begin.
        offset: u64,
        /// How many they are.
        size: u64,
    },
    /// At hand.
    Given(Arc<Image>),
    /// Elsewhere: only features of it were imported.
    Features,
    /// Drawn by the pocket dataset when asked for.
    Drawn {
        /// Which of the three worlds.
        world: World,
        /// Which style.
        domain: Domain,
        /// Which image.
        index: u64,
    },
}

/// One labelled image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Names the sample within its data set, the same on every machine: relative path or archive key, with `/`.
    pub id: String,
    /// Index into [`Dataset::classes`].
    pub label: usize,
    /// Where the image is.
    pub source: Source,
}

impl Sample {
    /// A file that names the sample in messages.
    pub fn path(&self) -> &Path {
        match &self.source {
            Source::File(path) => path,
            Source::Member { archive, .. } => archive,
            Source::Given(_) | Source::Drawn { .. } | Source::Features => Path::new(&self.id),
        }
    }

    /// Whether the file that it is read from exists.
    pub(crate) fn is_there(&self) -> bool {
        !self.can_change() || self.path().is_file()
    }

    /// The image, decoded or drawn.
    pub fn image(&self, options: &DecodeOptions) -> Result<Image> {
        Ok(self.image_noted(options)?.0)
    }

    /// The same, and what was done to it.
    pub(crate) fn image_noted(&self, options: &DecodeOptions) -> Result<(Image, ImageNotes)> {
        if let Source::Given(image) = &self.source {
            return Ok(((**image).clone(), ImageNotes::default()));
        }
        if let Source::Drawn { world, domain, index } = self.source {
            let rgb = flatclip_pocket::draw(&flatclip_pocket::scene(world, domain, index));
            let side = flatclip_pocket::SIDE;
            return Ok((Image { width: side, height: side, rgb }, ImageNotes::default()));
        }
        image::decode_noted(self.path(), &self.read()?, options)
    }

    /// The encoded image; an error for one that is drawn or was given as pixels.
    pub fn read(&self) -> Result<Vec<u8>> {
        let fault = |reason: &str| Err(Error::Data { path: self.path().to_path_buf(), reason: reason.to_owned() });
        match &self.source {
            Source::File(path) => {
                let file = File::open(path).map_err(Error::io(path))?;
                let size = file.metadata().map_err(Error::io(path))?.len();
                read_limited(path, file, size)
            }
            Source::Member { archive, offset, size } => {
                let mut file = File::open(archive).map_err(Error::io(archive))?;
                file.seek(SeekFrom::Start(*offset)).map_err(Error::io(archive))?;
                let bytes = read_limited(archive, file, *size)?;
                if (bytes.len() as u64) < *size {
                    return fault(&format!("member `{}` is cut off; the archive is not complete", self.id));
                }
                Ok(bytes)
            }
            Source::Features => fault("only features of this image were imported: it has no pixels"),
            Source::Given(_) | Source::Drawn { .. } => {
                fault("is drawn or was given as pixels: it has no encoded bytes")
            }
        }
    }

    /// What changes when the file that the sample is read from does: place, size, times, inode. Two equal stamps mean an
    /// unchanged image; two different ones say nothing.
    pub(crate) fn stamp(&self) -> Result<String> {
        if let Some(name) = self.without_file() {
            return Ok(name);
        }
        let path = self.path();
        let meta = std::fs::metadata(path).map_err(Error::io(path))?;
        let place = std::path::absolute(path).map_err(Error::io(path))?;
        let changed = meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        let member = if let Source::Member { offset, size, .. } = &self.source { (*offset, *size) } else { (0, 0) };
        let all = format!("{:?} {} {changed:?} {:?} {member:?}", place, meta.len(), identity(&meta));
        Ok(Digest::default().bytes(all).key())
    }

    /// A short name of the image's content for records; `None` for one that cannot change.
    pub(crate) fn short_digest(&self) -> Result<Option<String>> {
        if self.can_change() { self.content_digest().map(|digest| Some(shortened(digest))) } else { Ok(None) }
    }

    /// Whether the content can be another one tomorrow.
    pub(crate) fn can_change(&self) -> bool {
        !matches!(self.source, Source::Drawn { .. } | Source::Features)
    }

    /// Names the encoded image, wherever it lies; one that was given as pixels by these.
    pub(crate) fn content_digest(&self) -> Result<String> {
        self.without_file().map_or_else(|| Ok(Digest::default().bytes(self.read()?).key()), Ok)
    }

    /// Names the content of a sample that is not read from a file.
    fn without_file(&self) -> Option<String> {
        match &self.source {
            Source::Drawn { .. } => Some("drawn".to_owned()),
            Source::Features => Some(IMPORTED.to_owned()),
            Source::Given(given) => Some(digest::of_pixels(given.width, given.height, &given.rgb)),
            Source::File(_) | Source::Member { .. } => None,
        }
    }
}

/// The first 16 digits: enough for records.
pub(crate) fn shortened(mut digest: String) -> String {
    digest.truncate(16);
    digest
}

/// Device, inode and time of the last change of anything about a file: a copy over it that keeps size and time still
/// changes these.
#[cfg(unix)]
fn identity(meta: &std::fs::Metadata) -> impl std::fmt::Debug {
    use std::os::unix::fs::MetadataExt as _;
    (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())
}

#[cfg(not(unix))]
fn identity(meta: &std::fs::Metadata) -> impl std::fmt::Debug {
    meta.created().ok()
}

fn read_limited(path: &Path, file: File, size: u64) -> Result<Vec<u8>> {
    if size > MAX_IMAGE_BYTES {
        return Err(Error::Limit {
            what: format!("{}: size of one image in bytes", path.display()),
            asked: size,
            allowed: MAX_IMAGE_BYTES,
            hint: "this is not an image of a benchmark; remove it from the list".into(),
        });
    }
    // Grown while reading: `size` is what a header claims.
    let mut bytes = Vec::with_capacity(size.min(1 << 20) as usize);
    file.take(size).read_to_end(&mut bytes).map_err(Error::io(path))?;
    Ok(bytes)
}

/// Something that a loader found and a person should read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// True if a published number cannot be reproduced with it.
    pub warning: bool,
    /// Expected, found, what to do.
    pub text: String,
}

impl Note {
    /// What was found, as expected.
    pub fn info(text: impl Into<String>) -> Self {
        Self { warning: false, text: text.into() }
    }

    /// What was found and is not as published.
    pub fn warning(text: impl Into<String>) -> Self {
        Self { warning: true, text: text.into() }
    }
}

/// Classes, templates and the samples of one split.
#[derive(Clone, Debug, Default)]
pub struct Dataset {
    /// The name in results and in random streams, e.g. `imagenet_a` or `folder:holiday`.
    pub name: String,
    /// As it was named to [`open`](super::open); empty for one that was made in memory.
    pub spec: String,
    /// Which table it belongs to.
    pub family: Family,
    /// Which part was read.
    pub split: Split,
    /// Class names as they stand in a template (spaces, no underscores), by label.
    pub classes: Vec<String>,
    /// The data set's own zero-shot templates, `{}` for the class name.
    pub templates: Vec<String>,
    /// In a fixed order that does not depend on the file system.
    pub samples: Vec<Sample>,
    /// What the loader found.
    pub notes: Vec<Note>,
}

impl Dataset {
    /// A data set of the given samples. Labels without a class and duplicate names are refused.
    pub fn of_samples(name: impl Into<String>, classes: Vec<String>, samples: Vec<Sample>) -> Result<Self> {
        let name = name.into();
        let fault = |reason: String| Err(Error::Data { path: name.clone().into(), reason });
        if samples.is_empty() || classes.is_empty() {
            return fault(format!("expected samples and classes, found {} and {}", samples.len(), classes.len()));
        }
        if let Some(sample) = samples.iter().find(|sample| sample.label >= classes.len()) {
            return fault(format!("sample `{}` has label {} of {} classes", sample.id, sample.label, classes.len()));
        }
        let mut ids: Vec<&str> = samples.iter().map(|sample| sample.id.as_str()).collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return fault(format!("two samples are called `{}`", twice[0]));
        }
        let templates = vec![PLAIN_TEMPLATE.to_owned()];
        Ok(Self { name, classes, templates, samples, ..Self::default() })
    }

    /// The user's own files, which lie at `place`.
    pub(super) fn of_files(
        kind: &str,
        place: &Path,
        split: Split,
        classes: Vec<String>,
        samples: Vec<Sample>,
        mut notes: Vec<Note>,
    ) -> Self {
        names::note_duplicates(&classes, &mut notes);
        let (name, templates) = (format!("{kind}:{}", base_name(place)), vec![PLAIN_TEMPLATE.to_owned()]);
        Self { name, split, classes, templates, samples, notes, ..Self::default() }
    }

    /// How its images are read: a known benchmark as Pillow reads them, the user's own as a person sees them; `exif` overrides.
    pub fn decode_options(&self, exif: Option<bool>) -> DecodeOptions {
        DecodeOptions { exif: super::reads_exif(&self.spec, exif), ..DecodeOptions::default() }
    }

    /// The class list's fingerprint: names and their order.
    pub fn classes_hash(&self) -> String {
        digest::of_names(&self.classes)
    }

    /// How many samples each class has.
    pub fn class_counts(&self) -> Vec<usize> {
        self.by_class().iter().map(Vec::len).collect()
    }

    /// The sample indices of each class, ascending: what few-shot sampling draws from.
    pub fn by_class(&self) -> Vec<Vec<usize>> {
        let mut lists = vec![Vec::new(); self.classes.len()];
        for (index, sample) in self.samples.iter().enumerate() {
            lists[sample.label].push(index);
        }
        lists
    }

    /// The classes `keep` (in that order) and their samples, relabelled from 0: base and new halves.
    pub fn restrict_classes(&self, keep: &[usize]) -> Self {
        let mut new_label = vec![None; self.classes.len()];
        for (label, &class) in keep.iter().enumerate() {
            new_label[class] = Some(label);
        }
        let relabel = |sample: &Sample| Some(Sample { label: new_label[sample.label]?, ..sample.clone() });
        Self {
            name: self.name.clone(),
            spec: self.spec.clone(),
            family: self.family,
            split: self.split,
            classes: keep.iter().map(|&class| self.classes[class].clone()).collect(),
            templates: self.templates.clone(),
            samples: self.samples.iter().filter_map(relabel).collect(),
            notes: self.notes.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toy() -> Dataset {
        let sample = |i: usize| Sample { id: format!("{i}"), label: i % 5, source: Source::File("x".into()) };
        Dataset {
            name: "toy".into(),
            classes: ["a", "b", "c", "d", "e"].map(String::from).to_vec(),
            samples: (0..11).map(sample).collect(),
            ..Dataset::default()
        }
    }

    #[test]
    fn samples_at_hand_are_checked_and_keep_their_pixels() {
        let image = Arc::new(Image { width: 1, height: 1, rgb: vec![1, 2, 3] });
        let sample = |id: &str, label| Sample { id: id.into(), label, source: Source::Given(Arc::clone(&image)) };
        let make = |samples| Dataset::of_samples("mine", vec!["a".into(), "b".into()], samples);
        let data = make(vec![sample("x", 0), sample("y", 1)]).unwrap();
        assert_eq!(data.samples[1].image(&DecodeOptions::default()).unwrap(), *image);
        assert_eq!(data.samples[0].stamp().unwrap(), data.samples[1].stamp().unwrap());
        assert!(data.samples[0].read().is_err());
        for bad in [vec![], vec![sample("x", 2)], vec![sample("x", 0), sample("x", 1)]] {
            assert!(make(bad).is_err());
        }
    }

    #[test]
    fn chosen_classes_are_relabelled_from_zero() {
        let new = toy().restrict_classes(&[3, 4]);
        assert_eq!((new.classes.clone(), new.class_counts()), (vec!["d".to_owned(), "e".to_owned()], vec![2, 2]));
    }

    #[test]
    fn the_class_hash_sees_names_and_order() {
        let mut other = toy();
        other.classes.swap(0, 1);
        assert_ne!(toy().classes_hash(), other.classes_hash());
        assert_eq!(toy().classes_hash().len(), 16);
    }

    #[test]
    fn a_member_beyond_the_end_of_its_archive_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"0123456789").unwrap();
        let member = |offset, size| Sample {
            id: "k".into(),
            label: 0,
            source: Source::Member { archive: file.path().into(), offset, size },
        };
        assert_eq!(member(2, 3).read().unwrap(), b"234");
        assert!(member(8, 3).read().unwrap_err().to_string().contains("cut off"));
        assert!(matches!(member(0, 1 << 40).read(), Err(Error::Limit { .. })));
    }
}
