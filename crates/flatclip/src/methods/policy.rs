//! Which views each published code base makes, as data. The choice moves ImageNet-A by several points, so it is an explicit
//! option that every result records, never a rule hidden in a method.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// How augmented views are made; view 0 is always the un-augmented image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Augmentation {
    /// No augmented views: view 0 alone.
    Identity,
    /// Random resized crop and horizontal flip.
    CropFlip,
    /// AugMix on top of crop and flip.
    AugMix,
}

/// The groups of test sets among which code bases differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// ImageNet's validation set.
    ImageNet,
    /// ImageNet-A, -V2, -R, -Sketch.
    NaturalShift,
    /// The ten fine-grained sets, and anything else.
    CrossDataset,
}

/// What a code base does for one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// The augmentation.
    pub augmentation: Augmentation,
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
    policies: [Policy; 3],
}

const CROPS: Policy = Policy { augmentation: Augmentation::CropFlip, views: 64 };
const AUGMIX: Policy = Policy { augmentation: Augmentation::AugMix, views: 64 };
const SINGLE: Policy = Policy { augmentation: Augmentation::Identity, views: 1 };

/// Read in the code bases' sources; C-TPT's own natural-shift script sets its AugMix flag for V2, A, R and Sketch only.
pub const CODE_BASES: &[CodeBase] = &[
    CodeBase { name: "tpt", same: &["stss", "tps", "r-tpt", "dynaprompt", "sar"], policies: [CROPS, CROPS, AUGMIX] },
    CodeBase { name: "zero", same: &["mta", "vte", "boostadapter"], policies: [CROPS, CROPS, CROPS] },
    CodeBase { name: "promptalign", same: &["difftpt"], policies: [CROPS, CROPS, CROPS] },
    CodeBase { name: "c-tpt", same: &["o-tpt", "a-tpt"], policies: [CROPS, AUGMIX, AUGMIX] },
    CodeBase { name: "ttabc", same: &[], policies: [AUGMIX, AUGMIX, AUGMIX] },
    CodeBase { name: "tda", same: &[], policies: [SINGLE, AUGMIX, SINGLE] },
    CodeBase { name: "dpe", same: &[], policies: [AUGMIX, AUGMIX, SINGLE] },
    CodeBase { name: "zero-shot", same: &["single"], policies: [SINGLE, SINGLE, SINGLE] },
];

/// The policy of a code base for a family of test sets.
pub fn policy_for(code_base: &str, family: Family) -> Result<Policy> {
    let row = CODE_BASES.iter().find(|c| c.name == code_base || c.same.contains(&code_base));
    let index = match family {
        Family::ImageNet => 0,
        Family::NaturalShift => 1,
        Family::CrossDataset => 2,
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
        let augmentation = |name, family| policy_for(name, family).unwrap().augmentation;
        assert_eq!(augmentation("tpt", Family::NaturalShift), Augmentation::CropFlip);
        assert_eq!(augmentation("c-tpt", Family::NaturalShift), Augmentation::AugMix);
        assert_eq!(policy_for("tda", Family::CrossDataset).unwrap().views, 1);
        let mut names: Vec<&str> = CODE_BASES.iter().flat_map(|c| c.same.iter().chain([&c.name])).copied().collect();
        names.sort_unstable();
        names.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
        assert!(policy_for("tptt", Family::ImageNet).unwrap_err().to_string().contains("c-tpt"));
    }
}
