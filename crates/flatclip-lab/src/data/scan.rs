//! Listing folders: sorted, links followed, hidden files and stray texts skipped, dangling links named.

use super::dataset::{Sample, Source};
use flatclip::{Error, Result};
use std::path::{Path, PathBuf};

/// How deep a class folder may nest; deeper is a symlink loop.
const MAX_DEPTH: usize = 16;

const IMAGE_ENDINGS: [&str; 10] = ["jpg", "jpeg", "png", "webp", "bmp", "gif", "jpe", "jfif", "tif", "tiff"];

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub name: String,
    /// The folder joined with the name; links are not resolved.
    pub path: PathBuf,
    /// A folder or a link to one.
    pub is_folder: bool,
}

impl Entry {
    /// The images of a class folder.
    pub(super) fn samples(&self, label: usize) -> Result<Vec<Sample>> {
        let sample =
            |(relative, path)| Sample { id: format!("{}/{relative}", self.name), label, source: Source::File(path) };
        Ok(images(&self.path)?.into_iter().map(sample).collect())
    }
}

/// Hidden, or one of the files that macOS adds to archives.
fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name == "__MACOSX"
}

/// The visible entries of a folder in byte order of their names. Hidden names (also macOS `._x`) are skipped.
pub(super) fn list(folder: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_hidden(&name) {
            continue;
        }
        let path = folder.join(entry.file_name());
        let meta = std::fs::metadata(&path).map_err(|_| dangling(&path))?;
        entries.push(Entry { name, path, is_folder: meta.is_dir() });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// [`list`] for probing: what cannot be read is not there.
pub(super) fn list_lenient(folder: &Path) -> Vec<Entry> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<Entry> = entries
        .flatten()
        .map(|entry| {
            let path = folder.join(entry.file_name());
            Entry { name: entry.file_name().to_string_lossy().into_owned(), is_folder: path.is_dir(), path }
        })
        .filter(|entry| !is_hidden(&entry.name))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn dangling(path: &Path) -> Error {
    let reason = match std::fs::read_link(path) {
        Ok(target) => format!("is a link to {}, which does not exist; mount or restore the target", target.display()),
        Err(_) => "cannot be read; check its permissions".to_owned(),
    };
    Error::Data { path: path.to_path_buf(), reason }
}

/// True if the name ends like an image. Content is decided when decoding: a `.jpg` may be a PNG inside.
pub(super) fn is_image(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| IMAGE_ENDINGS.contains(&ending.as_str()))
}

/// The sub-folders, in order.
pub(super) fn folders(folder: &Path) -> Result<Vec<Entry>> {
    Ok(list(folder)?.into_iter().filter(|entry| entry.is_folder).collect())
}

/// All images below a folder, depth first, as (path relative to the folder with `/`, path).
pub(super) fn images(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    walk(folder, "", 0, &mut found)?;
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<(String, PathBuf)>) -> Result<()> {
    if depth > MAX_DEPTH {
        let reason = format!("folders nest deeper than {MAX_DEPTH} levels; a link may lead back to a parent");
        return Err(Error::Data { path: folder.to_path_buf(), reason });
    }
    for entry in list(folder)? {
        let relative = if prefix.is_empty() { entry.name.clone() } else { format!("{prefix}/{}", entry.name) };
        if entry.is_folder {
            walk(&entry.path, &relative, depth + 1, found)?;
        } else if is_image(&entry.name) {
            found.push((relative, entry.path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_files_and_texts_are_not_images_and_order_is_by_name() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.JPEG", "a.jpg", "._a.jpg", ".DS_Store", "README.txt", "sub/c.png"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"x").unwrap();
        }
        let names: Vec<String> = images(dir.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a.jpg", "b.JPEG", "sub/c.png"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_a_dangling_one_names_its_target() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        std::fs::write(dir.path().join("real/a.jpg"), b"x").unwrap();
        std::os::unix::fs::symlink(dir.path().join("real"), dir.path().join("linked")).unwrap();
        assert_eq!(images(&dir.path().join("linked")).unwrap().len(), 1);
        std::os::unix::fs::symlink("/nowhere/at/all", dir.path().join("broken")).unwrap();
        let message = list(dir.path()).unwrap_err().to_string();
        assert!(message.contains("broken") && message.contains("/nowhere/at/all"), "{message}");
        std::fs::remove_file(dir.path().join("broken")).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("real/loop")).unwrap();
        assert!(images(dir.path()).unwrap_err().to_string().contains("nest deeper"));
    }
}
