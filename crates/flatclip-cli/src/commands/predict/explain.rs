//! Why: the views of an image with their scores, as a table and as a contact sheet.

use crate::output::Output;
use anyhow::{Result, ensure};
use flatclip::{Answer, Classifier, Image};
use std::path::{Path, PathBuf};

/// Columns of a sheet, and the side of a view in it.
const LAYOUT: (usize, usize) = (8, 112);

/// Where sheets go: one file, or a folder with one for each image.
pub(super) struct Sheets {
    path: PathBuf,
    folder: bool,
}

impl Sheets {
    pub(super) fn new(path: &Path, images: usize) -> Result<Self> {
        let png = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png"));
        ensure!(
            !png || images == 1,
            "--explain {}: {images} images need a folder for their sheets; give one (a name without .png)",
            path.display()
        );
        if !png {
            std::fs::create_dir_all(path).map_err(flatclip::Error::io(path))?;
        }
        Ok(Self { path: path.to_path_buf(), folder: !png })
    }

    /// Prints the selected views, best first, of a single image, and writes all of them as a sheet.
    pub(super) fn write(
        &self,
        file: &Path,
        image: &Image,
        classifier: &Classifier,
        answer: &Answer,
        out: &Output,
    ) -> Result<()> {
        let png = classifier.view_sheet(image, answer, LAYOUT.0, LAYOUT.1)?;
        if self.folder {
            return Ok(flatclip::files::write_atomic(&self.path.join(sheet_name(file)), &png)?);
        }
        if !out.is_json() {
            print(classifier, answer, out)?;
        }
        flatclip::files::write_atomic(&self.path, &png)?;
        let views = answer.views().unwrap_or(classifier.views());
        out.note(format_args!("{}: {views} views by score, the selected ones framed", self.path.display()));
        Ok(())
    }
}

/// `cats/1.jpg` becomes `cats-1.png`: images of the same name in several folders keep their own sheets.
fn sheet_name(file: &Path) -> String {
    let parts: Vec<String> = file
        .with_extension("")
        .components()
        .filter_map(|part| match part {
            std::path::Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect();
    format!("{}.png", parts.join("-"))
}

fn print(classifier: &Classifier, answer: &Answer, out: &Output) -> Result<()> {
    let seen = answer.views().unwrap_or(classifier.views());
    out.line(format_args!("{} of {seen} views selected", answer.selected().len()))?;
    let mut table = out.table(&["rank", "view", "score", "entropy", "says"]);
    for (rank, view) in answer.selected().into_iter().enumerate() {
        let number = |value: Option<f32>| value.map_or("-".to_owned(), |v| format!("{v:.4}"));
        let name = if view.index == 0 { "0 (the image)".to_owned() } else { view.index.to_string() };
        let says = view.label.unwrap_or("-").to_owned();
        table.add_row([(rank + 1).to_string(), name, number(view.score), number(view.entropy), says]);
    }
    out.line(format_args!("{table}\n"))
}
