use proptest::prelude::*;

use super::*;

fn path(text: &str) -> Vec<PathPart> {
    let part = |name: &str| match name {
        "[]" => PathPart::Element,
        name => PathPart::Member(name.to_owned()),
    };
    text.split('/').filter(|part| !part.is_empty()).map(part).collect()
}

/// Paths that end in `?` are wanted for their existence only.
fn wanted(paths: &[&str]) -> Wanted {
    let mut wanted = Wanted::default();
    for text in paths {
        let existence = text.strip_suffix('?');
        wanted.add(&path(existence.unwrap_or(text)), existence.is_none());
    }
    wanted
}

#[track_caller]
fn check(paths: &[&str], text: &str, expected: &str) {
    let value = wanted(paths).read(text.as_bytes()).unwrap();
    assert_eq!(value.to_text(), expected, "{paths:?} of {text}");
}

#[test]
fn only_what_is_wanted_is_there() {
    let text = r#"{"a":1,"b":{"x":"}\"{","y":[1,{"z":2}]},"c":"\\","d":[{"k":1,"v":"]"},7,{"v":null}],"e":-2.5}"#;
    check(&["a", "e"], text, r#"{"a":1,"e":-2.5}"#);
    check(&["e", "b/y"], text, r#"{"b":{"y":[1,{"z":2}]},"e":-2.5}"#);
    check(&["b/x", "c"], text, r#"{"b":{"x":"}\"{"},"c":"\\"}"#);
    check(&["d/[]/v"], text, r#"{"d":[{"v":"]"},null,{"v":null}]}"#);
    check(&["d/[]?"], text, r#"{"d":[null,null,null]}"#);
    check(&["b?", "missing?"], text, r#"{"b":null}"#);
    check(&["b/x/deeper", "a"], text, r#"{"a":1,"b":{"x":null}}"#);
    check(&[], text, "null");
    check(&[""], text, text);
}

#[test]
fn a_whole_covers_its_parts_in_any_order_of_adding() {
    for paths in [["a/b", "a"], ["a", "a/b"]] {
        assert_eq!(wanted(&paths), wanted(&["a"]));
    }
}

#[test]
fn names_with_escapes_are_found() {
    check(&["a\"\n"], r#"{"x":0,"a\"\n":1}"#, r#"{"a\"\n":1}"#);
}

#[test]
fn a_text_that_is_not_canonical_is_read_as_a_whole_and_a_broken_one_is_an_error() {
    let value = wanted(&["b"]).read(br#"{ "a": 1, "b": 2 }"#).unwrap();
    assert_eq!(value.get("b"), Some(&Value::from(2)));
    for broken in [
        "",
        "{",
        r#"{"a"#,
        r#"{"a":"#,
        r#"{"a":[1"#,
        r#"{"b":}"#,
        r#"{"b":1x}"#,
        r#"{"b":"\u12"}"#,
    ] {
        assert!(wanted(&["b"]).read(broken.as_bytes()).is_err(), "{broken}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(|number| Value::Number(Number::from_f64(number))),
        "[a-z\"\\\\{}\\[\\],:é\n]{0,6}".prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec(("[abc\"]", inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_path() -> impl Strategy<Value = Vec<PathPart>> {
    let part = prop_oneof!["[abc\"]".prop_map(PathPart::Member), Just(PathPart::Element)];
    prop::collection::vec(part, 0..4)
}

/// Everything a path leads to.
fn follow<'v>(value: &'v Value, path: &[PathPart]) -> Vec<&'v Value> {
    let Some((part, rest)) = path.split_first() else {
        return vec![value];
    };
    match part {
        PathPart::Member(name) => value.get(name).map(|member| follow(member, rest)).unwrap_or_default(),
        PathPart::Element => value
            .as_array()
            .unwrap_or_default()
            .iter()
            .flat_map(|element| follow(element, rest))
            .collect(),
    }
}

proptest! {
    #[test]
    fn every_wanted_path_leads_to_the_same_as_in_the_whole(
        value in any_value(),
        paths in prop::collection::vec((any_path(), any::<bool>()), 0..4),
    ) {
        let mut wanted = Wanted::default();
        for (path, whole) in &paths {
            wanted.add(path, *whole);
        }
        // What was printed and read is what is stored.
        let text = value.to_text();
        let value = parse_value(text.as_bytes()).unwrap();
        let parts = wanted.read(text.as_bytes()).unwrap();
        for (path, whole) in &paths {
            let (expected, found) = (follow(&value, path), follow(&parts, path));
            prop_assert_eq!(expected.len(), found.len());
            if *whole {
                prop_assert_eq!(expected, found);
            }
        }
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "[{}\\[\\]\",:a1\\\\]{0,30}") {
        let wanted = wanted(&["a/b", "c?", "a/[]/c"]);
        let _ = wanted.read(&bytes);
        let _ = wanted.read(text.as_bytes());
    }
}
