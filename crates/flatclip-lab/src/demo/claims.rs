//! The paper's claims, each with its number and what that says.

use super::answers::{Answers, Rule};
use super::compare::{Difference, Verdict, Where};
use super::minima::{self, Minimum};
use super::protocol::Protocol;
use super::tuning::Tuner;
use crate::report::{Cell, Table};
use flatclip::Result;
use serde::Serialize;

/// One claim.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    /// What is claimed: the first minus the second is positive.
    pub(super) claim: String,
    pub(super) shots: Option<usize>,
    /// Where: photos, shifts, or the loss of photos.
    pub(super) place: &'static str,
    pub(super) difference: Difference,
    pub(super) verdict: Verdict,
    /// The difference is a loss, not a share of images.
    loss: bool,
}

impl Claim {
    pub(super) fn number(&self) -> String {
        if self.loss {
            format!("{:+.3} ± {:.3} nats", self.difference.mean, self.difference.half)
        } else {
            self.difference.points()
        }
    }
}

type Side = (Option<Tuner>, Rule);

/// Of one number of shots: what is claimed, what against what, and where.
const CLAIMS: [(&str, Side, Side, Where); 12] = [
    ("CoOp helps photos", (Some(Tuner::Coop), Rule::One), (None, Rule::One), Where::Photos),
    ("SAPT helps photos", (Some(Tuner::Sapt), Rule::One), (None, Rule::One), Where::Photos),
    ("CoOp helps shifts", (Some(Tuner::Coop), Rule::One), (None, Rule::One), Where::Shifts),
    ("SAPT helps shifts", (Some(Tuner::Sapt), Rule::One), (None, Rule::One), Where::Shifts),
    ("SAPT over CoOp", (Some(Tuner::Sapt), Rule::One), (Some(Tuner::Coop), Rule::One), Where::Photos),
    ("SAPT over CoOp", (Some(Tuner::Sapt), Rule::One), (Some(Tuner::Coop), Rule::One), Where::Shifts),
    ("SAPT over CoOp, both with ZERO", (Some(Tuner::Sapt), Rule::Zero), (Some(Tuner::Coop), Rule::Zero), Where::Shifts),
    ("SAPT over CoOp, lr chosen", (Some(Tuner::Sapt), Rule::One), (Some(Tuner::CoopChosen), Rule::One), Where::Shifts),
    ("STSS over entropy, on SAPT", (Some(Tuner::Sapt), Rule::Stss), (Some(Tuner::Sapt), Rule::Entropy), Where::Shifts),
    ("STSS over entropy, on CoOp", (Some(Tuner::Coop), Rule::Stss), (Some(Tuner::Coop), Rule::Entropy), Where::Shifts),
    ("FGA over CoOp + ZERO", (Some(Tuner::Sapt), Rule::Stss), (Some(Tuner::Coop), Rule::Zero), Where::Shifts),
    ("FGA over untuned + ZERO", (Some(Tuner::Sapt), Rule::Stss), (None, Rule::Zero), Where::Shifts),
];

/// Claims about the prompt that no shots were used for.
const UNTUNED: [(&str, Rule, Rule, Where); 3] = [
    ("views help the untuned prompt (entropy)", Rule::Entropy, Rule::One, Where::Photos),
    ("views help the untuned prompt (entropy)", Rule::Entropy, Rule::One, Where::Shifts),
    ("STSS over entropy, untuned", Rule::Stss, Rule::Entropy, Where::Shifts),
];

pub(super) fn judge(answers: &Answers, minima: &[Minimum], protocol: &Protocol) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    let mut push = |claim: &str, shots, place, difference: Difference, loss| {
        let (claim, verdict) = (claim.to_owned(), difference.verdict());
        claims.push(Claim { claim, shots, place, difference, verdict, loss });
    };
    for (claim, first, second, place) in UNTUNED {
        let difference = Difference::of(answers, answers.row(None, first)?, answers.row(None, second)?, place);
        push(claim, None, place.name(), difference, false);
    }
    for &shots in protocol.shots {
        for (claim, first, second, place) in CLAIMS {
            if !protocol.choose_rate && [first.0, second.0].contains(&Some(Tuner::CoopChosen)) {
                continue;
            }
            let row = |(tuner, rule): Side| answers.row(tuner.map(|tuner| (tuner, shots)), rule);
            let difference = Difference::of(answers, row(first)?, row(second)?, place);
            push(claim, Some(shots), place.name(), difference, false);
        }
        let flatter = minima::flatter(minima, shots, |m| m.relative)?;
        push("SAPT's minimum is flatter, radius relative to its norm", Some(shots), "loss", flatter, true);
        let flatter = minima::flatter(minima, shots, |m| m.absolute)?;
        push("SAPT's minimum is flatter, one radius", Some(shots), "loss", flatter, true);
    }
    Ok(claims)
}

/// The claim of that name, for a sentence.
pub(super) fn find<'c>(claims: &'c [Claim], claim: &str, shots: Option<usize>, place: &str) -> Option<&'c Claim> {
    claims.iter().find(|c| c.claim == claim && c.shots == shots && c.place == place)
}

pub(super) fn table(claims: &[Claim]) -> Table {
    let title =
        "What the paper claims, and what is seen here (differences in points, 95 % intervals over images and draws)";
    let mut table = Table::new(title, ["claim", "where", "shots", "difference", "verdict"]);
    for claim in claims {
        table.push(vec![
            Cell::text(&claim.claim),
            Cell::text(claim.place),
            claim.shots.map_or_else(Cell::none, |shots| Cell::number(shots as f64, 0)),
            Cell { value: Some(claim.difference.mean), ..Cell::text(claim.number()) },
            Cell::text(claim.verdict.name()),
        ]);
    }
    table
}
