use super::*;

fn canonical(text: &str) -> String {
    parse_value(text.as_bytes()).unwrap().to_text()
}

#[test]
fn integers_of_64_bits_stay_exact() {
    for text in [
        "0",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
    ] {
        assert_eq!(canonical(text), text);
    }
}

#[test]
fn doubles_print_as_the_service_prints_them() {
    for (text, printed) in [
        ("1.0", "1"),
        ("-0.0", "0"),
        ("-0", "0"),
        ("1e-400", "0"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("0.3333333333333333", "0.33333333333333331"),
        ("18446744073709551616", "1.8446744073709552e+019"),
        ("1e300", "1e+300"),
        ("5e-324", "4.94065645841247e-324"),
        ("-1.5", "-1.5"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-005"),
        ("123456789012345.5", "123456789012345.5"),
        ("123456.789", "123456.789"),
    ] {
        assert_eq!(canonical(text), printed, "{text}");
    }
}

#[test]
fn a_number_beyond_double_range_is_refused() {
    assert!(parse_value(b"1e400").is_err());
    assert!(parse_value(b"NaN").is_err());
}

#[test]
fn the_last_of_two_equal_names_wins_in_the_first_place() {
    assert_eq!(canonical(r#"{"a":1,"b":2,"a":3}"#), r#"{"a":3,"b":2}"#);
    let many: String = (0..100).map(|n| format!("\"k{n}\":{n},")).collect();
    let text = format!("{{{many}\"k5\":-1}}");
    assert_eq!(parse_value(text.as_bytes()).unwrap().get("k5"), Some(&Value::from(-1)));
}

#[test]
fn a_lone_surrogate_becomes_the_replacement_character() {
    assert_eq!(canonical(r#""\ud800x""#), "\"\u{fffd}x\"");
    assert_eq!(canonical(r#""\ud83d\ude00""#), "\"\u{1f600}\"");
}

#[test]
fn nesting_is_bounded() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse_value(deep(128).as_bytes()).is_ok());
    assert!(parse_value(deep(129).as_bytes()).is_err());
    assert!(parse_value("[".repeat(5_000_000).as_bytes()).is_err());
}

#[test]
fn malformed_texts_are_refused() {
    for text in [
        "",
        "{",
        "[1,]",
        "{\"a\"}",
        "{a:1}",
        "01",
        "1.",
        "+1",
        "tru",
        "\"\\x\"",
        "\"\u{1}\"",
        "1 2",
        "[1}",
    ] {
        assert!(parse_value(text.as_bytes()).is_err(), "{text}");
    }
    assert!(parse_value(&[b'"', 0xff, b'"']).is_err());
}

#[test]
fn canonical_means_printing_gives_the_same_bytes() {
    for text in [
        r#"{"a":[1,2.5,"x\n"],"b":null}"#,
        r#"{"a": 1}"#,
        "1.0",
        r#""\u0041""#,
        r#"{"a":1,"a":2}"#,
        "-0",
    ] {
        let parsed = parse(text.as_bytes()).unwrap();
        assert_eq!(parsed.canonical, parsed.value.to_text() == text, "{text}");
    }
}

#[test]
fn integers_and_doubles_compare_by_exact_value() {
    use std::cmp::Ordering::*;
    let number = |text: &str| parse_value(text.as_bytes()).unwrap().as_number().unwrap();
    for (a, b, order) in [
        ("9223372036854775807", "9223372036854775808", Less),
        ("1.5", "1", Greater),
        ("-1.5", "-1", Less),
        ("1e300", "18446744073709551615", Greater),
        ("-1e300", "-9223372036854775808", Less),
        ("18446744073709551616", "18446744073709551615", Greater),
        ("2", "2.0", Equal),
    ] {
        assert_eq!(number(a).compare(number(b)), order, "{a} {b}");
        assert_eq!(number(b).compare(number(a)), order.reverse(), "{b} {a}");
    }
}
