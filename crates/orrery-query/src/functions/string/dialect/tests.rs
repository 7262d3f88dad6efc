//! What patterns mean after translation.

use regex::Regex;

use super::*;

fn matches(pattern: &str, text: &str) -> Option<bool> {
    let translated = translate(pattern)?;
    let regex = Regex::new(&translated.text).ok()?;
    let trimmed = text.strip_suffix('\n').filter(|_| translated.may_end_before_line_end);
    Some(regex.is_match(text) || trimmed.is_some_and(|text| regex.is_match(text)))
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
        assert_eq!(matches(pattern, text), Some(is_match), "{pattern} in {text:?}");
    }
}

#[test]
fn what_cannot_be_carried_out_is_refused() {
    for pattern in [
        "a++",
        "a*+",
        "a?+",
        "a{2}+",
        "a**",
        "a+*",
        "a??+",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        "(?R)",
        r"(a)\1",
        r"\k<a>",
        r"\Ga",
        r"\u0041",
        r"\y",
        "(*FAIL)",
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
        assert_eq!(matches(pattern, "a"), None, "{pattern}");
    }
}
