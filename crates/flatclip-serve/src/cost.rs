//! Cost estimates: texts through the text tower, at the rate measured on this machine.

use crate::{Problem, lock};
use flatclip::Model;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Texts that are encoded to measure the rate.
const PROBE: usize = 32;
/// A build of fewer texts is not used to estimate the rate.
const OBSERVED: usize = 256;

/// Texts per second, by the hash of a model's weights.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<String, f64>>);

impl Rates {
    /// The rate of a model; measured if unknown, which blocks while some texts are encoded.
    pub(crate) fn of(&self, model: &Model) -> flatclip::Result<f64> {
        if let Some(rate) = self.known(model) {
            return Ok(rate);
        }
        let texts: Vec<String> = (0..PROBE).map(|number| format!("a photo of a thing {number}.")).collect();
        model.encode_texts(&texts[..1])?; // warm up
        let start = Instant::now();
        model.encode_texts(&texts)?;
        let rate = PROBE as f64 / start.elapsed().as_secs_f64().max(1e-6);
        lock(&self.0).insert(model.hash().to_owned(), rate);
        Ok(rate)
    }

    pub(crate) fn known(&self, model: &Model) -> Option<f64> {
        lock(&self.0).get(model.hash()).copied()
    }

    /// Updates the rate with a measurement. It follows slowly, since a build under load is a poor measurement.
    pub(crate) fn observe(&self, model: &Model, texts: usize, took: Duration) {
        if texts >= OBSERVED {
            let found = texts as f64 / took.as_secs_f64().max(1e-6);
            lock(&self.0).entry(model.hash().to_owned()).and_modify(|rate| *rate = 0.8 * *rate + 0.2 * found);
        }
    }
}

/// Refuses work whose estimated time is above a limit; the error has both numbers.
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
