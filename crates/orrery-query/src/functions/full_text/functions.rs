//! The full-text functions. The first argument is the language that planning chose, the second the text.

use orrery_model::Value;

use super::analysis::{Language, Term};
use super::score::{Statistics, relevance};
use crate::functions::arguments::{Arguments, boolean, double, integer};
use crate::functions::registry::{Table, at_least, exactly};

pub(in crate::functions) fn register(table: &mut Table) {
    table.scalar("FULLTEXTCONTAINS", exactly(2), |arguments| contains(arguments, false));
    table.alias("FULLTEXT_CONTAINS", "FULLTEXTCONTAINS");
    table.scalar("FULLTEXTCONTAINSALL", at_least(2), |arguments| {
        contains(arguments, false)
    });
    table.alias("FULLTEXT_CONTAINS_ALL", "FULLTEXTCONTAINSALL");
    table.scalar("FULLTEXTCONTAINSANY", at_least(2), |arguments| {
        contains(arguments, true)
    });
    table.alias("FULLTEXT_CONTAINS_ANY", "FULLTEXTCONTAINSANY");
    table.scalar("_FULLTEXTWORDCOUNT", exactly(1), |arguments| {
        integer(words(arguments)?.1.len() as i64)
    });
    table.scalar("_FULLTEXTSCORE", exactly(5), score);
}

fn words(arguments: &Arguments<'_>) -> Option<(Language, Vec<String>)> {
    let language = Language::parse(arguments.string(0)?)?;
    Some((language, language.words(arguments.string(1)?)))
}

/// Whether all of the terms, or any, stand in the text.
fn contains(arguments: &Arguments<'_>, any: bool) -> Option<Value> {
    let (language, words) = words(arguments)?;
    let mut found_all = true;
    let mut found_any = false;
    for index in 2..arguments.len() {
        let term = Term::parse(language, arguments.get(index)?)?;
        arguments.environment.allow_work(&[term.work(&words)])?;
        let found = term.occurrences(&words) > 0;
        found_all &= found;
        found_any |= found;
    }
    boolean(if any { found_any } else { found_all })
}

/// The text's relevance, given statistics over all texts.
fn score(arguments: &Arguments<'_>) -> Option<Value> {
    let (language, words) = words(arguments)?;
    let terms = arguments
        .array(2)?
        .iter()
        .map(|term| Term::parse(language, term))
        .collect::<Option<Vec<_>>>()?;
    let work = terms
        .iter()
        .map(|term| term.work(&words))
        .fold(0, usize::saturating_add);
    arguments.environment.allow_work(&[work])?;
    let hits = arguments
        .array(5)?
        .iter()
        .map(|n| n.as_number().map(|n| n.to_f64()))
        .collect::<Option<Vec<_>>>()?;
    let statistics = Statistics {
        n_documents: arguments.double(3)?,
        n_words: arguments.double(4)?,
        hits,
    };
    double(relevance(&words, &terms, &statistics))
}
