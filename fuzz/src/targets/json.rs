//! Items: JSON as text and as binary.

use orrery_gateway::wire::binary_json;
use orrery_model::json::{self, Value};
use orrery_model::limits::NESTING_LEVELS_MAX;

pub(super) const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "false",
    "1e309",
    "-0",
    "0.1",
    "18446744073709551616",
    "9223372036854775808",
    "1e-400",
    "\\u0000",
    "\\ud83d",
    "\\ude00",
    "\\\"",
    "\"id\"",
    "\"_ts\"",
    "\"ttl\"",
    " ",
    "\n",
    "\u{FEFF}",
];

/// What parses has one canonical text, and that text means the same.
pub(super) fn text(bytes: &[u8]) {
    let Ok(value) = json::parse_value(bytes) else { return };
    check(&value);
    let binary = binary_json::encode(&value);
    let back = binary_json::decode(&binary).expect("what we encode can be decoded");
    assert_eq!(back, value, "binary changes {:?}", value.to_text());
}

/// Binary either decodes to a value that text can hold as well, or is refused.
pub(super) fn binary(bytes: &[u8]) {
    let with_preamble = [&[binary_json::PREAMBLE], bytes].concat();
    for buffer in [bytes, &with_preamble] {
        if let Ok(value) = binary_json::decode(buffer) {
            check(&value);
        }
    }
}

fn check(value: &Value) {
    let text = value.to_text();
    let again = json::parse_value(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?} does not parse: {error}"));
    assert_eq!(again.to_text(), text, "the canonical text is not a fixed point");
    assert!(depth(value) <= NESTING_LEVELS_MAX, "nested too deep: {text}");
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(object) => 1 + object.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}
