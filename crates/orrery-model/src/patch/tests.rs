use proptest::prelude::*;

use super::*;
use crate::json::parse_value;

fn value(text: &str) -> Value {
    parse_value(text.as_bytes()).unwrap()
}

/// Applies the operations to the item; the result as text, or the error's message.
fn patched(item: &str, operations: &str) -> Result<String, String> {
    let Value::Object(mut item) = value(item) else {
        panic!("the item is an object")
    };
    let before = item.clone();
    let applied = Patch::parse(&value(operations)).and_then(|patch| patch.apply(&mut item));
    match applied {
        Ok(()) => Ok(Value::Object(item).to_text()),
        Err(error) => {
            assert_eq!(error.status().code, 400);
            assert_eq!(item, before, "a failed patch leaves the item alone");
            Err(error.message().to_owned())
        }
    }
}

fn check(item: &str, operations: &str, expected: &str) {
    assert_eq!(patched(item, operations).as_deref(), Ok(expected), "{operations}");
}

fn refused(item: &str, operations: &str, part: &str) {
    let message = patched(item, operations).unwrap_err();
    assert!(message.contains(part), "{operations}: {message}");
}

#[test]
fn both_forms_of_the_body_are_read() {
    check(
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"/b","value":2}]"#,
        r#"{"a":1,"b":2}"#,
    );
    let patch = Patch::parse(&value(
        r#"{"condition":"from c where c.a = 1","operations":[{"op":"remove","path":"/a"}]}"#,
    ));
    assert_eq!(patch.unwrap().condition.as_deref(), Some("from c where c.a = 1"));
    for body in ["{}", "1", "[]", r#"{"operations":[]}"#, r#"{"operations":{}}"#] {
        assert!(Patch::parse(&value(body)).is_err(), "{body}");
    }
}

#[test]
fn more_than_ten_operations_are_refused() {
    let operations = |n: usize| format!("[{}]", vec![r#"{"op":"incr","path":"/n","value":1}"#; n].join(","));
    check("{}", &operations(10), r#"{"n":10}"#);
    refused("{}", &operations(11), "can't exceed '10'");
}

#[test]
fn add_creates_overwrites_inserts_and_appends() {
    check(r#"{"a":1}"#, r#"[{"op":"add","path":"/a","value":[]}]"#, r#"{"a":[]}"#);
    check(
        r#"{"a":[1,2]}"#,
        r#"[{"op":"add","path":"/a/1","value":9}]"#,
        r#"{"a":[1,9,2]}"#,
    );
    check(
        r#"{"a":[1,2]}"#,
        r#"[{"op":"add","path":"/a/2","value":9}]"#,
        r#"{"a":[1,2,9]}"#,
    );
    check(
        r#"{"a":[1,2]}"#,
        r#"[{"op":"add","path":"/a/-","value":null}]"#,
        r#"{"a":[1,2,null]}"#,
    );
    refused(
        r#"{"a":[1,2]}"#,
        r#"[{"op":"add","path":"/a/3","value":9}]"#,
        "Index(3) to operate on is out of array bounds",
    );
    refused(
        r#"{"a":[1,2]}"#,
        r#"[{"op":"add","path":"/a/01","value":9}]"#,
        "Index(01)",
    );
    refused(
        "{}",
        r#"[{"op":"add","path":"/a/b/c","value":9}]"#,
        "no path found beyond: '/'",
    );
    refused(
        r#"{"a":{}}"#,
        r#"[{"op":"add","path":"/a/b/c","value":9}]"#,
        "no path found beyond: '/a'",
    );
    refused(
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"/a/b","value":9}]"#,
        "no path found beyond: '/a'",
    );
}

#[test]
fn set_overwrites_elements_instead_of_inserting() {
    check(
        r#"{"a":[1,2]}"#,
        r#"[{"op":"set","path":"/a/1","value":9}]"#,
        r#"{"a":[1,9]}"#,
    );
    check(
        r#"{"a":[1]}"#,
        r#"[{"op":"set","path":"/b","value":{"c":1}},{"op":"set","path":"/b/d","value":2}]"#,
        r#"{"a":[1],"b":{"c":1,"d":2}}"#,
    );
    refused(
        r#"{"a":[1]}"#,
        r#"[{"op":"set","path":"/a/1","value":9}]"#,
        "out of array bounds",
    );
}

#[test]
fn replace_and_remove_need_an_existing_path() {
    check(
        r#"{"a":{"b":1}}"#,
        r#"[{"op":"replace","path":"/a/b","value":2}]"#,
        r#"{"a":{"b":2}}"#,
    );
    check(r#"{"a":[1,2]}"#, r#"[{"op":"remove","path":"/a/0"}]"#, r#"{"a":[2]}"#);
    check(r#"{"a":1,"b":2}"#, r#"[{"op":"remove","path":"/a"}]"#, r#"{"b":2}"#);
    refused(
        "{}",
        r#"[{"op":"replace","path":"/a","value":2}]"#,
        "For Operation(1): Node(/a) to be replaced is absent.",
    );
    refused(
        r#"{"a":1}"#,
        r#"[{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]"#,
        "For Operation(2): Node(/a) to be removed is absent.",
    );
    refused(
        r#"{"a":[1]}"#,
        r#"[{"op":"remove","path":"/a/1"}]"#,
        "out of array bounds",
    );
    refused(r#"{"a":[1]}"#, r#"[{"op":"remove","path":"/a/-"}]"#, "absent");
}

#[test]
fn increments_are_exact_for_integers_of_64_bits() {
    let add = |by: &str| format!(r#"[{{"op":"incr","path":"/n","value":{by}}}]"#);
    check(r#"{"n":9007199254740993}"#, &add("2"), r#"{"n":9007199254740995}"#);
    check(r#"{"n":1}"#, &add("-5"), r#"{"n":-4}"#);
    check(r#"{"n":1}"#, &add("0.5"), r#"{"n":1.5}"#);
    check(r#"{"n":1.5}"#, &add("0.5"), r#"{"n":2}"#);
    check(
        r#"{"n":9223372036854775807}"#,
        &add("1"),
        r#"{"n":9.2233720368547758e+018}"#,
    );
    check(
        r#"{"n":18446744073709551614}"#,
        &add("1"),
        r#"{"n":18446744073709551615}"#,
    );
    check("{}", &add("7"), r#"{"n":7}"#);
    check(
        r#"{"n":[4]}"#,
        r#"[{"op":"increment","path":"/n/0","value":1}]"#,
        r#"{"n":[5]}"#,
    );
    refused(r#"{"n":"1"}"#, &add("1"), "Node(/n) is not a number");
    refused(r#"{"n":1}"#, &add("\"1\""), "needs a number");
    refused(r#"{"n":1e308}"#, &add("1e308"), "out of range");
    refused(r#"{"n":[]}"#, r#"[{"op":"incr","path":"/n/-","value":1}]"#, "absent");
}

#[test]
fn move_takes_a_value_to_another_place() {
    check(
        r#"{"a":{"b":1},"c":2}"#,
        r#"[{"op":"move","from":"/a/b","path":"/c"}]"#,
        r#"{"a":{},"c":1}"#,
    );
    check(
        r#"{"a":[1,2,3]}"#,
        r#"[{"op":"move","from":"/a/0","path":"/a/2"}]"#,
        r#"{"a":[2,3,1]}"#,
    );
    check(r#"{"a":1}"#, r#"[{"op":"move","from":"/a","path":"/a"}]"#, r#"{"a":1}"#);
    refused("{}", r#"[{"op":"move","from":"/a","path":"/b"}]"#, "absent");
    refused(
        r#"{"a":{"b":1}}"#,
        r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
        "into its own child",
    );
    refused(
        r#"{"a":1}"#,
        r#"[{"op":"move","from":"/a","path":"/b/c"}]"#,
        "no path found",
    );
}

#[test]
fn pointers_unescape_and_must_be_well_formed() {
    check(
        r#"{"a/b":1,"c~d":2}"#,
        r#"[{"op":"set","path":"/a~1b","value":3},{"op":"remove","path":"/c~0d"}]"#,
        r#"{"a/b":3}"#,
    );
    check("{}", r#"[{"op":"add","path":"/~01","value":3}]"#, r#"{"~1":3}"#);
    for path in ["", "a", "/", "/a~2", "/a~"] {
        refused(
            "{}",
            &format!(r#"[{{"op":"add","path":"{path}","value":1}}]"#),
            "invalid path",
        );
    }
    for text in ["/a~1b/~0/0", "/x"] {
        assert_eq!(Pointer::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn system_properties_and_the_id_cannot_be_patched() {
    for path in ["/id", "/_ts", "/_etag", "/_rid", "/_self", "/_attachments", "/id/x"] {
        refused(
            r#"{"id":"1"}"#,
            &format!(r#"[{{"op":"set","path":"{path}","value":1}}]"#),
            "Cannot patch system property",
        );
        refused(
            r#"{"id":"1"}"#,
            &format!(r#"[{{"op":"move","path":"/x","from":"{path}"}}]"#),
            "Cannot patch system property",
        );
    }
    check(
        r#"{"a":{}}"#,
        r#"[{"op":"set","path":"/a/id","value":1}]"#,
        r#"{"a":{"id":1}}"#,
    );
}

#[test]
fn operations_with_missing_parts_are_refused() {
    for operation in [
        r#"{"path":"/a","value":1}"#,
        r#"{"op":"add","value":1}"#,
        r#"{"op":"add","path":"/a"}"#,
        r#"{"op":"copy","from":"/a","path":"/b"}"#,
        r#"{"op":"move","path":"/b"}"#,
        "7",
    ] {
        refused(
            r#"{"a":1}"#,
            &format!("[{operation}]"),
            "Invalid patch request: operation 1",
        );
    }
}

#[test]
fn a_patch_cannot_nest_an_item_deeper_than_one_could_be_sent() {
    let deep = format!("{}{}", "[".repeat(126), "]".repeat(126));
    let set = |path: &str| format!(r#"[{{"op":"set","path":"{path}","value":{deep}}}]"#);
    assert!(patched(r#"{"a":{"b":1}}"#, &set("/a/b")).is_ok());
    refused(r#"{"a":{"b":{"c":1}}}"#, &set("/a/b/c"), "nested more than");
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just("-".to_owned()),
        "[0-4]",
        "\\PC{0,3}"
    ]
}

fn json(depth: u32) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |double| double.is_finite())
            .prop_map(|double| Value::Number(Number::from_f64(double))),
        "[a-c]{0,2}".prop_map(|text| Value::from(text.as_str())),
    ];
    leaf.prop_recursive(depth, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec(("[ab]", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_panics_and_a_refused_one_changes_nothing(
        item in json(4),
        steps in prop::collection::vec(
            (prop::sample::select(vec!["add", "set", "replace", "remove", "incr", "move"]),
             prop::collection::vec(segment(), 1..4), prop::collection::vec(segment(), 1..4), json(2)),
            1..10),
    ) {
        let mut item: Object = [("a".to_owned(), item)].into_iter().collect();
        let before = item.clone();
        let operations = steps.into_iter().map(|(op, path, from, value)| {
            let members = [
                ("op", Value::from(op)),
                ("path", Value::from(format!("/{}", path.join("/")).as_str())),
                ("from", Value::from(format!("/{}", from.join("/")).as_str())),
                ("value", value),
            ];
            Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        });
        if let Ok(patch) = Patch::parse(&Value::Array(operations.collect())) {
            match patch.apply(&mut item) {
                Ok(()) => prop_assert!(parse_value(Value::Object(item).to_text().as_bytes()).is_ok()),
                Err(error) => {
                    prop_assert_eq!(error.status().code, 400);
                    prop_assert_eq!(item, before);
                }
            }
        }
    }
}
