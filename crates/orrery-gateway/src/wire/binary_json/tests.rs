use orrery_model::json::{Number, parse_value};
use orrery_model::limits::{ENVELOPE_LEVELS_MAX, NESTING_LEVELS_MAX, REQUEST_BYTES_MAX};
use proptest::prelude::*;

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn check(hex: &str, json: &str) {
    let value = decode(&bytes(hex)).unwrap_or_else(|error| panic!("{hex}: {error}"));
    assert_eq!(value.to_text(), json, "{hex}");
}

fn refused(hex: &str, reason: &str) {
    let error = decode(&bytes(hex)).expect_err(hex);
    assert!(error.reason.contains(reason), "{hex}: {error}");
}

#[test]
fn known_buffers_mean_what_the_clients_mean() {
    for (hex, json) in [
        ("80 1F", "31"),
        ("80 C9 18FC", "-1000"),
        ("80 C7 FEFFFFFFFFFFFFFF", "18446744073709551614"),
        ("80 CC 0000000000000C40", "3.5"),
        ("80 2C", "\"id\""),
        ("80 82 6869", "\"hi\""),
        ("80 71 01 02 41", "\"QQ==\""),
        ("80 71 01 FD 41", "\"QQ\""),
        ("80 73 01 00 FBFFFE", "\"-__-\""),
        ("80 78 04 A1B2", "\"1a2b\""),
        ("80 7A 07 13531C02", "\"2024-01\""),
        ("80 7B 04 30 1032", "\"0123\""),
        ("80 7C 03 61 2008", "\"abc\""),
        ("80 7D 04 61 40200C", "\"abcd\""),
        ("80 7E 02 C834", "\"Hi\""),
        ("80 DD 04 DEADBEEF", "\"3q2+7w==\""),
        (
            "80 D3 000102030405060708090A0B0C0D0E0F",
            "\"03020100-0504-0706-0809-0a0b0c0d0e0f\"",
        ),
        (
            "80 75 000102030405060708090A0B0C0D0E0F",
            "\"00010203-0405-0607-0809-0a0b0c0d0e0f\"",
        ),
        ("80 F0 DA 03 01000000 02000000 03000000", "[1,2,3]"),
        ("80 F2 F0 DA 02 02 01000000 02000000 03000000 04000000", "[[1,2],[3,4]]"),
        ("80 ED 04 02 2C 00 3B 01", r#"{"id":0,"type":1}"#),
        ("80 E2 05 E1 00 E9 2C 01", r#"[[0],{"id":1}]"#),
        (
            "80 ED 11 03 82 6964 82 6231 81 6E 01 82 706B 84 62657461",
            r#"{"id":"b1","n":1,"pk":"beta"}"#,
        ),
    ] {
        check(hex, json);
    }
}

#[test]
fn every_other_marker_of_the_table_is_read() {
    let guid = "000102030405060708090A0B0C0D0E0F";
    for (hex, json) in [
        ("80 00".to_owned(), "0"),
        ("80 C8 FF".to_owned(), "255"),
        ("80 CA FFFFFFFF".to_owned(), "-1"),
        ("80 CB 0000000000000080".to_owned(), "-9223372036854775808"),
        ("80 CD 0000C03F".to_owned(), "1.5"),
        ("80 CE 000000000000F83F".to_owned(), "1.5"),
        ("80 D0".to_owned(), "null"),
        ("80 D1".to_owned(), "false"),
        ("80 D2".to_owned(), "true"),
        ("80 D7 FF".to_owned(), "255"),
        ("80 D8 FF".to_owned(), "-1"),
        ("80 D9 FFFF".to_owned(), "-1"),
        ("80 DA FFFFFFFF".to_owned(), "-1"),
        ("80 DB FFFFFFFFFFFFFFFF".to_owned(), "-1"),
        ("80 DC FFFFFFFF".to_owned(), "4294967295"),
        (format!("80 76 {guid}"), "\"00010203-0405-0607-0809-0A0B0C0D0E0F\""),
        (
            format!("80 77 {guid}"),
            "\"\\\"00010203-0405-0607-0809-0a0b0c0d0e0f\\\"\"",
        ),
        ("80 79 03 A10B".to_owned(), "\"1AB\""),
        ("80 72 0100 00 FBFFFE".to_owned(), "\"+//+\""),
        ("80 74 0100 FE FBFF".to_owned(), "\"-_8\""),
        ("80 71 00 00".to_owned(), "\"\""),
        ("80 7F 0200 C834".to_owned(), "\"Hi\""),
        ("80 80".to_owned(), "\"\""),
        ("80 C0 02 6869".to_owned(), "\"hi\""),
        ("80 C1 0200 6869".to_owned(), "\"hi\""),
        ("80 C2 02000000 6869".to_owned(), "\"hi\""),
        ("80 DE 0100 00".to_owned(), "\"AA==\""),
        ("80 DF 01000000 00".to_owned(), "\"AA==\""),
        ("80 E0".to_owned(), "[]"),
        ("80 E3 0100 05".to_owned(), "[5]"),
        ("80 E4 01000000 05".to_owned(), "[5]"),
        ("80 E5 02 02 0506".to_owned(), "[5,6]"),
        ("80 E6 0200 0200 0506".to_owned(), "[5,6]"),
        ("80 E7 02000000 02000000 0506".to_owned(), "[5,6]"),
        ("80 E8".to_owned(), "{}"),
        ("80 EA 02 2C 05".to_owned(), r#"{"id":5}"#),
        ("80 EB 0200 2C 05".to_owned(), r#"{"id":5}"#),
        ("80 EC 02000000 2C 05".to_owned(), r#"{"id":5}"#),
        ("80 EE 0200 0100 2C 05".to_owned(), r#"{"id":5}"#),
        ("80 EF 02000000 01000000 2C 05".to_owned(), r#"{"id":5}"#),
        ("80 F1 D7 0200 0102".to_owned(), "[1,2]"),
        ("80 F3 F1 D7 0100 0200 0102".to_owned(), "[[1],[2]]"),
        ("80 3F".to_owned(), "\"_id\""),
        // The third element refers to the first, which stands at offset 3.
        ("80 E2 06 82 6869 05 C3 03".to_owned(), r#"["hi",5,"hi"]"#),
        ("80 E2 07 82 6869 05 C4 0300".to_owned(), r#"["hi",5,"hi"]"#),
        ("80 E2 08 82 6869 05 C5 030000".to_owned(), r#"["hi",5,"hi"]"#),
        ("80 E2 09 82 6869 05 C6 03000000".to_owned(), r#"["hi",5,"hi"]"#),
    ] {
        check(&hex, json);
    }
}

#[test]
fn the_last_of_two_equal_names_wins() {
    check("80 EA 06 81 61 05 81 61 06", r#"{"a":6}"#);
}

#[test]
fn markers_without_a_json_form_are_refused() {
    for marker in (0x68..=0x70).chain([0xD4, 0xD5, 0xD6, 0xCF]).chain(0xF4..=0xFF) {
        refused(&format!("80 {marker:02X} 0000000000000000"), "without meaning");
    }
    for marker in 0x40..=0x67 {
        refused(&format!("80 {marker:02X} 00"), "user dictionaries");
    }
}

#[test]
fn damaged_buffers_are_refused() {
    for (hex, reason) in [
        ("", "unexpected end"),
        ("80", "unexpected end"),
        ("7B 7D", "starts with 80"),
        ("80 00 00", "bytes after the value"),
        ("80 82 68", "unexpected end"),
        ("80 82 FFFE", "not UTF-8"),
        ("80 C2 FFFFFFFF 00", "unexpected end"),
        ("80 E4 FFFFFFFF 00", "beyond the bytes"),
        ("80 E2 01 82 6869", "unexpected end"),
        ("80 E5 02 03 0506", "a count differs"),
        ("80 E5 02 01 0506", "a count differs"),
        ("80 E9 05 05", "a string was expected"),
        ("80 EA 01 2C", "unexpected end"),
        ("80 C3 00", "earlier string"),
        ("80 C3 01", "earlier string"),
        ("80 C3 05", "earlier string"),
        ("80 E2 03 05 C3 03", "lead to a string"),
        ("80 E2 07 82 6869 C3 03 C3 06", "lead to a string"),
        ("80 71 01 03 00", "impossible padding"),
        ("80 71 00 01", "impossible padding"),
        ("80 7B 01 7F 01", "not ASCII"),
        ("80 7B 01 F8 0F", "not ASCII"),
        ("80 CC 000000000000F07F", "not finite"),
        ("80 CD 0000C07F", "not finite"),
        ("80 F0 CB 01 0000000000000000", "typed number"),
        ("80 F2 F1 D7 01 01 00", "uniform array"),
        ("80 F0 DA 02 01000000", "unexpected end"),
    ] {
        refused(hex, reason);
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = |n: usize, inside: &str| format!("80 {} {inside}", "E1".repeat(n));
    check(&deep(127, "E0"), &format!("{}[]{}", "[".repeat(127), "]".repeat(127)));
    // An item is checked by whoever takes it out of its envelope.
    let n_levels_max = NESTING_LEVELS_MAX + ENVELOPE_LEVELS_MAX;
    refused(&deep(n_levels_max, "E0"), "nested too deeply");
    refused(&deep(n_levels_max - 1, "F2 F0 D7 01 01 00"), "nested too deeply");
    refused(&deep(1_000_000, "00"), "nested too deeply");
}

#[test]
fn a_long_string_referenced_often_is_refused_before_it_fills_memory() {
    let mut inside = vec![0xC1, 0xFF, 0xFF];
    inside.resize(inside.len() + 0xFFFF, b'x');
    let string_at = 6u8;
    inside.extend([0xC3, string_at].repeat(1000));
    let mut buffer = vec![PREAMBLE, 0xE4];
    buffer.extend((inside.len() as u32).to_le_bytes());
    buffer.extend(inside);
    assert_eq!(decode(&buffer).unwrap_err().reason, "the value is too large");
}

#[test]
fn empty_arrays_said_in_few_bytes_are_refused_before_they_fill_memory() {
    let one = [0xF3, 0xF1, 0xD7, 0, 0, 0xFF, 0xFF];
    let n_copies = REQUEST_BYTES_MAX / 65535;
    let mut buffer = vec![PREAMBLE, 0xE4];
    buffer.extend(((one.len() * n_copies) as u32).to_le_bytes());
    buffer.extend(one.repeat(n_copies));
    assert_eq!(decode(&buffer).unwrap_err().reason, "the value is too large");
}

#[test]
fn what_we_write_is_what_the_rust_sdk_writes() {
    let value = parse_value(br#"{"id":"b1","n":1,"pk":"beta"}"#).unwrap();
    assert_eq!(
        encode(&value),
        bytes("80 ED 11 03 82 6964 82 6231 81 6E 01 82 706B 84 62657461")
    );
    for (json, hex) in [
        ("[]", "80 E5 00 00"),
        ("{}", "80 ED 00 00"),
        ("31", "80 1F"),
        ("32", "80 CB 2000000000000000"),
        ("-1", "80 CB FFFFFFFFFFFFFFFF"),
        ("3.5", "80 CC 0000000000000C40"),
        ("18446744073709551614", "80 C7 FEFFFFFFFFFFFFFF"),
        ("[null,true,false]", "80 E5 03 03 D0D2D1"),
    ] {
        assert_eq!(encode(&parse_value(json.as_bytes()).unwrap()), bytes(hex), "{json}");
    }
    let long = Value::from("é".repeat(32).as_str());
    assert_eq!(encode(&long)[..3], [0x80, 0xC0, 64]);
}

#[test]
fn containers_of_every_width_read_back() {
    for n in [255, 256, 65_535, 65_536] {
        let array = Value::Array(vec![Value::from(1); n]);
        assert_eq!(decode(&encode(&array)).unwrap(), array);
        let text = Value::from("x".repeat(n).as_str());
        assert_eq!(decode(&encode(&text)).unwrap(), text);
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        (-5i64..40).prop_map(Value::from),
        any::<u64>().prop_map(|uint| Value::Number(Number::from(uint))),
        any::<f64>()
            .prop_filter("finite", |double| double.is_finite())
            .prop_map(|double| Value::Number(Number::from_f64(double))),
        "\\PC{0,80}".prop_map(|text| Value::from(text.as_str())),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            prop::collection::vec(("\\PC{0,5}", inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_we_write_reads_back(value in json()) {
        let read = decode(&encode(&value)).unwrap();
        prop_assert_eq!(read.to_text(), value.to_text());
    }

    #[test]
    fn arbitrary_bytes_end_in_a_value_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        bytes.insert(0, PREAMBLE);
        if let Ok(value) = decode(&bytes) {
            prop_assert!(parse_value(value.to_text().as_bytes()).is_ok());
        }
    }

    #[test]
    fn damaged_buffers_end_in_a_value_or_an_error(
        value in json(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(&value);
        for (at, byte, insert) in damage {
            let at = at.index(bytes.len());
            if insert { bytes.insert(at, byte) } else { bytes[at] = byte }
        }
        let _ = decode(&bytes[..cut.index(bytes.len() + 1)]);
        if let Ok(value) = decode(&bytes) {
            prop_assert!(parse_value(value.to_text().as_bytes()).is_ok());
        }
    }
}
