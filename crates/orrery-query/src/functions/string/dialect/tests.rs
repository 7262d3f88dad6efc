//! What patterns mean after translation.

use crate::functions::string::engine::{NoPattern, Pattern};

fn matches(pattern: &str, text: &str) -> Result<bool, NoPattern> {
    let pattern = Pattern::compile(pattern, |_| true)?;
    let trimmed = text.strip_suffix('\n').filter(|_| pattern.may_end_before_line_end);
    let is_match = |text| pattern.is_match(text).unwrap();
    Ok(is_match(text) || trimmed.is_some_and(is_match))
}

#[test]
fn signs_mean_what_they_mean_in_pcre() {
    for (pattern, text, is_match) in [
        ("[a&&b]", "&", true),
        ("[a~~b]", "~", true),
        ("[[]", "[", true),
        ("[]a]", "]", true),
        ("[^]a]", "]", false),
        ("[a-]", "-", true),
        ("[-a]", "-", true),
        (r"[a-\d]", "-", true),
        (r"[a-\d]", "5", true),
        (r"[\d-z]", "-", true),
        (r"[\w.]", "é", false),
        (r"[\W]", "é", true),
        (r"[^\W]", "é", false),
        (r"[\]\\]", "\\", true),
        (r"[\b]", "\x08", true),
        ("[[:alpha:]]", "q", true),
        ("[[:^alpha:]]", "q", false),
        ("[[:x]", ":", true),
        (r"\d", "١", false),
        (r"\D", "١", true),
        (r"\w", "é", false),
        (r"\bcaf\b", "café", true),
        (r"\Ba", "ba", true),
        ("{", "{", true),
        ("a{", "a{", true),
        ("^a{,2}$", "a{,2}", true),
        ("^a{2,3}$", "aaa", true),
        ("a{1,2}?b", "aab", true),
        ("}]", "}]", true),
        ("c$", "abc\n", true),
        (r"c\Z", "abc\n", true),
        (r"c\z", "abc\n", false),
        ("c$", "abc\nd", false),
        ("(?m)c$", "abc\nd", true),
        (r"\Qa.c\E+", "a.ccc", true),
        (r"\Qa.c\E", "abc", false),
        (r"[\Q^]\E]", "]", true),
        (r"\h\v\R", "\t\n\r\n", true),
        (r"\x41\x{42}\012\cA\e", "AB\n\x01\x1B", true),
        (r"\<a\>", "<a>", true),
        (r"^\p{Lu}\PL\p{^L}$", "É12", true),
        ("(?x) a b # and c\n [ c] ", "ab ", true),
        ("(?x)a (?-x) b", "a b", true),
        ("(?x: a ) b", "a b", true),
        ("(?ix)A b", "aB", true),
        ("a(?#not this)+b", "aab", true),
        ("(?'x'a)(?P<y>b)(?<z>c)", "abc", true),
        ("a|b*", "", true),
        (r"[\x41-\x43]", "B", true),
        ("é+[à-ü]", "éé", true),
    ] {
        assert_eq!(matches(pattern, text), Ok(is_match), "{pattern} in {text:?}");
    }
}

#[test]
fn patterns_look_around_and_refer_back() {
    for (pattern, text, is_match) in [
        ("a(?=b)", "ab", true),
        ("a(?=b)", "ac", false),
        ("a(?!b)", "ab", false),
        ("(?<=a)b", "ab", true),
        ("(?<!a)b", "ab", false),
        (r"^(?=.*\d)(?=.*[a-z]).{4,}$", "abc1", true),
        (r"^(?=.*\d)(?=.*[a-z]).{4,}$", "abcd", false),
        (r"^(?=.*\d).*$", "a1\n", true),
        (r"(a)(b)\2\1", "abba", true),
        (r"(a)(b)\2\1", "abab", false),
        (r"^(a)\11$", "aa1", false),
        (r"(?i)(a)\1", "aA", true),
        (r"(?<q>['\x22]).*\k<q>", "'it'", true),
        (r"(?P<q>x)(?P=q)", "xx", true),
        (r"(?'q'x)\k{q}\k'q'", "xxx", true),
        (r"(a)(b)\g{-1}\g1\g{2}", "abbab", true),
        ("^a++a$", "aaa", false),
        ("^a++b$", "aaab", true),
        ("a{2}+a", "aaa", true),
        ("^a*+a", "aaa", false),
        ("(?>a+)a", "aaa", false),
        ("(?>a|ab)c", "abc", false),
        (r"\bcaf\b(?!x)", "café", true),
        (r"(?=x)\Bx", "yx", true),
        (r"(?=x)\Bx", " x", false),
        (r"(?=.)[\w.]", "é", false),
        (r"(?x) (?= a ) a # b", "a", true),
        (r"[\101]", "A", true),
        (r"\12", "\n", true),
        (r"\Ga", "ba", false),
        (r"a\Kb", "ab", true),
    ] {
        assert_eq!(matches(pattern, text), Ok(is_match), "{pattern} in {text:?}");
    }
}

#[test]
fn what_only_pcre_can_carry_out_is_told_from_what_is_no_pattern() {
    for pattern in [
        "(?R)",
        "(a)(?1)",
        "(a)(?-1)",
        "(?<n>a)(?&n)",
        "(?|a|b)",
        "(a)?(?(1)b|c)",
        "(*FAIL)",
        r"\X",
        r"(a)\g<1>",
    ] {
        assert_eq!(matches(pattern, "a"), Err(NoPattern::Unsupported), "{pattern}");
    }
    assert_eq!(matches("(?:(?:a{999}){999}){999}", "a"), Err(NoPattern::TooLarge));
}

#[test]
fn what_goes_back_without_end_gives_up() {
    let pattern = Pattern::compile(r"^(?:(?=a)a+)+$", |_| true).unwrap();
    let text = format!("{}b", "a".repeat(40));
    assert!(pattern.is_match(&text).is_err());
}

#[test]
fn what_is_no_pattern_is_refused() {
    for pattern in [
        "a**",
        "a+*",
        "a??+",
        r"\k<a>",
        r"\1",
        r"\g{2}",
        r"(a)\g{-2}",
        "(?<=a",
        "(?<1>a)",
        r"\u0041",
        r"\y",
        "[a",
        "[",
        "(",
        ")",
        "*",
        "a|*",
        "(?",
        "(?i",
        r"\",
        r"\x{110000}",
        "[b-a]",
        "[a--z]",
        r"[\R]",
        "(?y)a",
    ] {
        assert_eq!(matches(pattern, "a"), Err(NoPattern::Invalid), "{pattern}");
    }
}

#[test]
fn a_pattern_that_may_not_take_so_long_is_not_compiled() {
    let asked = std::cell::RefCell::new(Vec::new());
    let large = r"\w{2000}";
    let compiled = Pattern::compile(large, |work| {
        asked.borrow_mut().push(work);
        asked.borrow().len() < 2
    });
    assert_eq!(compiled.err(), Some(NoPattern::TooLarge));
    assert_eq!(asked.borrow().len(), 2, "{asked:?}");
}
