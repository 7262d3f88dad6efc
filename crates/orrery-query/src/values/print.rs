//! Text of values in query results, which differs from stored text in two points: exponents have two digits, and
//! integers beyond 64 signed bits are doubles.

use std::borrow::Cow;

use orrery_model::json;
use orrery_model::{Number, Value};

/// Appends a row as the service sends it.
pub fn print_row(value: &Value, out: &mut Vec<u8>) {
    json::print_with(value, out, |number, out| {
        out.extend_from_slice(print_number(number).as_bytes())
    });
}

/// A row as text.
pub fn row_text(value: &Value) -> String {
    let mut out = Vec::new();
    print_row(value, &mut out);
    String::from_utf8(out).expect("printing yields UTF-8 from UTF-8 parts")
}

/// A number with two exponent digits where two suffice.
pub(crate) fn print_number(number: Number) -> String {
    let text = stored_text(number);
    match text.rfind("e+0").or_else(|| text.rfind("e-0")) {
        Some(at) => format!("{}{}", &text[..at + 2], &text[at + 3..]),
        None => text,
    }
}

/// `TOSTRING`: strings as they are, numbers with three exponent digits, everything else as compact JSON.
pub(crate) fn to_string(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Number(number) => Cow::Owned(stored_text(*number)),
        other => Cow::Owned(other.to_text()),
    }
}

fn stored_text(number: Number) -> String {
    let number = match number {
        Number::UInt(uint) => Number::Double(uint as f64),
        other => other,
    };
    let mut out = Vec::new();
    number.print(&mut out);
    String::from_utf8(out).expect("numbers print as ASCII")
}

/// Whether every number inside can be written as JSON.
pub(crate) fn is_finite(value: &Value) -> bool {
    match value {
        Value::Number(Number::Double(double)) => double.is_finite(),
        Value::Array(items) => items.iter().all(is_finite),
        Value::Object(object) => object.iter().all(|(_, member)| is_finite(member)),
        _ => true,
    }
}
