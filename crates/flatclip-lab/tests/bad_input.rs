//! Damaged and crafted files, wrong options and odd texts: refused with the path, or read; never a panic.
//!
//! A tenth of the full counts by default: `FLATCLIP_FAULT_SCALE` changes that, and `FLATCLIP_FAULT_ROWS` names a file to which
//! each test appends a row of `docs/robustness.md` (`tools/faults` sets both).
#![allow(clippy::unwrap_used, reason = "what a test cannot do fails it")]

#[path = "../../../fuzz/src/readers.rs"]
mod readers;

use flatclip::Model;
use flatclip::image::{DecodeOptions, decode};
use flatclip::methods::ADAPTERS;
use flatclip::rng::Stream;
use flatclip::text::Tokenizer;
use flatclip_lab::data::{self, OpenOptions};
use flatclip_lab::eval::{EvaluateRequest, evaluate};
use flatclip_lab::report::Run;
use readers::{Fate, corpus, fate, hash, mutant, reader};
use serde_json::{Value, json};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

/// So many of `full` cases, at least one.
fn count(full: usize) -> usize {
    let scale = std::env::var("FLATCLIP_FAULT_SCALE").map_or(0.1, |text| text.parse().unwrap());
    ((full as f64 * scale).round() as usize).max(1)
}

/// Cases of one row, with the fate of each file.
struct Cases {
    name: &'static str,
    folder: tempfile::TempDir,
    start: Instant,
    fates: Vec<Fate>,
}

impl Cases {
    fn new(name: &'static str) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { name, folder, start: Instant::now(), fates: Vec::new() }
    }

    /// Runs a case, so that a panic names it.
    fn case(&mut self, name: &str, run: impl FnOnce(&Path) -> Fate) -> Fate {
        let folder = self.folder.path();
        let fate = catch_unwind(AssertUnwindSafe(|| run(folder)));
        self.fates.push(fate.unwrap_or_else(|_| panic!("{} {name}: failed as told above", self.name)));
        *self.fates.last().unwrap()
    }
}

impl Drop for Cases {
    /// Appends the row, if all cases passed.
    fn drop(&mut self) {
        let Ok(file) = std::env::var("FLATCLIP_FAULT_ROWS") else { return };
        if std::thread::panicking() {
            return;
        }
        let fates =
            [(Fate::Refused, "refused"), (Fate::Same, "read the same"), (Fate::Different, "read as other content")];
        let counted = fates.map(|(fate, word)| (word, self.fates.iter().filter(|found| **found == fate).count()));
        let notes: serde_json::Map<String, Value> = counted
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(word, count)| (word.into(), count.into()))
            .collect();
        let row = json!({ "test": self.name, "tried": self.fates.len(), "notes": notes,
            "seconds": self.start.elapsed().as_secs_f64(), "peak_mb": flatclip::resident_memory().1 >> 20 });
        let mut rows = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
        rows.write_all(format!("{row}\n").as_bytes()).unwrap();
    }
}

/// Damaged copies of every file of a corpus.
fn damaged(name: &'static str, kind: &str, full: usize) {
    let (mut cases, reader, files) = (Cases::new(name), reader(kind), corpus(kind));
    let folder = cases.folder.path().to_path_buf();
    let whole: Vec<Option<u64>> = files
        .iter()
        .map(|(file, bytes)| {
            std::fs::write(folder.join(file), bytes).unwrap();
            (reader.1)(&folder.join(file)).ok()
        })
        .collect();
    assert!(whole.iter().any(Option::is_some), "no file of the corpus {kind} is readable");
    for number in 0..count(full) {
        let ((file, bytes), whole) = (&files[number % files.len()], whole[number % files.len()]);
        let copy = mutant(bytes, file, number as u64);
        assert!(copy != *bytes || bytes.is_empty());
        cases.case(&format!("{file} mutant {number}"), |folder| fate(reader, folder, file, &copy, whole));
    }
}

/// Not a test of ours: leaves damaged and crafted files of one kind, and what our reader does with each, for other readers.
#[test]
#[ignore = "run by tools/faults with FLATCLIP_FAULT_FILES and FLATCLIP_FAULT_KIND"]
fn damaged_files_for_others() {
    let (folder, kind) =
        (std::env::var("FLATCLIP_FAULT_FILES").unwrap(), std::env::var("FLATCLIP_FAULT_KIND").unwrap());
    let ((kind, count), folder) = (kind.split_once(':').unwrap(), Path::new(&folder));
    let (seeds, mut lines) = (corpus(kind), String::new());
    let attacks = [("safetensors", "safetensors-attacks"), ("torch", "pickle-attacks")];
    let attacks = attacks.iter().find(|(of, _)| *of == kind).map(|(_, attacks)| corpus(attacks)).unwrap_or_default();
    let damaged = (0..count.parse::<usize>().unwrap()).map(|number| {
        let (file, bytes) = &seeds[number % seeds.len()];
        (format!("{number:06}-{file}"), mutant(bytes, file, number as u64))
    });
    for (file, bytes) in damaged.chain(attacks.into_iter().map(|(file, bytes)| (format!("attack-{file}"), bytes))) {
        let found = fate(reader(kind), folder, &file, &bytes, None);
        let pixels = decode(&bytes, &DecodeOptions::pillow()).map_or(0, |image| crc32fast::hash(&image.rgb));
        lines += &format!("{}\n", json!({ "file": file, "fate": format!("{found:?}"), "pixels": pixels }));
    }
    std::fs::write(folder.with_extension("jsonl"), lines).unwrap();
}

#[test]
fn damaged_weights_lists_and_own_files() {
    let rows = [
        ("M1", "safetensors", 6000),
        ("M2", "torch", 6000),
        ("M8", "tar", 5000),
        ("M9", "table", 4000),
        ("M10", "class-names", 2000),
        ("M11", "text-features", 4000),
        ("M12", "prompt", 5000),
        ("M15", "model-folder", 500),
        ("M16", "descriptions", 1000),
        ("M17", "recipe", 1000),
    ];
    rows.into_iter().for_each(|(name, kind, full)| damaged(name, kind, full));
}

/// A model folder, its tokenizer, and the feature of one image.
fn whole_model(file: &Path) -> Result<u64, flatclip::Error> {
    let folder = file.parent().unwrap().display().to_string();
    let model = Model::builder(folder).offline(true).hash_cache(None).load(&())?;
    let tokens = model.tokenizer().encode("a photo of a snail and a butterfly");
    let clip = model.clip();
    // What other numbers give is refused or not; it must not panic.
    let side = clip.image_size();
    let feature = clip.encode_images(&vec![0.5; 3 * side * side], 1).map_err(|error| error.to_string());
    Ok(hash(&format!("{} {} {tokens:?} {feature:?}", model.describe(), model.hash())))
}

#[test]
fn damaged_models_of_other_families() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden/models");
    let mut cases = Cases::new("M18");
    // Hugging Face's layout of SigLIP is published with the same tokenizer.
    for parts in [&["tiny-siglip"][..], &["tiny-siglip-hf", "tiny-siglip/spiece.model"], &["tiny-eva02"]] {
        let folder = cases.folder.path().join(parts[0]);
        std::fs::create_dir(&folder).unwrap();
        let entries = std::fs::read_dir(models.join(parts[0])).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = entries.chain(parts[1..].iter().map(|part| models.join(part))).collect();
        paths.sort();
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let files: Vec<(String, Vec<u8>)> =
            paths.iter().map(|path| (name(path), std::fs::read(path).unwrap())).collect();
        files.iter().for_each(|(file, bytes)| std::fs::write(folder.join(file), bytes).unwrap());
        let whole = whole_model(&folder.join(&files[0].0)).unwrap();
        for (file, bytes) in &files {
            for number in 0..count(300) {
                let copy = mutant(bytes, file, number as u64);
                let name = format!("{}/{file} mutant {number}", parts[0]);
                cases.case(&name, |_| fate(("family", whole_model), &folder, file, &copy, Some(whole)));
            }
            std::fs::write(folder.join(file), bytes).unwrap();
        }
    }
}

#[test]
fn damaged_images() {
    let rows = [
        ("M3", "jpeg", 10_000),
        ("M4", "png", 6000),
        ("M5", "gif", 6000),
        ("M6", "webp", 5000),
        ("M7", "bmp", 4000),
        ("M14", "tiff", 4000),
    ];
    rows.into_iter().for_each(|(name, kind, full)| damaged(name, kind, full));
}

#[test]
fn a_cut_jpeg_keeps_its_size() {
    let mut cases = Cases::new("B5");
    let mut draw = Stream::new(0, &["B5"]);
    for (name, bytes) in corpus("jpeg") {
        let whole = decode(&bytes, &DecodeOptions::default()).unwrap();
        for _ in 0..count(100) {
            let length = draw.below(bytes.len());
            cases.case(&format!("{name} cut at {length}"), |_| {
                let Ok(image) = decode(&bytes[..length], &DecodeOptions::default()) else { return Fate::Refused };
                assert_eq!((image.width, image.height), (whole.width, whole.height));
                Fate::Different
            });
        }
    }
}

/// `small.safetensors` of the corpus.
fn small() -> Vec<u8> {
    corpus("safetensors").into_iter().find(|(name, _)| name == "small.safetensors").unwrap().1
}

#[test]
fn cut_safetensors_are_refused() {
    let (mut cases, bytes, reader) = (Cases::new("B1"), small(), reader("safetensors"));
    let mut draw = Stream::new(0, &["B1"]);
    let every = (0..4096).step_by((4096 / count(4096)).max(1));
    let some: Vec<usize> = (0..count(1000)).map(|_| draw.below(bytes.len())).collect();
    for length in every.chain(some) {
        let found =
            cases.case(&length.to_string(), |folder| fate(reader, folder, "w.safetensors", &bytes[..length], None));
        assert_eq!(found, Fate::Refused, "cut at {length}");
    }
}

#[test]
fn a_changed_header_never_gives_other_weights() {
    let (mut cases, bytes, reader) = (Cases::new("B2"), small(), reader("safetensors"));
    let length = u64::from_le_bytes(*bytes.first_chunk::<8>().unwrap()) as usize + 8;
    let path = cases.folder.path().join("whole.safetensors");
    std::fs::write(&path, &bytes).unwrap();
    let same = (reader.1)(&path).unwrap();
    for number in (0..3 * length).step_by((3 * length / count(3 * length)).max(1)) {
        let (place, mask) = (number / 3, [0x01, 0x80, 0xff][number % 3]);
        let mut copy = bytes.clone();
        copy[place] ^= mask;
        let name = format!("byte {place} mask {mask:#04x}");
        let found = cases.case(&name, |folder| fate(reader, folder, "w.safetensors", &copy, Some(same)));
        assert_ne!(found, Fate::Different, "{name}");
    }
}

/// Every file of the attacks is refused soon, in little memory, and none of them runs anything.
#[test]
fn crafted_weights_are_refused() {
    for (name, attacks, kind) in [("B3", "safetensors-attacks", "safetensors"), ("B4", "pickle-attacks", "torch")] {
        let (mut cases, reader) = (Cases::new(name), reader(kind));
        for (file, bytes) in corpus(attacks) {
            let start = Instant::now();
            let before = flatclip::resident_memory().1;
            let found = cases.case(&file, |folder| fate(reader, folder, &file, &bytes, None));
            assert_eq!(found, Fate::Refused, "{file}");
            assert!(start.elapsed().as_secs() < 2, "{file} took {:?}", start.elapsed());
            let grown = flatclip::resident_memory().1 - before;
            assert!(grown < 200 << 20, "{file}: {grown} bytes");
            for mark in [cases.folder.path().join("MARK"), "MARK".into(), "/tmp/MARK".into()] {
                assert!(!mark.exists(), "{file} ran something");
            }
        }
    }
}

#[test]
fn every_layout_of_pixels_is_that_of_pillow() {
    let mut cases = Cases::new("B7");
    let mut files = corpus("formats");
    let place = files.iter().position(|(name, _)| name == "expected.json").unwrap();
    let expected: Value = serde_json::from_slice(&files.remove(place).1).unwrap();
    for (name, bytes) in &files {
        cases.case(name, |_| {
            let image = decode(bytes, &DecodeOptions::pillow()).unwrap();
            assert_eq!(expected[name]["size"], json!([image.width, image.height]));
            let hex = expected[name]["rgb"].as_str().unwrap();
            let theirs = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
            assert_eq!(hex.len(), 2 * image.rgb.len());
            assert!(theirs.zip(&image.rgb).all(|(a, b)| a.abs_diff(*b) <= 2), "differs from Pillow");
            Fate::Same
        });
    }
}

/// One file of a finished run damaged, then read as a report reads it.
#[test]
fn a_changed_file_of_a_run_is_refused() {
    let mut cases = Cases::new("M13");
    let folder = cases.folder.path().join("run");
    let mut request = EvaluateRequest::new(&folder).unwrap();
    (request.methods, request.limit) = (vec!["zero-shot".into()], Some(6));
    let dataset = data::open("pocket:sketch", &OpenOptions::default()).unwrap();
    evaluate(&request, &Model::load("pocket").unwrap(), &[dataset], &()).unwrap();
    let content = || -> flatclip::Result<String> {
        let run = Run::read(&folder)?;
        let all = (run.records()?, run.class_names()?);
        Ok(format!("{:?} {:?} {:?} {all:?}", run.config, run.provenance, run.summary))
    };
    let whole = content().unwrap();
    let files = ["predictions.jsonl", "summary.json", "run.json", "config.toml", "classes.txt", "SHA256SUMS"];
    for number in 0..count(6000) {
        let name = files[number % files.len()];
        let path = folder.join(name);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, mutant(&bytes, name, number as u64)).unwrap();
        cases.case(&format!("{name} mutant {number}"), |_| match content() {
            Ok(found) => {
                assert_eq!(found, whole, "read as other content");
                Fate::Same
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(&folder.display().to_string()), "the refusal names no file: {text}");
                Fate::Refused
            }
        });
        std::fs::write(&path, bytes).unwrap();
    }
}

/// Every option of every adapter with values of a wrong type or out of any range.
#[test]
fn wrong_options_are_refused_by_name() {
    let mut cases = Cases::new("B10");
    let wrong: Vec<(&str, toml::Value)> = vec![
        ("a text", "nonsense".into()),
        ("an empty text", "".into()),
        ("a list", toml::Value::Array(vec![1.into(), "x".into()])),
        ("a table", toml::Table::new().into()),
        ("the least number", i64::MIN.into()),
        ("the largest number", i64::MAX.into()),
        ("not a number", f64::NAN.into()),
        ("infinity", f64::INFINITY.into()),
        ("a truth", true.into()),
    ];
    for spec in ADAPTERS.iter() {
        let unknown = ("nonsense".to_owned(), vec![("unknown", toml::Value::from(1))]);
        for (key, values) in spec.defaults().keys().map(|key| (key.clone(), wrong.clone())).chain([unknown]) {
            for (name, value) in values {
                let table = toml::Table::from_iter([(key.clone(), value)]);
                // A text or a truth may be what the option wants; whatever is refused names the key.
                cases.case(&format!("{}.{key} = {name}", spec.name), |_| match spec.build(&table) {
                    Ok(_) => {
                        assert!(!["a list", "a table", "not a number", "unknown"].contains(&name), "was taken");
                        Fate::Different
                    }
                    Err(error) => {
                        assert!(error.to_string().contains(&key), "names no key: {error}");
                        Fate::Refused
                    }
                });
            }
        }
    }
}

#[test]
fn texts_at_the_edges_are_tokens_or_refused() {
    let mut cases = Cases::new("B11");
    let (long, word) = ("word ".repeat(20_000), "a".repeat(10_000));
    let texts = [
        "",
        "  \t \u{a0}\u{3000} ",
        "a\0b",
        "\u{1b}[31mred\u{1b}[0m",
        &long,
        &word,
        "קָטָן \u{202e}abc",
        "👨\u{200d}👩\u{200d}👧\u{200d}👦",
        "e\u{301}\u{301}\u{301}",
        "\u{fffd}\u{fffe}",
        "&amp;amp;lt;b&gt; &#0; &#x110000; &nosuch;",
        "schÃ¶n â€œquotedâ€\u{9d}",
        "\u{e000}\u{10ffff}",
        "<|startoftext|> <|endoftext|>",
        "a\r\nb\nc\u{2028}d",
    ];
    let tokenizer = Tokenizer::clip();
    for text in texts {
        cases.case(&format!("{:?}", text.chars().take(20).collect::<String>()), |_| {
            let ids = tokenizer.encode(text);
            assert!(ids.iter().all(|&id| id < 49_408), "an id outside of the vocabulary");
            let _ = tokenizer.decode(&ids);
            assert!(tokenizer.sequence(text, 77, true).unwrap().len() <= 77, "was not cut");
            // Without leave to cut, a text that is too long is refused, and the refusal does not repeat it all.
            match tokenizer.sequence(text, 77, false) {
                Ok(ids) => {
                    assert!(ids.len() <= 77 && text != long);
                    Fate::Same
                }
                Err(error) => {
                    assert!(error.to_string().len() < 2000);
                    Fate::Refused
                }
            }
        });
    }
}
