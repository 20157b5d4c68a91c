//! Images by name: files, whole folders, `@list.txt`, and `-` for names on standard input; and how they are read.

use crate::output::Output;
use anyhow::{Context as _, Result, ensure};
use flatclip::image::{DecodeOptions, ImageChanges};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Endings that a folder walk takes; a file named on the command line is taken whatever its name.
const READ: [&str; 10] = ["jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "gif", "tif", "tiff"];
/// Formats that cannot be read, and their endings.
const UNREAD: [(&str, &[&str]); 7] = [
    ("HEIC", &["heic", "heif"]),
    ("AVIF", &["avif"]),
    ("JPEG 2000", &["jp2", "j2k"]),
    ("JPEG XL", &["jxl"]),
    ("Photoshop", &["psd"]),
    ("raw", &["cr2", "nef", "arw", "dng"]),
    ("SVG", &["svg"]),
];

#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct DecodeArgs {
    /// Rotate images per EXIF and scale 16-bit grey [default: for your own images: files, folder:, csv:, zhou:, wds:]
    #[arg(long, overrides_with = "no_exif")]
    exif: bool,
    /// Read images as Pillow's `convert("RGB")`, as every published number was [default: for known data sets]
    #[arg(long, overrides_with = "exif")]
    no_exif: bool,
}

impl DecodeArgs {
    /// What was asked for; `None` leaves it to the data.
    pub(crate) fn exif(self) -> Option<bool> {
        (self.exif || self.no_exif).then_some(self.exif)
    }

    /// For images named on the command line, which are the user's own.
    pub(crate) fn options(self) -> DecodeOptions {
        let usual = DecodeOptions::default();
        DecodeOptions { exif: self.exif().unwrap_or(usual.exif), ..usual }
    }
}

/// What was done to images, and how to read them otherwise.
pub(crate) fn changes_line(changes: ImageChanges) -> Option<String> {
    Some(format!("{} (--no-exif reads them as Pillow does)", changes.line()?))
}

/// How many of what a walk skipped, by kind: formats that cannot be read, of rank 0, come first.
#[derive(Default)]
struct LeftOut(BTreeMap<(u8, &'static str), usize>);

/// Folders become their images, sorted, with subfolders; files stay. One note counts what was skipped.
pub(crate) fn expand(paths: &[PathBuf], out: &Output) -> Result<Vec<PathBuf>> {
    let (mut images, mut left_out) = (Vec::new(), LeftOut::default());
    for path in named(paths)? {
        if path.is_dir() {
            let before = images.len();
            walk(&path, &mut Vec::new(), &mut images, &mut left_out)?;
            if images.len() == before {
                let rest = left_out.line().map_or(String::new(), |line| format!("; {line}"));
                let reason = format!("no images in this folder ({}){rest}", READ.join(", "));
                return Err(flatclip::Error::Data { path, reason }.into());
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
        left_out.add(3, "symlink loop");
        return Ok(());
    }
    above.push(real);
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>())
        .with_context(|| folder.display().to_string())?;
    entries.sort();
    for path in entries {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        if name == "__MACOSX" {
            left_out.add(2, "__MACOSX");
        } else if name.starts_with('.') {
            left_out.add(1, "hidden");
        } else if path.is_dir() {
            walk(&path, above, images, left_out)?;
        } else if READ.contains(&ending.as_str()) {
            images.push(path);
        } else if let Some((format, _)) = UNREAD.iter().find(|(_, endings)| endings.contains(&ending.as_str())) {
            left_out.add(0, format);
        }
    }
    above.pop();
    Ok(())
}

impl LeftOut {
    fn add(&mut self, rank: u8, what: &'static str) {
        *self.0.entry((rank, what)).or_default() += 1;
    }

    fn line(&self) -> Option<String> {
        let parts: Vec<String> = self.0.iter().map(|((_, what), count)| format!("{count} {what}")).collect();
        let format = self.0.keys().any(|(rank, _)| *rank == 0);
        let remedy = if format { "; save those formats as JPEG or PNG to have them read" } else { "" };
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
