//! `wds:SHARDS`: tar shards in clip_benchmark's layout. Members `KEY.jpg` (or png, webp, ..) and `KEY.cls` (the label as
//! text) share a key; `classnames.txt` and `zeroshot_classification_templates.txt` stand beside the shards or one
//! folder above. Only headers are read: samples are offsets into the archives.

use super::dataset::{Dataset, Note, Sample, Source, Split};
use super::{folder, names, scan};
use flatclip::error::quoted;
use flatclip::files::read_text;
use flatclip::text::read_class_names;
use flatclip::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// More classes than ImageNet-21k has are not called by their numbers: one damaged label must not make a million classes.
const MAX_UNNAMED: usize = 32_768;

/// Members and their headers begin at multiples of this.
const BLOCK: u64 = 512;

/// Longer `.cls` members are not labels.
const MAX_LABEL_BYTES: u64 = 32;

#[derive(Default)]
struct Pair {
    image: Option<(u64, u64)>,
    label: Option<usize>,
}

/// Opens one shard, a folder of shards, or a pattern with one brace range: `DIR/{0..7}.tar`.
pub(crate) fn open_wds(shards: &str, split: Split) -> Result<Dataset> {
    let files = shard_files(shards, split)?;
    let folder = files[0].parent().unwrap_or(Path::new(".")).to_path_buf();
    let (mut samples, mut notes) = (Vec::new(), vec![Note::info(format!("{} shards", files.len()))]);
    for file in &files {
        read_shard(file, &mut samples, &mut notes)?;
    }
    if samples.is_empty() {
        let reason = "no pair of KEY.jpg and KEY.cls in the shards".to_owned();
        return Err(Error::Data { path: folder, reason });
    }
    let needed = samples.iter().map(|sample| sample.label + 1).max().unwrap_or_default();
    let classes = class_names(&folder, needed, &mut notes)?;
    let templates = match beside(&folder, "zeroshot_classification_templates.txt") {
        Some(path) => names::read_templates(&path)?,
        None => vec![folder::PLAIN_TEMPLATE.to_owned()],
    };
    Ok(Dataset { templates, ..Dataset::of_files("wds", &folder, split, classes, samples, notes) })
}

fn shard_files(shards: &str, split: Split) -> Result<Vec<PathBuf>> {
    let path = Path::new(shards);
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    if let Some(files) = brace_range(shards) {
        if let Some(absent) = files.iter().find(|file| !file.is_file()) {
            let reason = "is named by the shard range, but is not there".to_owned();
            return Err(Error::Data { path: absent.clone(), reason });
        }
        return Ok(files);
    }
    let inside = path.join(split.name());
    let folder = if inside.is_dir() { inside } else { path.to_path_buf() };
    let is_tar = |entry: &scan::Entry| entry.name.ends_with(".tar");
    let mut files: Vec<PathBuf> = scan::list(&folder)?.into_iter().filter(is_tar).map(|entry| entry.path).collect();
    if files.is_empty() {
        let reason = "expected .tar shards, found none; unpack .tar.gz, or give one shard or DIR/{0..7}.tar".to_owned();
        return Err(Error::Data { path: folder, reason });
    }
    check_shards(&folder, files.len())?;
    // 10.tar after 9.tar, as they were written.
    files.sort_by_key(|file| {
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        (stem.parse::<u64>().unwrap_or(u64::MAX), stem)
    });
    Ok(files)
}

/// `a{00..03}b` as four paths; `None` without a range.
fn brace_range(pattern: &str) -> Option<Vec<PathBuf>> {
    let (before, rest) = pattern.split_once('{')?;
    let (range, after) = rest.split_once('}')?;
    let (low, high) = range.split_once("..")?;
    let (first, last): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
    let width = if low.starts_with('0') { low.len() } else { 1 };
    (last.checked_sub(first)? < 100_000)
        .then(|| (first..=last).map(|n| PathBuf::from(format!("{before}{n:0width$}{after}"))).collect())
}

fn read_shard(file: &Path, samples: &mut Vec<Sample>, notes: &mut Vec<Note>) -> Result<()> {
    let mut handle = File::open(file).map_err(Error::io(file))?;
    let length = handle.metadata().map_err(Error::io(file))?.len();
    let wrong = |reason: String| Error::Data { path: file.to_path_buf(), reason };
    let damaged = |e: std::io::Error| wrong(format!("not a whole tar archive: {}", quoted(&e.to_string())));
    let mut archive = tar::Archive::new(BufReader::new(&mut handle));
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let (mut order, mut end) = (Vec::new(), 0);
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
        let (offset, size) = (entry.raw_file_position(), entry.size());
        end = offset.checked_add(size).and_then(|end| end.checked_next_multiple_of(BLOCK)).unwrap_or(u64::MAX);
        if end > length {
            let name = quoted(&name);
            return Err(wrong(format!("member `{name}` reaches beyond the end of the file; download the shard again")));
        }
        let (key, ending) = split_key(&name);
        if !entry.header().entry_type().is_file() || (ending != "cls" && !scan::is_image(&name)) {
            continue;
        }
        let pair = pairs.entry(key.to_owned()).or_insert_with(|| {
            order.push(key.to_owned());
            Pair::default()
        });
        let twice = if ending == "cls" {
            pair.label.replace(read_label(&mut entry).map_err(|found| {
                wrong(format!("member `{}` holds {found:?}, expected an integer label", quoted(&name)))
            })?)
        } else {
            pair.image.replace((offset, size)).map(|_| 0)
        };
        if twice.is_some() {
            return Err(wrong(format!("member `{}` is the second one of its kind for its key", quoted(&name))));
        }
    }
    check_end(&mut handle, end, length).map_err(wrong)?;
    let before = samples.len();
    collect_pairs(file, pairs, &order, samples, notes);
    check_count(file, samples.len() - before)
}

/// The label, or the text found in its place.
fn read_label(member: &mut impl std::io::Read) -> Result<usize, String> {
    let mut bytes = Vec::new();
    member.take(MAX_LABEL_BYTES).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.trim().parse().map_err(|_| text)
}

fn collect_pairs(
    file: &Path,
    pairs: BTreeMap<String, Pair>,
    order: &[String],
    out: &mut Vec<Sample>,
    notes: &mut Vec<Note>,
) {
    let archive: Arc<Path> = file.into();
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut alone = 0;
    for key in order {
        match pairs.get(key) {
            Some(Pair { image: Some((offset, size)), label: Some(label) }) => out.push(Sample {
                id: format!("{stem}/{key}"),
                label: *label,
                source: Source::Member { archive: Arc::clone(&archive), offset: *offset, size: *size },
            }),
            _ => alone += 1,
        }
    }
    if alone > 0 {
        let text = format!("{}: {alone} members have no partner (image without .cls or the reverse)", file.display());
        notes.push(Note::warning(text));
    }
}

/// webdataset's rule: the key ends at the first dot of the file name.
fn split_key(name: &str) -> (&str, &str) {
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[start..].find('.') {
        Some(dot) => (&name[..start + dot], &name[start + dot + 1..]),
        None => (name, ""),
    }
}

fn beside(folder: &Path, file: &str) -> Option<PathBuf> {
    [folder.join(file), folder.join("..").join(file)].into_iter().find(|path| path.is_file())
}

fn class_names(folder: &Path, needed: usize, notes: &mut Vec<Note>) -> Result<Vec<String>> {
    let Some(path) = beside(folder, "classnames.txt") else {
        if needed > MAX_UNNAMED {
            let reason = format!(
                "the largest label is {}, above {MAX_UNNAMED}, and there is no classnames.txt; add one, or fix the labels",
                needed - 1
            );
            return Err(Error::Data { path: folder.to_path_buf(), reason });
        }
        notes.push(Note::warning("no classnames.txt in the folder of the shards: class names are their numbers"));
        return Ok((0..needed).map(|label| label.to_string()).collect());
    };
    let classes: Vec<String> = read_class_names(&path)?.iter().map(|name| names::readable(name)).collect();
    if classes.len() < needed {
        let reason = format!("{} names, but the shards have labels up to {}", classes.len(), needed - 1);
        return Err(Error::Data { path, reason });
    }
    Ok(classes)
}

/// An archive ends with two blocks of zeros, and only zeros follow. Otherwise it is cut off, or a member's header is wiped out
/// and what it and the members behind it held would be skipped silently.
fn check_end(file: &mut File, end: u64, length: u64) -> Result<(), String> {
    if length.saturating_sub(end) < 2 * BLOCK {
        return Err(format!(
            "the end-of-archive blocks are missing: the last member ends at byte {end} of {length}; download the shard again"
        ));
    }
    file.seek(SeekFrom::Start(end)).map_err(|e| e.to_string())?;
    let (mut at, mut buffer) = (end, vec![0; 1 << 16]);
    loop {
        let count = file.read(&mut buffer).map_err(|e| e.to_string())?;
        if let Some(place) = buffer[..count].iter().position(|&byte| byte != 0) {
            return Err(format!(
                "the archive ends at byte {end}, but there is data at byte {}: a header is damaged, or archives were \
                 joined; download the shard again, or join members instead of archives",
                at + place as u64
            ));
        }
        if count == 0 {
            return Ok(());
        }
        at += count as u64;
    }
}

/// `sizes.json` in the folder of the shards (webdataset's own list: file name to samples), if it is there.
fn check_count(file: &Path, found: usize) -> Result<()> {
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
    let path = file.with_file_name("sizes.json");
    if !path.is_file() {
        return Ok(());
    }
    let wrong = |reason: String| Error::Data { path: path.clone(), reason };
    let sizes: BTreeMap<String, usize> = serde_json::from_str(&read_text(&path)?)
        .map_err(|e| wrong(format!("expected an object of shard names and sample counts: {e}")))?;
    match sizes.get(name) {
        Some(&expected) if expected != found => {
            Err(wrong(format!("says {expected} samples for {name}, the shard has {found}; download it again")))
        }
        _ => Ok(()),
    }
}

/// `nshards.txt` in the folder of the shards (clip_benchmark's own count), if it is there and a whole folder is read.
fn check_shards(folder: &Path, found: usize) -> Result<()> {
    let path = folder.join("nshards.txt");
    if !path.is_file() {
        return Ok(());
    }
    let wrong = |reason: String| Error::Data { path: path.clone(), reason };
    let text = read_text(&path)?;
    let expected: usize =
        text.trim().parse().map_err(|_| wrong(format!("expected a number, found {:?}", quoted(&text))))?;
    if expected != found {
        return Err(wrong(format!("says {expected} shards, the folder has {found}; download the missing ones")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tree::labelled;

    fn open(shards: &Path) -> Result<Dataset> {
        open_wds(shards.to_str().unwrap(), Split::Test)
    }

    fn shard(path: &Path, members: &[(&str, &[u8])]) {
        let mut builder = tar::Builder::new(File::create(path).unwrap());
        for (name, bytes) in members {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append_data(&mut header, name, *bytes).unwrap();
        }
        builder.finish().unwrap();
    }

    fn two_shards() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("test")).unwrap();
        let at = |name: &str| dir.path().join("test").join(name);
        shard(&at("2.tar"), &[("s1.cls", b"1\n"), ("s1.webp", b"first"), ("s2.jpg", b"second"), ("s2.cls", b"0")]);
        shard(&at("10.tar"), &[("s1.jpg", b"third"), ("s1.cls", b"2"), ("s3.jpg", b"alone"), ("s1.json", b"{}")]);
        std::fs::write(dir.path().join("classnames.txt"), "ant\nbee\ncat_fish\n").unwrap();
        std::fs::write(dir.path().join("test/zeroshot_classification_templates.txt"), "a {c}.\n").unwrap();
        dir
    }

    #[test]
    fn pairs_are_joined_in_archive_order_and_read_by_offset() {
        let dir = two_shards();
        let data = open(dir.path()).unwrap();
        assert_eq!(labelled(&data), [("2/s1", 1), ("2/s2", 0), ("10/s1", 2)]);
        assert_eq!(data.samples[1].read().unwrap(), b"second");
        assert_eq!(data.classes[2], "cat fish");
        assert_eq!(data.templates, ["a {}."]);
        assert!(data.notes.iter().any(|note| note.warning && note.text.contains("1 members")));
    }

    #[test]
    fn a_brace_range_names_shards_and_a_missing_one_is_told() {
        let dir = two_shards();
        let at = |pattern: &str| format!("{}/test/{pattern}", dir.path().display());
        assert_eq!(open_wds(&at("{2..2}.tar"), Split::Test).unwrap().samples.len(), 2);
        assert!(open_wds(&at("{2..3}.tar"), Split::Test).unwrap_err().to_string().contains("3.tar"));
        assert_eq!(brace_range("a{08..10}.tar").unwrap()[1], Path::new("a09.tar"));
    }

    #[test]
    fn cut_archives_and_wrong_labels_are_refused() {
        let dir = two_shards();
        let path = dir.path().join("test/2.tar");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..700]).unwrap();
        assert!(open(&path).is_err());
        shard(&path, &[("s1.jpg", b"x"), ("s1.cls", b"dog")]);
        assert!(open(&path).unwrap_err().to_string().contains("integer label"));
        shard(&path, &[("s1.jpg", b"x"), ("s1.cls", b"7")]);
        assert!(open(&path).unwrap_err().to_string().contains("labels up to 7"));
    }

    /// Eight samples: header and data of each member take 1024 bytes.
    fn eight() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.tar");
        let names: Vec<(String, String)> = (0..8).map(|i| (format!("s{i}.jpg"), format!("s{i}.cls"))).collect();
        let members: Vec<(&str, &[u8])> =
            names.iter().flat_map(|(jpg, cls)| [(jpg.as_str(), b"x" as &[u8]), (cls.as_str(), b"1")]).collect();
        shard(&path, &members);
        let bytes = std::fs::read(&path).unwrap();
        (dir, path, bytes)
    }

    #[test]
    fn an_archive_that_is_cut_or_has_a_wiped_header_is_refused_at_every_block() {
        let (_dir, path, whole) = eight();
        let samples_of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            open(&path).map(|data| data.samples.len()).map_err(|e| e.to_string())
        };
        assert_eq!(samples_of(&whole), Ok(8));
        for cut in (0..whole.len()).step_by(512) {
            let result = samples_of(&whole[..cut]);
            assert!(result.is_err(), "cut at {cut}: {result:?}");
        }
        for member in 0..16 {
            let mut wiped = whole.clone();
            wiped[member * 1024..member * 1024 + 512].fill(0);
            assert!(samples_of(&wiped).unwrap_err().contains("there is data at byte"), "member {member}");
        }
        assert!(samples_of(&[&whole[..], &whole].concat()).unwrap_err().contains("archives were"));
        assert_eq!(samples_of(&[&whole[..], &[0; 9 * 512]].concat()), Ok(8));
    }

    #[test]
    fn stated_counts_are_compared_and_a_key_has_one_image() {
        let (dir, path, _) = eight();
        let refused = || open(dir.path()).unwrap_err().to_string();
        std::fs::write(dir.path().join("sizes.json"), r#"{"0.tar": 9}"#).unwrap();
        assert!(refused().contains("says 9 samples for 0.tar, the shard has 8"));
        std::fs::write(dir.path().join("sizes.json"), r#"{"0.tar": 8}"#).unwrap();
        std::fs::write(dir.path().join("nshards.txt"), "2\n").unwrap();
        assert!(refused().contains("says 2 shards"));
        std::fs::write(dir.path().join("nshards.txt"), "1\n").unwrap();
        open(dir.path()).unwrap();
        shard(&path, &[("s1.jpg", b"x"), ("s1.cls", b"1"), ("s1.png", b"y")]);
        assert!(refused().contains("second one"));
    }

    #[test]
    fn large_labels_need_names() {
        let (_dir, path, _) = eight();
        shard(&path, &[("s1.jpg", b"x"), ("s1.cls", b"1000000")]);
        let message = open(&path).unwrap_err().to_string();
        assert!(message.contains("1000000") && message.contains("classnames.txt"), "{message}");
    }
}
