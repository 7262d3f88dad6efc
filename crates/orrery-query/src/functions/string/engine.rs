//! Patterns that have been compiled, by one of two engines: one that takes a bounded time for each byte of a text, and one that tries
//! and goes back, for patterns that need it. The latter gives up after so many steps.

use orrery_model::Value;
use regex::Regex;

use super::dialect::{self, Refused, Translated};
use crate::functions::arguments::VALUE_BYTES_MAX;

/// More matches than these do not fit into a value.
const MATCHES_MAX: usize = VALUE_BYTES_MAX / size_of::<Value>();

/// Sizes that a compiled regular expression may have, and what a byte of text then takes at worst: with states too many to
/// be remembered, every byte is looked at once for each of them.
const SIZES: [(usize, usize); 3] = [(1 << 14, 1 << 8), (1 << 17, 1 << 11), (1 << 20, 1 << 14)];
/// What compiling takes, for each byte of the result.
const COMPILING_WORK: usize = 4;

/// Of the engine that goes back: how often, and how many instructions a pattern may come to. Each of its parts that need not go back has
/// the smallest of the sizes above.
const STEPS_MAX: usize = 100_000;
const INSTRUCTIONS_MAX: usize = 10_000;
/// What it takes at worst where it does not go back for good: every part of a text is looked at from every place before it.
const PLACE_WORK: usize = 4;
const PLACES_MIN: usize = 64;

/// A search took more steps than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// Why there is no compiled pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPattern {
    Invalid,
    Unsupported,
    TooLarge,
}

#[derive(Debug)]
pub(crate) struct Pattern {
    engine: Engine,
    pub may_end_before_line_end: bool,
}

#[derive(Debug)]
enum Engine {
    Steady { regex: Regex, byte_work: usize },
    GoingBack(Box<fancy_regex::Regex>),
}

impl Pattern {
    /// Compiles a pattern, and asks before each attempt whether it may take so much.
    pub fn compile(pattern: &str, may_take: impl Fn(usize) -> bool) -> Result<Pattern, NoPattern> {
        let translated = dialect::translate(pattern).map_err(|refused| match refused {
            Refused::Invalid => NoPattern::Invalid,
            Refused::Unsupported => NoPattern::Unsupported,
        })?;
        let engine = match translated.goes_back {
            true => going_back(&translated, may_take)?,
            false => steady(&translated, may_take)?,
        };
        Ok(Pattern {
            engine,
            may_end_before_line_end: translated.may_end_before_line_end,
        })
    }

    /// What a search through a text may take.
    pub fn work(&self, text: &str) -> [usize; 2] {
        match &self.engine {
            Engine::Steady { byte_work, .. } => [text.len(), *byte_work],
            Engine::GoingBack(_) => [text.len(), text.len().max(PLACES_MIN).saturating_mul(PLACE_WORK)],
        }
    }

    pub fn is_match(&self, text: &str) -> Result<bool, Exhausted> {
        match &self.engine {
            Engine::Steady { regex, .. } => Ok(regex.is_match(text)),
            Engine::GoingBack(regex) => regex.is_match(text).map_err(exhausted),
        }
    }

    /// A group of the first match; 0 is the whole match.
    pub fn find<'t>(&self, text: &'t str, group: usize) -> Result<Option<&'t str>, Exhausted> {
        match &self.engine {
            Engine::Steady { regex, .. } => {
                let found = match group {
                    0 => regex.find(text),
                    _ => regex.captures(text).and_then(|found| found.get(group)),
                };
                Ok(found.map(|found| found.as_str()))
            }
            Engine::GoingBack(regex) => {
                let found = regex.captures(text).map_err(exhausted)?;
                Ok(found.and_then(|found| found.get(group)).map(|found| found.as_str()))
            }
        }
    }

    /// The same of all matches, up to one more than fit into a value.
    pub fn find_all<'t>(&self, text: &'t str, group: usize) -> Result<Vec<&'t str>, Exhausted> {
        let n_max = MATCHES_MAX + 1;
        match &self.engine {
            Engine::Steady { regex, .. } if group == 0 => {
                let all = regex.find_iter(text).take(n_max);
                Ok(all.map(|found| found.as_str()).collect())
            }
            Engine::Steady { regex, .. } => {
                let all = regex.captures_iter(text).take(n_max);
                Ok(all
                    .filter_map(|found| found.get(group))
                    .map(|found| found.as_str())
                    .collect())
            }
            Engine::GoingBack(regex) => {
                let mut all = Vec::new();
                for found in regex.captures_iter(text).take(n_max) {
                    all.extend(found.map_err(exhausted)?.get(group).map(|found| found.as_str()));
                }
                Ok(all)
            }
        }
    }
}

fn exhausted(_: fancy_regex::Error) -> Exhausted {
    Exhausted
}

fn steady(translated: &Translated, may_take: impl Fn(usize) -> bool) -> Result<Engine, NoPattern> {
    for (size, byte_work) in SIZES {
        if !may_take(size * COMPILING_WORK) {
            break;
        }
        let built = regex::RegexBuilder::new(&translated.text)
            .size_limit(size)
            .dfa_size_limit(1 << 20)
            .build();
        match built {
            Ok(regex) => return Ok(Engine::Steady { regex, byte_work }),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => return Err(NoPattern::Invalid),
        }
    }
    Err(NoPattern::TooLarge)
}

fn going_back(translated: &Translated, may_take: impl Fn(usize) -> bool) -> Result<Engine, NoPattern> {
    use fancy_regex::{CompileError, Error, ParseError};
    let (size, _) = SIZES[0];
    if !may_take(size * COMPILING_WORK) {
        return Err(NoPattern::TooLarge);
    }
    let built = fancy_regex::RegexBuilder::new(&translated.text)
        .backtrack_limit(STEPS_MAX)
        .max_prog_size(INSTRUCTIONS_MAX)
        .delegate_size_limit(size)
        .delegate_dfa_size_limit(1 << 20)
        .build();
    built
        .map(|regex| Engine::GoingBack(Box::new(regex)))
        .map_err(|error| match error {
            Error::ParseError(_, ParseError::RecursionExceeded) => NoPattern::TooLarge,
            Error::CompileError(error) => match *error {
                CompileError::InnerError(error) if error.size_limit().is_some() => NoPattern::TooLarge,
                CompileError::PatternTooComplex => NoPattern::TooLarge,
                CompileError::FeatureNotYetSupported(_) => NoPattern::Unsupported,
                _ => NoPattern::Invalid,
            },
            _ => NoPattern::Invalid,
        })
}
