//! Pictures from files and whole folders.

use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};

/// Extensions that a folder walk takes; a file named on the command line is taken whatever its name.
const EXTENSIONS: [&str; 8] = ["jpg", "jpeg", "png", "webp", "bmp", "gif", "jpe", "jfif"];

/// Folders become their pictures, sorted, with subfolders; files stay.
pub(crate) fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut pictures = Vec::new();
    for path in paths {
        if path.is_dir() {
            let before = pictures.len();
            walk(path, &mut pictures)?;
            ensure!(
                pictures.len() > before,
                "{}: no pictures in this folder ({})",
                path.display(),
                EXTENSIONS.join(", ")
            );
        } else {
            pictures.push(path.clone());
        }
    }
    Ok(pictures)
}

fn walk(folder: &Path, pictures: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>())
        .with_context(|| format!("{}", folder.display()))?;
    entries.sort();
    for path in entries {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if hidden {
            continue;
        }
        if path.is_dir() {
            walk(&path, pictures)?;
        } else if is_picture(&path) {
            pictures.push(path);
        }
    }
    Ok(())
}

fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|e| EXTENSIONS.iter().any(|known| e.eq_ignore_ascii_case(known)))
}
