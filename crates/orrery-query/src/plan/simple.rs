//! Whether a plan's work per item is bounded by the size of the item.

use super::{Block, Collection, Expr, Input, Ordering, Plan};

impl Plan {
    /// No joins, no subqueries, no user-defined functions, nothing that a small item could make long.
    pub fn is_simple(&self) -> bool {
        let keys = match &self.ordering {
            Ordering::None => true,
            Ordering::Keys(keys) => keys.iter().all(|key| is_simple(&key.expr)),
            Ordering::Rank(_) => false,
        };
        matches!(self.input, Input::Items) && keys && block_is_simple(&self.block)
    }
}

fn block_is_simple(block: &Block) -> bool {
    let sources = block
        .sources
        .iter()
        .all(|source| !source.iterate && matches!(&source.collection, Collection::Value(expr) if is_simple(expr)));
    let grouping = block.grouping.as_ref().is_none_or(|grouping| {
        grouping.keys.iter().all(is_simple) && grouping.aggregates.iter().all(|(_, argument)| is_simple(argument))
    });
    sources && grouping && block.filter.as_ref().is_none_or(is_simple) && is_simple(&block.output)
}

fn is_simple(expr: &Expr) -> bool {
    match expr {
        Expr::Constant(_) | Expr::Path { .. } | Expr::GroupKey { .. } | Expr::Aggregate { .. } => true,
        Expr::Access { base, .. } | Expr::Negate(base) | Expr::Plus(base) | Expr::BitNot(base) | Expr::Not(base) => {
            is_simple(base)
        }
        Expr::Index { base, index } => is_simple(base) && is_simple(index),
        Expr::Array(parts) | Expr::And(parts) | Expr::Or(parts) | Expr::Coalesce(parts) => parts.iter().all(is_simple),
        Expr::Object(members) => members.iter().all(|(_, member)| is_simple(member)),
        Expr::Chain { first, rest } => is_simple(first) && rest.iter().all(|(_, operand)| is_simple(operand)),
        Expr::Conditional {
            condition,
            then,
            otherwise,
        } => is_simple(condition) && is_simple(then) && is_simple(otherwise),
        Expr::Between { value, low, high } => is_simple(value) && is_simple(low) && is_simple(high),
        Expr::In { value, list, .. } => is_simple(value) && list.iter().all(is_simple),
        Expr::Like { value, pattern, .. } => is_simple(value) && is_simple(pattern),
        Expr::Call { arguments, .. } => arguments.iter().all(is_simple),
        Expr::Subquery { .. } | Expr::Let { .. } | Expr::UserCall { .. } => false,
    }
}
