//! Toy model data trees for tests.

use super::Dataset;
use std::path::Path;
use tempfile::TempDir;

/// A folder with these files; each holds its own name.
pub(crate) fn tree(files: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        put(dir.path(), file, file.as_bytes());
    }
    dir
}

/// Writes one file below `root`, with its folders.
pub(crate) fn put(root: &Path, file: &str, content: impl AsRef<[u8]>) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// The samples of a data set by id and label.
pub(crate) fn labelled(data: &Dataset) -> Vec<(&str, usize)> {
    data.samples.iter().map(|sample| (sample.id.as_str(), sample.label)).collect()
}
