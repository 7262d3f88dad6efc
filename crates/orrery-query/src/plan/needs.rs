//! Which parts of an item a plan looks at, so that the rest of it need not be read.
//!
//! The survey follows names the way evaluation does: each frame stands for a path of the item or for something computed.
//! What it cannot follow it takes as a whole, so that nothing needed is ever left out.

use orrery_model::json::{PathPart, Wanted};
use orrery_model::limits::NESTING_LEVELS_MAX;

use super::expr::{Block, Collection, Expr, Source, Step};
use super::{Input, Ordering, Plan, Score};

impl Plan {
    /// Finds out what the plan makes of items.
    pub(super) fn survey(&mut self) {
        self.gives_items = self.is_items();
        self.wanted = self.needs();
    }

    fn is_items(&self) -> bool {
        let block = &self.block;
        let is_item = |expr: &Expr, up: usize| *expr == Expr::Path { up, steps: Vec::new() };
        let source_is_item = match block.sources.as_slice() {
            [
                Source {
                    collection: Collection::Value(value),
                    iterate: false,
                },
            ] => is_item(value, 0),
            _ => false,
        };
        matches!(self.input, Input::Items)
            && source_is_item
            && block.grouping.is_none()
            && !block.distinct
            && (is_item(&block.output, 0) || is_item(&block.output, 1))
    }

    /// The parts of an item that its rows are made of.
    fn needs(&self) -> Wanted {
        let mut survey = Survey {
            wanted: Wanted::default(),
            frames: vec![Some(Vec::new())],
        };
        survey.plan(self);
        survey.wanted
    }
}

/// Adds the parts of an item that the value of a computed property is made of.
pub(crate) fn survey_value(value: &Expr, wanted: &mut Wanted) {
    let mut survey = Survey {
        wanted: std::mem::take(wanted),
        frames: vec![Some(Vec::new())],
    };
    survey.computed(value);
    *wanted = survey.wanted;
}

struct Survey {
    wanted: Wanted,
    /// The path of the item that each frame is bound to; `None` for what is computed.
    frames: Vec<Option<Vec<PathPart>>>,
}

impl Survey {
    fn plan(&mut self, plan: &Plan) {
        let block = &plan.block;
        self.sources(&block.sources);
        self.exprs(&block.filter);
        if block.grouping.is_some() {
            self.grouped(block, 1);
        } else if !plan.gives_items {
            self.expr(&block.output);
        }
        match &plan.ordering {
            Ordering::None => {}
            Ordering::Keys(keys) => self.exprs(keys.iter().map(|key| &key.expr)),
            Ordering::Rank(ranking) => self.exprs(ranking.scores.iter().map(|score| match score {
                Score::FullText { text, .. } => text,
                Score::Vector { distance, .. } => distance,
            })),
        }
    }

    fn block(&mut self, block: &Block) {
        let n_outer = self.frames.len();
        self.sources(&block.sources);
        self.exprs(&block.filter);
        if block.grouping.is_some() {
            self.grouped(block, n_outer);
        } else {
            self.expr(&block.output);
        }
        self.frames.truncate(n_outer);
    }

    fn sources(&mut self, sources: &[Source]) {
        for source in sources {
            let place = match &source.collection {
                Collection::Rows(inner) => {
                    self.block(inner);
                    None
                }
                Collection::Value(value) => {
                    let place = self.place(value);
                    if place.is_none() {
                        self.expr(value);
                    }
                    place
                }
            };
            let place = place.map(|mut path| {
                path.extend(source.iterate.then_some(PathPart::Element));
                // One step more than any item has levels: however the path goes on, nothing is there.
                path.truncate(NESTING_LEVELS_MAX + 1);
                self.wanted.add(&path, false);
                path
            });
            self.frames.push(place);
        }
    }

    /// Keys and aggregates see the sources; the output sees the group in their place.
    fn grouped(&mut self, block: &Block, n_outer: usize) {
        let grouping = block.grouping.as_ref().expect("the caller asked for it");
        self.exprs(&grouping.keys);
        self.exprs(grouping.aggregates.iter().map(|(_, argument)| argument));
        self.frames.truncate(n_outer);
        self.frames.push(None);
        self.expr(&block.output);
    }

    /// The path of the item that an expression stands for.
    fn place(&self, expr: &Expr) -> Option<Vec<PathPart>> {
        let Expr::Path { up, steps } = expr else { return None };
        let frame = self.frames.get(self.frames.len().checked_sub(up + 1)?)?;
        let mut path = frame.clone()?;
        for step in steps {
            path.push(match step {
                Step::Name(name) => PathPart::Member(name.clone()),
                Step::Element(_) | Step::Nowhere => PathPart::Element,
            });
        }
        Some(path)
    }

    /// Sees the item, and the item by the name that its query gives it.
    fn computed(&mut self, value: &Expr) {
        let around = std::mem::replace(&mut self.frames, vec![Some(Vec::new()); 2]);
        self.expr(value);
        self.frames = around;
    }

    fn exprs<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>) {
        exprs.into_iter().for_each(|expr| self.expr(expr));
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Path { .. } => {
                if let Some(path) = self.place(expr) {
                    self.wanted.add(&path, true);
                }
            }
            Expr::Constant(_) | Expr::GroupKey { .. } | Expr::Aggregate { .. } => {}
            Expr::Computed(property) => self.computed(property.value()),
            Expr::Access { base, .. } => self.expr(base),
            Expr::Index { base, index } => self.exprs([&**base, index]),
            Expr::Array(operands) | Expr::And(operands) | Expr::Or(operands) | Expr::Coalesce(operands) => {
                self.exprs(operands);
            }
            Expr::Object(members) => self.exprs(members.iter().map(|(_, member)| member)),
            Expr::Negate(operand) | Expr::Plus(operand) | Expr::BitNot(operand) | Expr::Not(operand) => {
                self.expr(operand);
            }
            Expr::Chain { first, rest } => {
                self.expr(first);
                self.exprs(rest.iter().map(|(_, operand)| operand));
            }
            Expr::Conditional {
                condition,
                then,
                otherwise,
            } => self.exprs([&**condition, then, otherwise]),
            Expr::Between { value, low, high } => self.exprs([&**value, low, high]),
            Expr::In { value, list, .. } => {
                self.expr(value);
                self.exprs(list);
            }
            Expr::Like { value, pattern, .. } => self.exprs([&**value, pattern]),
            Expr::Subquery { block, .. } => self.block(block),
            Expr::Let { value, body } => {
                // The body may use the value in any way.
                self.expr(value);
                self.frames.push(None);
                self.expr(body);
                self.frames.pop();
            }
            Expr::Call { arguments, .. } | Expr::UserCall { arguments, .. } => self.exprs(arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Definition, Parameters, Query, plan};

    /// What the query needs, shown by what reading leaves of an item that has everything.
    #[track_caller]
    fn check(sql: &str, expected: &str) {
        let query = Query::parse(sql).unwrap();
        let plan = plan::plan(&query, &Definition::plain(), &Parameters::none()).unwrap();
        let item = br#"{"id":"i","n":1,"o":{"a":1,"b":2},"l":[{"a":1,"b":2}],"s":"x"}"#;
        let read = plan.wanted.read(item).unwrap();
        assert_eq!(read.to_text(), expected, "{sql}");
    }

    #[test]
    fn a_plan_needs_the_paths_it_mentions() {
        check("SELECT c.id FROM c WHERE c.o.a > 1", r#"{"id":"i","o":{"a":1}}"#);
        check("SELECT * FROM c WHERE c.n = 1 ORDER BY c.s", r#"{"n":1,"s":"x"}"#);
        check("SELECT VALUE c FROM c", "null");
        check("SELECT VALUE 1 FROM c", "null");
        check("SELECT c.n, COUNT(c.s) AS k FROM c GROUP BY c.n", r#"{"n":1,"s":"x"}"#);
        check("SELECT VALUE c.o[\"a\"] FROM c", r#"{"o":{"a":1}}"#);
    }

    #[test]
    fn elements_are_kept_for_what_is_asked_of_them() {
        check("SELECT VALUE t.a FROM c JOIN t IN c.l", r#"{"l":[{"a":1}]}"#);
        check("SELECT VALUE c.id FROM c JOIN t IN c.l", r#"{"id":"i","l":[null]}"#);
        check("SELECT VALUE c.l[0].b FROM c", r#"{"l":[{"b":2}]}"#);
        check(
            "SELECT VALUE c.n FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.l WHERE t.a = c.o.b)",
            r#"{"n":1,"o":{"b":2},"l":[{"a":1,"b":2}]}"#,
        );
        check("SELECT VALUE x.a FROM c.o AS x", r#"{"o":{"a":1}}"#);
        check("SELECT VALUE 1 FROM c.o AS x", r#"{"o":null}"#);
    }

    #[test]
    fn what_cannot_be_followed_is_needed_as_a_whole() {
        let all = r#"{"id":"i","n":1,"o":{"a":1,"b":2},"l":[{"a":1,"b":2}],"s":"x"}"#;
        check("SELECT VALUE c[c.s] FROM c", all);
        check("SELECT c FROM c", all);
        check("SELECT DISTINCT * FROM c", all);
        check("SELECT VALUE c.o[c.s] FROM c", r#"{"o":{"a":1,"b":2},"s":"x"}"#);
    }
}
