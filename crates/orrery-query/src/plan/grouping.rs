//! GROUP BY and aggregates: after grouping, an expression sees keys and aggregates instead of sources.

use std::mem::discriminant;

use super::compiler::Compiler;
use super::expr::{Expr, Grouping, Step};
use super::order::Ordering;
use super::scope::{GroupScope, Slot};
use crate::functions::{AggregateKind, Kind, find};
use crate::parse::Span;
use crate::parse::ast::{self, ExprKind, OrderBy, SelectList, Statement};

impl Compiler<'_> {
    pub fn is_grouped(&self, statement: &Statement) -> bool {
        !statement.group_by.is_empty() || list_has_aggregate(&statement.list)
    }

    /// Replaces the source frames above `n_outer` by a group, and compiles the select list over it.
    pub fn grouped(
        &mut self,
        statement: &Statement,
        order_by: Option<&OrderBy>,
        n_outer: usize,
    ) -> (Option<Grouping>, Expr, Ordering) {
        let keys = self.exprs(&statement.group_by);
        let key_kinds = statement.group_by.iter().map(|key| discriminant(&key.kind)).collect();
        let sources = self.scope.slots.split_off(n_outer);
        let grouping = Grouping {
            keys,
            aggregates: Vec::new(),
        };
        self.scope.slots.push(Slot::Group(Box::new(GroupScope {
            sources,
            grouping,
            key_kinds,
        })));
        let output = self.output(statement);
        let ordering = order_by.map_or(Ordering::None, |order_by| self.group_ordering(order_by));
        let Some(Slot::Group(group)) = self.scope.slots.pop() else {
            unreachable!("compiling the select list leaves the frames as they were");
        };
        (Some(group.grouping), output, ordering)
    }

    /// Runs `compile` with the grouped sources in place of the group.
    fn before_grouping<T>(&mut self, compile: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let group = match self.scope.slots.pop()? {
            Slot::Group(group) => group,
            other => {
                self.scope.slots.push(other);
                return None;
            }
        };
        let n_outer = self.scope.slots.len();
        self.scope.slots.extend(group.sources.iter().cloned());
        let compiled = compile(self);
        self.scope.slots.truncate(n_outer);
        self.scope.slots.push(Slot::Group(group));
        Some(compiled)
    }

    fn group(&mut self) -> Option<&mut GroupScope> {
        match self.scope.slots.last_mut() {
            Some(Slot::Group(group)) => Some(group),
            _ => None,
        }
    }

    /// The key that `expr` is, when it stands directly over a group that has such a key.
    pub fn group_key(&mut self, expr: &ast::Expr) -> Option<Expr> {
        // Paths are matched where names are resolved, except in keys that are made of more.
        let group = self.group()?;
        let is_path = matches!(expr.kind, ExprKind::Name(_) | ExprKind::Postfix { .. });
        let candidate = match is_path {
            true => group.grouping.keys.iter().any(|key| !matches!(key, Expr::Path { .. })),
            false => group.key_kinds.contains(&discriminant(&expr.kind)),
        };
        if !candidate {
            return None;
        }
        let compiled = self.before_grouping(|compiler| compiler.quietly(|compiler| compiler.expr(expr)))??;
        let keys = self.group()?.grouping.keys.iter().enumerate();
        let (index, rest) = keys
            .filter_map(|(index, key)| Some((index, compiled.below(key)?)))
            .min_by_key(|(_, rest)| rest.len())?;
        let key = Expr::GroupKey { up: 0, index };
        Some(match rest {
            [] => key,
            rest => Expr::Access {
                base: Box::new(key),
                steps: rest.to_vec(),
            },
        })
    }

    /// A path from a source that has been grouped away: a key, something below a key, or a mistake.
    pub fn grouped_path(&mut self, up: usize, source: usize, steps: &[Step], name_span: Span, span: Span) -> Expr {
        let at = self.scope.slots.len() - 1 - up;
        let found = match &self.scope.slots[at] {
            Slot::Group(group) => group
                .key_for_path(source, steps)
                .map(|(index, rest)| (index, rest.to_vec())),
            Slot::Value { .. } => None,
        };
        let Some((index, rest)) = found else {
            // An element of what is computed is not what the reference is to.
            let is_element = !matches!(steps.first(), None | Some(Step::Name(_)));
            let span = match is_element && !self.scope.is_path(up, source) {
                true => name_span,
                false => span,
            };
            let message = format!(
                "Property reference '{}' is invalid in the select list because it is not contained in either an \
                 aggregate function or the GROUP BY clause.",
                self.text_at(span)
            );
            if self.knows_sources {
                self.problem(span, "SC2102", message);
            }
            return Expr::undefined();
        };
        let key = Expr::GroupKey { up, index };
        if rest.is_empty() {
            key
        } else {
            Expr::Access {
                base: Box::new(key),
                steps: rest,
            }
        }
    }

    pub fn aggregate(&mut self, kind: AggregateKind, argument: &ast::Expr, span: Span) -> Expr {
        if has_aggregate(argument) || has_subquery(argument) {
            let message =
                "Cannot perform an aggregate function on an expression containing an aggregate or a subquery.";
            self.problem(span, "SC2101", message);
            return Expr::undefined();
        }
        let Some(argument) = self.before_grouping(|compiler| compiler.expr(argument)) else {
            self.problem(
                span,
                "SC2100",
                "An aggregate function is only allowed in the select list.",
            );
            return Expr::undefined();
        };
        let group = self.group().expect("the group was there for the argument");
        let wanted = (kind, argument);
        let known = group
            .grouping
            .aggregates
            .iter()
            .position(|aggregate| *aggregate == wanted);
        let index = known.unwrap_or_else(|| {
            group.grouping.aggregates.push(wanted);
            group.grouping.aggregates.len() - 1
        });
        Expr::Aggregate { up: 0, index }
    }
}

/// Whether a select list has aggregates of its own, outside subqueries.
pub(crate) fn list_has_aggregate(list: &SelectList) -> bool {
    match list {
        SelectList::Star(_) => false,
        SelectList::Value(expr) => has_aggregate(expr),
        SelectList::Items(items) => items.iter().any(|item| has_aggregate(&item.expr)),
    }
}

/// Whether an expression contains an aggregate, outside subqueries.
pub(crate) fn has_aggregate(expr: &ast::Expr) -> bool {
    match &expr.kind {
        ExprKind::Call { name, udf: false, .. } if is_aggregate(&name.text) => true,
        _ => expr.children().into_iter().any(has_aggregate),
    }
}

fn has_subquery(expr: &ast::Expr) -> bool {
    matches!(expr.kind, ExprKind::Subquery { .. }) || expr.children().into_iter().any(has_subquery)
}

pub(crate) fn is_aggregate(name: &str) -> bool {
    find(name).is_some_and(|function| matches!(function.kind, Kind::Aggregate(_)))
}
