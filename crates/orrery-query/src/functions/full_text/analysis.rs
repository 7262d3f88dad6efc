//! Words: cut, folded, stemmed; and the terms looked for among them.

use orrery_model::Value;
use rust_stemmers::{Algorithm, Stemmer};

use super::stop_words::is_stop_word;

/// A language the analysis knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    English,
    German,
    French,
    Italian,
    Portuguese,
    Spanish,
}

impl Language {
    /// Reads a tag such as `en-US`, in exactly the service's spelling.
    pub fn parse(tag: &str) -> Option<Language> {
        Some(match tag {
            "en-US" => Language::English,
            "de-DE" => Language::German,
            "fr-FR" => Language::French,
            "it-IT" => Language::Italian,
            "pt-BR" | "pt-PT" => Language::Portuguese,
            "es-ES" => Language::Spanish,
            _ => return None,
        })
    }

    fn algorithm(self) -> Algorithm {
        match self {
            Language::English => Algorithm::English,
            Language::German => Algorithm::German,
            Language::French => Algorithm::French,
            Language::Italian => Algorithm::Italian,
            Language::Portuguese => Algorithm::Portuguese,
            Language::Spanish => Algorithm::Spanish,
        }
    }

    /// The words of a text in their order, without stop words.
    pub fn words(self, text: &str) -> Vec<String> {
        let stemmer = Stemmer::create(self.algorithm());
        text.split(|character: char| !character.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .filter(|word| self != Language::English || !is_stop_word(word))
            .map(|word| stemmer.stem(&word).into_owned())
            .collect()
    }
}

/// Something to look for: one word, or several in a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    words: Vec<String>,
    /// How many letters of a word may differ.
    distance: usize,
}

/// What comparing two words takes.
const WORD_WORK: usize = 8;
/// The most letters that may differ.
const DISTANCE_MAX: i64 = 2;

impl Term {
    /// A string, or `{"term": …, "distance": n}`.
    pub fn parse(language: Language, value: &Value) -> Option<Term> {
        let (text, distance) = match value {
            Value::String(text) => (text.as_str(), 0),
            Value::Object(object) => {
                let distance = object.get("distance").map_or(Some(0), |n| n.as_number()?.as_i64())?;
                (object.get("term")?.as_str()?, distance)
            }
            _ => return None,
        };
        let distance = usize::try_from(distance).ok().filter(|_| distance <= DISTANCE_MAX)?;
        Some(Term {
            words: language.words(text),
            distance,
        })
    }

    /// The words that a text with this term has; `None` when others will do.
    pub fn exact_words(&self) -> Option<&[String]> {
        (self.distance == 0).then_some(&self.words)
    }

    /// About how many rounds of a loop looking for it among words takes.
    pub fn work(&self, words: &[String]) -> usize {
        let n_bytes = |words: &[String]| words.iter().map(String::len).sum::<usize>();
        match self.distance {
            0 => words.len().saturating_mul(self.words.len()).saturating_mul(WORD_WORK),
            // Every letter may be compared with every other.
            _ => n_bytes(words).saturating_mul(n_bytes(&self.words)),
        }
    }

    /// How often the term stands in a text of these words.
    pub fn occurrences(&self, words: &[String]) -> usize {
        if self.words.is_empty() {
            return 0;
        }
        let fits = |window: &&[String]| {
            self.words
                .iter()
                .zip(*window)
                .all(|(wanted, word)| self.same(wanted, word))
        };
        words.windows(self.words.len()).filter(fits).count()
    }

    fn same(&self, wanted: &str, word: &str) -> bool {
        wanted == word || (self.distance > 0 && edits(wanted, word) <= self.distance)
    }
}

/// How many letters must be added, removed or changed to turn one word into the other.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
