//! Relevance: BM25.

use super::analysis::Term;

/// How quickly further occurrences of a term stop to matter.
const SATURATION: f64 = 1.2;
/// How much long texts are held against.
const LENGTH_WEIGHT: f64 = 0.75;

/// What is known about all texts together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Statistics {
    pub n_documents: f64,
    pub n_words: f64,
    /// In how many texts each term stands.
    pub hits: Vec<f64>,
}

/// How relevant a text of these words is for the terms.
pub(crate) fn relevance(words: &[String], terms: &[Term], statistics: &Statistics) -> f64 {
    let average = statistics.n_words / statistics.n_documents.max(1.0);
    let length = if average > 0.0 {
        words.len() as f64 / average
    } else {
        0.0
    };
    let norm = SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * length);
    let one = |(term, hits): (&Term, &f64)| {
        let frequency = term.occurrences(words) as f64;
        let rarity = (1.0 + (statistics.n_documents - hits + 0.5) / (hits + 0.5)).ln();
        rarity * frequency * (SATURATION + 1.0) / (frequency + norm)
    };
    terms
        .iter()
        .zip(&statistics.hits)
        .filter(|(_, hits)| **hits > 0.0)
        .map(one)
        .sum()
}
