use proptest::prelude::*;

use super::*;

fn value(text: &str) -> Value {
    json::parse_value(text.as_bytes()).unwrap()
}

fn definition(paths: &[&str], kind: KeyKind) -> PartitionKeyDefinition {
    let paths = paths.iter().map(|path| PropertyPath::parse(path).unwrap()).collect();
    PartitionKeyDefinition::new(paths, kind, KeyVersion::V2, false)
}

#[test]
fn property_paths_split_into_names() {
    for (text, names) in [
        ("/pk", vec!["pk"]),
        ("/a/b", vec!["a", "b"]),
        ("/\"a b\"/c", vec!["a b", "c"]),
        ("/'it is'/\"a/b\"", vec!["it is", "a/b"]),
        ("/größe", vec!["größe"]),
        ("/\"*\"", vec!["*"]),
    ] {
        assert_eq!(PropertyPath::parse(text).unwrap().segments(), names, "{text}");
    }
    for text in [
        "", "/", "a", "/a/", "//a", "/\"a", "/\"a\"b", "/\"\"", "/a/*", "/a/?", "/a/[]", "/a\"b",
    ] {
        assert_eq!(PropertyPath::parse(text), None, "{text}");
    }
}

#[test]
fn an_items_key_is_read_from_its_paths() {
    let key = definition(&["/a/b", "/c"], KeyKind::MultiHash);
    let extract = |item: &str| key.extract(&value(item)).to_string();
    assert_eq!(extract(r#"{"a":{"b":"x"},"c":1.0}"#), r#"["x",1]"#);
    assert_eq!(extract(r#"{"a":{"b":null}}"#), r#"[null,{}]"#);
    assert_eq!(extract(r#"{"a":5,"c":true}"#), r#"[{},true]"#);
}

#[test]
fn an_array_or_object_where_the_key_should_be_is_no_key() {
    let key = definition(&["/a/b", "/c"], KeyKind::MultiHash);
    let extract = |item: &str| key.extract(&value(item)).to_string();
    assert_eq!(extract(r#"{"a":{"b":[1]},"c":"x"}"#), r#"[{},"x"]"#);
    assert_eq!(extract(r#"{"c":{"d":1}}"#), r#"[{},{}]"#);
}

#[test]
fn keys_clients_send_are_read_and_printed_alike() {
    for text in [
        r#"["a"]"#,
        "[5]",
        "[true]",
        "[null]",
        "[{}]",
        "[]",
        r#"["a",{},-1.5]"#,
        r#"["\"ü\n"]"#,
    ] {
        assert_eq!(PartitionKey::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(
        PartitionKey::parse(r#" [ "\u00fc" , 5.0 ] "#).unwrap().to_string(),
        r#"["ü",5]"#
    );
    for text in ["", "a", "{}", "[[]]", r#"[{"a":1}]"#, "[1", "\"a\"", "[1e999]"] {
        assert_eq!(
            PartitionKey::parse(text).unwrap_err().status(),
            Status::BAD_REQUEST,
            "{text}"
        );
    }
}

#[test]
fn a_key_for_one_item_has_a_component_per_path() {
    let key = definition(&["/a", "/b"], KeyKind::MultiHash);
    let complete = |text: &str| key.complete(&PartitionKey::parse(text).unwrap()).map(Cow::into_owned);
    assert_eq!(complete(r#"["x",1]"#).unwrap().to_string(), r#"["x",1]"#);
    assert_eq!(complete("[]").unwrap().to_string(), "[{},{}]");
    for text in [r#"["x"]"#, r#"["x",1,2]"#] {
        assert_eq!(
            complete(text).unwrap_err().status(),
            Status::PARTITION_KEY_MISMATCH,
            "{text}"
        );
    }
}

#[test]
fn whole_numbers_are_one_key_however_they_are_written() {
    let parse = |text: &str| PartitionKey::parse(text).unwrap();
    assert_eq!(parse("[1]"), parse("[1.0]"));
    assert_eq!(parse("[0]"), parse("[-0.0]"));
    assert_ne!(parse("[1]"), parse("[\"1\"]"));
    assert_ne!(parse("[null]"), parse("[{}]"));
}

proptest! {
    #[test]
    fn every_key_reads_back(numbers in prop::collection::vec(any::<f64>(), 0..3), text in "\\PC{0,20}") {
        let mut components = vec![KeyComponent::String(text), KeyComponent::Undefined, KeyComponent::Null];
        let numbers = numbers.into_iter().filter(|number| number.is_finite() && number.to_bits() != (-0.0f64).to_bits());
        components.extend(numbers.map(KeyComponent::Number));
        let key = PartitionKey::new(components);
        prop_assert_eq!(PartitionKey::parse(&key.to_string()).unwrap(), key);
    }

    #[test]
    fn no_text_makes_key_parsing_panic(text in "\\PC{0,30}") {
        let _ = PartitionKey::parse(&text);
        if let Some(path) = PropertyPath::parse(&text) {
            prop_assert_eq!(path.as_str(), text);
        }
    }
}
