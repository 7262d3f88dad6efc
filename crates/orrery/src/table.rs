//! Answers of a server as a table.

use serde_json::Value;

/// Columns as wide as their widest cell.
pub fn print(columns: &[&str], entries: &[Value]) {
    let head = columns.iter().map(|column| (*column).to_owned()).collect();
    let rows = entries
        .iter()
        .map(|entry| columns.iter().map(|column| cell(&entry[*column])).collect());
    print_rows(std::iter::once(head).chain(rows).collect());
}

/// The same for cells that are text already, the head first.
pub fn print_rows(rows: Vec<Vec<String>>) {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:<width$}"))
            .collect();
        println!("{}", cells.join("  ").trim_end());
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(entries) if entries.is_empty() => "-".to_owned(),
        Value::Array(entries) => entries.iter().map(Value::to_string).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}
