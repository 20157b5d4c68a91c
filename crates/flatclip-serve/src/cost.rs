//! What work costs, known before it is done: texts through the text tower, by the rate that was measured on this machine.

use crate::problem::Problem;
use flatclip::Model;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Texts that are encoded to measure the rate.
const PROBE: usize = 32;
/// A build of fewer texts is not used to estimate the rate.
const OBSERVED: usize = 256;

/// Texts per second, by the hash of a model's weights.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<String, f64>>);

impl Rates {
    /// Of a model; measured where it is not known. Blocks for as long as some texts take.
    pub(crate) fn of(&self, model: &Model) -> flatclip::Result<f64> {
        if let Some(rate) = self.known(model) {
            return Ok(rate);
        }
        let texts: Vec<String> = (0..PROBE).map(|number| format!("a photo of a thing {number}.")).collect();
        model.encode_texts(&texts[..1])?; // what is made on first use
        let start = Instant::now();
        model.encode_texts(&texts)?;
        let rate = PROBE as f64 / start.elapsed().as_secs_f64().max(1e-6);
        self.lock().insert(model.hash().to_owned(), rate);
        Ok(rate)
    }

    pub(crate) fn known(&self, model: &Model) -> Option<f64> {
        self.lock().get(model.hash()).copied()
    }

    /// So many texts took so long. The estimate follows slowly: one build during much other work is a poor measurement.
    pub(crate) fn observe(&self, model: &Model, texts: usize, took: Duration) {
        if texts >= OBSERVED {
            let found = texts as f64 / took.as_secs_f64().max(1e-6);
            self.lock().entry(model.hash().to_owned()).and_modify(|rate| *rate = 0.8 * *rate + 0.2 * found);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, f64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses work whose estimate is above a limit, with both numbers.
pub(crate) fn check(what: &str, texts: usize, seconds: f64, limit: Duration) -> Result<(), Problem> {
    if seconds <= limit.as_secs_f64() {
        return Ok(());
    }
    let message = format!(
        "{what}: {texts} texts take about {seconds:.0} s on this server, more than the limit of {:.0} s",
        limit.as_secs_f64()
    );
    let hint = "ask for fewer classes, templates or steps, or raise the limit in the server's configuration";
    Err(Problem::new(axum::http::StatusCode::PAYLOAD_TOO_LARGE, "limit.exceeded", message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_measured_once_and_follows_what_is_seen() {
        let (rates, model) = (Rates::default(), Model::load("pocket").unwrap());
        assert!(rates.known(&model).is_none());
        let rate = rates.of(&model).unwrap();
        assert_eq!(rates.of(&model).unwrap(), rate);
        rates.observe(&model, OBSERVED, Duration::from_secs_f64(OBSERVED as f64 / rate / 2.0));
        assert!(rates.known(&model).unwrap() > rate);
        rates.observe(&model, 1, Duration::from_secs(1000));
        assert!(rates.known(&model).unwrap() > rate);
    }

    #[test]
    fn a_refusal_has_the_numbers() {
        assert!(check("x", 10, 1.0, Duration::from_secs(1)).is_ok());
        let problem = check("classes x templates", 80_000, 200.0, Duration::from_secs(30)).unwrap_err();
        assert!(problem.message.contains("80000 texts take about 200 s") && problem.message.contains("limit of 30 s"));
    }
}
