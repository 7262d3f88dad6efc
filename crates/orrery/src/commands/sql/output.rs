//! Rows as columns for people.

use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Characters of a cell; longer ones are cut.
const CELL_CHARACTERS_MAX: usize = 60;
/// What the service adds to every item. A row that has all of them is an item, and they only take up room.
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];
/// Name of the column of rows that are no objects.
const BARE: &str = "value";

/// A row on one line, with its numbers as the server wrote them.
pub fn one_line(row: &RawValue) -> String {
    // Line feeds inside strings are escaped, so any other is only layout.
    row.get().replace(['\n', '\r'], "")
}

/// One page of rows with a heading.
#[derive(Debug)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn of(rows: &[&RawValue]) -> Table {
        let rows: Vec<Map<String, Value>> = rows.iter().map(|row| members(row)).collect();
        let mut columns: Vec<String> = Vec::new();
        for name in rows.iter().flat_map(Map::keys) {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        let cells = |row: &Map<String, Value>| columns.iter().map(|column| cell(row.get(column))).collect();
        let rows = rows.iter().map(cells).collect();
        Table { columns, rows }
    }
}

fn members(row: &RawValue) -> Map<String, Value> {
    match serde_json::from_str(row.get()) {
        Ok(Value::Object(mut row)) => {
            if SYSTEM_PROPERTIES.iter().all(|name| row.contains_key(*name)) {
                row.retain(|name, _| !SYSTEM_PROPERTIES.contains(&name.as_str()));
            }
            row
        }
        Ok(bare) => [(BARE.to_owned(), bare)].into_iter().collect(),
        Err(_) => [(BARE.to_owned(), Value::from(row.get()))].into_iter().collect(),
    }
}

/// Text as it is, everything else as JSON; nothing for what is not there.
fn cell(value: Option<&Value>) -> String {
    let text = match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    // A control character would break the columns, or do something to the terminal.
    let shown = text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c });
    let mut shown: Vec<char> = shown.take(CELL_CHARACTERS_MAX + 1).collect();
    if shown.len() > CELL_CHARACTERS_MAX {
        shown[CELL_CHARACTERS_MAX - 1] = '…';
        shown.truncate(CELL_CHARACTERS_MAX);
    }
    shown.into_iter().collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| -> String {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            padded.collect::<Vec<_>>().join(" | ").trim_end().to_owned()
        };
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        writeln!(f, "{}", line(&self.columns))?;
        writeln!(f, "{}", rule.join("-+-"))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", line(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[&str]) -> String {
        let rows: Vec<Box<RawValue>> = rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect();
        Table::of(&rows.iter().map(AsRef::as_ref).collect::<Vec<_>>()).to_string()
    }

    #[test]
    fn columns_stand_in_the_order_in_which_rows_name_them() {
        assert_eq!(
            table(&[r#"{"id":"a","n":1}"#, r#"{"n":20,"tags":["x"]}"#]),
            "id | n  | tags\n---+----+------\na  | 1  |\n   | 20 | [\"x\"]\n"
        );
    }

    #[test]
    fn bare_values_have_a_column_and_nothing_has_no_table() {
        assert_eq!(table(&["7", "\"x\""]), "value\n-----\n7\nx\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn what_the_service_adds_to_items_is_left_out_and_what_was_asked_for_is_not() {
        let item = r#"{"id":"a","_rid":"r","_self":"s","_etag":"e","_attachments":"x","_ts":1}"#;
        assert_eq!(table(&[item]), "id\n--\na\n");
        assert_eq!(table(&[r#"{"_ts":1}"#]), "_ts\n---\n1\n");
    }

    #[test]
    fn a_cell_is_cut_and_cannot_reach_the_terminal() {
        let long = format!(r#"{{"text":"\u001b[2J{}"}}"#, "x".repeat(100));
        let shown = table(&[&long]);
        assert!(!shown.contains('\u{1b}'));
        assert_eq!(shown.lines().last().unwrap().chars().count(), CELL_CHARACTERS_MAX);
    }
}
