//! `csv:FILE`: a table with a header. Columns `path` (relative to the file) and `label` (an integer, or a class name),
//! optionally `class` (the name of an integer label), `split` and `id`.

use super::dataset::{Dataset, Note, Split};
use super::locate::Listed;
use super::names;
use flatclip::error::{nearest, quoted};
use flatclip::files::read_text;
use flatclip::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads the rows of one split (all rows if there is no `split` column). With a list of class names from elsewhere a number
/// need not have a row, and labels that are names have the places of the list.
pub(crate) fn open_csv(file: &Path, split: Split, named: Option<&[String]>) -> Result<Dataset> {
    let text = read_text(file)?;
    let wrong = |reason: String| Error::Data { path: file.to_path_buf(), reason };
    let rows = read_rows(&text).map_err(wrong)?;
    let classes = classes_of(&rows, named).map_err(wrong)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let (mut samples, mut listed) = (Listed::default(), 0);
    for row in rows.iter().filter(|row| row.split.as_deref().is_none_or(|name| name == split.name())) {
        listed += 1;
        let path = folder.join(&row.path);
        let id = row.id.clone().unwrap_or_else(|| row.path.clone());
        let label = classes.label(&row.label);
        let is_there = path.is_file();
        samples.push(id, label, path, is_there);
    }
    let mut notes = vec![Note::info(format!("{listed} rows of split {}", split.name()))];
    let samples = samples.finish(&mut notes);
    Ok(Dataset::of_files("csv", file, split, classes.names, samples, notes))
}

struct Row {
    path: String,
    label: String,
    class: Option<String>,
    split: Option<String>,
    id: Option<String>,
}

struct Classes {
    names: Vec<String>,
    /// Label text to label; empty when labels are integers.
    by_name: BTreeMap<String, usize>,
}

impl Classes {
    fn label(&self, text: &str) -> usize {
        self.by_name.get(text).copied().or_else(|| text.parse().ok()).unwrap_or_default()
    }
}

/// A row behind the last one: if the reader does not find it, an open quote has swallowed it.
const END: &str = "\n\u{1}\n";

fn read_rows(text: &str) -> Result<Vec<Row>, String> {
    let input = std::io::Read::chain(text.as_bytes(), END.as_bytes());
    let reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(input);
    let mut records = Vec::new();
    for record in reader.into_records() {
        let record = record.map_err(|e| e.to_string())?;
        if record.iter().any(|cell| !cell.trim().is_empty()) {
            records.push(record);
        }
    }
    let line = |record: &csv::StringRecord| record.position().map_or(0, csv::Position::line);
    if let Some(last) = records.pop().filter(|last| &last[0] != END.trim_matches('\n')) {
        return Err(format!("line {}: a quote is not closed", line(&last)));
    }
    let mut records = records.into_iter();
    let header = records.next().ok_or("the file is empty; expected a header with path and label")?;
    let column = |name: &str| header.iter().position(|cell| cell.trim().eq_ignore_ascii_case(name));
    let needed = |name: &str| {
        let found = || header.iter().map(quoted).collect::<Vec<_>>().join(", ");
        column(name).ok_or_else(|| format!("no column `{name}` in the header; found {}", found()))
    };
    let (path, label) = (needed("path")?, needed("label")?);
    let (class, split, id) = (column("class"), column("split"), column("id"));
    let row = |record: csv::StringRecord| {
        let (line, cells) = (line(&record), record.len());
        if cells != header.len() {
            return Err(format!("line {line}: {cells} cells, the header has {}", header.len()));
        }
        let get = |column: usize| record.get(column).unwrap_or_default().trim().to_owned();
        let (path, label) = (get(path).replace('\\', "/"), get(label));
        if path.is_empty() || label.is_empty() {
            return Err(format!("line {line}: no path or no label"));
        }
        Ok(Row { path, label, class: class.map(get), split: split.map(get), id: id.map(get) })
    };
    records.map(row).collect()
}

fn classes_of(rows: &[Row], named: Option<&[String]>) -> Result<Classes, String> {
    if rows.iter().all(|row| row.label.parse::<usize>().is_ok()) {
        return numbered_classes(rows, named.map(<[String]>::len));
    }
    let mut names: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if let Some(list) = named.filter(|list| names.iter().any(|name| place(name, list).is_some())) {
        return listed_classes(&names, list);
    }
    let by_name = names.iter().enumerate().map(|(label, name)| ((*name).to_owned(), label)).collect();
    Ok(Classes { names: names.iter().map(|name| names::readable(name)).collect(), by_name })
}

fn numbered_classes(rows: &[Row], named: Option<usize>) -> Result<Classes, String> {
    let mut names: BTreeMap<usize, String> = BTreeMap::new();
    for row in rows {
        let label = row.label.parse().unwrap_or_default();
        let name = row.class.as_deref().map_or_else(|| row.label.clone(), names::readable);
        let known = names.entry(label).or_insert_with(|| name.clone());
        if *known != name {
            return Err(format!("label {label} is called `{}` and `{}`", quoted(known), quoted(&name)));
        }
    }
    if let Some(count) = named.filter(|&count| names.keys().all(|&label| label < count)) {
        for label in 0..count {
            names.entry(label).or_insert_with(|| label.to_string());
        }
    }
    match (0..names.len()).find(|label| !names.contains_key(label)) {
        Some(gap) => Err(format!(
            "labels must be 0-based without gaps; label {gap} has no row, and no list of class names covers it"
        )),
        None => Ok(Classes { names: names.into_values().collect(), by_name: BTreeMap::new() }),
    }
}

/// The place of a label in a list of class names, with or without underscores.
fn place(label: &str, list: &[String]) -> Option<usize> {
    let readable = names::readable(label);
    list.iter().position(|name| name == label || *name == readable)
}

/// Labels that are names of a list: each has its place there.
fn listed_classes(labels: &[&str], list: &[String]) -> Result<Classes, String> {
    let mut by_name = BTreeMap::new();
    for &label in labels {
        let known: Vec<&str> = list.iter().map(String::as_str).collect();
        let near = || nearest(label, &known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let place = place(label, list)
            .ok_or_else(|| format!("label `{}` is not in the list of class names{}", quoted(label), near()))?;
        by_name.insert(label.to_owned(), place);
    }
    Ok(Classes { names: list.to_vec(), by_name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tree::{labelled, put, tree};

    fn open(csv: &str, split: Split) -> Result<Dataset> {
        open_named(csv, split, None)
    }

    fn open_named(csv: &str, split: Split, names: Option<&[&str]>) -> Result<Dataset> {
        let dir = tree(&["a/1.jpg", "b/2.jpg", "b/3, x.jpg"]);
        put(dir.path(), "list.csv", csv);
        let names = names.map(|names| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        open_csv(&dir.path().join("list.csv"), split, names.as_deref())
    }

    #[test]
    fn named_labels_are_sorted_and_splits_are_kept_apart() {
        let csv = "path,label,split\na/1.jpg,zebra_fish,test\nb\\2.jpg,ant,train\n\"b/3, x.jpg\",ant,test\n";
        let data = open(csv, Split::Test).unwrap();
        assert_eq!(data.classes, ["ant", "zebra fish"]);
        assert_eq!(labelled(&data), [("a/1.jpg", 1), ("b/3, x.jpg", 0)]);
        assert_eq!(open(csv, Split::Train).unwrap().samples[0].id, "b/2.jpg");
    }

    #[test]
    fn names_have_the_places_of_a_list_and_a_misspelt_one_is_told() {
        let open = |names| open_named("path,label\na/1.jpg,zebra_fish\nb/2.jpg,ant\n", Split::Test, Some(names));
        let data = open(&["zebra fish", "cow", "ant"]).unwrap();
        assert_eq!(data.samples.iter().map(|s| s.label).collect::<Vec<_>>(), [0, 2]);
        let message = open(&["zebra fish", "aunt"]).unwrap_err().to_string();
        assert!(message.contains("`ant` is not in the list") && message.contains("did you mean `aunt`?"), "{message}");
        // Other names altogether: in the order of the sorted labels.
        assert_eq!(open(&["one", "two"]).unwrap().samples[0].label, 1);
    }

    #[test]
    fn numbered_labels_take_their_names_from_the_class_column() {
        let data = open("path,label,class\na/1.jpg,1,dog\nb/2.jpg,0,cat\nb/9.jpg,0,cat\n", Split::Test).unwrap();
        assert_eq!(data.classes, ["cat", "dog"]);
        assert!(data.notes.iter().any(|note| note.warning && note.text.contains("1 of 3")));
    }

    #[test]
    fn marks_windows_line_ends_and_quoted_newlines_are_read() {
        let csv = "\u{feff}path,label\r\na/1.jpg,\"two\r\nlines\"\r\n\r\nb/2.jpg,\"say \"\"hi\"\"\"\r\n";
        let data = open(csv, Split::Test).unwrap();
        assert_eq!(data.classes, ["say \"hi\"", "two lines"]);
        assert_eq!(data.samples.len(), 2);
        let twice = open("path,label\na/1.jpg,x_y\nb/2.jpg,x y\n", Split::Test).unwrap();
        assert!(twice.notes.iter().any(|note| note.warning && note.text.contains("`x y`")), "{:?}", twice.notes);
    }

    #[test]
    fn faults_name_the_line_or_the_column() {
        for (csv, word) in [
            ("", "empty"),
            ("file,label\n", "`path`"),
            ("path,label\na/1.jpg\n", "line 2: 1 cells"),
            ("path,label\n\"a,0\nb/2.jpg,1\n", "line 2: a quote"),
            ("path,label\na/1.jpg,\n", "line 2: no path or no label"),
            ("\x1b[2Jpath,label\n", "found \\u{1b}[2Jpath, label"),
            ("path,label\na/1.jpg,2\n", "label 0 has no row"),
            ("path,label,class\na/1.jpg,0,x\nb/2.jpg,0,y\n", "called"),
        ] {
            let message = open(csv, Split::Test).unwrap_err().to_string();
            assert!(message.contains(word), "{csv:?}: {message}");
        }
    }

    #[test]
    fn a_full_list_of_names_makes_up_for_classes_without_rows() {
        let open = |names| open_named("path,label\na/1.jpg,0\nb/2.jpg,2\n", Split::Test, names);
        assert!(open(None).unwrap_err().to_string().contains("label 1 has no row"));
        assert_eq!(open(Some(&["w", "x", "y", "z"])).unwrap().classes.len(), 4);
        assert!(open(Some(&["w", "x"])).is_err());
    }
}
