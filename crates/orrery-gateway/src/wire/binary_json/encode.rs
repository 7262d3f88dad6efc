//! The markers that the Rust SDK writes, which every client reads.

use orrery_model::Value;
use orrery_model::json::Number;

pub(super) fn value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xD0),
        Value::Bool(false) => out.push(0xD1),
        Value::Bool(true) => out.push(0xD2),
        Value::Number(value) => number(*value, out),
        Value::String(text) => string(text, out),
        Value::Array(items) => {
            let mut inside = Vec::new();
            items.iter().for_each(|item| self::value(item, &mut inside));
            container(0xE5, items.len(), &inside, out);
        }
        Value::Object(object) => {
            let mut inside = Vec::new();
            for (name, member) in object.iter() {
                string(name, &mut inside);
                self::value(member, &mut inside);
            }
            container(0xED, object.len(), &inside, out);
        }
    }
}

fn number(number: Number, out: &mut Vec<u8>) {
    match number {
        Number::Int(int @ 0..32) => out.push(int as u8),
        Number::Int(int) => {
            out.push(0xCB);
            out.extend_from_slice(&int.to_le_bytes());
        }
        Number::UInt(uint) => {
            out.push(0xC7);
            out.extend_from_slice(&uint.to_le_bytes());
        }
        Number::Double(double) => {
            out.push(0xCC);
            out.extend_from_slice(&double.to_le_bytes());
        }
    }
}

fn string(text: &str, out: &mut Vec<u8>) {
    match text.len() {
        n_bytes @ 0..64 => out.push(0x80 | n_bytes as u8),
        n_bytes => {
            let width = width_of(n_bytes);
            out.push(0xC0 + width.form);
            width.push(n_bytes, out);
        }
    }
    out.extend_from_slice(text.as_bytes());
}

/// An array or object: its byte length and its number of elements, in as many bytes each as the larger needs.
fn container(first_marker: u8, count: usize, inside: &[u8], out: &mut Vec<u8>) {
    let width = width_of(inside.len().max(count));
    out.push(first_marker + width.form);
    width.push(inside.len(), out);
    width.push(count, out);
    out.extend_from_slice(inside);
}

/// How many bytes a size takes.
struct Width {
    n_bytes: usize,
    /// Distance from the marker of the narrowest form.
    form: u8,
}

fn width_of(size: usize) -> Width {
    match size {
        0..=0xFF => Width { n_bytes: 1, form: 0 },
        0x100..=0xFFFF => Width { n_bytes: 2, form: 1 },
        _ => Width { n_bytes: 4, form: 2 },
    }
}

impl Width {
    fn push(&self, size: usize, out: &mut Vec<u8>) {
        let size = u32::try_from(size).expect("an answer is far below 4 GiB");
        out.extend_from_slice(&size.to_le_bytes()[..self.n_bytes]);
    }
}
