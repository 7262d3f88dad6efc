//! Ranked results: every item is scored in several ways, and the places it gets are fused.
//!
//! Text scores depend on all items, matching or not, so scores exist only after the last item has been read.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::ControlFlow;

use orrery_model::Value;

use super::cursor::Cursor;
use super::evaluate::Evaluator;
use super::frame::Frame;
use super::item::{Ready, Row};
use super::resume::SortPosition;
use super::sort::SortedRow;
use crate::error::Result;
use crate::functions::full_text::{Statistics, relevance};
use crate::parse::ast::Direction;
use crate::plan::{Plan, Ranking, Score};

/// The constant of reciprocal rank fusion.
const FUSION: f64 = 60.0;

/// A row that will be in the result, and what its scores need.
struct Candidate {
    rank: u64,
    row: Row,
    measures: Vec<Measure>,
}

enum Measure {
    Words(Vec<String>),
    Distance(f64),
    Missing,
}

pub(super) fn ranked(
    plan: &Plan,
    ranking: &Ranking,
    cursor: &mut dyn Cursor,
    evaluator: &Evaluator<'_>,
) -> Result<Vec<SortedRow>> {
    let mut candidates = Vec::new();
    let mut statistics: Vec<Statistics> = ranking.scores.iter().map(empty_statistics).collect();
    let block = &plan.block;
    while let Some(item) = cursor.next()? {
        evaluator.meter.item()?;
        let item = Ready::new(plan, item)?;
        _ = evaluator.bind(&block.sources, &item.frame(), &mut |inner| {
            let measures = measure(ranking, &mut statistics, evaluator, inner)?;
            let passes = match &block.filter {
                Some(filter) => evaluator.truth(filter, inner)? == Some(true),
                None => true,
            };
            let row = if passes {
                item.row(plan, evaluator, inner)?
            } else {
                None
            };
            if let Some(row) = row {
                evaluator
                    .meter
                    .hold(row.size_bytes() + measures.iter().map(Measure::bytes).sum::<usize>())?;
                candidates.push(Candidate {
                    rank: item.rank,
                    row,
                    measures,
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(fuse(ranking, &statistics, candidates))
}

impl Measure {
    fn bytes(&self) -> usize {
        match self {
            Measure::Words(words) => words.iter().map(|word| size_of::<String>() + word.len()).sum(),
            Measure::Distance(_) | Measure::Missing => 0,
        }
    }
}

fn empty_statistics(score: &Score) -> Statistics {
    match score {
        Score::FullText { terms, .. } => Statistics {
            hits: vec![0.0; terms.len()],
            ..Statistics::default()
        },
        Score::Vector { .. } => Statistics::default(),
    }
}

/// Looks at one item, and adds what it has to the statistics.
fn measure(
    ranking: &Ranking,
    statistics: &mut [Statistics],
    evaluator: &Evaluator<'_>,
    frame: &Frame<'_>,
) -> Result<Vec<Measure>> {
    let mut measures = Vec::with_capacity(ranking.scores.len());
    for (score, statistics) in ranking.scores.iter().zip(statistics) {
        measures.push(match score {
            Score::Vector { distance, .. } => {
                let distance = evaluator
                    .eval(distance, frame)?
                    .and_then(|distance| distance.as_number());
                distance.map_or(Measure::Missing, |distance| Measure::Distance(distance.to_f64()))
            }
            Score::FullText { text, language, terms } => {
                statistics.n_documents += 1.0;
                let text = evaluator.eval(text, frame)?;
                match text.as_ref().map(Cow::as_ref).and_then(Value::as_str) {
                    None => Measure::Missing,
                    Some(text) => {
                        let words = language.words(text);
                        statistics.n_words += words.len() as f64;
                        for (term, hits) in terms.iter().zip(&mut statistics.hits) {
                            // Once for the hits and once for the score.
                            evaluator.meter.work((term.work(&words) as u64).saturating_mul(2))?;
                            *hits += f64::from(u8::from(term.occurrences(&words) > 0));
                        }
                        Measure::Words(words)
                    }
                }
            }
        });
    }
    Ok(measures)
}

/// Larger is better, or worse when `reversed`. What has no vector comes last either way; what has no text has the least to do
/// with the terms.
fn value(score: &Score, statistics: &Statistics, measure: &Measure, reversed: bool) -> f64 {
    match (score, measure) {
        (Score::FullText { terms, .. }, Measure::Words(words)) => relevance(words, terms, statistics),
        (
            Score::Vector {
                direction: Direction::Ascending,
                ..
            },
            Measure::Distance(distance),
        ) => -distance,
        (Score::Vector { .. }, Measure::Distance(distance)) => *distance,
        (Score::Vector { .. }, _) if reversed => f64::INFINITY,
        _ => f64::NEG_INFINITY,
    }
}

fn fuse(ranking: &Ranking, statistics: &[Statistics], candidates: Vec<Candidate>) -> Vec<SortedRow> {
    let mut fused = vec![0.0; candidates.len()];
    for (index, (score, weight)) in ranking.scores.iter().zip(&ranking.weights).enumerate() {
        let reversed = *weight < 0.0;
        let values = candidates
            .iter()
            .map(|one| value(score, &statistics[index], &one.measures[index], reversed))
            .collect();
        for (total, place) in fused.iter_mut().zip(places(values, reversed)) {
            *total += weight.abs() / (FUSION + place as f64);
        }
    }
    let mut order: Vec<(f64, Candidate)> = fused.into_iter().zip(candidates).collect();
    order.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.rank.cmp(&other.rank)));
    let row = |(_, candidate): (f64, Candidate)| SortedRow {
        position: SortPosition {
            keys: Vec::new(),
            rank: candidate.rank,
            row: 0,
        },
        row: candidate.row,
    };
    order.into_iter().map(row).collect()
}

/// The place of each value, the best first. Equal values share a place, and no place is left out.
fn places(values: Vec<f64>, reversed: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    let by_value = |a: &usize, b: &usize| match reversed {
        true => values[*a].total_cmp(&values[*b]),
        false => values[*b].total_cmp(&values[*a]),
    };
    order.sort_by(by_value);
    let mut places = vec![0; values.len()];
    let mut place = 0;
    for (index, candidate) in order.iter().enumerate() {
        if index == 0 || by_value(&order[index - 1], candidate) != Ordering::Equal {
            place += 1;
        }
        places[*candidate] = place;
    }
    places
}
