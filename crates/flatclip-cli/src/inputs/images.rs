//! Images by name: files, whole folders, `@list.txt`, and `-` for names on standard input.

use crate::output::Output;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Endings that a folder walk takes; a file named on the command line is taken whatever its name.
const READ: [&str; 10] = ["jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff"];
/// Endings of images that cannot be read.
const UNREAD: [(&str, &str); 12] = [
    ("heic", "HEIC"),
    ("heif", "HEIC"),
    ("avif", "AVIF"),
    ("jp2", "JPEG 2000"),
    ("j2k", "JPEG 2000"),
    ("jxl", "JPEG XL"),
    ("psd", "Photoshop"),
    ("cr2", "raw"),
    ("nef", "raw"),
    ("arw", "raw"),
    ("dng", "raw"),
    ("svg", "SVG"),
];

/// What a walk skipped, by kind.
#[derive(Default)]
struct LeftOut {
    formats: BTreeMap<&'static str, usize>,
    hidden: usize,
    macos: usize,
    loops: usize,
}

/// Folders become their images, sorted, with subfolders; files stay. One note counts what was skipped.
pub(crate) fn expand(paths: &[PathBuf], out: &Output) -> Result<Vec<PathBuf>> {
    let (mut images, mut left_out) = (Vec::new(), LeftOut::default());
    for path in named(paths)? {
        if path.is_dir() {
            let before = images.len();
            walk(&path, &mut Vec::new(), &mut images, &mut left_out)?;
            if images.len() == before {
                let rest = left_out.line().map_or(String::new(), |line| format!("; {line}"));
                return Err(flatclip::Error::Data {
                    path,
                    reason: format!("no images in this folder ({}){rest}", READ.join(", ")),
                }
                .into());
            }
        } else {
            images.push(path);
        }
    }
    if let Some(line) = left_out.line() {
        out.note(line);
    }
    Ok(images)
}

/// The names as given, with lists read: `@list.txt`, and `-` for standard input; one name per line.
fn named(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for path in paths {
        let list = match path.to_str() {
            Some("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).context("standard input")?;
                text
            }
            Some(name) if name.starts_with('@') && name.len() > 1 && !path.exists() => {
                let file = &name[1..];
                std::fs::read_to_string(file).with_context(|| file.to_owned())?
            }
            _ => {
                names.push(path.clone());
                continue;
            }
        };
        names.extend(list.lines().map(str::trim).filter(|line| !line.is_empty()).map(PathBuf::from));
    }
    ensure!(!names.is_empty(), "no images were named");
    Ok(names)
}

/// `above` are the real paths of the folders that lead here: one of them again is a symlink loop.
fn walk(folder: &Path, above: &mut Vec<PathBuf>, images: &mut Vec<PathBuf>, left_out: &mut LeftOut) -> Result<()> {
    let real = folder.canonicalize().with_context(|| folder.display().to_string())?;
    if above.contains(&real) {
        left_out.loops += 1;
        return Ok(());
    }
    above.push(real);
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>())
        .with_context(|| format!("{}", folder.display()))?;
    entries.sort();
    for path in entries {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        if name == "__MACOSX" {
            left_out.macos += 1;
        } else if name.starts_with('.') {
            left_out.hidden += 1;
        } else if path.is_dir() {
            walk(&path, above, images, left_out)?;
        } else if READ.contains(&ending.as_str()) {
            images.push(path);
        } else if let Some((_, format)) = UNREAD.iter().find(|(known, _)| *known == ending) {
            *left_out.formats.entry(format).or_default() += 1;
        }
    }
    above.pop();
    Ok(())
}

impl LeftOut {
    fn line(&self) -> Option<String> {
        let mut parts: Vec<String> = self.formats.iter().map(|(format, count)| format!("{count} {format}")).collect();
        for (count, what) in [(self.hidden, "hidden"), (self.macos, "__MACOSX"), (self.loops, "symlink loop")] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        let remedy = if self.formats.is_empty() { "" } else { "; save those formats as JPEG or PNG to have them read" };
        (!parts.is_empty()).then(|| format!("skipped: {}{remedy}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.jpg", "b.TIFF", "c.heic", "d.HEIC", "e.avif", ".hidden.jpg", "__MACOSX/a.jpg", "notes.txt"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(dir.path(), dir.path().join("round")).unwrap();
        let (mut images, mut left_out) = (Vec::new(), LeftOut::default());
        walk(dir.path(), &mut Vec::new(), &mut images, &mut left_out).unwrap();
        assert_eq!(images.len(), 2);
        let line = left_out.line().unwrap();
        assert!(line.starts_with("skipped: 1 AVIF, 2 HEIC, 1 hidden, 1 __MACOSX"), "{line}");
        #[cfg(unix)]
        assert!(line.contains("1 symlink loop"), "{line}");
    }

    #[test]
    fn names_come_from_a_list() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("list.txt");
        std::fs::write(&list, "one.jpg\n\n two.png \n").unwrap();
        let named = named(&[PathBuf::from(format!("@{}", list.display())), "three.jpg".into()]).unwrap();
        assert_eq!(named, ["one.jpg", "two.png", "three.jpg"].map(PathBuf::from));
    }
}
