//! Which class lists can be answered.

use crate::text::imagenet;
use crate::text::templates::duplicates;
use crate::{Error, Result};

/// A class list that can be answered: not empty, no empty name.
pub(super) fn check_classes(classes: &[String]) -> Result<()> {
    if classes.is_empty() {
        return Err(Error::config("classes", "expected class names, found none"));
    }
    match classes.iter().position(|name| name.trim().is_empty()) {
        Some(at) => Err(Error::config("classes", format!("class {} has no name", at + 1))),
        None => Ok(()),
    }
}

/// Refuses a name that occurs twice: both classes get the same text and so the same score, and each half of the
/// probability. ImageNet's own list has two such names, as every published number was made with them.
pub(super) fn check_distinct(classes: &[String]) -> Result<()> {
    let Some((name, labels)) = duplicates(classes).into_iter().next() else { return Ok(()) };
    if imagenet::CLASS_NAMES.iter().eq(classes.iter()) {
        return Ok(());
    }
    let reason = format!(
        "{name:?} occurs {} times (labels {labels:?}): equal names share their probability; \
         give each class a name of its own",
        labels.len()
    );
    Err(Error::config("classes", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_occurs_twice_is_refused_except_in_imagenets_own_list() {
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        check_distinct(&names(&["cat", "Cat"])).unwrap();
        let error = check_distinct(&names(&["cat", "dog", "cat"])).unwrap_err().to_string();
        assert!(error.contains("\"cat\" occurs 2 times (labels [0, 2])"), "{error}");
        check_distinct(&names(&imagenet::CLASS_NAMES)).unwrap();
        assert!(check_distinct(&names(&imagenet::CLASS_NAMES[1..])).is_err(), "another list than ImageNet's");
    }
}
