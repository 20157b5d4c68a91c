//! What the reported probability of an answer is: a probability of the model, or a share of votes.

use super::adapters::{stss, zero};
use super::aggregate::Vote;
use crate::options::{OptionValue as _, Table};
use serde::{Deserialize, Serialize};

/// What a method reports as its confidence. ECE, NLL and Brier score of the two kinds do not compare: a vote share takes few
/// values, and measures how many views agree, not how sure the model is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Made from probabilities of the model.
    #[default]
    Probability,
    /// The share of the selected views that vote for the class.
    VoteShare,
}

impl Confidence {
    /// What to say below numbers of vote shares.
    pub const NOTE: &str = "vote share: the confidence of a majority vote (STSS and ZERO by default) is the share of the selected views that vote for \
                            the class, not a probability of the model; their ECE and NLL measure vote shares";

    /// Of a method with these options.
    pub fn of(method: &str, options: &Table) -> Self {
        let given = options.get("vote").or_else(|| options.get("pool")).and_then(Vote::from_value);
        let usual = [zero::SPEC.name, stss::SPEC.name].contains(&method).then_some(Vote::Majority);
        match given.or(usual) {
            Some(Vote::Majority) => Self::VoteShare,
            _ => Self::Probability,
        }
    }

    /// As it is written in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probability => "probability",
            Self::VoteShare => "vote share",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_votes_are_vote_shares_and_averages_are_not() {
        let options = |text: &str| text.parse::<toml::Table>().unwrap();
        for (method, text, expected) in [
            ("zero", "", Confidence::VoteShare),
            ("zero", "pool = \"soft\"", Confidence::Probability),
            ("vte", "vote = \"majority\"", Confidence::VoteShare),
            ("stss", "", Confidence::VoteShare),
            ("stss", "vote = \"majority\"", Confidence::VoteShare),
            ("stss", "vote = \"mean-probability\"", Confidence::Probability),
            ("mta", "", Confidence::Probability),
            ("zero-shot", "", Confidence::Probability),
        ] {
            assert_eq!(Confidence::of(method, &options(text)), expected, "{method} {text}");
        }
        assert_eq!(serde_json::to_string(&Confidence::VoteShare).unwrap(), "\"vote-share\"");
    }
}
