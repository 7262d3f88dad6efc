//! Whether a plan's work per item is small: bounded by a small multiple of the item's size.

use super::{Block, Collection, Expr, Input, Ordering, Plan};

/// Expressions that a plan evaluates for an item at most, and how many of them a call counts for.
const EXPRESSIONS_MAX: usize = 512;
const EXPRESSIONS_PER_CALL: usize = 32;
/// Steps that each character may take of a text that is compared with a pattern.
const PATTERN_WORK_MAX: usize = 32;
/// Comparisons that finding a value in a set takes.
const EXPRESSIONS_PER_SET: usize = 8;

/// Functions that look at each part of their arguments a few times at most, and whose result is not much larger than these.
/// One that is missing here only makes its queries run elsewhere.
const QUICK: [&str; 41] = [
    "ABS",
    "ARRAY_CONTAINS",
    "ARRAY_LENGTH",
    "CEILING",
    "CONTAINS",
    "DATETIMEADD",
    "DATETIMEBIN",
    "DATETIMEDIFF",
    "DATETIMEPART",
    "DATETIMETOTICKS",
    "DATETIMETOTIMESTAMP",
    "DAY",
    "DOCUMENTID",
    "ENDSWITH",
    "FLOOR",
    "INDEX_OF",
    "IS_ARRAY",
    "IS_BOOL",
    "IS_DATETIME",
    "IS_DEFINED",
    "IS_FINITE_NUMBER",
    "IS_INTEGER",
    "IS_NULL",
    "IS_NUMBER",
    "IS_OBJECT",
    "IS_PRIMITIVE",
    "IS_STRING",
    "LEFT",
    "LENGTH",
    "LOWER",
    "MONTH",
    "POWER",
    "RIGHT",
    "ROUND",
    "SIGN",
    "SQRT",
    "STARTSWITH",
    "STRINGEQUALS",
    "SUBSTRING",
    "UPPER",
    "YEAR",
];

impl Plan {
    /// No joins, no subqueries, no user-defined functions, nothing that a small item could make long.
    pub fn is_simple(&self) -> bool {
        let mut allowance = Allowance(EXPRESSIONS_MAX);
        let keys = match &self.ordering {
            Ordering::None => true,
            Ordering::Keys(keys) => keys.iter().all(|key| allowance.covers(&key.expr)),
            Ordering::Rank(_) => false,
        };
        matches!(self.input, Input::Items) && keys && allowance.covers_block(&self.block)
    }
}

/// Expressions that may still come.
struct Allowance(usize);

impl Allowance {
    fn covers_block(&mut self, block: &Block) -> bool {
        let sources = block.sources.iter().all(|source| match &source.collection {
            Collection::Value(expr) => !source.iterate && self.covers(expr),
            Collection::Rows(_) => false,
        });
        let grouping = block.grouping.as_ref().is_none_or(|grouping| {
            self.cover(&grouping.keys) && grouping.aggregates.iter().all(|(_, argument)| self.covers(argument))
        });
        sources
            && grouping
            && block.filter.as_ref().is_none_or(|filter| self.covers(filter))
            && self.covers(&block.output)
    }

    fn cover(&mut self, exprs: &[Expr]) -> bool {
        exprs.iter().all(|expr| self.covers(expr))
    }

    fn covers(&mut self, expr: &Expr) -> bool {
        self.take(1)
            && match expr {
                Expr::Constant(_) | Expr::Path { .. } | Expr::GroupKey { .. } | Expr::Aggregate { .. } => true,
                Expr::Computed(property) => self.covers(property.value()),
                Expr::Access { base, .. }
                | Expr::Negate(base)
                | Expr::Plus(base)
                | Expr::BitNot(base)
                | Expr::Not(base) => self.covers(base),
                Expr::Index { base, index } => self.covers(base) && self.covers(index),
                Expr::Array(parts) | Expr::And(parts) | Expr::Or(parts) | Expr::Coalesce(parts) => self.cover(parts),
                Expr::Object(members) => members.iter().all(|(_, member)| self.covers(member)),
                Expr::Chain { first, rest } => {
                    self.covers(first) && rest.iter().all(|(_, operand)| self.covers(operand))
                }
                Expr::Conditional {
                    condition,
                    then,
                    otherwise,
                } => self.covers(condition) && self.covers(then) && self.covers(otherwise),
                Expr::Between { value, low, high } => self.covers(value) && self.covers(low) && self.covers(high),
                Expr::In {
                    value, set: Some(_), ..
                } => self.take(EXPRESSIONS_PER_SET) && self.covers(value),
                Expr::In { value, list, .. } => self.covers(value) && self.cover(list),
                Expr::Like {
                    value,
                    ready: Some(pattern),
                    ..
                } => self.take(EXPRESSIONS_PER_CALL) && pattern.work() <= PATTERN_WORK_MAX && self.covers(value),
                Expr::Call { function, arguments } => {
                    self.take(EXPRESSIONS_PER_CALL) && QUICK.contains(&function.name) && self.cover(arguments)
                }
                Expr::Like { .. } | Expr::Subquery { .. } | Expr::Let { .. } | Expr::UserCall { .. } => false,
            }
    }

    fn take(&mut self, n: usize) -> bool {
        self.0 = self.0.saturating_sub(n);
        self.0 > 0
    }
}
