//! Calibration at a temperature that is given, or fitted on a held-out run.

use super::rows::row_names;
use super::{Cell, Run, Table};
use crate::eval::metrics::{MetricOptions, Metrics, Temperature, metrics};
use crate::eval::{Provenance, Record, RunConfig};
use crate::run_dir::first_difference;
use flatclip::methods::Confidence;
use flatclip::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Where the temperature comes from.
#[derive(Clone, Debug)]
pub enum TemperatureChoice {
    /// This one for every run.
    Given(Temperature),
    /// Fitted, for each run, on the held-out run that is like it in everything but the split, and has none of its samples.
    Fitted(Vec<Run>),
}

impl TemperatureChoice {
    /// The temperature for a run.
    pub fn of(&self, run: &Run) -> Result<Temperature> {
        match self {
            Self::Given(temperature) => Ok(*temperature),
            Self::Fitted(held_out) => fit(held_out, run),
        }
    }
}

/// The temperature of the held-out run that belongs to a run.
fn fit(held_out: &[Run], run: &Run) -> Result<Temperature> {
    let refuse = |reason: String| Err(Error::config("temperature", reason));
    let mut differences = Vec::new();
    for other in held_out {
        if let Some(difference) = difference(other, run)? {
            differences.push(format!("{}: {difference}", other.path.display()));
            continue;
        }
        let (records, own) = (kept(other)?, run.records()?);
        let shared = shared_samples(&records, &own);
        if shared > 0 {
            let (path, all) = (other.path.display(), records.len());
            return refuse(format!(
                "expected held-out samples; {shared} of the {all} of {path} are samples of {}, too",
                run.path.display()
            ));
        }
        let (rows, labels): (Vec<Vec<f32>>, Vec<usize>) =
            records.into_iter().filter_map(|record| Some((record.answer?.log_probabilities, record.label))).unzip();
        return Temperature::fit(&rows, &labels);
    }
    let found = if differences.is_empty() { "none".to_owned() } else { differences.join("; ") };
    refuse(format!(
        "expected a held-out run for {} that differs in nothing but the split, found {found}",
        run.path.display()
    ))
}

/// The first difference of a held-out run from a run, apart from the split and the selection of samples.
fn difference(held_out: &Run, run: &Run) -> Result<Option<String>> {
    let is_own = |run: &Run| ["folder:", "csv:"].iter().any(|kind| run.config.data.starts_with(kind));
    // Folders and lists of one's own are split by giving other ones; their classes must still agree.
    let any_data = is_own(held_out) && is_own(run);
    let plain = |run: &Run| -> Result<toml::Table> {
        let config = RunConfig {
            data: String::new(),
            split: String::new(),
            limit: None,
            shard: None,
            keep_probabilities: true,
            ..run.config.clone()
        };
        let dataset = if any_data { String::new() } else { run.provenance.dataset.clone() };
        let provenance =
            Provenance { dataset, samples: 0, stream: String::new(), notes: Vec::new(), ..run.provenance.clone() };
        let fault = |e: toml::ser::Error| Error::Run { path: run.path.clone(), reason: e.to_string() };
        let mut table = toml::Table::try_from(config).map_err(fault)?;
        // What both call the same is the prompt's name in one and its kind in the other.
        table.extend(toml::Table::try_from(provenance).map_err(fault)?.into_iter().map(
            |(key, value)| match key.as_str() {
                "prompt" => ("prompt kind".to_owned(), value),
                _ => (key, value),
            },
        ));
        Ok(table)
    };
    Ok(first_difference(&plain(held_out)?, &plain(run)?, ""))
}

/// How many held-out samples are samples of the other run. A sample is known by its image where records name it, else by its
/// id: folders of several splits may use one id for different images.
fn shared_samples(held_out: &[Record], run: &[Record]) -> usize {
    let images: BTreeSet<&str> = run.iter().filter_map(|record| record.image.as_deref()).collect();
    let ids: BTreeMap<&str, Option<&str>> =
        run.iter().map(|record| (record.id.as_str(), record.image.as_deref())).collect();
    let is_shared = |record: &&Record| {
        let image = record.image.as_deref();
        let same_image = image.is_some_and(|image| images.contains(image));
        let same_id = ids.get(record.id.as_str()).is_some_and(|other| image.is_none() || other.is_none());
        same_image || same_id
    };
    held_out.iter().filter(is_shared).count()
}

/// The records of a run that kept all probabilities.
fn kept(run: &Run) -> Result<Vec<Record>> {
    if run.config.keep_probabilities {
        return run.records();
    }
    let reason = "did not keep the probabilities of all classes; evaluate again and keep them".to_owned();
    Err(Error::Run { path: run.path.clone(), reason })
}

/// ECE, NLL and Brier score of every run as it is and at its temperature.
pub fn temperature_table(runs: &[Run], choice: &TemperatureChoice) -> Result<Table> {
    let measured = |(run, name)| -> Result<(&Run, String, Temperature, Metrics)> {
        let temperature = choice.of(run)?;
        let outcomes: Vec<_> = kept(run)?.iter().filter_map(|record| record.outcome_at(temperature)).collect();
        Ok((run, name, temperature, metrics(&outcomes, run.provenance.classes, MetricOptions::default())))
    };
    let rows = runs.iter().zip(row_names(runs)).map(measured).collect::<Result<Vec<_>>>()?;
    let how = match choice {
        TemperatureChoice::Given(_) => "given",
        TemperatureChoice::Fitted(_) => "fitted on held-out runs by the smallest mean cross-entropy",
    };
    let mut table = Table::of("Calibration at a temperature", rows)
        .column("prompt + method", |(_, name, ..)| Cell::text(name))
        .column("data", |(run, ..)| Cell::text(&run.provenance.dataset))
        .column("seed", |(run, ..)| Cell::text(run.config.seed.to_string()))
        .column("confidence", |(run, ..)| Cell::text(run.confidence().name()))
        .column("T", |(_, _, temperature, _)| Cell::number(temperature.value(), 3))
        .column("ECE", |(run, ..)| Cell::percent(run.summary.metrics.calibration.ece))
        .column("ECE at T", |(.., at)| Cell::percent(at.calibration.ece))
        .column("NLL", |(run, ..)| Cell::nll_of(&run.summary.metrics))
        .column("NLL at T", |(.., at)| Cell::nll_of(at))
        .column("Brier", |(run, ..)| Cell::number(run.summary.metrics.brier, 4))
        .column("Brier at T", |(.., at)| Cell::number(at.brier, 4))
        .with_note(format!("T divides the logits, {how}; answers and top-1 do not change; ECE in per cent"));
    if runs.iter().any(|run| run.confidence() == Confidence::VoteShare) {
        table.notes.push(Confidence::NOTE.into());
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::run;
    use super::*;
    use flatclip::methods::{Decision, Explanation};

    /// A run on disk with these samples; half of the answers are right, all with three to one.
    fn made(folder: &std::path::Path, name: &str, ids: &[&str], edit: impl FnOnce(&mut Run)) -> Run {
        let mut made = Run { path: folder.join(name), ..run(0, "p", 0.5, "f32") };
        made.config.keep_probabilities = true;
        edit(&mut made);
        let answer = |i: usize, id: &&str| {
            let probabilities = vec![0.75, 0.25];
            let class_scores = probabilities.clone();
            let decision = Decision { prediction: 0, probabilities, class_scores, explanation: Explanation::default() };
            Record::answered(i, id, i % 2, decision).unwrap()
        };
        let records: Vec<Record> = ids.iter().enumerate().map(|(i, id)| answer(i, id)).collect();
        std::fs::create_dir_all(&made.path).unwrap();
        std::fs::write(made.path.join("config.toml"), "").unwrap();
        let lines = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n");
        std::fs::write(made.path.join("predictions.jsonl"), lines.collect::<String>()).unwrap();
        made
    }

    #[test]
    fn the_same_samples_under_another_limit_or_order_are_not_held_out() {
        let folder = tempfile::tempdir().unwrap();
        let test = made(folder.path(), "test", &["test/0", "test/1", "test/2"], |_| ());
        // Another fingerprint of the stream, as another limit or order makes it.
        let part = made(folder.path(), "part", &["test/2", "val/1"], |run| {
            run.config.limit = Some(2);
            run.provenance.stream = "other".into();
        });
        let refused = TemperatureChoice::Fitted(vec![part]).of(&test).unwrap_err().to_string();
        assert!(refused.contains("1 of the 2") && refused.contains("held-out samples"), "{refused}");
        let held_out = made(folder.path(), "val", &["val/0", "val/1"], |run| {
            run.config.split = "val".into();
            run.provenance.stream = "other".into();
        });
        let fitted = TemperatureChoice::Fitted(vec![held_out]).of(&test).unwrap();
        assert!(fitted.value() > 50.0, "half right with three to one: as hot as it gets, {fitted:?}");
    }

    #[test]
    fn a_run_with_other_options_is_not_the_held_out_run() {
        let folder = tempfile::tempdir().unwrap();
        let test = made(folder.path(), "test", &["test/0"], |_| ());
        type Edit = fn(&mut Run);
        let edits: [(&str, Edit); 6] = [
            ("radius was 1.0, now 0.5", |run| drop(run.config.options.insert("radius".into(), 1.0.into()))),
            ("precision was \"bf16\"", |run| run.config.precision = "bf16".into()),
            ("views.count was 8, now 64", |run| run.config.views.count = 8),
            ("seed was 3, now 0", |run| run.config.seed = 3),
            ("text_features was \"t9\"", |run| run.provenance.text_features = "t9".into()),
            ("dataset was \"pocket:photo\"", |run| run.provenance.dataset = "pocket:photo".into()),
        ];
        for (said, edit) in edits {
            let other = made(folder.path(), "val", &["val/0", "val/1"], |run| {
                run.config.split = "val".into();
                edit(run);
            });
            let refused = TemperatureChoice::Fitted(vec![other]).of(&test).unwrap_err().to_string();
            assert!(refused.contains("nothing but the split") && refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn images_decide_where_records_name_them() {
        let record = |id: &str, image: &str| {
            let mut record = Record::failed(0, id, 0, &Error::config("k", "no"));
            record.image = Some(image.to_owned()).filter(|name| !name.is_empty());
            record
        };
        let test = [record("cat/1.jpg", "aa"), record("cat/2.jpg", "")];
        assert_eq!(shared_samples(&[record("cat/1.jpg", "bb")], &test), 0, "another image of the same name");
        assert_eq!(shared_samples(&[record("dog/7.jpg", "aa")], &test), 1, "a copy under another name");
        assert_eq!(shared_samples(&[record("cat/2.jpg", "cc"), record("cat/1.jpg", "")], &test), 2);
    }
}
