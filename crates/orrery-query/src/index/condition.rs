//! From a filter to the terms that items which pass it must have.
//!
//! The analysis never claims too much: where it cannot tell, the condition is [`Condition::Any`]. Arrays make one value of a
//! path out of several, so conditions on one path may only be merged into one range where no array is passed.

use std::borrow::Cow;

use orrery_model::Value;
use orrery_model::container::index_rules::{IndexPlace, IndexRules};

use super::order::computed_in;
use super::path::{Segment, TermPath};
use super::range::{Side, TermRange};
use super::texts::TextTest;
use super::{calls, places};
use crate::parse::ast::{BinaryOperator, SubqueryForm};
use crate::plan::{Block, Collection, Expr, Input, Plan, Source, Step};
use crate::run::Constants;

/// What the index can say about the items that pass a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing: it may be any item.
    Any,
    /// No item passes.
    Never,
    /// A term in this range.
    Range(TermRange),
    /// No value at this path.
    Lacks(TermPath),
    All(Vec<Condition>),
    OneOf(Vec<Condition>),
}

/// Conditions of one filter at most. A longer one is answered without the index.
const CONDITIONS_MAX: usize = 4_096;

impl Condition {
    /// What a plan's filter says about the items it reads, given what is indexed.
    pub fn of(plan: &Plan, rules: &IndexRules) -> Condition {
        match &plan.input {
            Input::Nothing => Condition::Any,
            Input::Rows(inner) => Condition::of(inner, rules),
            Input::Items if plan.ordering.needs_all_items() => Condition::Any,
            Input::Items => {
                let mut analysis = Analysis::new(plan, rules);
                let condition = analysis.block(&plan.block, true);
                match condition.size() > CONDITIONS_MAX {
                    true => Condition::Any,
                    false => condition,
                }
            }
        }
    }

    /// Whether the index is of no help.
    pub fn is_any(&self) -> bool {
        *self == Condition::Any
    }

    /// Whether items without some path are asked for.
    pub fn has_lacks(&self) -> bool {
        match self {
            Condition::Lacks(_) => true,
            Condition::All(parts) | Condition::OneOf(parts) => parts.iter().any(Condition::has_lacks),
            _ => false,
        }
    }

    /// The only id that an item in question can have, if there is just one.
    pub fn only_id(&self) -> Option<String> {
        match self {
            Condition::Range(range) => range.id(),
            Condition::All(parts) => parts.iter().find_map(Condition::only_id),
            _ => None,
        }
    }

    /// Ranges in it.
    pub fn ranges(&self) -> Vec<&TermRange> {
        match self {
            Condition::Any | Condition::Never | Condition::Lacks(_) => Vec::new(),
            Condition::Range(range) => vec![range],
            Condition::All(parts) | Condition::OneOf(parts) => parts.iter().flat_map(Condition::ranges).collect(),
        }
    }

    /// The terms of a path between which every item in question has one; `None` when it may have none.
    pub fn hull(&self, path: &TermPath) -> Option<(Vec<u8>, Vec<u8>)> {
        match self {
            Condition::Range(range) if range.path == *path => Some((range.from.clone(), range.to.clone())),
            Condition::Any | Condition::Never | Condition::Lacks(_) | Condition::Range(_) => None,
            Condition::All(parts) => parts
                .iter()
                .filter_map(|part| part.hull(path))
                .reduce(|a, b| (a.0.max(b.0), a.1.min(b.1))),
            Condition::OneOf(parts) => {
                let hulls = parts.iter().map(|part| part.hull(path)).collect::<Option<Vec<_>>>()?;
                hulls.into_iter().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Condition::All(parts) | Condition::OneOf(parts) => parts.iter().map(Condition::size).sum(),
            _ => 1,
        }
    }

    pub(super) fn all(parts: Vec<Condition>) -> Condition {
        let mut kept: Vec<Condition> = Vec::new();
        for part in parts {
            match part {
                Condition::Any => {}
                Condition::Never => return Condition::Never,
                Condition::All(inner) => kept.extend(inner),
                Condition::Range(range) => merge_range(&mut kept, range),
                other => kept.push(other),
            }
        }
        if kept
            .iter()
            .any(|part| matches!(part, Condition::Range(range) if range.is_empty()))
        {
            return Condition::Never;
        }
        match kept.len() {
            0 => Condition::Any,
            1 => kept.swap_remove(0),
            _ => Condition::All(kept),
        }
    }

    pub(super) fn one_of(parts: Vec<Condition>) -> Condition {
        let mut kept = Vec::new();
        for part in parts {
            match part {
                Condition::Any => return Condition::Any,
                Condition::Never => {}
                Condition::OneOf(inner) => kept.extend(inner),
                other => kept.push(other),
            }
        }
        match kept.len() {
            0 => Condition::Never,
            1 => kept.swap_remove(0),
            _ => Condition::OneOf(kept),
        }
    }
}

/// Two ranges of a path with one value per item are one range.
fn merge_range(kept: &mut Vec<Condition>, range: TermRange) {
    for part in kept.iter_mut() {
        if let Condition::Range(known) = part
            && known.path.is_single()
            && let Some(both) = known.intersection(&range)
        {
            *known = both;
            return;
        }
    }
    kept.push(Condition::Range(range));
}

pub(super) struct Analysis<'a> {
    pub(super) rules: &'a IndexRules,
    pub(super) planar: bool,
    constants: Constants,
    /// The path that each frame is bound to, if it is one.
    frames: Vec<Option<TermPath>>,
}

impl<'a> Analysis<'a> {
    pub(super) fn new(plan: &Plan, rules: &'a IndexRules) -> Analysis<'a> {
        Analysis {
            rules,
            planar: plan.planar,
            constants: Constants::new(plan.planar),
            frames: vec![Some(TermPath::default())],
        }
    }

    /// Binds the sources of a block, so that paths of its output and its sort keys can be resolved.
    pub(super) fn bind(&mut self, block: &Block) {
        for source in &block.sources {
            let path = self.source(source);
            self.frames.push(path);
        }
    }

    fn source(&self, source: &Source) -> Option<TermPath> {
        let Collection::Value(expr) = &source.collection else {
            return None;
        };
        let mut path = self.path(expr)?;
        if source.iterate {
            path.segments.push(Segment::Elements);
        }
        Some(path)
    }

    /// What items have for which a block has rows.
    fn block(&mut self, block: &Block, is_outermost: bool) -> Condition {
        let n_outer = self.frames.len();
        let mut parts = Vec::new();
        for source in &block.sources {
            if let Collection::Rows(inner) = &source.collection {
                parts.push(self.block(inner, false));
            }
            let path = self.source(source);
            self.frames.push(path);
        }
        if let Some(filter) = &block.filter {
            parts.push(self.truth(filter));
        }
        self.frames.truncate(n_outer);
        match block.has_row_anyway() && !is_outermost {
            true => Condition::Any,
            false => Condition::all(parts),
        }
    }

    /// The path an expression stands for.
    pub(super) fn path(&self, expr: &Expr) -> Option<TermPath> {
        match expr {
            Expr::Path { up, steps } => {
                let frame = self.frames.get(self.frames.len().checked_sub(up + 1)?)?;
                follow(frame.clone()?, steps)
            }
            _ => {
                // A computed property that is not indexed by itself may stand for a path that is.
                let own = self.own_path(expr)?;
                match computed_in(expr).and(expr.stored_path()) {
                    Some(steps) if !covers(self.rules, &own) => follow(TermPath::default(), &steps).or(Some(own)),
                    _ => Some(own),
                }
            }
        }
    }

    /// The same, with computed properties by their own names.
    pub(super) fn own_path(&self, expr: &Expr) -> Option<TermPath> {
        match expr {
            Expr::Path { .. } => self.path(expr),
            Expr::Access { base, steps } => follow(self.own_path(base)?, steps),
            Expr::Computed(property) => Some(TermPath::computed(property.name())),
            _ => None,
        }
    }

    /// The path of an expression, if it is indexed.
    pub(super) fn indexed(&self, expr: &Expr) -> Option<TermPath> {
        self.path(expr).filter(|path| covers(self.rules, path))
    }

    pub(super) fn is_covered(&self, path: &TermPath) -> bool {
        covers(self.rules, path)
    }

    /// What items have for which `expr` is true.
    fn truth(&mut self, expr: &Expr) -> Condition {
        if let Some(value) = self.constants.truth(expr) {
            return if value == Some(true) {
                Condition::Any
            } else {
                Condition::Never
            };
        }
        match expr {
            Expr::And(operands) => Condition::all(operands.iter().map(|operand| self.truth(operand)).collect()),
            Expr::Or(operands) => Condition::one_of(operands.iter().map(|operand| self.truth(operand)).collect()),
            Expr::Path { .. } | Expr::Access { .. } | Expr::Computed(_) => self.equal(expr, &Value::Bool(true)),
            Expr::Chain { first, rest } if rest.len() == 1 => self.comparison(first, rest[0].0, &rest[0].1),
            Expr::In { value, list, .. } => self.one_of_list(value, list),
            Expr::Between { value, low, high } => Condition::all(vec![
                self.comparison(value, BinaryOperator::GreaterOrEqual, low),
                self.comparison(value, BinaryOperator::LessOrEqual, high),
            ]),
            Expr::Like {
                value,
                ready: Some(pattern),
                ..
            } => self.indexed(value).map_or(Condition::Any, |path| {
                Condition::Range(match pattern.exact() {
                    Some(text) => TermRange::equal(&path, &Value::String(text)),
                    None => TermRange::string_start(&path, &pattern.start()).passing(TextTest::of_pattern(pattern)),
                })
            }),
            Expr::Not(operand) => self.falsehood(operand),
            Expr::Subquery {
                form: SubqueryForm::Exists,
                block,
            } => self.block(block, false),
            Expr::Call { function, arguments } => calls::condition(self, *function, arguments),
            _ => Condition::Any,
        }
    }

    /// What items have for which `expr` is false.
    fn falsehood(&mut self, expr: &Expr) -> Condition {
        match expr {
            Expr::Not(operand) => self.truth(operand),
            Expr::And(operands) => Condition::one_of(operands.iter().map(|operand| self.falsehood(operand)).collect()),
            Expr::Or(operands) => Condition::all(operands.iter().map(|operand| self.falsehood(operand)).collect()),
            Expr::Path { .. } | Expr::Access { .. } | Expr::Computed(_) => self.equal(expr, &Value::Bool(false)),
            Expr::Chain { first, rest } if rest.len() == 1 && rest[0].0 == BinaryOperator::NotEqual => {
                self.comparison(first, BinaryOperator::Equal, &rest[0].1)
            }
            Expr::Call { function, arguments } if function.name == "IS_DEFINED" => {
                let path = arguments.first().and_then(|argument| self.indexed(argument));
                path.filter(TermPath::is_single)
                    .map_or(Condition::Any, Condition::Lacks)
            }
            _ => Condition::Any,
        }
    }

    fn equal(&self, expr: &Expr, value: &Value) -> Condition {
        self.indexed(expr)
            .map_or(Condition::Any, |path| Condition::Range(TermRange::equal(&path, value)))
    }

    fn one_of_list(&self, value: &Expr, list: &[Expr]) -> Condition {
        let Some(path) = self.indexed(value) else {
            return Condition::Any;
        };
        let member = |member: &Expr| match member {
            Expr::Constant(Some(value)) => Condition::Range(TermRange::equal(&path, value)),
            Expr::Constant(None) => Condition::Never,
            _ => Condition::Any,
        };
        Condition::one_of(list.iter().map(member).collect())
    }

    /// The value of an expression that needs no item; the inner `None` is undefined.
    pub(super) fn constant<'e>(&self, expr: &'e Expr) -> Option<Option<Cow<'e, Value>>> {
        match expr {
            Expr::Constant(value) => Some(value.as_ref().map(Cow::Borrowed)),
            other => self.constants.value(other).map(|value| Some(Cow::Owned(value))),
        }
    }

    /// A comparison of a path with a constant, whichever side it is on.
    fn comparison(&self, left: &Expr, operator: BinaryOperator, right: &Expr) -> Condition {
        let (path, operator, value) = match (self.indexed(left), self.indexed(right)) {
            (Some(path), None) => (path, operator, self.constant(right)),
            (None, Some(path)) => (path, mirrored(operator), self.constant(left)),
            _ => {
                return Condition::all(vec![
                    places::distance(self, left, operator, right),
                    places::distance(self, right, mirrored(operator), left),
                ]);
            }
        };
        let value = match value {
            Some(Some(value)) => value,
            Some(None) => return Condition::Never,
            None => return Condition::Any,
        };
        let (path, value) = (&path, &*value);
        let range = match operator {
            BinaryOperator::Equal => Some(TermRange::equal(path, value)),
            BinaryOperator::NotEqual => Some(TermRange::defined(path)),
            BinaryOperator::Less => TermRange::beside(path, value, Side::Below { inclusive: false }),
            BinaryOperator::LessOrEqual => TermRange::beside(path, value, Side::Below { inclusive: true }),
            BinaryOperator::Greater => TermRange::beside(path, value, Side::Above { inclusive: false }),
            BinaryOperator::GreaterOrEqual => TermRange::beside(path, value, Side::Above { inclusive: true }),
            _ => return Condition::Any,
        };
        range.map_or(Condition::Never, Condition::Range)
    }
}

fn mirrored(operator: BinaryOperator) -> BinaryOperator {
    match operator {
        BinaryOperator::Less => BinaryOperator::Greater,
        BinaryOperator::LessOrEqual => BinaryOperator::GreaterOrEqual,
        BinaryOperator::Greater => BinaryOperator::Less,
        BinaryOperator::GreaterOrEqual => BinaryOperator::LessOrEqual,
        other => other,
    }
}

fn follow(mut path: TermPath, steps: &[Step]) -> Option<TermPath> {
    for step in steps {
        path.segments.push(match step {
            Step::Name(name) => Segment::Name(name.clone()),
            Step::Element(_) => Segment::Elements,
            Step::Nowhere => return None,
        });
    }
    Some(path)
}

/// What the rules say about a path.
pub(super) fn place<'r>(rules: &'r IndexRules, path: &TermPath) -> IndexPlace<'r> {
    path.segments.iter().fold(rules.root(), |place, segment| match segment {
        Segment::Name(name) => place.member(name),
        Segment::Elements => place.element(),
        Segment::Computed(name) => rules.computed_property(name),
    })
}

/// Whether values at a path are indexed.
pub fn covers(rules: &IndexRules, path: &TermPath) -> bool {
    !path.segments.is_empty() && place(rules, path).is_indexed()
}
