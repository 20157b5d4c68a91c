//! A table as comma-separated values: numbers with all their digits, each in a column of its own.

use super::{Cell, Table};

impl Table {
    /// Comma-separated values. A deviation, the ends of an interval and counts have columns of their own, named
    /// `column (part)`; a number that is not there is an empty field.
    pub fn to_csv(&self) -> String {
        let columns: Vec<Column> = (0..self.header.len()).map(|column| Column::of(self, column)).collect();
        let header = columns.iter().zip(&self.header).flat_map(|(column, name)| column.names(name));
        let mut out = line(header);
        for row in &self.rows {
            out.push_str(&line(row.iter().zip(&columns).flat_map(|(cell, column)| column.fields(cell))));
        }
        out
    }
}

/// What a column of the table is in CSV.
struct Column {
    /// Has numbers: a dash among them is an empty field.
    numeric: bool,
    /// The text or number itself has a column; the ends of an interval say all there is.
    itself: bool,
    /// Names of further numbers, in order of appearance.
    parts: Vec<&'static str>,
}

impl Column {
    fn of(table: &Table, column: usize) -> Self {
        let mut parts = Vec::new();
        for (name, _) in table.rows.iter().filter_map(|row| row.get(column)).flat_map(|cell| &cell.parts) {
            if !parts.contains(name) {
                parts.push(*name);
            }
        }
        let numeric = table.is_numeric(column);
        Self { numeric: numeric || !parts.is_empty(), itself: numeric || !parts.contains(&"low"), parts }
    }

    fn names(&self, name: &str) -> Vec<String> {
        let own = self.itself.then(|| name.to_owned());
        own.into_iter().chain(self.parts.iter().map(|part| format!("{name} ({part})"))).collect()
    }

    fn fields(&self, cell: &Cell) -> Vec<String> {
        let plain = || match cell.text.as_str() {
            "-" if self.numeric => String::new(),
            _ if !cell.parts.is_empty() => String::new(),
            text => text.to_owned(),
        };
        let own = self.itself.then(|| cell.value.map_or_else(plain, |value| value.to_string()));
        let part = |name: &&'static str| {
            let found = cell.parts.iter().find(|(other, _)| other == name);
            found.map_or_else(String::new, |(_, value)| value.to_string())
        };
        own.into_iter().chain(self.parts.iter().map(part)).collect()
    }
}

fn line(fields: impl Iterator<Item = String>) -> String {
    let quote = |text: String| {
        let special = text.contains([',', '"', '\n']);
        if special { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
    };
    fields.map(quote).collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::metrics::Interval;

    #[test]
    fn every_number_has_a_column_of_its_own_with_all_its_digits() {
        let third = 100.0 / 3.0;
        let mut table = Table::new("t", ["method", "top-1", "95 %", "NLL", "p", "samples"]);
        let show = |low: f64, high: f64| format!("{low:.2}–{high:.2}");
        table.push(vec![
            Cell::text("a, b"),
            Cell::mean(third, Some(0.1 + 0.2), 3),
            Cell::interval(Some(Interval { low: 0.25, high: 0.5 }), show),
            Cell::nll(None, 7),
            Cell::p_value(1.5e-9),
            Cell { parts: vec![("bad", 1.0)], text: "16 (1 bad)".into(), ..Cell::number(16.0, 0) },
        ]);
        table.push(vec![
            Cell::text("c"),
            Cell::none(),
            Cell::interval(None, show),
            Cell::nll(Some(0.5), 0),
            Cell::p_value(0.25),
            Cell::number(16.0, 0),
        ]);
        let csv = table.to_csv();
        let expected = "method,top-1,top-1 (standard deviation),top-1 (seeds),95 % (low),95 % (high),NLL,NLL (infinite),p,\
             samples,samples (bad)\n\
             \"a, b\",33.333333333333336,0.30000000000000004,3,25,50,,7,0.0000000015,16,1\n\
             c,,,,,,0.5,0,0.25,16,\n";
        assert_eq!(csv, expected);
        let text = table.to_text();
        assert!(
            text.contains("33.33 ± 0.30") && text.contains("< 0.0001") && text.contains("undefined (7 infinite)"),
            "{text}"
        );
    }

    #[test]
    fn words_among_numbers_are_kept() {
        let mut table = Table::new("t", ["row", "x"]);
        table.push(vec![Cell::text("-"), Cell::number(1.0, 0)]);
        table.push(vec![Cell::text("b"), Cell::text("skipped")]);
        assert_eq!(table.to_csv(), "row,x\n-,1\nb,skipped\n");
    }
}
