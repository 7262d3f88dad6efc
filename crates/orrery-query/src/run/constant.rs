//! Expressions that need no item, worked out ahead so that an index or a partition can be chosen by them.
//!
//! What they hold may come from a hostile request, and nobody has admitted the work yet: all of one query together get a
//! small budget, and what does not fit into it is left for the run.

use std::cell::Cell;

use orrery_model::{Error, Status, Value};

use super::budget::{Budget, Meter, Pace, Progress};
use super::evaluate::Evaluator;
use super::frame::Frame;
use crate::computed::ComputedProperty;
use crate::error::Result;
use crate::functions::Environment;
use crate::plan::Expr;

/// What the constants of one query may take together, and one call within them: whoever plans a query does so where others wait.
const WORK_MAX: u64 = 1 << 20;
const MEMORY_BYTES_MAX: usize = 1 << 20;

/// Works out the constant expressions of one query.
#[derive(Debug)]
pub(crate) struct Constants {
    planar: bool,
    work_left: Cell<u64>,
}

impl Constants {
    pub fn new(planar: bool) -> Constants {
        Constants {
            planar,
            work_left: Cell::new(WORK_MAX),
        }
    }

    /// The truth of an expression that needs no item: `None` when it does need one, or takes too much to be worked out ahead;
    /// `Some(None)` for undefined.
    pub fn truth(&self, expr: &Expr) -> Option<Option<bool>> {
        self.within_budget(expr, |evaluator| evaluator.truth(expr, &Frame::root(None)))
    }

    /// The value of an expression that needs no item; `None` also when it is undefined.
    pub fn value(&self, expr: &Expr) -> Option<Value> {
        let value = |evaluator: &Evaluator<'_>| {
            let frame = Frame::root(None);
            Ok(evaluator.eval(expr, &frame)?.map(|value| value.into_owned()))
        };
        self.within_budget(expr, value).flatten()
    }

    fn within_budget<T>(&self, expr: &Expr, work_out: impl FnOnce(&Evaluator<'_>) -> Result<T>) -> Option<T> {
        let work_max = self.work_left.get();
        if work_max == 0 || !is_constant(expr) {
            return None;
        }
        let mut budget = Little { work_max };
        let evaluator = Evaluator {
            environment: Environment::new(0, 0, self.planar).with_work_max(work_max),
            functions: None,
            meter: Meter::new(&mut budget, MEMORY_BYTES_MAX).asking_after(work_max + 1),
            counts_all: true,
        };
        let worked_out = work_out(&evaluator).ok();
        self.work_left
            .set(work_max.saturating_sub(evaluator.meter.progress().work));
        worked_out
    }
}

/// What a computed value may hold while it is made for an index.
const COMPUTING_MEMORY_BYTES_MAX: usize = 4 << 20;

/// The value of a computed property, or that it takes more than is left.
pub(crate) fn compute(
    property: &ComputedProperty,
    item: &Value,
    planar: bool,
    work_left: &Cell<u64>,
) -> Result<Option<Value>> {
    let work_max = work_left.get();
    let mut budget = Little { work_max };
    let evaluator = Evaluator {
        environment: Environment::new(0, 0, planar).with_work_max(work_max),
        functions: None,
        meter: Meter::new(&mut budget, COMPUTING_MEMORY_BYTES_MAX).asking_after(work_max + 1),
        counts_all: true,
    };
    let item = Frame::root(Some(item));
    let named = item.inner(item.item());
    let value = evaluator.eval(property.value(), &named);
    work_left.set(work_max.saturating_sub(evaluator.meter.progress().work));
    Ok(value?.map(|value| value.into_owned()))
}

/// Ends an evaluation that takes more than a little.
struct Little {
    work_max: u64,
}

impl Budget for Little {
    fn check(&mut self, progress: &Progress) -> orrery_model::Result<Pace> {
        match progress.work <= self.work_max {
            true => Ok(Pace::GoOn),
            false => Err(Error::new(
                Status::REQUEST_TIMEOUT,
                "a constant takes too long to be worked out ahead",
            )),
        }
    }
}

/// Functions that are left for the run: those whose value is not decided by their arguments, and those whose patterns can be
/// short and yet take long to compile.
const NOT_AHEAD: [&str; 12] = [
    "RAND",
    "NOW",
    "AGO",
    "GETCURRENTDATETIME",
    "GETCURRENTTICKS",
    "GETCURRENTTIMESTAMP",
    "GETCURRENTDATETIMESTATIC",
    "GETCURRENTTICKSSTATIC",
    "GETCURRENTTIMESTAMPSTATIC",
    "REGEXMATCH",
    "REGEXEXTRACT",
    "REGEXEXTRACTALL",
];

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Constant(_) => true,
        Expr::Path { .. } | Expr::Subquery { .. } | Expr::Let { .. } | Expr::UserCall { .. } => false,
        Expr::GroupKey { .. } | Expr::Aggregate { .. } => false,
        Expr::Computed(property) => is_constant(property.value()),
        Expr::Access { base, .. } => is_constant(base),
        Expr::Index { base, index } => is_constant(base) && is_constant(index),
        Expr::Array(items) | Expr::Coalesce(items) | Expr::And(items) | Expr::Or(items) => {
            items.iter().all(is_constant)
        }
        Expr::Object(members) => members.iter().all(|(_, member)| is_constant(member)),
        Expr::Negate(operand) | Expr::Plus(operand) | Expr::BitNot(operand) | Expr::Not(operand) => {
            is_constant(operand)
        }
        Expr::Chain { first, rest } => is_constant(first) && rest.iter().all(|(_, operand)| is_constant(operand)),
        Expr::Conditional {
            condition,
            then,
            otherwise,
        } => is_constant(condition) && is_constant(then) && is_constant(otherwise),
        Expr::Between { value, low, high } => is_constant(value) && is_constant(low) && is_constant(high),
        Expr::In { value, list, .. } => is_constant(value) && list.iter().all(is_constant),
        Expr::Like { value, pattern, .. } => is_constant(value) && is_constant(pattern),
        Expr::Call { function, arguments } => !NOT_AHEAD.contains(&function.name) && arguments.iter().all(is_constant),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use orrery_model::container::index_rules::IndexRules;
    use orrery_model::json::Object;
    use orrery_model::key::{KeyKind, KeyVersion, PropertyPath};
    use orrery_model::{PartitionKeyDefinition, Value};

    use crate::index::Condition;
    use crate::plan::{Features, plan, query_plan};
    use crate::{Definition, Parameters, Query};

    /// Ten comparisons that would take a second or more, and the condition made of them.
    fn of_long_comparisons(between: &str) -> (Query, Parameters) {
        let mut parameters = Parameters::none();
        parameters.add("@a", Some(Value::String("a".repeat(30_000)))).unwrap();
        let pattern = format!("%{}b", "a".repeat(15_000));
        parameters.add("@p", Some(Value::String(pattern))).unwrap();
        let filter = ["@a LIKE @p"; 10].join(between);
        let query = Query::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
        (query, parameters)
    }

    #[test]
    fn constants_that_take_long_are_left_for_the_run_and_say_nothing() {
        for between in [" OR ", " AND "] {
            let (query, parameters) = of_long_comparisons(between);
            let started = Instant::now();
            let planned = plan(&query, &Definition::plain(), &parameters).unwrap();
            let condition = Condition::of(&planned, &IndexRules::of(&Object::new()));
            assert_eq!(condition, Condition::Any);
            let path = PropertyPath::parse("/pk").unwrap();
            let key = PartitionKeyDefinition::new(vec![path], KeyKind::Hash, KeyVersion::V2, false);
            let plan = query_plan(&query, &Definition::plain(), &key, &parameters, &Features::default()).unwrap();
            assert_eq!(plan.ranges.len(), 1);
            assert!(!plan.ranges[0].is_point());
            assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        }
    }

    #[test]
    fn one_long_constant_ends_as_soon_as_the_budget_does() {
        // Each of its comparisons is far below the budget, all of them together far above.
        let mut parameters = Parameters::none();
        parameters.add("@a", Some(Value::String("a".repeat(20_000)))).unwrap();
        let list = vec!["@a || 'b'"; 200].join(", ");
        let query = Query::parse(&format!("SELECT * FROM c WHERE @a IN ({list})")).unwrap();
        let planned = plan(&query, &Definition::plain(), &parameters).unwrap();
        let condition = Condition::of(&planned, &IndexRules::of(&Object::new()));
        assert_eq!(condition, Condition::Any, "worked out, it would be never true");
    }

    #[test]
    fn many_constants_share_one_budget() {
        let mut parameters = Parameters::none();
        parameters.add("@a", Some(Value::String("a".repeat(100_000)))).unwrap();
        let filter = vec!["CONTAINS(@a, 'b')"; 20_000].join(" OR ");
        let query = Query::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
        let planned = plan(&query, &Definition::plain(), &parameters);
        // Too many copies of the parameter.
        assert!(planned.unwrap_err().inner().contains("names its parameters so often"));
        let filter = vec!["CONTAINS(@a, 'b')"; 600].join(" OR ");
        let query = Query::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
        let planned = plan(&query, &Definition::plain(), &parameters).unwrap();
        let condition = Condition::of(&planned, &IndexRules::of(&Object::new()));
        assert_eq!(condition, Condition::Any);
    }

    #[test]
    fn quick_constants_decide() {
        for (filter, wanted) in [
            ("1 = 2", Condition::Never),
            ("CONTAINS('abc', 'x')", Condition::Never),
            ("'abc' LIKE 'a%'", Condition::Any),
            ("undefined", Condition::Never),
        ] {
            let query = Query::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
            let planned = plan(&query, &Definition::plain(), &Parameters::none()).unwrap();
            let condition = Condition::of(&planned, &IndexRules::of(&Object::new()));
            assert_eq!(condition, wanted, "{filter}");
        }
    }
}
