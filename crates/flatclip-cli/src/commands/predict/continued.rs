//! A file of rows that an earlier run began: which rows stand, and where the next one goes.

use crate::prelude::*;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Seek as _, SeekFrom};

pub(super) struct Continued {
    pub(super) file: File,
    /// Content of the images that it has rows of.
    pub(super) done: HashMap<String, String>,
    /// Rows that it had.
    pub(super) had: usize,
    /// Rows of images that have another content now; they were removed.
    pub(super) replaced: usize,
}

/// The file to append to, cut after its last whole row and without the rows of images (of `files`) that were replaced. Beside
/// it lie the settings it was made with.
pub(super) fn continued(path: &Path, settings: &toml::Table, csv: bool, files: &[PathBuf]) -> Result<Continued> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!("{name}.settings.toml"));
    let at = || path.display().to_string();
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(path).with_context(at);
    let mut file = open()?;
    let text = std::fs::read_to_string(path).with_context(at)?;
    if text.is_empty() {
        write_atomic(&beside, toml::to_string(settings)?.as_bytes())?;
        return Ok(Continued { file, done: HashMap::new(), had: 0, replaced: 0 });
    }
    let stored: toml::Table = match std::fs::read_to_string(&beside) {
        Ok(stored) => stored.parse().with_context(|| beside.display().to_string())?,
        Err(_) => bail!("{}: is there already and was not made by this command; give another --out", path.display()),
    };
    if let Some(key) = settings.keys().chain(stored.keys()).find(|key| stored.get(*key) != settings.get(*key)) {
        let show = |table: &toml::Table| table.get(key).map_or("nothing".to_owned(), |value| value.to_string());
        let (was, now) = (show(&stored), show(settings));
        bail!("{}: {key} was {was}, now it is {now}; give another --out", path.display());
    }
    // A row that a kill cut off is written again.
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let rows = if csv { rows_of_csv(whole) } else { whole.split_inclusive('\n').map(row_of_json).collect() };
    let known: HashSet<&str> = rows.iter().map(|row| row.image.as_str()).collect();
    let named = files.iter().map(|file| (file.to_string_lossy().into_owned(), file));
    let now: HashMap<String, String> =
        named.filter(|(name, _)| known.contains(name.as_str())).map(|(name, file)| (name, content_of(file))).collect();
    // What is not asked for now stays as it is.
    let stands = |r: &Row<'_>| now.get(&r.image).is_none_or(|content| *content == r.content && !content.is_empty());
    let images = |rows: &[Row<'_>]| rows.iter().filter(|row| !row.image.is_empty()).count();
    let had = images(&rows);
    let rows: Vec<Row<'_>> = rows.into_iter().filter(|row| row.image.is_empty() || stands(row)).collect();
    let replaced = had - images(&rows);
    if replaced > 0 {
        let text: String = rows.iter().map(|row| row.text).collect();
        write_atomic(path, text.as_bytes())?;
        file = open()?;
    } else {
        file.set_len(whole.len() as u64).with_context(at)?;
    }
    file.seek(SeekFrom::End(0)).with_context(at)?;
    let done = rows.into_iter().filter(|row| !row.image.is_empty()).map(|row| (row.image, row.content)).collect();
    Ok(Continued { file, done, had, replaced })
}

/// SHA-256 of a file; empty where it cannot be read, so that it is tried again.
pub(super) fn content_of(file: &Path) -> String {
    flatclip::weights::file_sha256(file).unwrap_or_default()
}

/// A row of a file: its text with the line's end, the image (empty for a header) and the content that it had.
struct Row<'t> {
    text: &'t str,
    image: String,
    content: String,
}

fn row_of_json(line: &str) -> Row<'_> {
    let row: Value = serde_json::from_str(line).unwrap_or_default();
    let field = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    Row { text: line, image: field("image"), content: field("sha256") }
}

/// The first and the last field of every row.
fn rows_of_csv(text: &str) -> Vec<Row<'_>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let records: Vec<csv::StringRecord> = reader.records().flatten().collect();
    let begin = |record: &csv::StringRecord| record.position().map_or(0, |position| position.byte() as usize);
    let row = |(index, record): (usize, &csv::StringRecord)| {
        let end = records.get(index + 1).map_or(text.len(), begin);
        let field = |at: usize| record.get(at).unwrap_or_default().to_owned();
        let image = if index == 0 { String::new() } else { field(0) };
        Row { text: &text[begin(record)..end], image, content: field(record.len() - 1) }
    };
    records.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::rows::quoted;
    use super::*;

    #[test]
    fn rows_are_read_back_with_their_image_and_content() {
        let odd = "a \"b\", c\n.jpg";
        let header = "image,prediction,sha256\n";
        let text = format!("{header}plain.jpg,cat,01\n{},\"dog, or \"\"cat\"\"\",02\n", quoted(odd));
        let rows = rows_of_csv(&text);
        let found: Vec<(&str, &str)> = rows.iter().map(|row| (row.image.as_str(), row.content.as_str())).collect();
        assert_eq!(found, [("", "sha256"), ("plain.jpg", "01"), (odd, "02")]);
        assert_eq!(rows.iter().map(|row| row.text).collect::<String>(), text);
        let row = row_of_json("{\"image\": \"a.jpg\", \"sha256\": \"03\"}\n");
        assert_eq!((row.image.as_str(), row.content.as_str()), ("a.jpg", "03"));
    }
}
