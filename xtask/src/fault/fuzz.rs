//! Every reader under new damage for some minutes: mutants beyond the numbers that the other tests use.

use super::mutate::mutant;
use super::readers::{READERS, Reader, corpus};
use super::{Suite, Test, Trial};
use anyhow::{Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::time::{Duration, Instant};

pub(super) const TESTS: &[Test] = &[
    test("B13-weights", "safetensors and torch files", |trial| fuzz(trial, &["safetensors", "torch"])),
    test("B13-jpeg", "JPEG", |trial| fuzz(trial, &["jpeg"])),
    test("B13-images", "PNG, GIF, WebP, BMP, TIFF", |trial| fuzz(trial, &["png", "gif", "webp", "bmp", "tiff"])),
    test("B13-lists", "tar shards, tables, class lists, descriptions, recipes", |trial| {
        fuzz(trial, &["tar", "table", "class-names", "descriptions", "recipe"])
    }),
    test("B13-folders", "vocabulary, merges, configuration, tokenizer of a model folder", |trial| {
        fuzz(trial, &["model-folder"])
    }),
    test("B13-own", "prompts and text features", |trial| fuzz(trial, &["prompt", "text-features"])),
];

const fn test(name: &'static str, what: &'static str, run: fn(&mut Trial) -> Result<()>) -> Test {
    let rule = "no panic, no mutant above 1 s of processor time, peak below 512 MB";
    // A case is twenty mutants, on a machine that may have other work.
    Test { name, suite: Suite::Fuzz, what, rule, patience: 120, run }
}

/// Seconds of processor time of this process.
fn own_time() -> f64 {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Ten minutes at full scale; a case is twenty mutants.
fn fuzz(trial: &mut Trial, names: &[&str]) -> Result<()> {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(trial.count(6000) as f64 / 10.0);
    let readers: Vec<&Reader> = READERS.iter().filter(|reader| names.contains(&reader.name)).collect();
    ensure!(readers.len() == names.len(), "not all of {names:?} are readers");
    let folder = trial.folder.clone();
    let mut files = Vec::new();
    for reader in readers {
        for (file, bytes) in corpus(reader.name)? {
            let path = folder.join(&file);
            std::fs::write(&path, &bytes)?;
            files.push((reader, (reader.read)(&path).ok(), file, bytes));
        }
    }
    // Above the numbers of the other tests.
    let mut number = 1_000_000;
    while Instant::now() < end {
        let (reader, whole, file, bytes) = &files[number % files.len()];
        let many = 20;
        trial.case(&format!("{file} mutants {number} to {}", number + many), || {
            for number in number..number + many {
                let start = own_time();
                let damaged = mutant(bytes, file, number as u64);
                reader.fate(&folder, file, &damaged, *whole).map_err(|e| e.context(format!("mutant {number}")))?;
                let taken = own_time() - start;
                ensure!(taken < 1.0, "mutant {number} took {taken:.1} s");
            }
            Ok(())
        });
        trial.add("mutants", many as u64);
        number += many + 1;
    }
    trial.note("minutes", format!("{:.1}", start.elapsed().as_secs_f64() / 60.0));
    trial.note("of processor time", format!("{:.1}", own_time() / 60.0));
    let peak = flatclip::resident_memory().1;
    trial.case("peak memory", || {
        ensure!(peak < 512 << 20, "peak {} MB", peak >> 20);
        Ok(())
    });
    Ok(())
}
