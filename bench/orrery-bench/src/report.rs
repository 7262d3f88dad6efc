//! The table, the plot, and the file of results.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub what: String,
    pub measured: String,
    pub against: String,
    pub ratio: Option<f64>,
    pub goal: String,
    /// `None`: not measured.
    pub met: Option<bool>,
}

impl Row {
    /// A ratio that must not be below `goal`.
    pub fn at_least(what: &str, measured: impl ToString, against: impl ToString, ratio: f64, goal: f64) -> Row {
        Row::new(what, measured, against, ratio, format!("≥ {goal}"), ratio >= goal)
    }

    /// A ratio that must not be above `goal`.
    pub fn at_most(what: &str, measured: impl ToString, against: impl ToString, ratio: f64, goal: f64) -> Row {
        Row::new(what, measured, against, ratio, format!("≤ {goal}"), ratio <= goal)
    }

    /// A value with its unit that must stay below `goal`.
    pub fn below(what: &str, value: f64, unit: &str, goal: f64) -> Row {
        Row {
            what: what.to_owned(),
            measured: format!("{value:.2} {unit}"),
            against: "–".to_owned(),
            ratio: None,
            goal: format!("< {goal} {unit}"),
            met: Some(value < goal),
        }
    }

    pub fn skipped(what: &str, why: &str) -> Row {
        Row {
            what: what.to_owned(),
            measured: format!("skipped: {why}"),
            against: "–".to_owned(),
            ratio: None,
            goal: "–".to_owned(),
            met: None,
        }
    }

    fn new(what: &str, measured: impl ToString, against: impl ToString, ratio: f64, goal: String, met: bool) -> Row {
        Row {
            what: what.to_owned(),
            measured: measured.to_string(),
            against: against.to_string(),
            ratio: Some(ratio),
            goal,
            met: Some(met),
        }
    }

    fn cells(&self) -> [String; 6] {
        [
            self.what.clone(),
            self.measured.clone(),
            self.against.clone(),
            self.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
            self.goal.clone(),
            self.met.map_or("–", |met| if met { "yes" } else { "no" }).to_owned(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what, "measured": self.measured, "against": self.against,
            "ratio": self.ratio, "goal": self.goal, "met": self.met,
        })
    }
}

/// The rows as a table, in Markdown so that it can be pasted.
pub fn table(rows: &[Row]) -> String {
    let heads = ["what", "measured", "against", "ratio", "goal", "met?"].map(str::to_owned);
    let lines: Vec<[String; 6]> = std::iter::once(heads).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| {
        lines
            .iter()
            .map(|cells| cells[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for (number, cells) in lines.iter().enumerate() {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(&format!("| {} |\n", padded.join(" | ")));
        if number == 0 {
            let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text.push_str(&format!("| {} |\n", dashes.join(" | ")));
        }
    }
    text
}

/// Bars of one length scale.
pub fn plot(title: &str, unit: &str, bars: &[(String, f64)]) -> String {
    const WIDTH: f64 = 50.0;
    let largest = bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let label_width = bars.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let mut text = format!("{title}\n");
    for (label, value) in bars {
        let bar = "█".repeat((value / largest * WIDTH).round() as usize);
        text.push_str(&format!("  {label:<label_width$} {bar} {value:.1} {unit}\n"));
    }
    text
}

/// What the numbers were measured on.
pub fn machine() -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "model": model.map(|(_, name)| name),
        "load": load_average(),
    })
}

/// The load average of the last minute, as the kernel prints it.
pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

pub fn write(path: &Path, date: &str, machine: &Value, rows: &[Row], plots: &str) -> Result<()> {
    let rows: Vec<Value> = rows.iter().map(Row::json).collect();
    let results = json!({ "date": date, "machine": machine, "rows": rows, "plots": plots });
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let text = serde_json::to_string_pretty(&results)?;
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_met_only_on_the_right_side_of_its_goal() {
        assert_eq!(Row::at_least("", "", "", 0.81, 0.8).met, Some(true));
        assert_eq!(Row::at_least("", "", "", 0.79, 0.8).met, Some(false));
        assert_eq!(Row::at_most("", "", "", 1.31, 1.3).met, Some(false));
        assert_eq!(Row::below("", 20.0, "ms", 20.0).met, Some(false));
        assert_eq!(Row::skipped("", "no reason").met, None);
    }

    #[test]
    fn all_lines_of_a_table_are_equally_long() {
        let rows = [
            Row::below("start", 1.0, "ms", 20.0),
            Row::at_most("µ", "≥", "x", 1.0, 2.0),
        ];
        let table = table(&rows);
        let lengths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lengths.len(), 4);
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{table}");
    }
}
