//! Calibration at a temperature that is given, or fitted on a held-out run.

use super::runs::Run;
use super::table::{Cell, Table};
use crate::eval::Record;
use crate::eval::metrics::{MetricOptions, Metrics, Temperature, metrics};
use crate::{Error, Result};

/// Where the temperature comes from.
#[derive(Clone, Debug)]
pub enum TemperatureChoice {
    /// This one for every run.
    Given(Temperature),
    /// Fitted, for each run, on the held-out run of the same model, prompt and method.
    Fitted(Vec<Run>),
}

impl TemperatureChoice {
    /// The temperature for a run.
    pub fn of(&self, run: &Run) -> Result<Temperature> {
        let held_out = match self {
            Self::Given(temperature) => return Ok(*temperature),
            Self::Fitted(held_out) => held_out,
        };
        let alike = |other: &&Run| {
            let key =
                |run: &Run| (run.config.method.clone(), run.provenance.prompt.clone(), run.provenance.weights.clone());
            key(other) == key(run)
        };
        let Some(other) = held_out.iter().find(alike) else {
            let reason =
                format!("expected a held-out run of {} with the same model and prompt, found none", run.row_name());
            return Err(Error::config("temperature", reason));
        };
        if other.provenance.stream == run.provenance.stream {
            let reason = format!("{} was made on the same samples as {}", other.path.display(), run.path.display());
            return Err(Error::config("temperature", format!("expected held-out samples; {reason}")));
        }
        let (rows, labels): (Vec<Vec<f32>>, Vec<usize>) = kept(other)?
            .into_iter()
            .filter_map(|record| Some((record.answer?.log_probabilities, record.label)))
            .unzip();
        Temperature::fit(&rows, &labels)
    }
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
    let header = ["data", "prompt + method", "seed", "T", "ECE", "at T", "NLL", "at T", "Brier", "at T"];
    let mut table = Table::new("Calibration at a temperature", header);
    for run in runs {
        let temperature = choice.of(run)?;
        let outcomes: Vec<_> = kept(run)?.iter().filter_map(|record| record.outcome_at(temperature)).collect();
        let at: Metrics = metrics(&outcomes, run.provenance.classes, MetricOptions::default());
        let plain = &run.summary.metrics;
        table.push(vec![
            Cell::text(&run.provenance.dataset),
            Cell::text(run.row_name()),
            Cell::text(run.config.seed.to_string()),
            Cell::number(temperature.value(), 3),
            Cell::percent(plain.calibration.ece),
            Cell::percent(at.calibration.ece),
            Cell::number(plain.nll, 4),
            Cell::number(at.nll, 4),
            Cell::number(plain.brier, 4),
            Cell::number(at.brier, 4),
        ]);
    }
    let how = match choice {
        TemperatureChoice::Given(_) => "given",
        TemperatureChoice::Fitted(_) => "fitted on held-out runs by the smallest mean cross-entropy",
    };
    table.notes.push(format!("T divides the logits, {how}; answers and top-1 do not change; ECE in per cent"));
    Ok(table)
}
