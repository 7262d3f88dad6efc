//! Tokens that the SDKs of Java 4.81, JavaScript 4.10, Python 4.17 and Go 1.5 wrote after reading six items of two partitions;
//! those of .NET and Rust follow their sources.

use std::collections::BTreeMap;

use super::*;

type Tokens = BTreeMap<String, BTreeMap<String, String>>;

fn tokens(kind: &str) -> BTreeMap<String, String> {
    let text = include_str!("../../../tests/golden/continuation_tokens.json");
    serde_json::from_str::<Tokens>(text).unwrap().remove(kind).unwrap()
}

fn import(text: &str) -> Result<Cursor, BadCursor> {
    Cursor::import(text, FeedMode::LatestVersion)
}

fn positions(cursor: &Cursor) -> Vec<Position> {
    cursor.ranges().map(|(_, position)| position.clone()).collect()
}

#[test]
fn tokens_of_every_sdk_say_the_same_ranges_and_positions() {
    for (sdk, text) in tokens("whole") {
        let cursor = import(&text).unwrap_or_else(|error| panic!("{sdk}: {error}"));
        // Java's container was hashed the old way, so that its bound lies elsewhere.
        let (bound, lsns) = match sdk.as_str() {
            "java" => ("05C1E0", [5, 3]),
            _ => ("1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", [6, 2]),
        };
        let ranges: Vec<String> = cursor.ranges().map(|(range, _)| range.to_string()).collect();
        assert_eq!(ranges, [format!("-{bound}"), format!("{bound}-FF")], "{sdk}");
        let expected = lsns.map(|lsn| Position::After(FeedToken::at(lsn)));
        assert_eq!(positions(&cursor), expected, "{sdk}");
        assert_eq!(cursor.container_rid(), "PG7zYrxu82I=");
    }
}

#[test]
fn a_range_that_was_not_read_yet_starts_where_the_reader_began_if_the_token_says_so() {
    for (sdk, text) in tokens("halfway") {
        let positions = positions(&import(&text).unwrap());
        assert_eq!(positions[1], Position::From(StartFrom::Beginning), "{sdk}");
    }
    for (sdk, text) in tokens("halfwayWithoutStart") {
        assert_eq!(import(&text), Err(BadCursor::NoPosition), "{sdk}");
    }
}

#[test]
fn a_token_of_one_logical_key_is_not_taken_for_one_of_ranges() {
    for (sdk, text) in tokens("oneKey") {
        assert_eq!(import(&text), Err(BadCursor::NotRanges), "{sdk}");
    }
}

#[test]
fn a_token_that_says_the_other_mode_is_refused() {
    for sdk in ["java", "python", "rust"] {
        let text = &tokens("whole")[sdk];
        let imported = Cursor::import(text, FeedMode::AllVersionsAndDeletes);
        assert_eq!(imported, Err(BadCursor::OtherMode), "{sdk}");
    }
}

#[test]
fn a_point_in_time_is_read_from_java_python_and_dotnet() {
    let time = StartFrom::Time(SystemTime::UNIX_EPOCH + Duration::from_secs(1_755_681_302));
    let java = r#"{"V":1,"Rid":"r","Mode":"INCREMENTAL","StartFrom":{"Type":"POINT_IN_TIME","PointInTimeMs":1755681302000},
        "Continuation":{"V":1,"Rid":"r","Continuation":[{"token":null,"range":{"min":"","max":"FF"}}]}}"#;
    let dotnet = r#"{"V":2,"Rid":"r","Continuation":[{"FeedRange":{"type":"Effective Partition Key Range",
        "value":{"min":"","max":"FF"}},"State":{"type":"time","value":"2025-08-20T09:15:02.0000000Z"}}]}"#;
    for text in [java, dotnet] {
        assert_eq!(positions(&import(text).unwrap()), [Position::From(time)]);
    }
}

#[test]
fn whatever_else_somebody_hands_in_is_refused() {
    for text in [
        "",
        "{",
        "{}",
        "[]",
        "\"101\"",
        "c2.e30",
        "c1.e30",
        r#"{"Rid":"r","Continuation":[]}"#,
        r#"{"Rid":"r","Continuation":[{"token":"1"}]}"#,
        r#"{"Rid":"r","Continuation":[{"token":"1","range":{"min":"B","max":"A"}}]}"#,
        r#"{"Continuation":[{"token":"1","range":{"min":"","max":"FF"}}]}"#,
    ] {
        assert_eq!(import(text), Err(BadCursor::Malformed), "{text}");
    }
    let twice = r#"{"Rid":"r","Continuation":[{"token":"1","range":{"min":"","max":"FF"}},{"token":"2","range":{"min":"A","max":"B"}}]}"#;
    assert_eq!(import(twice), Err(BadCursor::Overlap));
}
