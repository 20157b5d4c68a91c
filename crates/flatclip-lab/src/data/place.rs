//! Where a known data set lies below a root: each known layout in turn, names compared without case.

use super::known::{Known, Layout, Place};
use super::scan;
use std::path::{Path, PathBuf};

/// A data set's folders as found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Whose folder names matched; `None` for a folder that the user named.
    pub layout: Option<Layout>,
    /// The data set's folder.
    pub folder: PathBuf,
    /// The image folder inside (may be the same).
    pub images: PathBuf,
}

impl Found {
    pub(super) fn describe(&self) -> String {
        match self.layout {
            Some(layout) => format!("{} layout at {}", layout.name(), self.images.display()),
            None => format!("given folder {}", self.images.display()),
        }
    }
}

/// Everything that exists, in order of preference. `named` is the user's own folder for this data set.
pub(super) fn candidates(known: &Known, root: Option<&Path>, named: Option<&Path>) -> Vec<Found> {
    if let Some(folder) = named {
        return below_named(known, folder);
    }
    let Some(root) = root else { return Vec::new() };
    let exists = |&(layout, folder, images): &Place| {
        let folder = find(root, folder)?;
        let images = find(&folder, images)?;
        Some(Found { layout: Some(layout), folder, images })
    };
    known.places.iter().filter_map(exists).collect()
}

/// In a folder that the user named: each known image folder inside, then the folder itself.
fn below_named(known: &Known, folder: &Path) -> Vec<Found> {
    let inner = known.places.iter().map(|&(_, _, images)| images).chain([""]);
    let mut found: Vec<Found> = Vec::new();
    for images in inner.filter_map(|images| find(folder, images)) {
        if !found.iter().any(|other| other.images == images) {
            found.push(Found { layout: None, folder: folder.to_path_buf(), images });
        }
    }
    // A named folder with known sub-folders is entered before the folder itself is taken for the image folder.
    found.sort_by_key(|place| place.images == folder);
    found
}

/// `root/relative` with every component compared without case; exact spelling wins.
pub(super) fn find(root: &Path, relative: &str) -> Option<PathBuf> {
    let mut path = root.to_path_buf();
    for component in relative.split('/').filter(|component| !component.is_empty()) {
        let exact = path.join(component);
        path = if exact.exists() {
            exact
        } else {
            let same = |entry: &scan::Entry| entry.name.eq_ignore_ascii_case(component);
            scan::list_lenient(&path).into_iter().find(same)?.path
        };
    }
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tree::tree;

    #[test]
    fn both_layouts_are_found_in_any_case() {
        let known = Known::find("imagenet_a").unwrap();
        let dir = tree(&["IMAGENET-ADVERSARIAL/imagenet-a/n01498041/1.jpg"]);
        let found = candidates(known, Some(dir.path()), None);
        assert_eq!(found[0].layout, Some(Layout::CoOp));
        let dir = tree(&["ImageNet-A/n01498041/1.jpg"]);
        let found = candidates(known, Some(dir.path()), None);
        assert_eq!(found[0].layout, Some(Layout::Tpt));
        assert!(found[0].images.ends_with("ImageNet-A"));
    }

    #[test]
    fn a_named_folder_is_entered_or_taken_as_it_is() {
        let known = Known::find("imagenet").unwrap();
        let dir = tree(&["images/val/n01440764/1.JPEG"]);
        assert!(candidates(known, None, Some(dir.path()))[0].images.ends_with("images/val"));
        let val = dir.path().join("images/val");
        assert_eq!(candidates(known, None, Some(&val))[0].images, val);
    }
}
