//! Texts are found by their words, which items and searches come by through the analysis of the full-text functions.

use std::collections::BTreeSet;

use super::condition::{Analysis, Condition, place};
use super::path::Aspect;
use super::range::TermRange;
use crate::functions::full_text::{Language, Term};
use crate::plan::Expr;
use orrery_model::Value;

/// The words of a text, each once.
pub(super) fn of_text(language: &str, text: &str) -> BTreeSet<String> {
    let words = Language::parse(language).map(|language| language.words(text));
    words.into_iter().flatten().collect()
}

/// What items have for which a full-text function is true: the words of the terms it looks for, which `together` joins. The
/// arguments are language, text and terms.
pub(super) fn condition(
    analysis: &Analysis<'_>,
    arguments: &[Expr],
    together: fn(Vec<Condition>) -> Condition,
) -> Condition {
    let [language, text, terms @ ..] = arguments else {
        return Condition::Any;
    };
    let (Some(Value::String(tag)), Some(path)) = (language.constant(), analysis.path(text)) else {
        return Condition::Any;
    };
    let Some(language) = Language::parse(tag).filter(|_| analysis.rules.has_words(place(analysis.rules, &path), tag))
    else {
        return Condition::Any;
    };
    let path = path.seen_as(Aspect::Words(tag.clone()));
    let mut parts = Vec::new();
    for term in terms {
        let Some(value) = analysis.constant(term) else {
            return Condition::Any;
        };
        // With a term that is none the whole call is undefined.
        let Some(term) = value.and_then(|value| Term::parse(language, &value)) else {
            return Condition::Never;
        };
        parts.push(match term.exact_words() {
            None => Condition::Any,
            Some([]) => Condition::Never,
            Some(words) => Condition::all(
                words
                    .iter()
                    .map(|word| Condition::Range(TermRange::equal(&path, &Value::String(word.clone()))))
                    .collect(),
            ),
        });
    }
    together(parts)
}
