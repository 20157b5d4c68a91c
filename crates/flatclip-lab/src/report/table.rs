//! A table and the ways to write it: text, Markdown, LaTeX, JSON, HTML; CSV is in `csv.rs`.

use super::Cell;
use serde::Serialize;

/// Rows of cells under a header.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// One per column.
    pub header: Vec<String>,
    /// Each as long as the header.
    pub rows: Vec<Vec<Cell>>,
    /// Lines below the table.
    pub notes: Vec<String>,
}

impl Table {
    /// An empty table.
    pub fn new<S: Into<String>>(title: impl Into<String>, header: impl IntoIterator<Item = S>) -> Self {
        Self { title: title.into(), header: header.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A table with one row per item, for [`Columns::column`].
    pub(crate) fn of<T>(title: impl Into<String>, items: impl IntoIterator<Item = T>) -> Columns<T> {
        let items: Vec<T> = items.into_iter().collect();
        let rows = items.iter().map(|_| Vec::new()).collect();
        Columns { items, table: Self { title: title.into(), rows, ..Self::default() } }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// Marks the largest number of each listed column as best.
    pub(crate) fn mark_best(&mut self, columns: impl IntoIterator<Item = usize>) {
        for column in columns {
            let value = |row: &Vec<Cell>| row.get(column).and_then(|cell| cell.value);
            let best = self.rows.iter().filter_map(value).max_by(f64::total_cmp);
            for row in &mut self.rows {
                if let Some(cell) = row.get_mut(column) {
                    cell.best = cell.value.is_some() && cell.value == best;
                }
            }
        }
    }

    /// The columns that are the same in every row as one sentence, and the table without them. The first column stays.
    pub(crate) fn split_common(&self) -> (String, Self) {
        let same = |column: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| &cell.text);
            let first = cells.next();
            column > 0 && self.rows.len() > 1 && cells.all(|text| Some(text) == first)
        };
        let (common, kept): (Vec<usize>, Vec<usize>) = (0..self.header.len()).partition(|&column| same(column));
        let pick =
            |column: &usize| self.rows.first().and_then(|row| row.get(*column)).filter(|cell| !cell.text.is_empty());
        let said = |column: &usize| pick(column).map(|cell| format!("{} {}", self.header[*column], cell.text));
        let parts: Vec<String> = common.iter().filter_map(said).collect();
        let text =
            if parts.is_empty() { String::new() } else { format!("The same in all runs: {}.", parts.join("; ")) };
        let rows = self.rows.iter().map(|row| kept.iter().filter_map(|&i| row.get(i).cloned()).collect()).collect();
        let header = kept.iter().map(|&i| self.header[i].clone()).collect();
        (text, Self { title: self.title.clone(), header, rows, notes: self.notes.clone() })
    }

    /// Columns padded with spaces, numbers to the right.
    pub fn to_text(&self) -> String {
        self.to_text_within(usize::MAX)
    }

    /// The same in lines of at most `room` characters: columns that do not fit follow below, after the first ones again.
    pub fn to_text_within(&self, room: usize) -> String {
        let mut out = if self.title.is_empty() { String::new() } else { format!("{}\n\n", self.title) };
        let blocks: Vec<String> = self.blocks(room).iter().map(|columns| self.block(columns)).collect();
        out.push_str(&blocks.join("\n"));
        for line in self.notes.iter().flat_map(|note| wrapped(note, room.saturating_sub(2))) {
            out.push_str(&format!("  {line}\n"));
        }
        out
    }

    /// Columns that stand side by side. The first ones, up to the first number, tell rows apart: each block begins with them,
    /// or with the very first where they take more than three quarters of the room.
    fn blocks(&self, room: usize) -> Vec<Vec<usize>> {
        let wide = |columns: &[usize]| columns.iter().map(|&c| self.width(c) + 2).sum::<usize>().saturating_sub(2);
        let all: Vec<usize> = (0..self.header.len()).collect();
        if wide(&all) <= room {
            return vec![all];
        }
        let named = all.iter().take_while(|&&column| !self.is_numeric(column)).count();
        let keys = if wide(&all[..named]) > room / 4 * 3 { named.min(1) } else { named };
        let mut blocks = vec![all[..keys].to_vec()];
        for &column in &all[keys..] {
            let last = blocks.len() - 1;
            let full = blocks[last].len() > keys && wide(&[blocks[last].as_slice(), &[column]].concat()) > room;
            if full {
                blocks.push([&all[..keys], &[column]].concat());
            } else {
                blocks[last].push(column);
            }
        }
        blocks
    }

    fn block(&self, columns: &[usize]) -> String {
        let padded = |text: String, column: usize| {
            let space = " ".repeat(self.width(column).saturating_sub(text.chars().count()));
            if self.is_numeric(column) { format!("{space}{text}") } else { format!("{text}{space}") }
        };
        let line = |text: &dyn Fn(usize) -> String| {
            let cells: Vec<String> = columns.iter().map(|&column| padded(text(column), column)).collect();
            format!("{}\n", cells.join("  ").trim_end())
        };
        let mut out = line(&|column| self.header[column].clone());
        let rule: Vec<String> = columns.iter().map(|&column| "─".repeat(self.width(column))).collect();
        out.push_str(&format!("{}\n", rule.join("──")));
        for row in &self.rows {
            out.push_str(&line(&|column| row.get(column).map(marked).unwrap_or_default()));
        }
        out
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| marked(cell).chars().count());
        cells.chain([self.header[column].chars().count()]).max().unwrap_or_default()
    }

    pub(super) fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(column)).any(|cell| cell.value.is_some())
    }

    /// GitHub's Markdown.
    pub fn to_markdown(&self) -> String {
        let escape: fn(&str) -> String = |text| text.replace('|', "\\|");
        let mut out = if self.title.is_empty() { String::new() } else { format!("### {}\n\n", self.title) };
        let header: Vec<String> = self.header.iter().map(|h| escape(h)).collect();
        let rule: Vec<&str> = (0..header.len()).map(|i| if self.is_numeric(i) { "---:" } else { "---" }).collect();
        out.push_str(&format!("| {} |\n|{}|\n", header.join(" | "), rule.join("|")));
        for row in self.written(" | ", escape, |text| format!("**{text}**")) {
            out.push_str(&format!("| {row} |\n"));
        }
        self.notes.iter().for_each(|note| out.push_str(&format!("\n{note}\n")));
        out
    }

    /// A `booktabs` table.
    pub fn to_latex(&self) -> String {
        let columns: String = (0..self.header.len()).map(|i| if self.is_numeric(i) { 'r' } else { 'l' }).collect();
        let header: Vec<String> = self.header.iter().map(|h| latex(h)).collect();
        let mut out = format!(
            "\\begin{{table}}\n\\centering\n\\caption{{{}}}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{} \\\\\n\\midrule\n",
            latex(&self.title),
            header.join(" & ")
        );
        for row in self.written(" & ", latex, |text| format!("\\textbf{{{text}}}")) {
            out.push_str(&format!("{row} \\\\\n"));
        }
        out.push_str("\\bottomrule\n\\end{tabular}\n\\end{table}\n");
        self.notes.iter().for_each(|note| out.push_str(&format!("% {note}\n")));
        out
    }

    /// The rows as escaped text, with the best cells in bold.
    fn written(&self, separator: &str, escape: fn(&str) -> String, bold: fn(String) -> String) -> Vec<String> {
        let cell = |cell: &Cell| {
            let text = escape(&marked(cell));
            if cell.best { bold(text) } else { text }
        };
        self.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(separator)).collect()
    }

    /// Whether it is wider than the screen of a phone: 340 pixels, almost 8 for a letter and 10 around a cell. The first
    /// column is wrapped there.
    fn is_wide(&self) -> bool {
        let letters = |column: usize| if column == 0 { self.width(0).min(16) } else { self.width(column) };
        (0..self.header.len()).map(|column| 7.7 * letters(column) as f64 + 10.0).sum::<f64>() > 340.0
    }

    /// An HTML table with classes `best` and `flagged`.
    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<figure class=\"table{}\"><figcaption>{}</figcaption><div tabindex=\"0\"><table><thead><tr>",
            if self.is_wide() { " wide" } else { "" },
            html(&self.title)
        );
        for (column, name) in self.header.iter().enumerate() {
            // A header is aligned like its numbers.
            let class = if self.is_numeric(column) { " class=\"n\"" } else { "" };
            out.push_str(&format!("<th{class}>{}</th>", html(name)));
        }
        out.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            out.push_str("<tr>");
            for cell in row {
                let classes: Vec<&str> = [(cell.value.is_some(), "n"), (cell.best, "best"), (cell.flagged, "flagged")]
                    .into_iter()
                    .filter_map(|(on, name)| on.then_some(name))
                    .collect();
                out.push_str(&format!("<td class=\"{}\">{}</td>", classes.join(" "), html(&cell.text)));
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>");
        self.notes.iter().for_each(|note| out.push_str(&format!("<p class=\"note\">{}</p>", html(note))));
        out.push_str("</figure>\n");
        out
    }
}

/// A table in the making: every column is a name and the cell of an item.
pub(crate) struct Columns<T> {
    items: Vec<T>,
    table: Table,
}

impl<T> Columns<T> {
    pub(crate) fn column(mut self, name: impl Into<String>, cell: impl Fn(&T) -> Cell) -> Self {
        self.table.header.push(name.into());
        self.table.rows.iter_mut().zip(&self.items).for_each(|(row, item)| row.push(cell(item)));
        self
    }

    pub(crate) fn column_if(self, wanted: bool, name: &str, cell: impl Fn(&T) -> Cell) -> Self {
        if wanted { self.column(name, cell) } else { self }
    }

    pub(crate) fn with_note(mut self, note: impl Into<String>) -> Table {
        self.table.notes.push(note.into());
        self.table
    }

    pub(crate) fn table(self) -> Table {
        self.table
    }
}

fn marked(cell: &Cell) -> String {
    if cell.flagged { format!("{} !", cell.text) } else { cell.text.clone() }
}

pub(super) fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn latex(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => out.extend(['\\', c]),
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '±' => out.push_str("$\\pm$"),
            '<' | '>' => out.extend(['$', c, '$']),
            _ => out.push(c),
        }
    }
    out
}

/// Words in lines of at most `room` characters.
pub(crate) fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_wider_than_its_room_goes_on_below() {
        let mut table = Table::new("t", ["data", "method", "top-1", "ECE", "NLL"]);
        let numbers = [1.0, 2.0, 3.0].map(|value| Cell::number(value, 2));
        table.push(["photo", "zero"].map(Cell::text).into_iter().chain(numbers).collect());
        table.notes.push("a note of some length that is wrapped".into());
        let narrow = table.to_text_within(26);
        assert!(narrow.lines().all(|line| line.chars().count() <= 26), "{narrow}");
        assert_eq!(narrow.matches("photo  zero").count(), 2, "{narrow}");
        assert!(narrow.contains("1.00  2.00\n") && narrow.contains("3.00\n"), "{narrow}");
        assert_eq!(table.to_text().matches("photo").count(), 1);
    }

    fn table() -> Table {
        let mut table = Table::new("A & B", ["method", "top-1"]);
        table.push(vec![Cell::text("x|y_1"), Cell::percent(0.5)]);
        table.push(vec![Cell::text("z, \"q\""), Cell::percent(0.75).flag(true)]);
        table.mark_best([1]);
        table
    }

    #[test]
    fn special_characters_are_escaped_in_every_format() {
        assert!(table().to_markdown().contains("x\\|y_1"));
        assert!(table().to_latex().contains("x|y\\_1") && table().to_latex().contains("A \\& B"));
        assert!(table().to_csv().contains("\"z, \"\"q\"\"\",75"));
        assert!(table().to_html().contains("A &amp; B"));
    }

    #[test]
    fn what_all_rows_share_is_said_once() {
        let mut table = Table::new("t", ["run", "seed", "data"]);
        table.push(["a", "1", "pets"].map(Cell::text).to_vec());
        table.push(["b", "2", "pets"].map(Cell::text).to_vec());
        let (text, rest) = table.split_common();
        assert_eq!((text.as_str(), rest.header.join(" ")), ("The same in all runs: data pets.", "run seed".to_owned()));
    }

    #[test]
    fn the_best_is_bold_and_flags_are_marked() {
        assert!(table().to_markdown().contains("**75.00 !**"));
        assert!(table().to_latex().contains("\\textbf{75.00 !}"));
        assert!(table().to_html().contains("class=\"n best flagged\""));
        assert_eq!(table().to_text().lines().last().unwrap(), "z, \"q\"  75.00 !");
    }
}
