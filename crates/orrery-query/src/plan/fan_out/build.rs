//! Which kind of merging a query needs, and the text for it.

use super::features::{Feature, Features};
use super::hybrid;
use super::info::{Distinct, HybridSearchInfo, QueryInfo, QueryRange};
use super::rewrite::{
    array, as_aggregate, item, item_array, object, partial_aggregate, payload, resumable_filter, rid_of, window,
};
use crate::error::{QueryError, Result};
use crate::functions::AggregateKind;
use crate::parameters::Parameters;
use crate::parse::ast::{Collection, Expr, ExprKind, SelectList, Statement, Window};
use crate::parse::{print, print_expr};
use crate::plan::calls::COMPOSITION;
use crate::plan::grouping::{has_aggregate, list_has_aggregate};
use crate::plan::limits::COUNT_END;
use crate::plan::select::item_names;
use crate::plan::{Input, Ordering, Plan};

/// A plan without its ranges, and what the client must be able to do.
#[derive(Default)]
pub(super) struct Built {
    pub info: Option<QueryInfo>,
    pub hybrid: Option<HybridSearchInfo>,
    pub needed: Vec<Feature>,
}

pub(super) fn build(
    statement: &Statement,
    plan: &Plan,
    ranges: &[QueryRange],
    parameters: &Parameters,
    features: &Features,
) -> Result<Built> {
    if statement.order_by.as_ref().is_some_and(|order_by| order_by.rank) {
        return hybrid::build(statement, plan, parameters, features);
    }
    let has_select_value = matches!(statement.list, SelectList::Value(_));
    let mut builder = Builder {
        statement,
        plan,
        info: QueryInfo {
            has_select_value,
            ..QueryInfo::default()
        },
        needed: Vec::new(),
    };
    if !matches!(plan.input, Input::Nothing) {
        let one_key = matches!(ranges, [range] if range.is_point());
        builder.fill(one_key)?;
    }
    Ok(Built {
        info: Some(builder.info),
        hybrid: None,
        needed: builder.needed,
    })
}

struct Builder<'a> {
    statement: &'a Statement,
    plan: &'a Plan,
    info: QueryInfo,
    needed: Vec<Feature>,
}

impl Builder<'_> {
    fn fill(&mut self, one_key: bool) -> Result<()> {
        let statement = self.statement;
        if let Some(inner) = counts_distinct(statement) {
            self.count_distinct(inner);
            return Ok(());
        }
        let is_grouped = !statement.group_by.is_empty();
        let is_aggregated = list_has_aggregate(&statement.list);
        self.distinct();
        self.counts(one_key && !is_grouped && !is_aggregated && !statement.distinct && statement.order_by.is_none());
        if is_grouped {
            self.grouped()
        } else if is_aggregated {
            self.aggregated()
        } else if statement.order_by.is_some() {
            self.ordered();
            Ok(())
        } else {
            self.plain();
            Ok(())
        }
    }

    fn distinct(&mut self) {
        if !self.statement.distinct {
            return;
        }
        // As the service plans it: without items a constant is one row, and only of a single value the client is told that equal ones follow
        // each other.
        let is_constant = matches!(&self.statement.list, SelectList::Value(value) if is_literal(value));
        if is_constant && self.statement.from.is_none() {
            return;
        }
        self.needed.push(Feature::Distinct);
        let keys = self
            .statement
            .order_by
            .as_ref()
            .map(|order_by| order_by.keys.as_slice());
        self.info.distinct = match (&self.statement.list, keys) {
            (SelectList::Value(value), Some([key])) if key.expr == *value => Distinct::Ordered,
            _ => Distinct::Unordered,
        };
    }

    /// TOP, OFFSET and LIMIT. A window over a single key is left to the partition that has it. Clients apply TOP before OFFSET, which
    /// is wrong: where there are both, what they come to is a window alone.
    fn counts(&mut self, pushed_down: bool) {
        match &self.statement.window {
            Some(_) if pushed_down => {}
            Some(_) => {
                self.needed.push(Feature::OffsetAndLimit);
                self.info.offset = Some(self.plan.window.offset);
                self.info.limit = self.plan.window.count;
                return;
            }
            None => {}
        }
        if self.statement.top.is_some() {
            self.needed.push(Feature::Top);
        }
        self.info.top = self.plan.top;
    }

    /// As many rows as a range may have to give for a window.
    fn window_of_range(&self) -> Option<Window> {
        let (offset, limit) = (self.info.offset?, self.info.limit?);
        Some(window(
            0,
            offset.saturating_add(limit).min(COUNT_END.unsigned_abs() - 1),
        ))
    }

    /// The statement without the clauses that only the client can apply.
    fn without_window(&self) -> Statement {
        Statement {
            top: None,
            window: None,
            ..self.statement.clone()
        }
    }

    fn plain(&mut self) {
        let rewritten = match (&self.info.offset, &self.info.limit) {
            (None, None) if self.statement.distinct && self.statement.top.is_some() => self.without_window(),
            (Some(_), _) if self.statement.distinct => self.without_window(),
            (Some(_), Some(_)) => Statement {
                top: None,
                window: self.window_of_range(),
                ..self.statement.clone()
            },
            _ => return,
        };
        self.info.rewritten_query = print(&rewritten);
    }

    fn ordered(&mut self) {
        let Some(order_by) = &self.statement.order_by else {
            return;
        };
        let Ordering::Keys(keys) = &self.plan.ordering else {
            return;
        };
        self.needed.push(if keys.len() > 1 {
            Feature::MultipleOrderBy
        } else {
            Feature::OrderBy
        });
        self.info.order_by = keys.iter().map(|key| key.direction).collect();
        self.info.order_by_expressions = order_by.keys.iter().map(|key| print_expr(&key.expr)).collect();
        if keys.iter().any(|key| key.is_similarity()) {
            self.needed.push(Feature::NonStreamingOrderBy);
            self.info.has_non_streaming_order_by = true;
        }
        let mut rewritten = self.statement.clone();
        if self.statement.distinct {
            rewritten = Statement {
                distinct: false,
                ..self.without_window()
            };
        } else if let Some(window) = self.window_of_range() {
            rewritten.top = None;
            rewritten.window = Some(window);
        }
        rewritten.list = SelectList::Items(vec![
            rid_of(self.statement),
            item(
                item_array(order_by.keys.iter().map(|key| &key.expr)),
                Some("orderByItems"),
            ),
            item(payload(self.statement), Some("payload")),
        ]);
        rewritten.filter = Some(resumable_filter(self.statement));
        self.info.rewritten_query = print(&rewritten);
    }

    fn aggregated(&mut self) -> Result<()> {
        let list = match &self.statement.list {
            SelectList::Value(value) => {
                let partial = self.value_aggregate(value)?.ok_or_else(composition)?;
                SelectList::Value(array(vec![partial]))
            }
            _ => SelectList::Items(vec![item(self.members()?, Some("payload"))]),
        };
        let rewritten = Statement {
            list,
            distinct: false,
            ..self.without_window()
        };
        self.info.rewritten_query = print(&rewritten);
        Ok(())
    }

    fn grouped(&mut self) -> Result<()> {
        self.needed.push(Feature::GroupBy);
        self.info.group_by_expressions = self.statement.group_by.iter().map(print_expr).collect();
        let payload = match &self.statement.list {
            SelectList::Value(value) => match self.value_aggregate(value)? {
                Some(partial) => array(vec![partial]),
                None => value.clone(),
            },
            _ => self.members()?,
        };
        let keys = item(item_array(self.statement.group_by.iter()), Some("groupByItems"));
        let list = SelectList::Items(vec![keys, item(payload, Some("payload"))]);
        let rewritten = Statement {
            list,
            distinct: false,
            ..self.without_window()
        };
        self.info.rewritten_query = print(&rewritten);
        Ok(())
    }

    /// The partial form of `VALUE agg(x)`; `None` when there is no aggregate.
    fn value_aggregate(&mut self, value: &Expr) -> Result<Option<Expr>> {
        let Some((kind, spelling, argument)) = as_aggregate(value) else {
            return if has_aggregate(value) {
                Err(composition())
            } else {
                Ok(None)
            };
        };
        self.needed.push(Feature::Aggregate);
        self.need_for(kind);
        self.info.aggregates = vec![kind];
        Ok(Some(partial_aggregate(kind, spelling, argument)))
    }

    /// The select list as one object with aggregates in their partial form.
    fn members(&mut self) -> Result<Expr> {
        let SelectList::Items(items) = &self.statement.list else {
            return Ok(payload(self.statement));
        };
        let names = item_names(items);
        let mut members = Vec::new();
        for ((name, _), selected) in names.iter().zip(items) {
            let aggregate = as_aggregate(&selected.expr);
            let value = match &aggregate {
                Some((kind, spelling, argument)) => partial_aggregate(*kind, spelling, argument),
                None if has_aggregate(&selected.expr) => return Err(composition()),
                None => selected.expr.clone(),
            };
            let kind = aggregate.map(|(kind, _, _)| kind);
            kind.into_iter().for_each(|kind| self.need_for(kind));
            self.info.group_by_aliases.push(name.clone());
            self.info.alias_aggregates.push((name.clone(), kind));
            members.push((name.as_str(), value));
        }
        let n_aggregates = self
            .info
            .alias_aggregates
            .iter()
            .filter(|(_, kind)| kind.is_some())
            .count();
        if n_aggregates > 0 {
            self.needed.push(Feature::NonValueAggregate);
        }
        if n_aggregates > 1 {
            self.needed.push(Feature::MultipleAggregates);
        }
        Ok(object(members))
    }

    fn need_for(&mut self, kind: AggregateKind) {
        // The .NET client merges lists and sets without saying that it can, so their feature is not asked for.
        if kind == AggregateKind::CountIf {
            self.needed.push(Feature::CountIf);
        }
    }

    /// The ranges answer the distinct rows, the client counts them.
    fn count_distinct(&mut self, inner: &Statement) {
        self.info.distinct = Distinct::Unordered;
        self.info.distinct_count_alias = Some(match &self.statement.list {
            SelectList::Items(items) => item_names(items).swap_remove(0).0,
            _ => String::new(),
        });
        self.info.rewritten_query = print(inner);
        // Who cannot count would take the rows for the answer; and counts of ranges that share rows do not add up.
        self.needed.extend([Feature::Distinct, Feature::DCount]);
    }
}

fn composition() -> QueryError {
    QueryError::plain(COMPOSITION)
}

/// The inner query of `SELECT [VALUE] COUNT(1) FROM (SELECT DISTINCT …)`, when nothing else takes part.
fn counts_distinct(statement: &Statement) -> Option<&Statement> {
    let counted = match &statement.list {
        SelectList::Value(value) => value,
        SelectList::Items(items) if items.len() == 1 => &items[0].expr,
        _ => return None,
    };
    let (AggregateKind::Count, _, argument) = as_aggregate(counted)? else {
        return None;
    };
    let alone = statement.filter.is_none()
        && statement.group_by.is_empty()
        && statement.order_by.is_none()
        && statement.top.is_none()
        && statement.window.is_none()
        && !statement.distinct;
    let [source] = statement.from.as_ref()?.sources.as_slice() else {
        return None;
    };
    match &source.collection {
        Collection::Subquery(inner) if alone && is_literal(argument) && inner.distinct && !source.iterate => {
            Some(inner)
        }
        _ => None,
    }
}

fn is_literal(value: &Expr) -> bool {
    match &value.kind {
        ExprKind::Null | ExprKind::Bool(_) | ExprKind::Number(_) | ExprKind::String(_) => true,
        ExprKind::Array(items) => items.iter().all(is_literal),
        ExprKind::Object(members) => members.iter().all(|(_, member)| is_literal(member)),
        ExprKind::Unary { operand, .. } => is_literal(operand),
        _ => false,
    }
}
