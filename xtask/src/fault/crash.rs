//! Ends at the worst moments: `kill -9` between a write, its sync and its rename, and a loss of power after each of them.

use super::folders::{contents, differences};
use super::kill::{EVAL, tune, with};
use super::program::Program;
use super::trace::{Call, Then, What, watch};
use super::{Suite, Test, Trial};
use anyhow::{Context as _, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "F2",
        suite: Suite::Kill,
        what: "kill -9 right before a write, a sync, a rename, a removal in the run directory of tune",
        rule: "a resumed run has the bytes of one that was left alone; no half file, nothing left over",
        patience: 600,
        run: killed_at_calls,
    },
    Test {
        name: "F3",
        suite: Suite::Kill,
        what: "loss of power before each file call of tune and eval: content that was not synced is gone; then names as well",
        rule: "a resumed run has the bytes of one that was left alone",
        patience: 600,
        run: power_lost,
    },
];

/// Files by name.
type State = BTreeMap<String, Vec<u8>>;

/// The calls of a run that are below its directory.
fn calls_of(program: &Program, arguments: &[&str], out: &Path) -> Result<Vec<What>> {
    let mut calls = Vec::new();
    let code = watch(program, arguments, |call| {
        if call.what != What::Open && call.path.starts_with(out) {
            calls.push(call.what);
        }
        Then::GoOn
    })?;
    ensure!(code == Some(0), "the watched run ended with {code:?}");
    Ok(calls)
}

/// Whether calls can be watched here: a container may forbid it.
fn can_watch(trial: &mut Trial, program: &Program) -> bool {
    let mut writes = 0;
    let seen = watch(program, &["version"], |call| {
        writes += usize::from(call.what == What::Write);
        Then::GoOn
    });
    let fine = seen.is_ok() && writes > 0;
    if !fine {
        trial.skip("no process may be watched here");
    }
    fine
}

/// F2.
fn killed_at_calls(trial: &mut Trial) -> Result<()> {
    let (program, out) = (Program::new(&trial.binary, &trial.folder), trial.folder.join("run"));
    if !can_watch(trial, &program) {
        return Ok(());
    }
    let arguments = with(&tune(), "run");
    program.works(&arguments)?;
    let expected = contents(&out)?;
    std::fs::remove_dir_all(&out)?;
    let calls = calls_of(&program, &arguments, &out)?;
    ensure!(differences(&expected, &contents(&out)?).is_empty(), "a run that is watched has other bytes");
    for kind in [What::Write, What::Sync, What::Rename, What::Remove] {
        let all = calls.iter().filter(|what| **what == kind).count();
        trial.most(&format!("{kind:?} calls in a run"), all as u64);
        ensure!(all > 0, "a run makes no call of the kind {kind:?}");
        let (wanted, mut kills) = (trial.count(25), 0);
        for number in 0..wanted.min(all) {
            // Spread over the whole run, the last included.
            let place = all - 1 - number * all / wanted.min(all);
            trial.case(&format!("{kind:?} {place} of {all}"), || {
                let _ = std::fs::remove_dir_all(&out);
                let mut seen = 0;
                let code = watch(&program, &arguments, |call| {
                    let counts = call.what == kind && call.path.starts_with(&out);
                    seen += usize::from(counts);
                    if counts && seen == place + 1 { Then::End } else { Then::GoOn }
                })?;
                // A call that depends on time may not come a second time.
                ensure!(code.is_none_or(|code| code == 0), "it ended by itself with {code:?}");
                kills += u64::from(code.is_none());
                program.works(&arguments)?;
                let different = differences(&expected, &contents(&out)?);
                ensure!(different.is_empty(), "{}", different.join(", "));
                Ok(())
            });
        }
        trial.add("kills", kills);
        ensure!(kills > 0, "no run was killed at a call of the kind {kind:?}");
    }
    Ok(())
}

/// What a disk still has if the power goes now.
#[derive(Default)]
struct Disk {
    /// Content of files as it was last synced, by inode.
    synced: BTreeMap<u64, Vec<u8>>,
    /// Names as the folder was last synced, with the inode and what of it is synced.
    named: BTreeMap<String, (u64, Vec<u8>)>,
}

impl Disk {
    /// The two ends of what can be left before a call: all names with content as far as it is synced, or only the names that
    /// are synced as well.
    fn left(&mut self, out: &Path) -> Result<[State; 2]> {
        let there = inodes(out)?;
        // The number of a file that is gone may be given to another.
        let numbers: BTreeSet<u64> = there.values().copied().collect();
        self.synced.retain(|inode, _| numbers.contains(inode));
        let content = |inode: &u64| self.synced.get(inode).cloned().unwrap_or_default();
        let all_names = there.iter().map(|(name, inode)| (name.clone(), content(inode))).collect();
        let synced_names = self.named.iter().map(|(name, (_, bytes))| (name.clone(), bytes.clone())).collect();
        Ok([all_names, synced_names])
    }

    /// What a sync keeps.
    fn note(&mut self, call: &Call, out: &Path) -> Result<()> {
        if call.what != What::Sync {
            return Ok(());
        }
        let there = inodes(out)?;
        if call.path == out {
            let content = |inode: u64| self.synced.get(&inode).cloned().unwrap_or_default();
            self.named = there.into_iter().map(|(name, inode)| (name, (inode, content(inode)))).collect();
            return Ok(());
        }
        let name = call.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(&inode) = there.get(&name) else { return Ok(()) };
        let bytes = std::fs::read(&call.path)?;
        if let Some((_, kept)) = self.named.get_mut(&name).filter(|(known, _)| *known == inode) {
            kept.clone_from(&bytes);
        }
        self.synced.insert(inode, bytes);
        Ok(())
    }
}

/// Names and inodes of the files right below a folder; locks apart.
fn inodes(folder: &Path) -> Result<BTreeMap<String, u64>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(BTreeMap::new()) };
    let mut found = BTreeMap::new();
    for entry in entries.flatten() {
        let meta = entry.metadata()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if meta.is_file() && name != ".lock" {
            found.insert(name, meta.ino());
        }
    }
    Ok(found)
}

/// F3.
fn power_lost(trial: &mut Trial) -> Result<()> {
    for (name, arguments) in [("tune", tune()), ("eval", EVAL.to_vec())] {
        let folder = trial.folder.join(name);
        std::fs::create_dir(&folder)?;
        let (program, out) = (Program::new(&trial.binary, &folder), folder.join("run"));
        if !can_watch(trial, &program) {
            return Ok(());
        }
        let arguments = with(&arguments, "run");
        program.works(&arguments)?;
        let expected = contents(&out)?;
        std::fs::remove_dir_all(&out)?;
        let states = states_of(&program, &arguments, &out)?;
        trial.most(&format!("different states of {name}"), states.len() as u64);
        let wanted = trial.count(FULL).min(states.len());
        for number in 0..wanted {
            let place = states.len() - 1 - number * states.len() / wanted;
            trial.case(&format!("{name}, state {place} of {}", states.len()), || {
                put(&out, &states[place])?;
                program.works(&arguments).with_context(|| listed(&states[place]))?;
                let different = differences(&expected, &contents(&out)?);
                ensure!(different.is_empty(), "{}", different.join(", "));
                Ok(())
            });
        }
    }
    Ok(())
}

/// States of one command that are tried at full scale.
const FULL: usize = 100;

/// Every different state that a loss of power can leave during a run.
fn states_of(program: &Program, arguments: &[&str], out: &Path) -> Result<Vec<State>> {
    let (mut disk, mut states, mut fault) = (Disk::default(), Vec::new(), None);
    let code = watch(program, arguments, |call| {
        let mut look = || -> Result<()> {
            for state in disk.left(out)? {
                if !states.contains(&state) {
                    states.push(state);
                }
            }
            disk.note(call, out)
        };
        if call.path.starts_with(out) {
            fault = fault.take().or(look().err());
        }
        Then::GoOn
    })?;
    ensure!(code == Some(0), "the watched run ended with {code:?}");
    fault.map_or(Ok(states), Err)
}

fn put(out: &PathBuf, state: &State) -> Result<()> {
    let _ = std::fs::remove_dir_all(out);
    std::fs::create_dir_all(out)?;
    // The lock is the first file of a directory; its content says nothing.
    if !state.is_empty() {
        std::fs::write(out.join(".lock"), b"")?;
    }
    for (name, bytes) in state {
        std::fs::write(out.join(name), bytes)?;
    }
    Ok(())
}

fn listed(state: &State) -> String {
    let sizes: Vec<String> = state.iter().map(|(name, bytes)| format!("{name} ({})", bytes.len())).collect();
    format!("on the disk: {}", sizes.join(", "))
}
