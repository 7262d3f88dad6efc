//! Canonical text: no blanks, members in their order, the shortest escapes.

use super::{Number, Value};

/// Appends the canonical text of `value`.
pub fn print(value: &Value, out: &mut Vec<u8>) {
    print_with(value, out, Number::print);
}

/// Appends the text of `value` with numbers printed the caller's way.
pub fn print_with(value: &Value, out: &mut Vec<u8>, print_number: fn(Number, &mut Vec<u8>)) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => print_number(*number, out),
        Value::String(text) => print_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                print_with(item, out, print_number);
            }
            out.push(b']');
        }
        Value::Object(object) => {
            out.push(b'{');
            for (index, (name, member)) in object.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                print_string(name, out);
                out.push(b':');
                print_with(member, out, print_number);
            }
            out.push(b'}');
        }
    }
}

/// Appends `text` as a JSON string.
pub fn print_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut copied = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[copied..index]);
        copied = index + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0C => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}
