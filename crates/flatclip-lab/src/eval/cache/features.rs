//! Image features of all views of a data set, on disk.

use super::read_if_there;
use super::segment::{self, Location};
use crate::data::Sample;
use flatclip::ViewFeatures;
use flatclip::digest::Digest;
use flatclip::{Error, Result, files};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What the features of a sample depend on, apart from the image itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureKey {
    /// Fingerprint of the weights.
    pub weights: String,
    /// Name of the data set.
    pub dataset: String,
    /// Which part of it.
    pub split: String,
    /// Augmentation, number of views, size, interpolation.
    pub views: String,
    /// Seed of the views.
    pub seed: u64,
    /// Precision and instruction path of the tower.
    pub precision: String,
    /// Version of the decoder and of the view code.
    pub pixels: String,
}

impl FeatureKey {
    fn id(&self) -> Result<String> {
        let json = serde_json::to_vec(self).map_err(|e| Error::config("cache", e.to_string()))?;
        Ok(Digest::default().bytes(json).short())
    }

    /// Writes the key into a cache folder; gives its id.
    pub(super) fn write(&self, folder: &Path) -> Result<String> {
        let json = serde_json::to_vec_pretty(self).map_err(|e| Error::config("cache", e.to_string()))?;
        files::write_atomic(&folder.join("key.json"), &json)?;
        self.id()
    }

    /// The key of a cache folder; `None` if it has none (yet).
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        Ok(read_if_there(&folder.join("key.json"))?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

pub(crate) struct CachedViews {
    pub(crate) features: ViewFeatures,
    pub(crate) digest: String,
    /// What encoding all views took; `None` in entries of earlier versions.
    pub(crate) encode: Option<Duration>,
}

impl CachedViews {
    /// Those of the first so many views; `None` if there are fewer. Only an import can have more than are read.
    pub(crate) fn first_views(self, count: usize) -> Option<Self> {
        match self.features.unit.rows() {
            rows if rows < count => None,
            rows if rows == count => Some(self),
            _ => Some(Self { features: self.features.part(0..count), ..self }),
        }
    }
}

/// What an entry stores in addition to its features: file stamp, digest of the image and, since encoding is charged to every method
/// that uses it, the time it took.
struct Stamp<'a> {
    file: &'a str,
    digest: &'a str,
    encode: Option<Duration>,
}

impl<'a> Stamp<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (file, rest) = text.split_once(' ')?;
        let (digest, took) = rest.split_once(' ').unwrap_or((rest, ""));
        let micros = took.strip_suffix("us").and_then(|count| count.parse().ok());
        Some(Self { file, digest, encode: micros.map(Duration::from_micros) })
    }
}

/// The kept features of one key. Several processes may use one folder: each appends to a segment of its own.
#[derive(Debug)]
pub(crate) struct FeatureCache {
    folder: PathBuf,
    /// Features are stored with unit norm; an import may keep every bit as another model gave it.
    unit: bool,
    segments: Vec<Mutex<File>>,
    /// By sample id: data sets of one name may have several images of one id.
    index: BTreeMap<String, Vec<(usize, Location)>>,
    /// The segment of this process, begun with the first entry.
    writer: Mutex<Writer>,
}

#[derive(Debug)]
enum Writer {
    Fresh,
    Open(File),
    /// A write failed: nothing is kept any more.
    Broken,
}

impl FeatureCache {
    /// Opens (or begins) what is kept for a key below the cache folder.
    pub(crate) fn open(root: &Path, key: &FeatureKey) -> Result<Self> {
        let folder = root.join("features").join(key.id()?);
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        if FeatureKey::read(&folder)?.is_none() {
            key.write(&folder)?;
        }
        Self::scan(folder, true)
    }

    /// What a folder of the cache holds.
    pub(super) fn scan(folder: PathBuf, unit: bool) -> Result<Self> {
        let writer = Mutex::new(Writer::Fresh);
        let mut cache = Self { folder, unit, segments: Vec::new(), index: BTreeMap::new(), writer };
        for path in segment::files(&cache.folder)? {
            let number = cache.segments.len();
            segment::scan(&path, |id, location| {
                cache.index.entry(id).or_default().push((number, location));
            })?;
            cache.segments.push(Mutex::new(File::open(&path).map_err(Error::io(&path))?));
        }
        Ok(cache)
    }

    /// The features of a sample whose image has not changed. A damaged entry counts as absent.
    pub(crate) fn get(&self, sample: &Sample) -> Option<CachedViews> {
        let (segment, location) = self.find(sample)?;
        // `size` was checked against the file's length when it was scanned.
        let mut bytes = vec![0; location.size];
        let mut file = self.segments[*segment].lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(location.offset)).ok()?;
        file.read_exact(&mut bytes).ok()?;
        drop(file);
        let stamp = Stamp::parse(&location.stamp)?;
        let stored = segment::decode(&bytes)?;
        let features = if self.unit { stored } else { ViewFeatures::new(stored.unit).ok()? };
        Some(CachedViews { features, digest: stamp.digest.to_owned(), encode: stamp.encode })
    }

    /// The digest of a sample's image as it is now, if features of it are kept.
    pub(crate) fn content_digest(&self, sample: &Sample) -> Option<String> {
        Stamp::parse(&self.find(sample)?.1.stamp).map(|stamp| stamp.digest.to_owned())
    }

    /// The entry of a sample. An unchanged file is known by its stamp; for another one (copied, touched, of a folder with
    /// the same name) the content decides.
    fn find(&self, sample: &Sample) -> Option<&(usize, Location)> {
        let entries = self.index.get(&sample.id)?;
        let stamp = sample.stamp().ok()?;
        let same = |(_, location): &&(usize, Location)| Stamp::parse(&location.stamp).is_some_and(|s| s.file == stamp);
        if let Some(entry) = entries.iter().rev().find(same) {
            return Some(entry);
        }
        let content = sample.content_digest().ok()?;
        entries.iter().rev().find(|(_, location)| Stamp::parse(&location.stamp).is_some_and(|s| s.digest == content))
    }

    /// Keeps the features of a sample for later runs, with the time that encoding all its views took. After a failure (a
    /// full disk) nothing more is stored; only the first failure is reported.
    pub(crate) fn put(&self, sample: &Sample, features: &ViewFeatures, encode: Duration) -> Result<()> {
        let mut slot = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*slot, Writer::Broken) {
            return Ok(());
        }
        let kept = self.append(&mut slot, sample, features, encode);
        if kept.is_err() {
            *slot = Writer::Broken;
        }
        kept
    }

    fn append(&self, slot: &mut Writer, sample: &Sample, features: &ViewFeatures, encode: Duration) -> Result<()> {
        let stamp = format!("{} {} {}us", sample.stamp()?, sample.content_digest()?, encode.as_micros());
        let bytes = segment::encode(&sample.id, &stamp, features);
        if let Writer::Fresh = slot {
            *slot = Writer::Open(segment::create(&self.folder)?);
        }
        let Writer::Open(file) = slot else { return Ok(()) };
        // One write per entry: a process that dies tears at most the last one.
        file.write_all(&bytes).map_err(Error::io(&self.folder))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{list, remove, remove_all};
    use super::*;
    use crate::data::Source;
    use flatclip_tensor::Matrix;

    impl FeatureCache {
        fn features(&self, sample: &Sample) -> Option<ViewFeatures> {
            self.get(sample).map(|cached| cached.features)
        }
    }

    const TOOK: Duration = Duration::from_micros(1500);

    fn open(root: &tempfile::TempDir, seed: u64) -> FeatureCache {
        let key = FeatureKey { dataset: "toy".into(), seed, ..FeatureKey::default() };
        FeatureCache::open(root.path(), &key).unwrap()
    }

    fn sample(dir: &Path, id: &str) -> Sample {
        let path = dir.join(id);
        if !path.exists() {
            std::fs::write(&path, id).unwrap();
        }
        Sample { id: id.into(), label: 0, source: Source::File(path) }
    }

    fn features(start: f32) -> ViewFeatures {
        let data: Vec<f32> = (0..6).map(|i| start + i as f32 / 7.0).collect();
        ViewFeatures { unit: Matrix::from_vec(2, 3, data), norms: vec![start, f32::MIN_POSITIVE] }
    }

    #[test]
    fn features_come_back_to_the_bit_also_from_two_writers() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (open(&dir, 0), open(&dir, 0));
        one.put(&sample(dir.path(), "a"), &features(1.0), TOOK).unwrap();
        two.put(&sample(dir.path(), "b"), &features(2.0), TOOK).unwrap();
        one.put(&sample(dir.path(), "c"), &features(3.0), TOOK).unwrap();
        let cache = open(&dir, 0);
        for (id, start) in [("a", 1.0), ("b", 2.0), ("c", 3.0)] {
            assert_eq!(cache.features(&sample(dir.path(), id)), Some(features(start)));
            assert_eq!(cache.get(&sample(dir.path(), id)).unwrap().encode, Some(TOOK));
        }
        assert!(open(&dir, 1).index.is_empty(), "another seed is another key");
    }

    #[test]
    fn an_entry_of_an_earlier_version_has_no_encoding_time() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, own) = (open(&dir, 0), sample(dir.path(), "a"));
        let stamp = format!("{} {}", own.stamp().unwrap(), own.content_digest().unwrap());
        std::fs::write(cache.folder.join("views-x.seg"), segment::encode("a", &stamp, &features(1.0))).unwrap();
        let found = open(&dir, 0).get(&own).unwrap();
        assert_eq!((found.features, found.encode), (features(1.0), None));
        assert_eq!(found.digest, own.content_digest().unwrap());
    }

    #[test]
    fn folders_of_one_name_do_not_share_features_and_a_copy_needs_no_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let place = |folder: &str, content: &str| {
            let path = dir.path().join(folder).join("a.jpg");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, content).unwrap();
            // The same size and the same time everywhere.
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1)).unwrap();
            Sample { id: "a.jpg".into(), label: 0, source: Source::File(path) }
        };
        let (one, other) = (place("x/photos", "cat"), place("y/photos", "dog"));
        open(&dir, 0).put(&one, &features(1.0), TOOK).unwrap();
        let cache = open(&dir, 0);
        assert_eq!(cache.features(&one), Some(features(1.0)));
        assert_eq!(cache.features(&other), None, "another image of the same name, size and time");
        assert_eq!(cache.features(&place("z/photos", "cat")), Some(features(1.0)), "a copy");
        cache.put(&other, &features(2.0), TOOK).unwrap();
        let cache = open(&dir, 0);
        assert_eq!((cache.features(&one), cache.features(&other)), (Some(features(1.0)), Some(features(2.0))));
        let replaced = place("x/photos", "cow");
        assert_eq!(cache.features(&replaced), None, "written over with the same size and time");
    }

    #[test]
    fn changed_images_torn_tails_and_flipped_bits_count_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let cache = open(&dir, 0);
        for id in ["a", "b"] {
            cache.put(&sample(dir.path(), id), &features(1.0), TOOK).unwrap();
        }
        let file = segment::files(&cache.folder).unwrap().remove(0);
        let bytes = std::fs::read(&file).unwrap();
        let reopen = || open(&dir, 0);
        for cut in 0..bytes.len() {
            std::fs::write(&file, &bytes[..cut]).unwrap();
            assert_eq!(reopen().index.len(), cut / (bytes.len() / 2), "cut at {cut}");
        }
        let mut flipped = bytes.clone();
        flipped[40] ^= 1;
        std::fs::write(&file, &flipped).unwrap();
        assert_eq!(reopen().features(&sample(dir.path(), "a")), None);
        assert!(reopen().features(&sample(dir.path(), "b")).is_some());
        std::fs::write(dir.path().join("b"), "changed image").unwrap();
        assert_eq!(reopen().features(&sample(dir.path(), "b")), None);
    }

    #[test]
    fn a_header_that_claims_too_much_allocates_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = open(&dir, 0);
        let mut bytes = segment::encode("a", "s", &features(1.0));
        bytes[12..20].fill(0xff);
        std::fs::write(cache.folder.join("views-x.seg"), &bytes).unwrap();
        assert!(open(&dir, 0).index.is_empty());
    }

    #[test]
    fn entries_are_listed_with_their_size_and_removed_by_id() {
        let dir = tempfile::tempdir().unwrap();
        for seed in 0..2 {
            let cache = open(&dir, seed);
            cache.put(&sample(dir.path(), "a"), &features(1.0), TOOK).unwrap();
        }
        let entries = list(dir.path()).unwrap();
        assert_eq!(entries.len(), 2);
        assert!(entries[0].bytes > 48 && entries[0].samples == 1);
        assert!(remove(dir.path(), "").unwrap_err().to_string().contains("2 entries"));
        assert_eq!(remove(dir.path(), &entries[0].id).unwrap(), entries[0].bytes);
        assert_eq!(remove_all(dir.path()).unwrap(), entries[1].bytes);
        assert!(list(dir.path()).unwrap().is_empty());
    }
}
