//! `csv:FILE`: a table with a header. Columns `path` (relative to the file) and `label` (an integer, or a class name),
//! optionally `class` (the name of an integer label), `split` and `id`.

use super::dataset::{Dataset, Note, Sample, Source, Split};
use super::{folder, names, zhou};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads the rows of one split (all rows if there is no `split` column).
pub fn open_csv(file: &Path, split: Split) -> Result<Dataset> {
    let text = std::fs::read_to_string(file).map_err(Error::io(file))?;
    let wrong = |reason: String| Error::Data { path: file.to_path_buf(), reason };
    let table = Table::parse(&text).map_err(wrong)?;
    let classes = table.classes().map_err(wrong)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let (mut samples, mut missing, mut listed) = (Vec::new(), Vec::new(), 0);
    for row in table.rows.iter().filter(|row| row.split.as_deref().is_none_or(|name| name == split.name())) {
        listed += 1;
        let path = folder.join(&row.path);
        let id = row.id.clone().unwrap_or_else(|| row.path.clone());
        let label = classes.label(&row.label);
        if path.is_file() {
            samples.push(Sample { id, label, source: Source::File(path) });
        } else {
            missing.push(row.path.clone());
        }
    }
    let mut notes = vec![Note::info(format!("{listed} rows of split {}", split.name()))];
    zhou::report_missing(&missing, listed, &mut notes);
    Ok(Dataset {
        name: format!("csv:{}", folder::base_name(file)),
        split,
        classes: classes.names,
        templates: vec![folder::PLAIN_TEMPLATE.to_owned()],
        samples,
        notes,
        ..Dataset::default()
    })
}

struct Row {
    path: String,
    label: String,
    class: Option<String>,
    split: Option<String>,
    id: Option<String>,
}

struct Table {
    rows: Vec<Row>,
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

impl Table {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (_, header) = lines.next().ok_or("the file is empty; expected a header with path and label")?;
        let header: Vec<String> = cells(header).map_err(|e| format!("line 1: {e}"))?;
        let column = |name: &str| header.iter().position(|cell| cell.trim().eq_ignore_ascii_case(name));
        let found = header.join(", ");
        let path = column("path").ok_or(format!("no column `path` in the header; found {found}"))?;
        let label = column("label").ok_or(format!("no column `label` in the header; found {found}"))?;
        let (class, split, id) = (column("class"), column("split"), column("id"));
        let mut rows = Vec::new();
        for (number, line) in lines {
            let cells = cells(line).map_err(|e| format!("line {}: {e}", number + 1))?;
            if cells.len() != header.len() {
                return Err(format!("line {}: {} cells, the header has {}", number + 1, cells.len(), header.len()));
            }
            let get = |index: usize| cells[index].trim().to_owned();
            rows.push(Row {
                path: get(path).replace('\\', "/"),
                label: get(label),
                class: class.map(get),
                split: split.map(get),
                id: id.map(get),
            });
        }
        Ok(Self { rows })
    }

    fn classes(&self) -> std::result::Result<Classes, String> {
        if self.rows.iter().all(|row| row.label.parse::<usize>().is_ok()) {
            return self.numbered_classes();
        }
        let mut names: Vec<&str> = self.rows.iter().map(|row| row.label.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let by_name = names.iter().enumerate().map(|(label, name)| ((*name).to_owned(), label)).collect();
        Ok(Classes { names: names.iter().map(|name| names::readable(name)).collect(), by_name })
    }

    fn numbered_classes(&self) -> std::result::Result<Classes, String> {
        let mut names: BTreeMap<usize, String> = BTreeMap::new();
        for row in &self.rows {
            let label = row.label.parse().unwrap_or_default();
            let name = row.class.as_deref().map_or_else(|| row.label.clone(), names::readable);
            let known = names.entry(label).or_insert_with(|| name.clone());
            if *known != name {
                return Err(format!("label {label} is called `{known}` and `{name}`"));
            }
        }
        match (0..names.len()).find(|label| !names.contains_key(label)) {
            Some(gap) => Err(format!("labels must be 0-based without gaps; label {gap} has no row")),
            None => Ok(Classes { names: names.into_values().collect(), by_name: BTreeMap::new() }),
        }
    }
}

/// The cells of one line: commas, double quotes, doubled quotes inside.
fn cells(line: &str) -> std::result::Result<Vec<String>, &'static str> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            _ => cell.push(c),
        }
    }
    if quoted {
        return Err("a quote is not closed");
    }
    cells.push(cell);
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tree::{put, tree};

    fn open(csv: &str, split: Split) -> Result<Dataset> {
        let dir = tree(&["a/1.jpg", "b/2.jpg", "b/3, x.jpg"]);
        put(dir.path(), "list.csv", csv);
        open_csv(&dir.path().join("list.csv"), split)
    }

    #[test]
    fn named_labels_are_sorted_and_splits_are_kept_apart() {
        let csv = "path,label,split\na/1.jpg,zebra_fish,test\nb\\2.jpg,ant,train\n\"b/3, x.jpg\",ant,test\n";
        let data = open(csv, Split::Test).unwrap();
        assert_eq!(data.classes, ["ant", "zebra fish"]);
        let ids: Vec<_> = data.samples.iter().map(|s| (s.id.as_str(), s.label)).collect();
        assert_eq!(ids, [("a/1.jpg", 1), ("b/3, x.jpg", 0)]);
        assert_eq!(open(csv, Split::Train).unwrap().samples[0].id, "b/2.jpg");
    }

    #[test]
    fn numbered_labels_take_their_names_from_the_class_column() {
        let data = open("path,label,class\na/1.jpg,1,dog\nb/2.jpg,0,cat\nb/9.jpg,0,cat\n", Split::Test).unwrap();
        assert_eq!(data.classes, ["cat", "dog"]);
        assert!(data.notes.iter().any(|note| note.warning && note.text.contains("1 of 3")));
    }

    #[test]
    fn faults_name_the_line_or_the_column() {
        for (csv, word) in [
            ("", "empty"),
            ("file,label\n", "`path`"),
            ("path,label\na/1.jpg\n", "line 2: 1 cells"),
            ("path,label\n\"a,0\n", "line 2: a quote"),
            ("path,label\na/1.jpg,2\n", "label 0 has no row"),
            ("path,label,class\na/1.jpg,0,x\nb/2.jpg,0,y\n", "called"),
        ] {
            let message = open(csv, Split::Test).unwrap_err().to_string();
            assert!(message.contains(word), "{csv:?}: {message}");
        }
    }
}
