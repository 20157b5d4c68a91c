//! The picture and the table behind an answer: all views as a contact sheet, the selected ones framed.

use crate::output::Output;
use anyhow::Result;
use flatclip::image::Picture;
use flatclip::image::sheet::{Tile, encode_png, sheet};
use flatclip::image::views::{ViewKey, ViewOptions, thumbnails};
use flatclip::methods::Answer;
use std::path::Path;

/// Orange, readable beside any picture and for any colour vision.
const FRAME: [u8; 3] = [213, 94, 0];
const COLUMNS: usize = 8;
const TILE: usize = 112;

/// Prints the selected views, best first, and writes the sheet.
pub(crate) fn write(
    file: &Path,
    picture: &Picture,
    answer: &Answer,
    classes: &[String],
    views: &ViewOptions,
    key: ViewKey<'_>,
    out: &Output,
) -> Result<()> {
    let why = &answer.explanation;
    if !out.is_json() {
        out.line(format_args!("{} of {} views decided", why.selected.len(), views.count))?;
        let mut table = out.table(&["rank", "view", "score", "entropy", "says"]);
        for (rank, &view) in why.selected.iter().enumerate() {
            let number = |values: &[f32]| values.get(view).map_or("-".to_owned(), |v| format!("{v:.4}"));
            let says = why.predictions.get(view).map_or("-", |&k| classes[k].as_str());
            let name = if view == 0 { "0 (the picture)".to_owned() } else { view.to_string() };
            table.add_row([(rank + 1).to_string(), name, number(&why.scores), number(&why.entropies), says.to_owned()]);
        }
        out.line(format_args!("{table}\n"))?;
    }
    let pictures = thumbnails(picture, views, key)?;
    let tiles: Vec<Tile<'_>> = pictures
        .iter()
        .enumerate()
        .map(|(view, picture)| {
            let score = why.scores.get(view).or_else(|| why.entropies.get(view));
            let says = why.predictions.get(view).map_or("", |&k| classes[k].as_str());
            let label = format!("{view}: {}\n{says}", score.map_or("-".to_owned(), |s| format!("{s:.3}")));
            Tile { picture, label, frame: why.selected.contains(&view).then_some(FRAME) }
        })
        .collect();
    flatclip::files::write_atomic(file, &encode_png(&sheet(&tiles, COLUMNS, TILE)?)?)?;
    out.note(format_args!("{}: {} views with their scores, the selected ones framed", file.display(), views.count));
    Ok(())
}
