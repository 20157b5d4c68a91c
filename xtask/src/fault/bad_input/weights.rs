//! Weight files.

use crate::fault::Trial;
use crate::fault::readers::{Fate, corpus, reader};
use anyhow::{Context as _, Result, bail, ensure};
use flatclip::rng::Stream;

/// A safetensors file of the corpus and its name once read.
fn whole() -> Result<Vec<u8>> {
    let files = corpus("safetensors")?;
    let found = files.into_iter().find(|(name, _)| name == "small.safetensors");
    Ok(found.context("the corpus has no small.safetensors")?.1)
}

/// B1.
pub(super) fn cut(trial: &mut Trial) -> Result<()> {
    let (bytes, reader, folder) = (whole()?, reader("safetensors")?, trial.folder.clone());
    let mut draw = Stream::new(0, &["B1"]);
    let every = (0..4096).step_by((4096 / trial.count(4096)).max(1));
    let some: Vec<usize> = (0..trial.count(1000)).map(|_| draw.below(bytes.len())).collect();
    for length in every.chain(some) {
        trial.case(&format!("cut at {length}"), || {
            match reader.fate(&folder, "w.safetensors", &bytes[..length], None)? {
                Fate::Refused => Ok(()),
                fate => bail!("{}", fate.word()),
            }
        });
    }
    Ok(())
}

/// B2.
pub(super) fn header(trial: &mut Trial) -> Result<()> {
    let (bytes, reader, folder) = (whole()?, reader("safetensors")?, trial.folder.clone());
    let length = u64::from_le_bytes(*bytes.first_chunk::<8>().context("8 bytes of length")?) as usize + 8;
    let path = folder.join("whole.safetensors");
    std::fs::write(&path, &bytes)?;
    let same = (reader.read)(&path)?;
    let places = length * 3;
    for number in (0..places).step_by((places / trial.count(places)).max(1)) {
        let (place, mask) = (number / 3, [0x01, 0x80, 0xff][number % 3]);
        let mut copy = bytes.clone();
        copy[place] ^= mask;
        let mut fate = None;
        trial.case(&format!("byte {place} mask {mask:#04x}"), || {
            let found = reader.fate(&folder, "w.safetensors", &copy, Some(same))?;
            ensure!(found != Fate::Different, "other weights were read from a changed header");
            fate = Some(found);
            Ok(())
        });
        if let Some(fate) = fate {
            trial.add(fate.word(), 1);
        }
    }
    Ok(())
}

/// B3 and B4: every file of a folder of attacks is refused, and none of them runs anything.
pub(super) fn attacks(trial: &mut Trial, folder: &str, name: &str) -> Result<()> {
    let (reader, work) = (reader(name)?, trial.folder.clone());
    std::env::set_current_dir(&work)?;
    let files = corpus(folder)?;
    let number = trial.count(10 * files.len()).min(files.len());
    for (file, bytes) in files.into_iter().take(number) {
        trial.case(&file, || {
            let start = std::time::Instant::now();
            match reader.fate(&work, &file, &bytes, None)? {
                Fate::Refused => {}
                fate => bail!("{}", fate.word()),
            }
            ensure!(!work.join("MARK").exists() && !std::path::Path::new("/tmp/MARK").exists(), "it ran something");
            ensure!(start.elapsed().as_secs() < 2, "took {:?}", start.elapsed());
            let peak = flatclip::resident_memory().1;
            ensure!(peak < 200 << 20, "peak {} MB", peak >> 20);
            Ok(())
        });
    }
    Ok(())
}
