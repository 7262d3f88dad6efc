//! Statements: sources, filter, output, and what surrounds them.

use orrery_model::json::Wanted;

use super::counts::Counts;
use super::expr::{Block, Collection, Expr, Source, Step};
use super::limits::{EXPRESSIONS_MAX, JOINS_MAX, PROBLEMS_MAX, USER_CALLS_MAX, VALUE_LEVELS_MAX};
use super::order::Ordering;
use super::scope::{Place, Resolved, Scope, Slot};
use super::{Input, Plan, levels};
use crate::Query;
use crate::definition::Definition;
use crate::error::{Problem, QueryError, Result};
use crate::parameters::Parameters;
use crate::parse::Span;
use crate::parse::ast::{self, PathStep, Statement};

pub(super) struct Compiler<'a> {
    text: &'a str,
    pub definition: &'a Definition,
    pub parameters: &'a Parameters,
    /// The first problems found; a hostile text could have very many.
    problems: Vec<Problem>,
    n_problems: usize,
    /// The first problem that has no location; reported when no located one was found.
    unlocated: Option<QueryError>,
    pub scope: Scope,
    /// Whether the FROM clause of the statement at hand makes sense: if not, nothing can be told of what belongs to a group.
    pub knows_sources: bool,
    n_joins: usize,
    /// Expressions looked at, those looked at again included.
    pub n_expressions: usize,
    pub n_user_calls: usize,
    /// What the copies of parameters hold.
    pub parameter_bytes: usize,
    pub user_functions: Vec<String>,
}

/// A compiled statement and what is known about its rows.
pub(super) struct Compiled {
    pub block: Block,
    pub place: Place,
    pub ordering: Ordering,
}

pub(super) fn compile(query: &Query, definition: &Definition, parameters: &Parameters) -> Result<Plan> {
    let mut compiler = Compiler::new(&query.text, definition, parameters);
    let mut plan = compiler.outermost(&query.statement, false);
    plan.user_functions = std::mem::take(&mut compiler.user_functions);
    compiler.finish(query.statement.span)?;
    match levels::of_values(&plan) <= VALUE_LEVELS_MAX {
        true => Ok(plan),
        false => Err(QueryError::plain(format!(
            "The SQL query makes values of more than the allowed {VALUE_LEVELS_MAX} levels."
        ))),
    }
}

impl<'a> Compiler<'a> {
    pub fn new(text: &'a str, definition: &'a Definition, parameters: &'a Parameters) -> Compiler<'a> {
        let item = Slot::Value {
            name: None,
            place: Place::Document(Vec::new()),
        };
        Compiler {
            text,
            definition,
            parameters,
            problems: Vec::new(),
            n_problems: 0,
            unlocated: None,
            scope: Scope { slots: vec![item] },
            knows_sources: true,
            n_joins: 0,
            n_expressions: 0,
            n_user_calls: 0,
            parameter_bytes: 0,
            user_functions: Vec::new(),
        }
    }

    pub fn problem(&mut self, span: Span, code: &'static str, message: impl Into<String>) {
        self.n_problems += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem::at(self.text, span, code, message));
        }
    }

    /// As it was written; nothing of what is not part of the text.
    pub fn text_at(&self, span: Span) -> &'a str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    pub fn n_problems(&self) -> usize {
        self.n_problems
    }

    pub fn refuse(&mut self, error: QueryError) {
        self.unlocated.get_or_insert(error);
    }

    /// Compiles something without keeping the problems it has.
    pub fn quietly<T>(&mut self, compile: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let n_listed = self.problems.len();
        let counts = (self.n_problems, self.n_joins, self.n_user_calls);
        let unlocated = self.unlocated.take();
        let compiled = compile(self);
        let clean = self.n_problems == counts.0 && self.unlocated.is_none();
        self.problems.truncate(n_listed);
        self.unlocated = unlocated;
        (self.n_problems, self.n_joins, self.n_user_calls) = counts;
        clean.then_some(compiled)
    }

    /// Whether the statement is refused for its size already: looking at the rest of it would only take time.
    pub fn has_given_up(&self) -> bool {
        self.n_joins > JOINS_MAX || self.n_expressions > EXPRESSIONS_MAX
    }

    fn finish(mut self, whole: Span) -> Result<()> {
        let exceeded = |what: &str, limit: usize| {
            format!("The SQL query exceeded the maximum number of {what}. The allowed limit is {limit}.")
        };
        if self.n_user_calls > USER_CALLS_MAX {
            self.problem(whole, "SC3005", exceeded("user-defined function calls", USER_CALLS_MAX));
        }
        if self.n_joins > JOINS_MAX {
            self.problem(whole, "SC3002", exceeded("joins", JOINS_MAX));
        }
        if self.n_expressions > EXPRESSIONS_MAX {
            return Err(QueryError::plain("The SQL query is too complex to be planned."));
        }
        if !self.problems.is_empty() {
            return Err(QueryError::located(self.problems));
        }
        self.unlocated.map_or(Ok(()), Err)
    }

    /// The statement that reads the container, or one in its FROM clause that must see all items before it has rows.
    fn outermost(&mut self, statement: &Statement, is_inner: bool) -> Plan {
        let input = self.input(statement);
        let over_rows = matches!(input, Input::Rows(_));
        let compiled = self.statement(statement, over_rows, !is_inner);
        if is_inner {
            self.check_subquery(statement);
        }
        let counts = if is_inner {
            Counts::default()
        } else {
            self.counts(statement)
        };
        if let Input::Rows(_) = input {
            // The rows of an inner query have no path in any item.
            self.scope.slots[0] = Slot::Value {
                name: None,
                place: Place::Document(Vec::new()),
            };
        }
        let mut plan = Plan {
            input,
            block: compiled.block,
            ordering: compiled.ordering,
            window: counts.window(),
            top: counts.top,
            planar: self.definition.planar,
            user_functions: Vec::new(),
            wanted: Wanted::default(),
            gives_items: false,
            in_pieces: false,
        };
        plan.survey();
        plan
    }

    fn input(&mut self, statement: &Statement) -> Input {
        let Some(from) = &statement.from else {
            return Input::Nothing;
        };
        match &from.sources[0].collection {
            ast::Collection::Subquery(inner) if needs_all_items(inner) && !from.sources[0].iterate => {
                let inner = self.outermost(inner, true);
                self.scope.slots[0] = Slot::Value {
                    name: None,
                    place: Place::Computed,
                };
                Input::Rows(Box::new(inner))
            }
            collection if reads_container(collection) => Input::Items,
            _ => Input::Nothing,
        }
    }

    /// A statement. `over_rows`: its first source is the item frame, whatever the FROM clause says. `is_sorted`: it may have an
    /// ORDER BY clause; where it may not, that it has one is all there is to say about it.
    fn statement(&mut self, statement: &Statement, over_rows: bool, is_sorted: bool) -> Compiled {
        let (n_outer, n_before) = (self.scope.slots.len(), self.n_problems());
        let sources = self.sources(statement, over_rows);
        let sources_are_clean = self.n_problems() == n_before;
        let filter = statement.filter.as_ref().map(|filter| self.expr(filter));
        let place = self.place_of_list(statement);
        let order_by = statement.order_by.as_ref().filter(|_| is_sorted);
        let ordering = order_by.map_or(Ordering::None, |order_by| self.ordering(statement, order_by));
        let knew_sources = std::mem::replace(&mut self.knows_sources, sources_are_clean);
        let (grouping, output, ordering) = match self.is_grouped(statement) {
            true => self.grouped(statement, order_by, n_outer),
            false => (None, self.output(statement), ordering),
        };
        self.knows_sources = knew_sources;
        let place = if grouping.is_some() { Place::Computed } else { place };
        self.scope.slots.truncate(n_outer);
        let block = Block {
            sources,
            filter,
            grouping,
            output,
            distinct: statement.distinct,
        };
        Compiled { block, place, ordering }
    }

    /// A subquery in any position.
    pub fn subquery(&mut self, statement: &Statement) -> Compiled {
        let compiled = self.statement(statement, false, false);
        self.check_subquery(statement);
        compiled
    }

    fn check_subquery(&mut self, statement: &Statement) {
        if let Some(order_by) = &statement.order_by {
            match order_by.rank {
                true => self.problem(
                    order_by.span,
                    "SC2228",
                    "The ORDER BY RANK clause is not supported in subqueries.",
                ),
                false => self.problem(order_by.span, "SC2202", "'ORDER BY' is not supported in subqueries."),
            }
        }
        if let Some(top) = &statement.top {
            self.problem(top.span, "SC2203", "'TOP' is not supported in subqueries.");
        }
        if let Some(window) = &statement.window {
            self.problem(
                window.span,
                "SC2204",
                "'OFFSET LIMIT' clause is not supported in subqueries.",
            );
        }
    }

    fn sources(&mut self, statement: &Statement, over_rows: bool) -> Vec<Source> {
        let Some(from) = &statement.from else { return Vec::new() };
        self.n_joins += from.sources.len() - 1;
        let mut sources = Vec::new();
        if self.has_given_up() {
            return sources;
        }
        for (index, source) in from.sources.iter().enumerate() {
            self.check_new_name(&from.sources[..index], source);
            let (collection, place) = match index == 0 && over_rows {
                true => (
                    Collection::Value(Expr::Path {
                        up: 0,
                        steps: Vec::new(),
                    }),
                    Place::Computed,
                ),
                false => self.collection(&source.collection, index == 0),
            };
            sources.push(Source {
                collection,
                iterate: source.iterate,
            });
            let place = if source.iterate { Place::Element } else { place };
            self.scope.slots.push(Slot::Value {
                name: source.binding().map(str::to_owned),
                place,
            });
        }
        sources
    }

    /// Names of one FROM clause are unique, given or taken from the end of a path. Those of outer clauses may be given anew.
    fn check_new_name(&mut self, before: &[ast::Source], source: &ast::Source) {
        let Some(name) = source.binding() else { return };
        if before.iter().any(|earlier| earlier.binding() == Some(name)) {
            let span = source.alias.as_ref().map_or(source.span, |alias| alias.span);
            let message = format!("The input alias '{name}' is specified more than once in the FROM clause.");
            self.problem(span, "SC2011", message);
        }
    }

    fn collection(&mut self, collection: &ast::Collection, is_first: bool) -> (Collection, Place) {
        match collection {
            ast::Collection::Path { root, steps } => {
                let steps: Vec<Step> = steps.iter().map(path_step).collect();
                let (expr, place) = self.source_path(root, steps, is_first);
                (Collection::Value(expr), place)
            }
            ast::Collection::Subquery(query) => {
                let compiled = self.subquery(query);
                (Collection::Rows(Box::new(compiled.block)), compiled.place)
            }
            ast::Collection::Expr(expr) => (Collection::Value(self.expr(expr)), Place::Computed),
        }
    }

    fn source_path(&mut self, root: &ast::Name, steps: Vec<Step>, is_first: bool) -> (Expr, Place) {
        match self.scope.resolve(&root.text) {
            Some(Resolved::Value { up, place }) => {
                let at = place.follow(&steps);
                (self.value_path(up, &place, steps), at)
            }
            Some(Resolved::Grouped { up, source }) => (
                self.grouped_path(up, source, &steps, root.span, root.span),
                Place::Computed,
            ),
            // Any other name stands for the item.
            None if is_first => {
                let item = Place::Document(Vec::new());
                let at = item.follow(&steps);
                (self.value_path(self.scope.root_up(), &item, steps), at)
            }
            None => (self.unresolved(&root.text, root.span), Place::Computed),
        }
    }

    pub fn unresolved(&mut self, name: &str, span: Span) -> Expr {
        self.problem(span, "SC2001", format!("Identifier '{name}' could not be resolved."));
        Expr::undefined()
    }
}

fn path_step(step: &PathStep) -> Step {
    match step {
        PathStep::Member(name) | PathStep::Name(name) => Step::Name(name.clone()),
        PathStep::Index(index) => element_step(index.as_i64()),
    }
}

pub(super) fn element_step(index: Option<i64>) -> Step {
    index
        .and_then(|index| usize::try_from(index).ok())
        .map_or(Step::Nowhere, Step::Element)
}

/// Whether an inner query's rows depend on several items together.
fn needs_all_items(statement: &Statement) -> bool {
    let own =
        statement.distinct || !statement.group_by.is_empty() || super::grouping::list_has_aggregate(&statement.list);
    let inner = statement
        .from
        .as_ref()
        .is_some_and(|from| match &from.sources[0].collection {
            ast::Collection::Subquery(inner) => needs_all_items(inner),
            _ => false,
        });
    let reads = statement
        .from
        .as_ref()
        .is_some_and(|from| reads_container(&from.sources[0].collection));
    reads && (own || inner)
}

fn reads_container(collection: &ast::Collection) -> bool {
    match collection {
        ast::Collection::Path { .. } => true,
        ast::Collection::Subquery(query) => query
            .from
            .as_ref()
            .is_some_and(|from| reads_container(&from.sources[0].collection)),
        ast::Collection::Expr(_) => false,
    }
}
