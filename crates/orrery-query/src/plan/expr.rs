//! Expressions with every name resolved, ready to be evaluated.
//!
//! A name has become a number of frames to walk up: each source of a FROM clause, each LET and each group adds one frame
//! on top of those around it. The outermost frame holds the item.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::Value;

use crate::computed::ComputedProperty;
use crate::functions::{AggregateKind, OrderedValue, Scalar};
use crate::parse::ast::{BinaryOperator, SubqueryForm};
use crate::run::like::LikePattern;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Constant(Option<Value>),
    /// The value bound `up` frames above, then along the steps.
    Path {
        up: usize,
        steps: Vec<Step>,
    },
    /// A computed property of the item.
    Computed(Arc<ComputedProperty>),
    /// Along the steps from a computed value.
    Access {
        base: Box<Expr>,
        steps: Vec<Step>,
    },
    Index {
        base: Box<Expr>,
        index: Box<Expr>,
    },
    Array(Vec<Expr>),
    Object(Vec<(String, Expr)>),
    Negate(Box<Expr>),
    /// Unary plus: the operand if it is a number.
    Plus(Box<Expr>),
    BitNot(Box<Expr>),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// Comparisons, arithmetic and concatenation, left to right.
    Chain {
        first: Box<Expr>,
        rest: Vec<(BinaryOperator, Expr)>,
    },
    Coalesce(Vec<Expr>),
    Conditional {
        condition: Box<Expr>,
        then: Box<Expr>,
        otherwise: Box<Expr>,
    },
    Between {
        value: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
    },
    /// The set holds the members of a long list of constants.
    In {
        value: Box<Expr>,
        list: Vec<Expr>,
        set: Option<BTreeSet<OrderedValue>>,
    },
    Like {
        value: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<u16>,
        ready: Option<LikePattern>,
    },
    Subquery {
        form: SubqueryForm,
        block: Box<Block>,
    },
    Let {
        value: Box<Expr>,
        body: Box<Expr>,
    },
    Call {
        function: Scalar,
        arguments: Vec<Expr>,
    },
    UserCall {
        name: String,
        arguments: Vec<Expr>,
    },
    /// The `index`-th key of the group `up` frames above.
    GroupKey {
        up: usize,
        index: usize,
    },
    /// The `index`-th aggregate of the group `up` frames above.
    Aggregate {
        up: usize,
        index: usize,
    },
}

/// One step along a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Name(String),
    Element(usize),
    /// An index no array has: negative or fractional.
    Nowhere,
}

/// A statement without its ordering and window: sources, filter, grouping, output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    /// Each adds a frame.
    pub sources: Vec<Source>,
    pub filter: Option<Expr>,
    pub grouping: Option<Grouping>,
    /// Evaluated over the sources, or over the group when there is a grouping.
    pub output: Expr,
    pub distinct: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Source {
    pub collection: Collection,
    /// One binding per element of an array instead of one per value.
    pub iterate: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Collection {
    Value(Expr),
    Rows(Box<Block>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grouping {
    pub keys: Vec<Expr>,
    pub aggregates: Vec<(AggregateKind, Expr)>,
}

impl Block {
    /// Whether every item has at most one row.
    pub fn is_one_to_one(&self) -> bool {
        let one = |source: &Source| !source.iterate && matches!(source.collection, Collection::Value(_));
        self.sources.iter().all(one)
    }

    /// Whether it has a row whatever passes its filter: it aggregates without keys.
    pub fn has_row_anyway(&self) -> bool {
        self.grouping.as_ref().is_some_and(|grouping| grouping.keys.is_empty())
    }
}

impl Expr {
    pub fn undefined() -> Expr {
        Expr::Constant(None)
    }

    /// The steps that lead from another expression's value to this one's, when this is that expression or a path below it.
    pub fn below(&self, other: &Expr) -> Option<&[Step]> {
        match (self, other) {
            (
                Expr::Path { up, steps },
                Expr::Path {
                    up: other_up,
                    steps: other,
                },
            ) if up == other_up => steps.strip_prefix(other.as_slice()),
            (
                Expr::Access { base, steps },
                Expr::Access {
                    base: other_base,
                    steps: other,
                },
            ) if base == other_base => steps.strip_prefix(other.as_slice()),
            (Expr::Access { base, steps }, other) if **base == *other => Some(steps),
            _ => (self == other).then_some(&[]),
        }
    }

    pub fn constant(&self) -> Option<&Value> {
        match self {
            Expr::Constant(value) => value.as_ref(),
            _ => None,
        }
    }

    /// The steps of a path, seen from the value it begins with; of a computed property that only gives another name to a path of
    /// the item, those of that path.
    pub fn stored_path(&self) -> Option<Cow<'_, [Step]>> {
        match self {
            Expr::Path { steps, .. } => Some(Cow::Borrowed(steps)),
            Expr::Computed(property) => property.stored_path().map(Cow::Borrowed),
            Expr::Access { base, steps } => base.stored_path().map(|path| [&path, steps.as_slice()].concat().into()),
            _ => None,
        }
    }
}
