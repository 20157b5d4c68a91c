//! The radius of an analysis: one for the scores of test images and for the training loss, and that of the class of functions
//! whose complexity is measured.

use crate::train::TuneSummary;
use flatclip::methods::adapters::stss::{Config, Reduce};
use flatclip::methods::bank::{Radius, RadiusUnit};
use flatclip::methods::sam::NormScope;
use flatclip::methods::select::Score;
use flatclip::model::Context;
use flatclip::prompt::{Prompt, PromptContent};
use flatclip::{Error, Model, Result};
use flatclip_tensor::ops::l2_norm;

/// Which prompts the complexity term is about: those within a radius of the learned one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ClassRadius {
    /// The radius of the analysis.
    #[default]
    Rho,
    /// The distance that tuning moved the prompt: the ball holds the prompt that tuning started from.
    Tuned,
    /// A given length.
    Length(f64),
}

impl std::str::FromStr for ClassRadius {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<f64>() {
            _ if text == "rho" => Ok(Self::Rho),
            _ if text == "tuned" => Ok(Self::Tuned),
            Ok(length) if length >= 0.0 && length.is_finite() => Ok(Self::Length(length)),
            _ => Err(Error::config(
                "class radius",
                format!("expected rho, tuned or a length of 0 or more, found {text:?}"),
            )),
        }
    }
}

impl ClassRadius {
    /// Its length, and where it comes from in words.
    pub(super) fn resolve(self, rho: f64, prompt: &Prompt, model: &Model) -> Result<(f64, String)> {
        match self {
            Self::Rho => Ok((rho, "rho".to_owned())),
            Self::Length(length) => Ok((length, "as given".to_owned())),
            Self::Tuned => Ok((tuned_distance(prompt, model)?, "the distance that tuning moved".to_owned())),
        }
    }
}

/// The options of STSS whose score estimates `H^rho`, and the radius of both sides.
pub(super) fn one_radius(options: &toml::Table, rho: Option<f64>, context: &Context) -> Result<(Config, Radius)> {
    let mut config = Config::read(options)?;
    if let Some(rho) = rho {
        let given = ["radius", "rho"].iter().any(|key| options.contains_key(*key));
        let relative = config.radius_unit == RadiusUnit::Relative;
        if (given && config.radius != rho) || relative {
            let unit = if relative { "relative" } else { "absolute" };
            let reason = format!(
                "expected one radius for both sides, found {rho} and stss.radius = {} ({unit}); give one of them",
                config.radius
            );
            return Err(Error::config("rho", reason));
        }
        config.radius = rho;
    }
    config.check()?;
    is_worst_case_entropy(&config)?;
    let radius = config.radius_unit.radius(config.radius, l2_norm(&context.data));
    // One view votes for itself; what is looked at are its outputs.
    config.count = 1;
    Ok((config, radius))
}

/// Refuses options under which a score is something else than the largest entropy within the ball.
fn is_worst_case_entropy(config: &Config) -> Result<()> {
    let table = config.table();
    let refuse = |key: &str, expected: &str, why: &str| {
        let found = &table[key];
        let reason = format!("expected {expected}, found {found}: {why}");
        Err(Error::config(format!("stss.{key}"), reason))
    };
    let entropy = "with another value a score does not estimate the worst-case entropy H^rho that the theorem is about";
    if config.lambda != 1.0 {
        return refuse("lambda", "1", entropy);
    }
    if config.score != Score::Entropy {
        return refuse("score", "entropy", entropy);
    }
    if config.reduce != Reduce::Max {
        return refuse("reduce", "max", entropy);
    }
    if config.norm != NormScope::Whole {
        let ball = "the ball of the theorem, and of the training loss, is over the whole context";
        return refuse("norm", "whole", ball);
    }
    Ok(())
}

/// How far tuning moved a learned prompt: from its run, or from the words that it started from.
fn tuned_distance(prompt: &Prompt, model: &Model) -> Result<f64> {
    if let Some(moved) = distance_of_run(prompt) {
        return Ok(moved);
    }
    if let PromptContent::Learned { context, words, .. } = &prompt.content {
        let ids = model.tokenizer().encode(words);
        if !ids.is_empty() && ids.len() == context.tokens && context.classes.is_none() {
            let start = model.clip().text()?.embed(&ids)?;
            let apart: Vec<f32> = context.data.iter().zip(start.data()).map(|(a, b)| a - b).collect();
            return Ok(l2_norm(&apart));
        }
    }
    let reason = format!(
        "expected the prompt of a tuning run, or one that was learned from words, found a {} prompt whose start is not known; \
         give a length",
        prompt.kind()
    );
    Err(Error::config("class radius", reason))
}

/// The summary next to a prompt of a tuning run.
fn distance_of_run(prompt: &Prompt) -> Option<f64> {
    let bytes = std::fs::read(prompt.path.parent()?.join("summary.json")).ok()?;
    let summary: TuneSummary = serde_json::from_slice(&bytes).ok()?;
    let mine = prompt.path.file_name().is_some_and(|name| name == summary.prompt.as_str());
    summary.distance.filter(|_| mine).map(|distance| distance.moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context { classes: None, tokens: 1, width: 2, data: vec![3.0, 4.0] }
    }

    fn table(text: &str) -> toml::Table {
        text.parse().unwrap()
    }

    fn length(options: &str, rho: Option<f64>) -> Result<f64> {
        let (config, radius) = one_radius(&table(options), rho, &context())?;
        // What the scores are perturbed by is what the training loss is.
        let how = config.perturbation();
        let moved = how.apply(&context(), &[1.0, 0.0]);
        assert!((f64::from(moved.data[0]) - 3.0 - radius.length).abs() < 1e-5, "{moved:?} {radius:?}");
        Ok(radius.length)
    }

    #[test]
    fn both_sides_have_the_radius_however_it_is_given() {
        assert_eq!(length("", None).unwrap(), 0.5);
        assert_eq!(length("rho = 1.0", None).unwrap(), 1.0);
        assert_eq!(length("radius = 2.0", None).unwrap(), 2.0);
        assert_eq!(length("radius = 0.1\nradius_unit = \"relative\"", None).unwrap(), 0.5);
        assert_eq!(length("", Some(0.25)).unwrap(), 0.25);
        assert_eq!(length("radius = 0.25", Some(0.25)).unwrap(), 0.25);
    }

    #[test]
    fn two_radii_and_scores_of_something_else_are_refused() {
        let refused = |options: &str, rho, key: &str| {
            let message = length(options, rho).unwrap_err().to_string();
            assert!(message.starts_with(key), "{message}");
        };
        refused("rho = 1.0", Some(0.5), "rho: ");
        refused("radius_unit = \"relative\"", Some(0.5), "rho: ");
        refused("", Some(-1.0), "stss.radius");
        refused("lambda = 0.5", None, "stss.lambda: expected 1, found 0.5");
        refused("surrogate = \"margin\"", None, "stss.score");
        refused("reduce = \"mean\"", None, "stss.reduce");
        refused("norm = \"per-token\"", None, "stss.norm");
    }

    #[test]
    fn a_class_radius_is_read() {
        assert_eq!("rho".parse::<ClassRadius>().unwrap(), ClassRadius::Rho);
        assert_eq!("tuned".parse::<ClassRadius>().unwrap(), ClassRadius::Tuned);
        assert_eq!("1.5".parse::<ClassRadius>().unwrap(), ClassRadius::Length(1.5));
        assert!("-1".parse::<ClassRadius>().is_err() && "far".parse::<ClassRadius>().is_err());
    }

    #[test]
    fn the_distance_that_tuning_moved_comes_from_the_words_and_a_template_has_none() {
        let model = Model::load("pocket").unwrap();
        let ids = model.tokenizer().encode("a photo of a");
        let mut data = model.clip().text().unwrap().embed(&ids).unwrap().into_vec();
        data[0] += 3.0;
        data[5] -= 4.0;
        let context = Context::shared(ids.len(), model.clip().text().unwrap().width(), data);
        let position = flatclip::model::Position::End;
        let kind = PromptContent::Learned { context, words: "a photo of a".into(), position };
        let prompt = Prompt::new(kind, flatclip::prompt::Provenance::default());
        let (moved, _) = ClassRadius::Tuned.resolve(0.5, &prompt, &model).unwrap();
        assert!((moved - 5.0).abs() < 1e-5, "{moved}");
        let template = Prompt::templates(&[Prompt::TEMPLATE]).unwrap();
        assert!(ClassRadius::Tuned.resolve(0.5, &template, &model).is_err());
        assert_eq!(ClassRadius::Rho.resolve(0.5, &template, &model).unwrap().0, 0.5);
    }
}
