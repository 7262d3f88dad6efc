//! Statements: sources, filter, output, and what surrounds them.

use orrery_model::Value;

use super::expr::{Block, Collection, Expr, Source, Step};
use super::limits::{COUNT_END, JOINS_MAX, USER_CALLS_MAX};
use super::order::Ordering;
use super::scope::{Place, Resolved, Scope, Slot};
use super::{Input, Plan, RowWindow};
use crate::Query;
use crate::definition::Definition;
use crate::error::{Problem, QueryError, Result};
use crate::parameters::Parameters;
use crate::parse::Span;
use crate::parse::ast::{self, Count, CountValue, ExprKind, PathStep, SelectItem, SelectList, Statement};

pub(super) struct Compiler<'a> {
    text: &'a str,
    pub definition: &'a Definition,
    pub parameters: &'a Parameters,
    problems: Vec<Problem>,
    /// The first problem that has no location; reported when no located one was found.
    unlocated: Option<QueryError>,
    pub scope: Scope,
    n_joins: usize,
    pub n_user_calls: usize,
    /// A computed property is being inlined: it sees stored properties only.
    pub inside_computed: bool,
}

/// A compiled statement and what is known about its rows.
pub(super) struct Compiled {
    pub block: Block,
    pub place: Place,
    pub ordering: Ordering,
}

pub(super) fn compile(query: &Query, definition: &Definition, parameters: &Parameters) -> Result<Plan> {
    let mut compiler = Compiler::new(&query.text, definition, parameters);
    let plan = compiler.outermost(&query.statement, false);
    compiler.finish(query.statement.span)?;
    Ok(plan)
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
            unlocated: None,
            scope: Scope { slots: vec![item] },
            n_joins: 0,
            n_user_calls: 0,
            inside_computed: false,
        }
    }

    pub fn problem(&mut self, span: Span, code: &'static str, message: impl Into<String>) {
        self.problems.push(Problem::at(self.text, span, code, message));
    }

    pub fn refuse(&mut self, error: QueryError) {
        self.unlocated.get_or_insert(error);
    }

    /// Compiles something without keeping the problems it has.
    pub fn quietly<T>(&mut self, compile: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let n_problems = self.problems.len();
        let unlocated = self.unlocated.take();
        let counts = (self.n_joins, self.n_user_calls);
        let compiled = compile(self);
        let clean = self.problems.len() == n_problems && self.unlocated.is_none();
        self.problems.truncate(n_problems);
        self.unlocated = unlocated;
        (self.n_joins, self.n_user_calls) = counts;
        clean.then_some(compiled)
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
        if !self.problems.is_empty() {
            return Err(QueryError::located(self.problems));
        }
        self.unlocated.map_or(Ok(()), Err)
    }

    /// The statement that reads the container, or one in its FROM clause that must see all items before it has rows.
    fn outermost(&mut self, statement: &Statement, is_inner: bool) -> Plan {
        let input = self.input(statement);
        let compiled = self.statement(statement, matches!(input, Input::Rows(_)));
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
        Plan {
            input,
            block: compiled.block,
            ordering: compiled.ordering,
            window: counts.window(),
            top: counts.top,
            limit: counts.limit,
            planar: self.definition.planar,
        }
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

    /// A statement. `over_rows`: its first source is the item frame, whatever the FROM clause says.
    pub fn statement(&mut self, statement: &Statement, over_rows: bool) -> Compiled {
        let n_outer = self.scope.slots.len();
        let sources = self.sources(statement, over_rows);
        let filter = statement.filter.as_ref().map(|filter| self.expr(filter));
        let place = self.place_of_list(statement);
        let ordering = self.ordering(statement);
        let (grouping, output, ordering) = match self.is_grouped(statement) {
            true => self.grouped(statement, n_outer),
            false => (None, self.output(statement), ordering),
        };
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
        let compiled = self.statement(statement, false);
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
        for (index, source) in from.sources.iter().enumerate() {
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
                let place = place.follow(&steps);
                (Expr::Path { up, steps }, place)
            }
            Some(Resolved::Grouped { up, source }) => (
                self.grouped_path(up, source, &steps, root.span, &root.text),
                Place::Computed,
            ),
            // Any other name stands for the item.
            None if is_first => (
                Expr::Path {
                    up: self.scope.root_up(),
                    steps: steps.clone(),
                },
                Place::Document(steps),
            ),
            None => (self.unresolved(&root.text, root.span), Place::Computed),
        }
    }

    pub fn unresolved(&mut self, name: &str, span: Span) -> Expr {
        self.problem(span, "SC2001", format!("Identifier '{name}' could not be resolved."));
        Expr::undefined()
    }

    /// What the select list makes of the frames in scope.
    pub fn output(&mut self, statement: &Statement) -> Expr {
        match &statement.list {
            SelectList::Star(span) => self.star(statement, *span),
            SelectList::Value(expr) => self.expr(expr),
            SelectList::Items(items) => self.items(items),
        }
    }

    fn star(&mut self, statement: &Statement, span: Span) -> Expr {
        let n_sources = statement.from.as_ref().map_or(0, |from| from.sources.len());
        if n_sources == 0 {
            self.problem(span, "SC2039", "'SELECT *' is not valid if FROM clause is omitted.");
        } else if !statement.group_by.is_empty() {
            self.problem(span, "SC2041", "'SELECT *' is not allowed with GROUP BY.");
        } else if n_sources > 1 {
            self.problem(span, "SC2040", "'SELECT *' is only valid with a single input set.");
        }
        Expr::Path {
            up: 0,
            steps: Vec::new(),
        }
    }

    fn items(&mut self, items: &[SelectItem]) -> Expr {
        let mut members: Vec<(String, Expr)> = Vec::new();
        for (item, (name, span)) in items.iter().zip(item_names(items)) {
            if members.iter().any(|(existing, _)| *existing == name) {
                self.duplicate_member(&name, span);
            }
            let value = self.expr(&item.expr);
            members.push((name, value));
        }
        Expr::Object(members)
    }

    pub fn duplicate_member(&mut self, name: &str, span: Span) {
        let message = format!("Object creation error, property name '{name}' specified more than once.");
        self.problem(span, "SC2022", message);
    }

    fn place_of_list(&mut self, statement: &Statement) -> Place {
        match &statement.list {
            SelectList::Star(_) => match self.scope.slots.last() {
                Some(Slot::Value { place, .. }) => place.clone(),
                _ => Place::Computed,
            },
            SelectList::Value(expr) => self.place_of(expr),
            SelectList::Items(items) => {
                let names = item_names(items).into_iter().map(|(name, _)| name);
                Place::Constructed(names.zip(items.iter().map(|item| self.place_of(&item.expr))).collect())
            }
        }
    }

    fn counts(&mut self, statement: &Statement) -> Counts {
        let top = statement.top.as_ref().and_then(|top| {
            self.count(
                &top.count,
                "SC2060",
                "The count value provided for a TOP clause must be an integer.",
            )
        });
        let Some(window) = &statement.window else {
            return Counts {
                top,
                ..Counts::default()
            };
        };
        let exceeds = |what: &str| format!("The {what} count value exceeds the maximum allowed value.");
        let offset = self.count(&window.offset, "SC2062", &exceeds("OFFSET"));
        let limit = self.count(&window.limit, "SC2061", &exceeds("LIMIT"));
        Counts { top, offset, limit }
    }

    fn count(&mut self, count: &Count, code: &'static str, message: &str) -> Option<u64> {
        let number = match &count.value {
            CountValue::Literal(number) => number.as_i64(),
            CountValue::Parameter(name) => self
                .parameters
                .get(name)
                .and_then(Value::as_number)
                .and_then(|n| n.as_i64()),
        };
        match number.filter(|n| (0..COUNT_END).contains(n)) {
            Some(number) => Some(number.unsigned_abs()),
            None => {
                self.problem(count.span, code, message);
                None
            }
        }
    }
}

/// The bound counts of TOP, OFFSET and LIMIT.
#[derive(Clone, Copy, Default)]
struct Counts {
    top: Option<u64>,
    offset: Option<u64>,
    limit: Option<u64>,
}

impl Counts {
    /// OFFSET and LIMIT apply first, then TOP.
    fn window(self) -> RowWindow {
        let count = match (self.top, self.limit) {
            (Some(top), Some(limit)) => Some(top.min(limit)),
            (top, limit) => top.or(limit),
        };
        RowWindow {
            offset: self.offset.unwrap_or(0),
            count,
        }
    }
}

/// The member name of each select item, and where it stands. Items without a name of their own are numbered.
pub(super) fn item_names(items: &[SelectItem]) -> Vec<(String, Span)> {
    let mut n_unnamed = 0;
    let name = |item: &SelectItem| {
        if let Some(alias) = &item.alias {
            return (alias.text.clone(), alias.span);
        }
        match own_name(&item.expr) {
            Some(name) => (name.to_owned(), item.expr.span),
            None => {
                n_unnamed += 1;
                (format!("${n_unnamed}"), item.expr.span)
            }
        }
    };
    items.iter().map(name).collect()
}

fn own_name(expr: &ast::Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Name(name) => Some(name),
        ExprKind::Postfix { steps, .. } => match steps.last()? {
            ast::Step::Member(name) => Some(&name.text),
            ast::Step::Index(ast::Expr {
                kind: ExprKind::String(name),
                ..
            }) => Some(name),
            ast::Step::Index(_) => None,
        },
        _ => None,
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
