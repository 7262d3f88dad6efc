//! The plan as data, and as the JSON clients read.

use orrery_model::json::Object;
use orrery_model::{Epk, Value};

use crate::functions::AggregateKind;
use crate::parse::ast::Direction;

/// Everything a client needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryPlan {
    /// `None` for hybrid searches, which have `hybrid` instead.
    pub info: Option<QueryInfo>,
    pub hybrid: Option<HybridSearchInfo>,
    /// The ranges to ask, in order, not overlapping.
    pub ranges: Vec<QueryRange>,
}

/// How rows of several ranges become the rows of the query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryInfo {
    pub distinct: Distinct,
    pub top: Option<u64>,
    pub offset: Option<u64>,
    pub limit: Option<u64>,
    pub order_by: Vec<Direction>,
    pub order_by_expressions: Vec<String>,
    pub group_by_expressions: Vec<String>,
    pub group_by_aliases: Vec<String>,
    pub(crate) aggregates: Vec<AggregateKind>,
    pub(crate) alias_aggregates: Vec<(String, Option<AggregateKind>)>,
    /// The text to send to the ranges; empty for the original one.
    pub rewritten_query: String,
    pub has_select_value: bool,
    /// The member that receives the number of distinct rows; empty for VALUE.
    pub distinct_count_alias: Option<String>,
    pub has_non_streaming_order_by: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distinct {
    #[default]
    None,
    Unordered,
    Ordered,
}

/// The plan of `ORDER BY RANK`.
#[derive(Clone, Debug, PartialEq)]
pub struct HybridSearchInfo {
    pub global_statistics_query: String,
    pub components: Vec<QueryInfo>,
    pub weights: Vec<f64>,
    pub skip: Option<u64>,
    pub take: Option<u64>,
    pub requires_global_statistics: bool,
}

/// A range of effective partition keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRange {
    pub min: Epk,
    pub max: Epk,
    pub min_inclusive: bool,
    pub max_inclusive: bool,
}

impl QueryRange {
    pub fn full() -> QueryRange {
        QueryRange {
            min: Epk::min(),
            max: Epk::max(),
            min_inclusive: true,
            max_inclusive: false,
        }
    }

    /// Nothing at all, in the form the service uses for it.
    pub fn empty() -> QueryRange {
        QueryRange {
            min: Epk::min(),
            max: Epk::min(),
            min_inclusive: true,
            max_inclusive: true,
        }
    }

    pub fn point(epk: Epk) -> QueryRange {
        QueryRange {
            min: epk.clone(),
            max: epk,
            min_inclusive: true,
            max_inclusive: true,
        }
    }

    /// Whether this is one complete partition key.
    /// The one key it holds.
    pub fn only_key(&self) -> Option<&Epk> {
        self.is_point().then_some(&self.min)
    }

    pub fn is_point(&self) -> bool {
        self.max_inclusive && *self != QueryRange::empty()
    }

    fn to_json(&self) -> Value {
        object([
            ("min", text(self.min.to_string())),
            ("max", text(self.max.to_string())),
            ("isMinInclusive", Value::Bool(self.min_inclusive)),
            ("isMaxInclusive", Value::Bool(self.max_inclusive)),
        ])
    }
}

impl QueryPlan {
    /// Whether a single request cannot answer the query, because rows of several ranges must be merged.
    pub fn needs_client(&self) -> bool {
        let merges = |info: &QueryInfo| {
            info.distinct != Distinct::None
                || info.top.is_some()
                || info.offset.is_some()
                || !info.order_by.is_empty()
                || !info.aggregates.is_empty()
                || !info.group_by_expressions.is_empty()
                || info.has_item_aggregates()
                || info.distinct_count_alias.is_some()
        };
        self.hybrid.is_some() || self.info.as_ref().is_some_and(merges)
    }

    /// The body of the plan endpoint's answer.
    pub fn to_json(&self) -> Value {
        object([
            ("partitionedQueryExecutionInfoVersion", Value::from(2)),
            ("queryInfo", self.info.as_ref().map_or(Value::Null, QueryInfo::to_json)),
            (
                "queryRanges",
                Value::Array(self.ranges.iter().map(QueryRange::to_json).collect()),
            ),
            (
                "hybridSearchQueryInfo",
                self.hybrid.as_ref().map_or(Value::Null, HybridSearchInfo::to_json),
            ),
        ])
    }
}

impl QueryInfo {
    /// Whether the select list has aggregates that are not the single `VALUE`.
    pub fn has_item_aggregates(&self) -> bool {
        self.alias_aggregates.iter().any(|(_, kind)| kind.is_some())
    }

    fn to_json(&self) -> Value {
        let aggregate = |kind: &AggregateKind| Value::from(kind.plan_name());
        let by_alias = |(alias, kind): &(String, Option<AggregateKind>)| {
            (alias.clone(), kind.as_ref().map_or(Value::Null, aggregate))
        };
        object([
            ("distinctType", Value::from(self.distinct.name())),
            ("top", count(self.top)),
            ("offset", count(self.offset)),
            ("limit", count(self.limit)),
            (
                "orderBy",
                Value::Array(
                    self.order_by
                        .iter()
                        .map(|direction| Value::from(direction_name(*direction)))
                        .collect(),
                ),
            ),
            ("orderByExpressions", texts(&self.order_by_expressions)),
            ("groupByExpressions", texts(&self.group_by_expressions)),
            ("groupByAliases", texts(&self.group_by_aliases)),
            (
                "aggregates",
                Value::Array(self.aggregates.iter().map(aggregate).collect()),
            ),
            (
                "groupByAliasToAggregateType",
                Value::Object(self.alias_aggregates.iter().map(by_alias).collect()),
            ),
            ("rewrittenQuery", text(self.rewritten_query.clone())),
            ("hasSelectValue", Value::Bool(self.has_select_value)),
            (
                "dCountInfo",
                self.distinct_count_alias
                    .as_ref()
                    .map_or(Value::Null, |alias| object([("dCountAlias", text(alias.clone()))])),
            ),
            ("hasNonStreamingOrderBy", Value::Bool(self.has_non_streaming_order_by)),
        ])
    }
}

impl HybridSearchInfo {
    fn to_json(&self) -> Value {
        let weight = |weight: &f64| Value::Number(orrery_model::Number::from_f64(*weight));
        object([
            ("globalStatisticsQuery", text(self.global_statistics_query.clone())),
            (
                "componentQueryInfos",
                Value::Array(self.components.iter().map(QueryInfo::to_json).collect()),
            ),
            ("componentWithoutPayloadQueryInfos", Value::Array(Vec::new())),
            ("projectionQueryInfo", Value::Null),
            (
                "componentWeights",
                Value::Array(self.weights.iter().map(weight).collect()),
            ),
            ("skip", count(self.skip)),
            ("take", count(self.take)),
            ("requiresGlobalStatistics", Value::Bool(self.requires_global_statistics)),
        ])
    }
}

impl Distinct {
    fn name(self) -> &'static str {
        match self {
            Distinct::None => "None",
            Distinct::Unordered => "Unordered",
            Distinct::Ordered => "Ordered",
        }
    }
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Ascending => "Ascending",
        Direction::Descending => "Descending",
    }
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let mut object = Object::new();
    for (name, value) in members {
        object.push_unique(name, value);
    }
    Value::Object(object)
}

fn text(text: String) -> Value {
    Value::String(text)
}

fn texts(list: &[String]) -> Value {
    Value::Array(list.iter().cloned().map(text).collect())
}

fn count(count: Option<u64>) -> Value {
    count.map_or(Value::Null, |count| Value::Number(count.into()))
}
