//! Distances and similarities of vectors.

use orrery_model::Value;

use super::arguments::{Arguments, double};
use super::registry::{Table, between, exactly};
use crate::plan::Expr;

pub(super) fn register(table: &mut Table) {
    table.scalar("VECTORDISTANCE", between(2, 4), vector_distance);
    table.scalar("_VECTORSCORE", exactly(2), vector_score);
}

/// How two vectors are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distance {
    Cosine,
    DotProduct,
    Euclidean,
}

/// The arguments a query writes; planning appends the name of the function that the policy chooses.
const POLICY_ARGUMENT: usize = 4;

impl Distance {
    pub fn parse(name: &str) -> Option<Distance> {
        [
            ("cosine", Distance::Cosine),
            ("dotproduct", Distance::DotProduct),
            ("euclidean", Distance::Euclidean),
        ]
        .into_iter()
        .find(|(known, _)| name.eq_ignore_ascii_case(known))
        .map(|(_, distance)| distance)
    }

    pub fn name(self) -> &'static str {
        match self {
            Distance::Cosine => "cosine",
            Distance::DotProduct => "dotproduct",
            Distance::Euclidean => "euclidean",
        }
    }

    /// The function that a planned call uses: its own option, the container's policy, or cosine.
    pub fn of_arguments(arguments: &[Expr]) -> Distance {
        let argument = |index: usize| arguments.get(index).and_then(Expr::constant);
        Distance::choose(argument(3), argument(POLICY_ARGUMENT))
    }

    fn choose(options: Option<&Value>, policy: Option<&Value>) -> Distance {
        let option = options.and_then(|options| options.get("distanceFunction"));
        [option, policy]
            .into_iter()
            .flatten()
            .find_map(|name| Distance::parse(name.as_str()?))
            .unwrap_or(Distance::Cosine)
    }
}

/// Fills a planned call up to the policy's place and puts the policy's choice there.
pub(crate) fn with_policy(arguments: &mut Vec<Expr>, distance: Distance) {
    arguments.resize(POLICY_ARGUMENT, Expr::undefined());
    arguments.push(Expr::Constant(Some(Value::from(distance.name()))));
}

fn vector_distance(arguments: &Arguments<'_>) -> Option<Value> {
    double(measure(arguments)?.1)
}

/// Like the distance, but larger is always more similar.
fn vector_score(arguments: &Arguments<'_>) -> Option<Value> {
    let (distance, value) = measure(arguments)?;
    double(if distance == Distance::Euclidean { -value } else { value })
}

fn measure(arguments: &Arguments<'_>) -> Option<(Distance, f64)> {
    let a = numbers(arguments.array(0)?)?;
    let b = numbers(arguments.array(1)?)?;
    if a.len() != b.len() || a.is_empty() {
        return None;
    }
    let distance = Distance::choose(arguments.get(3), arguments.get(POLICY_ARGUMENT));
    let value = match distance {
        Distance::Cosine => dot(&a, &b) / (dot(&a, &a).sqrt() * dot(&b, &b).sqrt()),
        Distance::DotProduct => dot(&a, &b),
        Distance::Euclidean => a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt(),
    };
    // A vector of zeroes has no direction, so there is no angle to it.
    (!value.is_nan()).then_some((distance, value))
}

fn numbers(array: &[Value]) -> Option<Vec<f64>> {
    array
        .iter()
        .map(|value| value.as_number().map(|number| number.to_f64()))
        .collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
