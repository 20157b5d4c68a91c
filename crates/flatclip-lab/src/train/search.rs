//! The sharpness radius, chosen on held-out training images. Never on test data: they are not within reach here.

use super::directory::SEARCH;
use super::fit::{Control, HeldOut, TrainData, evaluate, fit};
use super::settings::Settings;
use crate::run_dir::RunDir;
use crate::tuners::TuneTask;
use flatclip::progress::Progress;
use flatclip::{Error, Result};
use serde::{Deserialize, Serialize};

/// The radii of the paper.
pub(crate) const RADII: [f64; 5] = [0.05, 0.1, 0.3, 0.5, 0.7];

/// What one radius gave on the held-out images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SearchRow {
    pub radius: f64,
    /// Part of the held-out images that is right.
    pub accuracy: f32,
    /// Their mean cross-entropy.
    pub loss: f32,
}

/// The table of a search: `search.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SearchTable {
    /// The key that was searched.
    pub key: String,
    /// Held-out images.
    pub held_out: usize,
    pub rows: Vec<SearchRow>,
    /// The best: highest accuracy, then lowest loss, then first. `None` while the search is unfinished.
    pub chosen: Option<f64>,
}

/// Trains once per radius and chooses. Rows that a stopped run has already are kept.
pub(crate) fn search(
    data: &TrainData<'_>,
    task: &TuneTask<'_>,
    settings: &Settings,
    held_out: &HeldOut,
    directory: &RunDir,
    progress: &dyn Progress,
) -> Result<SearchTable> {
    let mut table = match directory.file(SEARCH).is_file() {
        true => directory.read_json(SEARCH)?,
        false => SearchTable { key: "sapt.radius".into(), held_out: held_out.labels.len(), ..SearchTable::default() },
    };
    forget_trials(directory, &table)?;
    for radius in RADII.into_iter().skip(table.rows.len()) {
        let mut options = settings.options.clone();
        options.insert("radius".into(), radius.into());
        let mut tuner = settings.build(&options, task)?;
        // A radius takes as long as the run itself: it has checkpoints of its own until its row is written.
        let trial = RunDir::claim(&directory.file(&trial_name(radius)))?;
        let (every, stage) = (settings.request.checkpoint_every, format!("radius {radius}"));
        let control = Control { directory: Some(&trial), stage: &stage, every, progress };
        fit(data, &settings.recipe, tuner.as_mut(), &control)?;
        let found = evaluate(data.clip, tuner.as_ref(), held_out)?;
        table.rows.push(SearchRow { radius, accuracy: found.accuracy, loss: found.loss });
        directory.write_json(SEARCH, &table)?;
        drop(trial);
        forget_trials(directory, &table)?;
    }
    table.chosen = choose(&table.rows).map(|row| row.radius);
    directory.write_json(SEARCH, &table)?;
    Ok(table)
}

fn trial_name(radius: f64) -> String {
    format!("search-{radius}")
}

/// Removes the checkpoints of radii whose rows are written; a kill may have come between the two.
fn forget_trials(directory: &RunDir, table: &SearchTable) -> Result<()> {
    for row in &table.rows {
        let folder = directory.file(&trial_name(row.radius));
        if folder.is_dir() {
            std::fs::remove_dir_all(&folder).map_err(Error::io(&folder))?;
        }
    }
    Ok(())
}

fn choose(rows: &[SearchRow]) -> Option<&SearchRow> {
    rows.iter().reduce(|best, row| {
        let better = row.accuracy > best.accuracy || (row.accuracy == best.accuracy && row.loss < best.loss);
        if better { row } else { best }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_wins_then_loss_then_the_first() {
        let row = |radius, accuracy, loss| SearchRow { radius, accuracy, loss };
        let rows = [row(0.05, 0.5, 1.0), row(0.1, 0.75, 0.9), row(0.3, 0.75, 0.8), row(0.5, 0.75, 0.8)];
        assert_eq!(choose(&rows).map(|r| r.radius), Some(0.3));
        assert_eq!(choose(&[]), None);
    }
}
