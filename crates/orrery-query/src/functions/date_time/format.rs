//! `DATETIMEFORMAT`.

use super::calendar::{DateTime, Fields};

/// Replaces the specifiers of a format; everything else stands for itself. `None` for a dangling escape.
pub(super) fn format(moment: DateTime, format: &str) -> Option<String> {
    let fields = moment.fields();
    let characters: Vec<char> = format.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    while at < characters.len() {
        let specifier = characters[at];
        let run = characters[at..]
            .iter()
            .take_while(|character| **character == specifier)
            .count();
        if specifier == '\\' {
            out.push(*characters.get(at + 1)?);
            at += 2;
        } else if let Some(text) = field(&fields, specifier, run) {
            out.push_str(&text);
            at += run;
        } else {
            out.push(specifier);
            at += 1;
        }
    }
    Some(out)
}

/// A field as text: `run` times the letter asks for at least that many digits.
fn field(fields: &Fields, specifier: char, run: usize) -> Option<String> {
    let number = match specifier {
        'y' if run <= 2 => fields.year % 100,
        'y' => fields.year,
        'M' if run >= 3 => return Some(month_name(fields.month, run)),
        'M' => fields.month,
        'd' if run >= 3 => return Some(day_name(fields, run)),
        'd' => fields.day,
        'H' => fields.hour,
        'h' => (fields.hour + 11) % 12 + 1,
        'm' => fields.minute,
        's' => fields.second,
        'f' | 'F' => return fraction(fields, specifier, run),
        't' => return Some(["AM", "PM"][usize::from(fields.hour >= 12)][..run.min(2)].to_owned()),
        _ => return None,
    };
    Some(format!("{number:0run$}"))
}

fn fraction(fields: &Fields, specifier: char, run: usize) -> Option<String> {
    let digits = format!("{:07}", fields.fraction);
    let digits = digits.get(..run)?;
    Some(
        if specifier == 'F' {
            digits.trim_end_matches('0')
        } else {
            digits
        }
        .to_owned(),
    )
}

fn month_name(month: i64, run: usize) -> String {
    const NAMES: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    shortened(NAMES[(month - 1) as usize], run)
}

fn day_name(fields: &Fields, run: usize) -> String {
    const NAMES: [&str; 7] = [
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
    ];
    let days = super::calendar::days_from_civil(fields.year, fields.month, fields.day);
    shortened(NAMES[days.rem_euclid(7) as usize], run)
}

/// Three letters ask for three, more for the whole name.
fn shortened(name: &str, run: usize) -> String {
    if run == 3 {
        name[..3].to_owned()
    } else {
        name.to_owned()
    }
}
