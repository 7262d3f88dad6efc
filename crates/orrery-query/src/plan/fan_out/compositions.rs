//! Aggregates inside larger expressions, such as `SUM(c.a) / COUNT(1)`: partitions could not merge them, so no client may ask
//! for them, not even of a single partition key.
//!
//! The rewritten texts of our own plans are compositions too, and a client that knows the key sends them like any query.
//! They are told by the members in which partial results stand.

use crate::Query;
use crate::error::{QueryError, Result};
use crate::parse::ast::{Expr, ExprKind, SelectList};
use crate::plan::calls::COMPOSITION;
use crate::plan::grouping::{has_aggregate, is_aggregate};

/// Members of rewritten texts that hold partial results.
const PARTIAL: [&str; 4] = ["item", "item2", "totalWordCount", "hitCounts"];

/// Refuses a query whose select list computes with aggregates.
pub fn check_compositions(query: &Query) -> Result<()> {
    let composed = match &query.statement().list {
        SelectList::Star(_) => false,
        SelectList::Value(value) => is_composed(value),
        SelectList::Items(items) => items.iter().any(|item| is_composed(&item.expr)),
    };
    match composed {
        true => Err(QueryError::plain(COMPOSITION)),
        false => Ok(()),
    }
}

fn is_composed(expr: &Expr) -> bool {
    let whole = matches!(&expr.kind, ExprKind::Call { name, udf: false, .. } if is_aggregate(&name.text));
    !whole && has_aggregate(expr) && !is_partial(expr)
}

/// Whether all aggregates stand in members of partial results.
fn is_partial(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Object(members) => members
            .iter()
            .all(|(name, value)| PARTIAL.contains(&name.text.as_str()) || !has_aggregate(value) || is_partial(value)),
        ExprKind::Array(items) => items.iter().all(|item| !has_aggregate(item) || is_partial(item)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Definition;
    use crate::parameters::Parameters;
    use crate::plan::{Features, QueryPlan, query_plan};
    use orrery_model::PartitionKeyDefinition;
    use orrery_model::key::{KeyKind, KeyVersion, PropertyPath};

    fn is_refused(text: &str) -> bool {
        check_compositions(&Query::parse(text).expect("a query")).is_err()
    }

    fn planned(text: &str) -> QueryPlan {
        let features = "Aggregate, CompositeAggregate, CountIf, DCount, Distinct, GroupBy, HybridSearch, MultipleAggregates, \
                        MultipleOrderBy, NonStreamingOrderBy, NonValueAggregate, OffsetAndLimit, OrderBy, Top, \
                        WeightedRankFusion";
        query_plan(
            &Query::parse(text).expect("a query"),
            &Definition::default(),
            &PartitionKeyDefinition::new(
                vec![PropertyPath::parse("/pk").expect("a path")],
                KeyKind::Hash,
                KeyVersion::V2,
                false,
            ),
            &Parameters::none(),
            &Features::parse(features),
        )
        .expect("a plan")
    }

    #[test]
    fn an_aggregate_inside_an_expression_is_refused_wherever_it_stands() {
        for text in [
            "SELECT VALUE COUNT(1) + 1 FROM c",
            "SELECT VALUE FLOOR(AVG(c.x)) FROM c",
            "SELECT VALUE [SUM(c.x)] FROM c",
            "SELECT VALUE {'sum': SUM(c.x)} FROM c",
            "SELECT MIN(c.x), MAX(c.x) / 2 FROM c",
            "SELECT c.a, SUM(c.x) / COUNT(1) AS mean FROM c GROUP BY c.a",
            "SELECT VALUE (COUNT(v) > 0) FROM (SELECT VALUE c FROM c) AS v",
        ] {
            assert!(is_refused(text), "{text}");
        }
    }

    #[test]
    fn whole_aggregates_and_those_of_subqueries_pass() {
        for text in [
            "SELECT * FROM c",
            "SELECT VALUE COUNT(1) FROM c",
            "SELECT SUM(c.x + 1) AS total, c.a FROM c GROUP BY c.a",
            "SELECT c.id, (SELECT VALUE COUNT(1) FROM t IN c.tags) > 2 AS many FROM c",
        ] {
            assert!(!is_refused(text), "{text}");
        }
    }

    #[test]
    fn texts_that_plans_ask_clients_to_send_pass() {
        for text in [
            "SELECT VALUE AVG(c.x) FROM c",
            "SELECT VALUE MAX(c.x) FROM c",
            "SELECT MIN(c.x), MAX(c.x), COUNT(1), AVG(c.x), COUNTIF(c.b) FROM c",
            "SELECT c.a, SUM(c.x) AS total FROM c GROUP BY c.a",
        ] {
            let rewritten = planned(text).info.expect("one query").rewritten_query;
            assert!(!is_refused(&rewritten), "{rewritten}");
        }
        let hybrid =
            planned("SELECT TOP 3 * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'a'), FullTextScore(c.u, 'b'))");
        let statistics = hybrid.hybrid.expect("a hybrid search").global_statistics_query;
        assert!(!is_refused(&statistics), "{statistics}");
    }
}
