//! The parser against `serde_json`: both accept the same texts and mean the same values.
//!
//! Two differences are wanted. A lone surrogate escape is stored as U+FFFD, which `serde_json` refuses. Nesting is allowed
//! to exactly [`DEPTH_MAX`] levels, which `serde_json` ends a level earlier.

use proptest::prelude::*;

use super::parse::DEPTH_MAX;
use super::*;

fn blanks() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\t\r\n ")]
}

fn number_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|int| int.to_string()),
        any::<u64>().prop_map(|uint| uint.to_string()),
        any::<f64>()
            .prop_filter("finite", |double| double.is_finite())
            .prop_map(|double| format!("{double:e}")),
        "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        prop::sample::select(vec![
            "-0",
            "-0.0",
            "1e308",
            "1e309",
            "5e-324",
            "1e-400",
            "9007199254740993",
            "0.1e1"
        ])
        .prop_map(str::to_owned),
    ]
}

fn string_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z ]{0,6}",
        "[^\"\\\\\\x00-\\x1f]{0,4}",
        prop::sample::select(vec![
            "\\n",
            "\\/",
            "\\\"",
            "\\\\",
            "\\b",
            "\\f",
            "\\r",
            "\\t",
            "\\u0041",
            "\\u0000",
            "\\ud83d\\ude00"
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn json_text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec!["null", "true", "false"]).prop_map(str::to_owned);
    let leaf = prop_oneof![word, number_text(), string_text()];
    leaf.prop_recursive(6, 48, 6, |inner| {
        let spaced = (blanks(), inner, blanks())
            .prop_map(|(before, text, after)| format!("{before}{text}{after}"))
            .boxed();
        let member = (blanks(), string_text(), blanks(), spaced.clone())
            .prop_map(|(before, name, after, value)| format!("{before}{name}{after}:{value}"));
        // Few names, so that some repeat.
        let repeated = ("[ab]", spaced.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(spaced, 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(","))),
            prop::collection::vec(repeated, 0..6).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

/// Equal in structure, member order and value; zeros of either sign are one number here.
fn same(ours: &Value, theirs: &serde_json::Value) -> bool {
    use serde_json::Value as Theirs;
    match (ours, theirs) {
        (Value::Null, Theirs::Null) => true,
        (Value::Bool(a), Theirs::Bool(b)) => a == b,
        (Value::String(a), Theirs::String(b)) => a == b,
        (Value::Number(a), Theirs::Number(b)) => match (b.as_i64(), b.as_u64()) {
            (Some(int), _) => *a == Number::from(int),
            (None, Some(uint)) => *a == Number::from(uint),
            (None, None) => Some(a.to_f64()) == b.as_f64(),
        },
        (Value::Array(a), Theirs::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Theirs::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|((name, a), (other, b))| name == other && same(a, b))
        }
        _ => false,
    }
}

fn has_lone_surrogate(text: &[u8]) -> bool {
    let lower = text.to_ascii_lowercase();
    lower
        .windows(4)
        .any(|window| window.starts_with(b"\\ud") && (b'8'..=b'f').contains(&window[3]))
}

/// Both refuse, or both accept and agree; what we print reads back in both and prints alike.
fn check(text: &[u8]) -> Result<(), TestCaseError> {
    let ours = parse(text);
    let theirs = serde_json::from_slice::<serde_json::Value>(text);
    match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => {
            prop_assert!(same(&ours.value, theirs), "{:?} is not {}", ours.value, theirs);
            let printed = ours.value.to_text();
            // The parser may miss that a text was canonical, never the other way round.
            prop_assert!(!ours.canonical || printed.as_bytes() == text);
            let read: serde_json::Value = serde_json::from_str(&printed).unwrap();
            prop_assert!(same(&ours.value, &read), "{printed}");
            let again = parse(printed.as_bytes()).unwrap();
            prop_assert_eq!(&again.value, &ours.value);
            prop_assert_eq!(again.value.to_text(), printed);
        }
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) => {
            let depth = error.to_string().contains("recursion limit");
            prop_assert!(
                depth || has_lone_surrogate(text),
                "only we accept {:?}",
                String::from_utf8_lossy(text)
            );
        }
        (Err(error), Ok(_)) => prop_assert!(false, "we refuse {:?}: {error}", String::from_utf8_lossy(text)),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn well_formed_texts_mean_the_same_to_both(text in json_text()) {
        check(text.as_bytes())?;
    }

    #[test]
    fn damaged_texts_are_accepted_by_both_or_neither(
        text in json_text(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..4),
    ) {
        let mut bytes = text.into_bytes();
        for (at, byte, how) in damage {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\"\\{}[],:0e-.u"[usize::from(byte) % 13]),
            }
        }
        check(&bytes)?;
    }

    #[test]
    fn arbitrary_bytes_are_accepted_by_both_or_neither(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        check(&bytes)?;
    }
}

#[test]
fn the_wanted_differences_are_these() {
    for text in [r#""\ud800""#, r#""\udc00x""#, r#""\ud800\ud800""#, r#""\ud800\n""#] {
        assert!(
            parse(text.as_bytes()).is_ok() && serde_json::from_str::<serde_json::Value>(text).is_err(),
            "{text}"
        );
    }
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse(deep(DEPTH_MAX).as_bytes()).is_ok());
    assert!(serde_json::from_str::<serde_json::Value>(&deep(DEPTH_MAX)).is_err());
    assert!(serde_json::from_str::<serde_json::Value>(&deep(DEPTH_MAX - 1)).is_ok());
}
