//! Properties of the parser that examples cannot show: it never panics, it is bounded, and printing loses nothing.

use proptest::prelude::*;

use super::*;

/// Words and symbols of the language, and some that are not.
const PIECES: &[&str] = &[
    "SELECT",
    "VALUE",
    "DISTINCT",
    "TOP",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "RANK",
    "OFFSET",
    "LIMIT",
    "JOIN",
    "IN",
    "NOT",
    "AND",
    "OR",
    "LIKE",
    "ESCAPE",
    "BETWEEN",
    "EXISTS",
    "ARRAY",
    "ALL",
    "FIRST",
    "LET",
    "AS",
    "ASC",
    "DESC",
    "udf",
    "c",
    "x",
    "COUNT",
    "LEFT",
    "@p",
    "1",
    "2.5",
    "0x1f",
    "1e5",
    "'a'",
    "\"b\\u0041\"",
    "true",
    "null",
    "undefined",
    "*",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    ":",
    "?",
    "??",
    "||",
    "+",
    "-",
    "/",
    "%",
    "&",
    "|",
    "^",
    "~",
    "=",
    "!=",
    "<",
    ">=",
    "<<",
    ">>>",
    "-- comment\n",
    ";",
    "é",
];

/// Expressions that are well-formed by construction.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "c",
        "c.a",
        "c[\"b c\"]",
        "c.d[0]",
        "1",
        "2.5",
        "'s'",
        "@p",
        "true",
        "null",
        "undefined",
        "[]",
        "{}",
    ])
    .prop_map(str::to_owned);
    let binary = [
        "+", "-", "*", "/", "%", "&", "|", "^", "||", "=", "!=", "<", ">=", "<<", ">>>", "AND", "OR", "??",
    ];
    leaf.prop_recursive(5, 60, 3, move |inner| {
        prop_oneof![
            (inner.clone(), prop::sample::select(binary.to_vec()), inner.clone())
                .prop_map(|(a, operator, b)| format!("({a}) {operator} ({b})")),
            (inner.clone(), prop::sample::select(vec!["-", "+", "~", "NOT "]))
                .prop_map(|(a, sign)| format!("{sign}({a})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a}) ? ({b}) : ({c})")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("(({a}) NOT BETWEEN ({b}) AND ({c}))")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(({a}) IN (1, {b}))")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(({a}) LIKE ({b}) ESCAPE '!')")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{\"k\": {a}, other: {b}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("f({a}, {b})")),
            inner.clone().prop_map(|a| format!("({a}).m[({a})]")),
            inner
                .clone()
                .prop_map(|a| format!("EXISTS(SELECT VALUE {a} FROM x IN c.y)")),
            inner
                .clone()
                .prop_map(|a| format!("(SELECT DISTINCT {a} AS q FROM c GROUP BY {a})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text_is_accepted_or_refused_but_never_a_panic(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        let text = pieces.join(" ");
        if let Ok(statement) = parse(&text) {
            let printed = print(&statement);
            prop_assert_eq!(parse(&printed).map_err(|error| error.inner()), Ok(statement), "{}", printed);
        }
    }

    #[test]
    fn any_bytes_are_accepted_or_refused_but_never_a_panic(text in "\\PC{0,80}") {
        let _ = parse(&text);
        let _ = parse(&format!("SELECT {text} FROM c"));
    }

    #[test]
    fn what_is_printed_parses_to_the_same_tree(value in expression(), filter in expression()) {
        let text = format!("SELECT TOP 3 {value} AS v FROM c JOIN x IN c.list WHERE {filter} ORDER BY c.a DESC");
        let statement = parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        let printed = print(&statement);
        prop_assert_eq!(parse(&printed).map_err(|error| error.inner()), Ok(statement), "{}", printed);
    }
}

#[test]
fn a_literal_beyond_all_doubles_is_printed_as_one() {
    let statement = parse("SELECT TOP 9e999 VALUE -1e3085 FROM c").unwrap();
    let printed = print(&statement);
    assert_eq!(parse(&printed).unwrap(), statement, "{printed}");
}

fn wrapped(open: &str, inner: &str, close: &str, times: usize) -> String {
    format!("SELECT VALUE {}{inner}{}", open.repeat(times), close.repeat(times))
}

#[test]
fn long_chains_need_no_depth() {
    let terms: Vec<String> = (0..20_000).map(|n| format!("c.x = {n}")).collect();
    let statement = parse(&format!("SELECT * FROM c WHERE {}", terms.join(" OR "))).unwrap();
    // The printed form has one opening parenthesis per term, all in a row.
    assert_eq!(parse(&print(&statement)).unwrap(), statement);
}

#[test]
fn redundant_parentheses_need_no_depth() {
    let text = wrapped("(", "1", ")", 50_000);
    assert_eq!(parse(&text).unwrap(), parse("SELECT VALUE 1").unwrap());
}

#[test]
fn deep_nesting_is_refused_and_not_a_crash() {
    for (open, close) in [
        ("[", "]"),
        ("{a: ", "}"),
        ("f(", ")"),
        ("- ", ""),
        ("NOT ", ""),
        ("1 + (2 * ", ")"),
        ("(SELECT VALUE ", ")"),
        ("EXISTS(SELECT VALUE ", ")"),
        ("true ? 1 : ", ""),
        ("c[", "]"),
        ("1 ?? (true ? ", " : 2)"),
    ] {
        let error = parse(&wrapped(open, "1", close, 10_000)).unwrap_err().inner();
        assert!(error.contains("nested too deeply"), "{open}: {error}");
    }
    // Alternating levels of precedence make a deep tree out of leading parentheses.
    let alternating = format!("SELECT VALUE {}1{}", "(".repeat(10_000), " + 1) * 2".repeat(10_000));
    assert!(parse(&alternating).unwrap_err().inner().contains("nested too deeply"));
}

#[test]
fn texts_that_are_too_long_are_refused() {
    let text = format!("SELECT VALUE \"{}\"", "x".repeat(TEXT_UNITS_MAX));
    assert!(
        parse(&text)
            .unwrap_err()
            .inner()
            .contains("exceeded the maximum limit of 524288 characters")
    );
}

#[test]
fn the_layout_is_the_services() {
    let statement =
        parse("select distinct top 5 c.a b, 'x' from root c join t in c.t where c.a>-1 and not c.b group by c.a")
            .unwrap();
    let wanted = "SELECT DISTINCT TOP 5 c.a AS b, \"x\"\nFROM root AS c\nJOIN t IN c.t\nWHERE ((c.a > -1) AND (NOT c.b))\nGROUP BY c.a";
    assert_eq!(print(&statement), wanted);
}

#[test]
fn a_word_run_into_the_next_becomes_an_alias() {
    let statement = parse("SELECT c.aFROM c").unwrap();
    assert_eq!(print(&statement), "SELECT c.aFROM AS c");
}
