//! Which views each published code base makes, as data. The choice moves ImageNet-A by several points, so it is an explicit
//! option that every result records, never a rule hidden in a method.

use crate::image::views::ViewPolicy;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The groups of test sets among which code bases differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestFamily {
    /// ImageNet's validation set.
    ImageNet,
    /// ImageNet-A, -V2, -R, -Sketch.
    NaturalShift,
    /// The ten fine-grained sets, and anything else.
    CrossDataset,
}

/// What a code base does for one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PublishedViews {
    /// How views are made.
    pub policy: ViewPolicy,
    /// Views including the original.
    pub views: usize,
}

/// One row of the table: a code base and its policy for ImageNet, natural shifts, cross datasets.
#[derive(Clone, Copy, Debug)]
pub struct CodeBase {
    /// The name users give.
    pub name: &'static str,
    /// Code bases that do the same.
    pub same: &'static [&'static str],
    policies: [PublishedViews; 3],
}

const CROPS: PublishedViews = PublishedViews { policy: ViewPolicy::CropFlip, views: 64 };
const CROPS_32: PublishedViews = PublishedViews { views: 32, ..CROPS };
const AUGMIX: PublishedViews = PublishedViews { policy: ViewPolicy::AugMix, views: 64 };
const SINGLE: PublishedViews = PublishedViews { policy: ViewPolicy::Identity, views: 1 };
const SINGLE_VIEW: &[&str] =
    &["single", "bca", "onzeta", "oga", "adapt", "adapt-transductive", "ecalp", "stata", "transclip"];

const fn row(name: &'static str, same: &'static [&'static str], policies: [PublishedViews; 3]) -> CodeBase {
    CodeBase { name, same, policies }
}

/// Read in the code bases' sources; C-TPT's own natural-shift script sets its AugMix flag for V2, A, R and Sketch only.
pub const CODE_BASES: &[CodeBase] = &[
    row("tpt", &["stss", "tps", "sts", "r-tpt", "dynaprompt", "sar"], [CROPS, CROPS, AUGMIX]),
    row("zero", &["mta", "vte", "adte", "adte-stream"], [CROPS; 3]),
    row("use", &["se"], [CROPS, CROPS, AUGMIX]),
    row("awt", &[], [PublishedViews { views: 51, ..CROPS }; 3]),
    row("dlae", &[], [CROPS, CROPS, AUGMIX]),
    row("mcp", &[], [CROPS_32, CROPS_32, PublishedViews { views: 32, ..AUGMIX }]),
    row("promptalign", &["difftpt", "dmn"], [CROPS; 3]),
    row("c-tpt", &["o-tpt", "a-tpt"], [CROPS, AUGMIX, AUGMIX]),
    row("ttabc", &[], [AUGMIX; 3]),
    row("boostadapter", &[], [SINGLE, CROPS, CROPS]),
    row("tda", &["dota"], [SINGLE, AUGMIX, SINGLE]),
    row("dpe", &[], [AUGMIX, AUGMIX, SINGLE]),
    row("zero-shot", SINGLE_VIEW, [SINGLE; 3]),
];

/// The policy of a code base for a family of test sets.
pub fn policy_for(code_base: &str, family: TestFamily) -> Result<PublishedViews> {
    let row = CODE_BASES.iter().find(|c| c.name == code_base || c.same.contains(&code_base));
    let index = match family {
        TestFamily::ImageNet => 0,
        TestFamily::NaturalShift => 1,
        TestFamily::CrossDataset => 2,
    };
    row.map(|row| row.policies[index]).ok_or_else(|| {
        let known: Vec<&str> = CODE_BASES.iter().map(|c| c.name).collect();
        Error::config("views.policy", format!("no policy is called `{code_base}`; known are {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tpt_and_c_tpt_differ_on_the_shifts_and_names_are_unique() {
        let policy = |name, family| policy_for(name, family).unwrap().policy;
        assert_eq!(policy("tpt", TestFamily::NaturalShift), ViewPolicy::CropFlip);
        assert_eq!(policy("c-tpt", TestFamily::NaturalShift), ViewPolicy::AugMix);
        assert_eq!(policy_for("tda", TestFamily::CrossDataset).unwrap().views, 1);
        let mut names: Vec<&str> = CODE_BASES.iter().flat_map(|c| c.same.iter().chain([&c.name])).copied().collect();
        names.sort_unstable();
        names.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
        assert!(policy_for("tptt", TestFamily::ImageNet).unwrap_err().to_string().contains("c-tpt"));
    }
}
