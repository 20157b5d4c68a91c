//! Every reader of the libraries behind one function: a file goes in, a hash of what was read comes out, or the refusal. The
//! fuzz targets and `crates/flatclip-lab/tests/bad_input.rs` share this file.

use flatclip::image::DecodeOptions;
use flatclip::rng::Stream;
use flatclip::weights::Checkpoint;
use flatclip::{Error, Model, Prompt};
use flatclip_lab::data::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::{Path, PathBuf};

/// A hash of everything that was read.
pub(crate) type Read = fn(&Path) -> Result<u64, Error>;

/// Kinds of files, named after their folder in `fuzz/corpus` or after the file of a model folder.
const READERS: &[(&str, Read)] = &[
    ("safetensors", weights),
    ("torch", weights),
    ("jpeg", image),
    ("png", image),
    ("gif", image),
    ("webp", image),
    ("bmp", image),
    ("tiff", image),
    ("tar", |path| data_set("wds", path)),
    ("table", |path| data_set("csv", path)),
    ("class-names", |path| Ok(hash(&flatclip::text::read_class_names(path)?))),
    ("text-features", |path| Ok(hash_of(&flatclip::prompt::read_text_features(path)?))),
    ("prompt", |path| Ok(hash_of(&Prompt::load(path)?))),
    ("model-folder", model_folder),
    ("descriptions", |path| Ok(hash(&format!("{:?}", flatclip::prompt::Descriptions::read(path)?)))),
    ("recipe", |path| Ok(hash(&format!("{:?}", flatclip_lab::reproduce::Recipe::read(path)?)))),
];

/// The reader of a kind; the files of a model folder are kinds, too.
pub(crate) fn reader(kind: &str) -> (&'static str, Read) {
    let found = READERS.iter().find(|(name, _)| *name == kind);
    found.copied().unwrap_or(("model-folder", model_folder))
}

/// The files of a kind in `fuzz/corpus`, by name.
#[allow(dead_code, reason = "the fuzzer reads the corpus itself")]
pub(crate) fn corpus(kind: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(kind);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), std::fs::read(path).expect("a file of the corpus"))).collect()
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Refused,
    Same,
    Different,
}

/// Writes bytes to a file of this name and reads it. A refusal must name the file, or what it belongs to; a prompt carries a
/// checksum, so that other content must be refused.
pub(crate) fn fate((kind, read): (&str, Read), folder: &Path, file: &str, bytes: &[u8], whole: Option<u64>) -> Fate {
    let path = folder.join(file);
    std::fs::write(&path, bytes).expect("a file in a temporary folder");
    match read(&path) {
        Ok(found) if Some(found) == whole => Fate::Same,
        Ok(_) => {
            assert!(kind != "prompt" || whole.is_none(), "read as other content although it carries a checksum");
            Fate::Different
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(&folder.display().to_string()), "the refusal names no file: {text}");
            assert!(text.len() < 2000, "a refusal of {} characters", text.len());
            assert!(!text.contains(['\u{1b}', '\0', '\r']), "control characters in the refusal: {text:?}");
            Fate::Refused
        }
    }
}

fn weights(path: &Path) -> Result<u64, Error> {
    Ok(hash(&Checkpoint::open(path)?.hash()?))
}

fn image(path: &Path) -> Result<u64, Error> {
    let image = flatclip::Image::open(path)?;
    assert_eq!(image.rgb.len(), 3 * image.width * image.height);
    assert!((image.width * image.height) as u64 <= DecodeOptions::default().max_pixels);
    Ok(hash(&(image.width, image.height, &image.rgb)))
}

/// A model folder with this file in the place of its own.
fn model_folder(path: &Path) -> Result<u64, Error> {
    let (folder, own) = (path.with_extension("folder"), path.file_name().unwrap_or_default());
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    for (name, bytes) in flatclip_pocket::model_files("pocket").unwrap_or_default() {
        // A tokenizer in one file stands for the two.
        let replaced = own == "tokenizer.json" && ["vocab.json", "merges.txt"].contains(name);
        if own != *name && !replaced && !folder.join(name).is_file() {
            std::fs::write(folder.join(name), bytes).expect("a temporary folder");
        }
    }
    std::fs::copy(path, folder.join(own)).expect("a temporary folder");
    let model = Model::builder(folder.display().to_string()).offline(true).hash_cache(None).load(&())?;
    let tokens = model.tokenizer().encode("a photo of a snail and a butterfly");
    Ok(hash(&(model.describe(), model.hash(), format!("{tokens:?}"))))
}

fn data_set(kind: &str, path: &Path) -> Result<u64, Error> {
    let data = data::open(&format!("{kind}:{}", path.display()), &OpenOptions::default())?;
    let mut all = DefaultHasher::new();
    data.classes.hash(&mut all);
    for sample in &data.samples {
        (&sample.id, sample.label).hash(&mut all);
        if let data::Source::Member { .. } = sample.source {
            sample.read()?.hash(&mut all);
        }
    }
    Ok(all.finish())
}

fn hash_of(prompt: &Prompt) -> u64 {
    hash(&format!("{:?} {:?}", prompt.content, prompt.provenance))
}

pub(crate) fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Values at which readers of integers go wrong.
const EDGES: [u64; 10] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// The damaged copy with this number, always the same; never the bytes themselves, unless they are empty.
#[allow(dead_code, reason = "the fuzzer makes its own")]
pub(crate) fn mutant(bytes: &[u8], name: &str, number: u64) -> Vec<u8> {
    let mut draw = Stream::new(number, &["mutant", name]);
    let mut copy = bytes.to_vec();
    for _ in 0..=draw.below(3) {
        damage(&mut copy, &mut draw);
    }
    if copy == bytes
        && let Some(last) = copy.last_mut()
    {
        *last ^= 1;
    }
    copy
}

fn damage(bytes: &mut Vec<u8>, draw: &mut Stream) {
    if bytes.is_empty() {
        bytes.push(draw.bits() as u8);
        return;
    }
    // Half of the damage hits the first 256 bytes, where headers are.
    let reach = if draw.below(2) == 0 { bytes.len().min(256) } else { bytes.len() };
    let place = draw.below(reach);
    let length = (1 + draw.below(64)).min(bytes.len() - place);
    match draw.below(8) {
        0 => bytes[place] ^= 1 << draw.below(8),
        1 => bytes[place] = draw.bits() as u8,
        2 => bytes.truncate(place),
        3 => bytes[place..place + length].fill(0),
        4 => drop(bytes.drain(place..place + length)),
        5 => {
            let from = draw.below(bytes.len());
            let piece: Vec<u8> = bytes[from..].iter().copied().take(length).collect();
            bytes.splice(place..place, piece);
        }
        6 => {
            let edge = EDGES[draw.below(EDGES.len())].to_le_bytes();
            let width = [1, 2, 4, 8][draw.below(4)].min(bytes.len() - place);
            bytes[place..place + width].copy_from_slice(&edge[..width]);
            if draw.below(2) == 0 {
                bytes[place..place + width].reverse();
            }
        }
        _ => {
            // Another number where text has one.
            let digit = bytes[place..].iter().position(u8::is_ascii_digit).map(|at| place + at);
            match digit {
                Some(at) => bytes[at] = b'0' + draw.below(10) as u8,
                None => bytes[place] = bytes[place].wrapping_add(1),
            }
        }
    }
}
