//! Why: the views of an image with their scores, as a table and as a contact sheet.

use crate::prelude::*;
use flatclip::{Answer, Classifier, Image, ViewScore};

/// Columns of a sheet, and the side of a view in it.
const LAYOUT: (usize, usize) = (8, 112);

/// Whether sheets go to one file, rather than to a folder with one for each image.
fn is_file(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png"))
}

pub(super) fn prepare(path: &Path, images: usize) -> Result<()> {
    if is_file(path) {
        ensure!(
            images == 1,
            "--explain {}: {images} images need a folder for their sheets; give one (a name without .png)",
            path.display()
        );
        return Ok(());
    }
    Ok(std::fs::create_dir_all(path).map_err(flatclip::Error::io(path))?)
}

/// Writes all views as a sheet, and prints the selected ones, best first, of a single image.
pub(super) fn write(
    place: &Path,
    file: &Path,
    image: &Image,
    classifier: &Classifier,
    answer: &Answer,
    out: &Output,
) -> Result<()> {
    let png = classifier.view_sheet(image, answer, LAYOUT.0, LAYOUT.1)?;
    if !is_file(place) {
        return Ok(write_atomic(&place.join(sheet_name(file)), &png)?);
    }
    if !out.is_json {
        print(classifier, answer, out)?;
    }
    write_atomic(place, &png)?;
    let views = answer.views().unwrap_or(classifier.views());
    out.note(format_args!("{}: {views} views by score, the selected ones framed", place.display()));
    Ok(())
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
    let row = |(rank, view): (usize, ViewScore<'_>)| {
        let number = |value: Option<f32>| value.map_or("-".to_owned(), |v| format!("{v:.4}"));
        let name = if view.index == 0 { "0 (the image)".to_owned() } else { view.index.to_string() };
        let says = view.label.unwrap_or("-").to_owned();
        [(rank + 1).to_string(), name, number(view.score), number(view.entropy), says]
    };
    let rows = answer.selected().into_iter().enumerate().map(row);
    out.rows(&["rank", "view", "score", "entropy", "says"], rows)?;
    out.line("")
}
