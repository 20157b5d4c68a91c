//! ImageNet's class names, WordNet ids and the template sets that CLIP was evaluated with.
//!
//! The names are those of CLIP's prompt-engineering notebook. Two of them are duplicates: "missile" (657, 744) and
//! "sunglasses" (836, 837); equal names have equal text features, so their scores tie, and either
//! label may be answered.

use std::sync::LazyLock;

/// The 1000 class names, by label.
pub static CLASS_NAMES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| lines(include_str!("data/imagenet_classes.txt")));

/// The 1000 WordNet ids, by label; the folder names of the data set.
pub static WNIDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| lines(include_str!("data/imagenet_wnids.txt")));

/// The 200 WordNet ids of ImageNet-A, in order.
pub static WNIDS_A: LazyLock<Vec<&'static str>> = LazyLock::new(|| lines(include_str!("data/imagenet_a_wnids.txt")));

/// The 200 WordNet ids of ImageNet-R, in order.
pub static WNIDS_R: LazyLock<Vec<&'static str>> = LazyLock::new(|| lines(include_str!("data/imagenet_r_wnids.txt")));

/// The 80 templates of CLIP's paper.
pub(crate) static TEMPLATES_80: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| lines(include_str!("data/imagenet_templates_80.txt")));

/// The 7 templates that do as well as the 80; CoOp and Tip-Adapter use them.
pub static TEMPLATES_7: [&str; 7] = [
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
];

fn lines(text: &'static str) -> Vec<&'static str> {
    text.lines().collect()
}

/// The label of a WordNet id.
pub fn label_of(wnid: &str) -> Option<usize> {
    WNIDS.binary_search(&wnid).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_complete_and_in_order() {
        assert_eq!((CLASS_NAMES.len(), WNIDS.len(), TEMPLATES_80.len()), (1000, 1000, 80));
        assert!(WNIDS.is_sorted() && WNIDS_A.is_sorted() && WNIDS_R.is_sorted());
        assert_eq!((label_of("n01440764"), CLASS_NAMES[0]), (Some(0), "tench"));
        assert_eq!((label_of("n15075141"), CLASS_NAMES[999]), (Some(999), "toilet paper"));
        assert!(WNIDS_A.len() == 200 && WNIDS_R.len() == 200);
        assert!(WNIDS_A.iter().chain(WNIDS_R.iter()).all(|wnid| label_of(wnid).is_some()));
        assert!(TEMPLATES_80.iter().chain(&TEMPLATES_7).all(|t| t.matches("{}").count() == 1));
    }
}
