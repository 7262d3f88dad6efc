//! Values as bytes whose order is the order of ORDER BY: undefined, null, false, true, numbers, strings, arrays, objects.
//!
//! No code is the beginning of another, so codes can be followed by anything, and the complement of a code sorts the other
//! way round. Two kinds of codes are *loose*: that of a long string, cut and ended by a hash, and those of arrays and
//! objects, which only tell the type. They stand at the right place among the others but not among themselves.

use orrery_model::json::Met;
use orrery_model::{Number, Value};
use xxhash_rust::xxh3::xxh3_64;

pub(super) const UNDEFINED: u8 = 0;
pub(super) const NULL: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const TRUE: u8 = 3;
pub(super) const NUMBER: u8 = 4;
pub(super) const STRING: u8 = 5;
pub(super) const ARRAY: u8 = 6;
pub(super) const OBJECT: u8 = 7;

/// Bytes of a string that its code holds. Longer strings are told apart by a hash.
pub(super) const STRING_BYTES_MAX: usize = 120;
/// Ends a whole string.
const END: u8 = 0;
/// Begins an escape, or with [`CUT`] the hash of a string that was cut.
const ESCAPE: u8 = 1;
const CUT: u8 = 0;
const HASH_BYTES: usize = 8;
/// The least double beyond which not every integer is one.
const EXACT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// Appends the code of a value.
pub(super) fn encode(value: Option<&Value>, out: &mut Vec<u8>) {
    match value {
        None => out.push(UNDEFINED),
        Some(value) => encode_met(value.into(), out),
    }
}

pub(super) fn encode_met(value: Met<'_>, out: &mut Vec<u8>) {
    match value {
        Met::Null => out.push(NULL),
        Met::Bool(false) => out.push(FALSE),
        Met::Bool(true) => out.push(TRUE),
        Met::Number(number) => encode_number(number, out),
        Met::String(text) => encode_string(text, out),
        Met::Array => out.push(ARRAY),
        Met::Object => out.push(OBJECT),
    }
}

/// The nearest double in an order-preserving form; where integers lie closer than doubles, how far off it is.
fn encode_number(number: Number, out: &mut Vec<u8>) {
    out.push(NUMBER);
    // Both zeros are one value; adding makes one of them.
    let double = number.to_f64() + 0.0;
    let bits = double.to_bits();
    let ordered = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
    out.extend_from_slice(&ordered.to_be_bytes());
    if double.abs() >= EXACT_LIMIT {
        let rest = match number {
            Number::Int(int) => i128::from(int) - double as i128,
            // Queries see what does not fit 64 signed bits as the double.
            Number::UInt(_) | Number::Double(_) => 0,
        };
        // The distance between neighbouring doubles is at most 2048 in the range of integers.
        out.extend_from_slice(&((rest + 0x8000) as u16).to_be_bytes());
    }
}

fn encode_string(text: &str, out: &mut Vec<u8>) {
    out.push(STRING);
    let bytes = text.as_bytes();
    if bytes.len() <= STRING_BYTES_MAX {
        escape(bytes, out);
        out.push(END);
    } else {
        escape(&bytes[..STRING_BYTES_MAX], out);
        out.extend_from_slice(&[ESCAPE, CUT]);
        out.extend_from_slice(&xxh3_64(bytes).to_be_bytes());
    }
}

/// What the codes of all strings that begin with `text` begin with.
pub(super) fn encode_string_start(text: &str, out: &mut Vec<u8>) {
    out.push(STRING);
    let bytes = text.as_bytes();
    escape(&bytes[..bytes.len().min(STRING_BYTES_MAX)], out);
}

/// UTF-8 in the order of UTF-16: the first bytes of U+E000 to U+FFFF move behind those of what needs surrogates. Zero and
/// one, which end and escape, take two bytes.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            0 | 1 => out.extend_from_slice(&[ESCAPE, byte + 1]),
            0xEE | 0xEF => out.push(byte + 7),
            _ => out.push(byte),
        }
    }
}

/// The string whose code this is; `None` for other values, and for a string that was cut.
pub(super) fn read_string(code: &[u8]) -> Option<String> {
    let (&STRING, rest) = code.split_first()? else {
        return None;
    };
    let (mut text, mut rest) = (Vec::new(), rest.iter());
    loop {
        match *rest.next()? {
            END => return String::from_utf8(text).ok(),
            ESCAPE => text.push(rest.next()?.checked_sub(1)?),
            byte @ 0xF5..=0xF6 => text.push(byte - 7),
            byte => text.push(byte),
        }
    }
}

/// The code at the front of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    pub length: usize,
    /// How many of its bytes decide its place; fewer than all only for a string that was cut.
    pub ordered: usize,
    /// Different values may have this place.
    pub is_loose: bool,
}

/// Finds the end of the code at the front of `bytes`. `complement`: every byte of it is inverted.
pub fn read_code(bytes: &[u8], complement: bool) -> Option<Code> {
    let mask = if complement { 0xFF } else { 0 };
    let at = |index: usize| bytes.get(index).map(|byte| byte ^ mask);
    let whole = |length: usize, is_loose: bool| {
        (bytes.len() >= length).then_some(Code {
            length,
            ordered: length,
            is_loose,
        })
    };
    match at(0)? {
        UNDEFINED | NULL | FALSE | TRUE => whole(1, false),
        ARRAY | OBJECT => whole(1, true),
        NUMBER => {
            let ordered: [u8; 8] = bytes.get(1..9)?.try_into().ok()?;
            let ordered = u64::from_be_bytes(ordered.map(|byte| byte ^ mask));
            let bits = if ordered >> 63 == 1 {
                ordered & !(1 << 63)
            } else {
                !ordered
            };
            let wide = f64::from_bits(bits).abs() >= EXACT_LIMIT;
            whole(if wide { 11 } else { 9 }, false)
        }
        STRING => {
            let mut index = 1;
            loop {
                match (at(index)?, at(index + 1)) {
                    (END, _) => return whole(index + 1, false),
                    (ESCAPE, Some(CUT)) => {
                        let length = index + 2 + HASH_BYTES;
                        return (bytes.len() >= length).then_some(Code {
                            length,
                            ordered: index + 2,
                            is_loose: true,
                        });
                    }
                    (ESCAPE, _) => index += 2,
                    _ => index += 1,
                }
            }
        }
        _ => None,
    }
}

/// The first bytes after everything that begins with `prefix`; empty when there are none.
pub fn successor(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < 0xFF {
            prefix.push(last + 1);
            break;
        }
    }
    prefix
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::values::compare_for_order;

    fn code(value: Option<&Value>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(value, &mut out);
        out
    }

    fn number() -> impl Strategy<Value = Number> {
        prop_oneof![
            any::<i64>().prop_map(Number::from),
            any::<u64>().prop_map(Number::from),
            (-100..100i64).prop_map(Number::from),
            (i64::MAX - 5000..=i64::MAX).prop_map(Number::from),
            (u64::MAX - 5000..=u64::MAX).prop_map(Number::from),
            (-1e6..1e6f64).prop_map(Number::from_f64),
            any::<f64>()
                .prop_filter("stored numbers are finite", |double| double.is_finite())
                .prop_map(Number::from_f64),
        ]
    }

    fn value() -> impl Strategy<Value = Option<Value>> {
        prop_oneof![
            Just(None),
            Just(Some(Value::Null)),
            any::<bool>().prop_map(|bool| Some(Value::Bool(bool))),
            number().prop_map(|number| Some(Value::Number(number))),
            "[\u{0}\u{1}\u{2}aé\u{D7FF}\u{E000}\u{FFFF}\u{10000}\u{10FFFF}]{0,5}"
                .prop_map(|text| Some(Value::String(text))),
            "[ab]{118,124}".prop_map(|text| Some(Value::String(text))),
            Just(Some(Value::Array(Vec::new()))),
            Just(Some(Value::Object(Default::default()))),
        ]
    }

    proptest! {
        #[test]
        fn codes_sort_like_values_unless_they_are_loose(a in value(), b in value()) {
            let (a_code, b_code) = (code(a.as_ref()), code(b.as_ref()));
            let (a_read, b_read) = (read_code(&a_code, false).unwrap(), read_code(&b_code, false).unwrap());
            let by_value = compare_for_order(a.as_ref(), b.as_ref());
            let by_place = a_code[..a_read.ordered].cmp(&b_code[..b_read.ordered]);
            if by_place.is_ne() || !a_read.is_loose {
                prop_assert_eq!(by_place, by_value);
            }
            prop_assert_eq!(a_code == b_code, by_value.is_eq());
        }

        #[test]
        fn a_code_is_found_in_front_of_anything(value in value(), rest in prop::collection::vec(any::<u8>(), 0..4)) {
            let code = code(value.as_ref());
            let straight = [code.as_slice(), &rest].concat();
            prop_assert_eq!(read_code(&straight, false).map(|code| code.length), Some(code.len()));
            let inverted: Vec<u8> = code.iter().map(|byte| !byte).chain(rest).collect();
            prop_assert_eq!(read_code(&inverted, true).map(|code| code.length), Some(code.len()));
        }

        #[test]
        fn a_string_is_read_from_its_code_unless_it_was_cut(text in "[\u{0}\u{1}\u{2}aé\u{D7FF}\u{E000}\u{FFFF}\u{10FFFF}]{0,50}") {
            let read = read_string(&code(Some(&Value::String(text.clone()))));
            prop_assert_eq!(read, (text.len() <= STRING_BYTES_MAX).then_some(text));
        }

        #[test]
        fn strings_with_a_beginning_have_codes_with_its_code(start in "[ab\u{E000}]{0,3}", rest in "[ab]{0,130}") {
            let mut prefix = Vec::new();
            encode_string_start(&start, &mut prefix);
            let whole = code(Some(&Value::String(format!("{start}{rest}"))));
            prop_assert!(whole.starts_with(&prefix));
            prop_assert!(whole < successor(prefix));
        }
    }

    #[test]
    fn nothing_is_read_from_bytes_that_are_no_code() {
        for bytes in [
            &[][..],
            &[9],
            &[NUMBER, 1, 2],
            &[STRING, b'a'],
            &[STRING, ESCAPE, CUT, 1],
        ] {
            assert_eq!(read_code(bytes, false), None, "{bytes:?}");
        }
    }
}
