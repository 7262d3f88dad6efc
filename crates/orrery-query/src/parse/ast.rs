//! The syntax tree: what a query says, before anything is resolved.
//!
//! Operators that associate to the left are kept as flat chains, so that a filter of many thousand terms is a long list
//! and not a deep tree. The parser bounds the depth of everything else, which keeps recursion over a tree safe.

use orrery_model::Number;

use super::span::Span;

/// `SELECT … FROM … WHERE … GROUP BY … ORDER BY … OFFSET … LIMIT …`, whole or as a subquery.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    pub distinct: bool,
    pub top: Option<Top>,
    pub list: SelectList,
    pub from: Option<From>,
    pub filter: Option<Expr>,
    pub group_by: Vec<Expr>,
    pub order_by: Option<OrderBy>,
    pub window: Option<Window>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    pub count: Count,
    /// From the word TOP to the count.
    pub span: Span,
}

/// How many rows: written out or passed in.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    pub value: CountValue,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CountValue {
    Literal(Number),
    Parameter(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum SelectList {
    Star(Span),
    Value(Expr),
    Items(Vec<SelectItem>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SelectItem {
    pub expr: Expr,
    pub alias: Option<Name>,
}

/// A name and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

/// One or more sources; all but the first are joined.
#[derive(Clone, Debug, PartialEq)]
pub struct From {
    pub sources: Vec<Source>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub alias: Option<Name>,
    pub collection: Collection,
    /// `alias IN collection`: one binding per array element, otherwise one per value.
    pub iterate: bool,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Collection {
    Path {
        root: Name,
        steps: Vec<PathStep>,
    },
    Subquery(Box<Statement>),
    /// Only after IN.
    Expr(Box<Expr>),
}

/// A step of a FROM path.
#[derive(Clone, Debug, PartialEq)]
pub enum PathStep {
    /// `.name`
    Member(String),
    /// `["name"]`
    Name(String),
    Index(Number),
}

#[derive(Clone, Debug, PartialEq)]
pub struct OrderBy {
    /// `ORDER BY RANK`
    pub rank: bool,
    pub keys: Vec<OrderKey>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OrderKey {
    pub expr: Expr,
    pub direction: Option<Direction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub offset: Count,
    pub limit: Count,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    Undefined,
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Parameter(String),
    Name(String),
    Array(Vec<Expr>),
    Object(Vec<(Name, Expr)>),
    /// Member access and indexing, left to right.
    Postfix {
        base: Box<Expr>,
        steps: Vec<Step>,
    },
    Unary {
        operator: UnaryOperator,
        operand: Box<Expr>,
    },
    /// Operators of one level of precedence, left to right. Never empty, and `first` is never a chain of the same level.
    Chain {
        first: Box<Expr>,
        rest: Vec<(BinaryOperator, Expr)>,
    },
    /// `a ?? b ?? …`
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
        negated: bool,
    },
    In {
        value: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
    },
    Like {
        value: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<Name>,
        negated: bool,
    },
    Subquery {
        form: SubqueryForm,
        query: Box<Statement>,
    },
    Let {
        name: Name,
        value: Box<Expr>,
        body: Box<Expr>,
    },
    Call {
        name: Name,
        udf: bool,
        arguments: Vec<Expr>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `.name`
    Member(Name),
    /// `[expression]`
    Index(Expr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubqueryForm {
    Scalar,
    Exists,
    Array,
    All,
    First,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    Minus,
    Plus,
    BitNot,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    ShiftLeft,
    ShiftRight,
    ShiftRightUnsigned,
    Concat,
    Add,
    Subtract,
    BitAnd,
    BitOr,
    BitXor,
    Multiply,
    Divide,
    Remainder,
}

/// How tightly an operator binds; larger is tighter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    Conditional,
    Coalesce,
    Or,
    And,
    /// IN, LIKE and BETWEEN, which do not associate.
    Member,
    Comparison,
    Concat,
    Additive,
    Multiplicative,
    Unary,
}

impl BinaryOperator {
    pub fn precedence(self) -> Precedence {
        use BinaryOperator::*;
        match self {
            Or => Precedence::Or,
            And => Precedence::And,
            Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual => Precedence::Comparison,
            ShiftLeft | ShiftRight | ShiftRightUnsigned => Precedence::Comparison,
            Concat => Precedence::Concat,
            Add | Subtract | BitAnd | BitOr | BitXor => Precedence::Additive,
            Multiply | Divide | Remainder => Precedence::Multiplicative,
        }
    }

    pub fn text(self) -> &'static str {
        use BinaryOperator::*;
        match self {
            Or => "OR",
            And => "AND",
            Equal => "=",
            NotEqual => "!=",
            Less => "<",
            LessOrEqual => "<=",
            Greater => ">",
            GreaterOrEqual => ">=",
            ShiftLeft => "<<",
            ShiftRight => ">>",
            ShiftRightUnsigned => ">>>",
            Concat => "||",
            Add => "+",
            Subtract => "-",
            BitAnd => "&",
            BitOr => "|",
            BitXor => "^",
            Multiply => "*",
            Divide => "/",
            Remainder => "%",
        }
    }
}

impl Expr {
    pub fn new(kind: ExprKind, span: Span) -> Expr {
        Expr { kind, span }
    }
}

impl Source {
    /// The name this source binds, if it binds one: its alias, or what a path ends with.
    pub fn binding(&self) -> Option<&str> {
        if let Some(alias) = &self.alias {
            return Some(&alias.text);
        }
        let Collection::Path { root, steps } = &self.collection else {
            return None;
        };
        match steps.last() {
            None => Some(&root.text),
            Some(PathStep::Member(name) | PathStep::Name(name)) => Some(name),
            Some(PathStep::Index(_)) => None,
        }
    }
}

impl Expr {
    /// The expressions directly inside this one. Subqueries are not entered.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Undefined | ExprKind::Null | ExprKind::Bool(_) | ExprKind::Number(_) | ExprKind::String(_) => {
                vec![]
            }
            ExprKind::Parameter(_) | ExprKind::Name(_) | ExprKind::Subquery { .. } => vec![],
            ExprKind::Array(items) | ExprKind::Coalesce(items) => items.iter().collect(),
            ExprKind::Object(members) => members.iter().map(|(_, value)| value).collect(),
            ExprKind::Postfix { base, steps } => {
                let indexes = steps.iter().filter_map(|step| match step {
                    Step::Index(index) => Some(index),
                    Step::Member(_) => None,
                });
                std::iter::once(&**base).chain(indexes).collect()
            }
            ExprKind::Unary { operand, .. } => vec![operand],
            ExprKind::Chain { first, rest } => std::iter::once(&**first)
                .chain(rest.iter().map(|(_, operand)| operand))
                .collect(),
            ExprKind::Conditional {
                condition,
                then,
                otherwise,
            } => vec![condition, then, otherwise],
            ExprKind::Between { value, low, high, .. } => vec![value, low, high],
            ExprKind::In { value, list, .. } => std::iter::once(&**value).chain(list).collect(),
            ExprKind::Like { value, pattern, .. } => vec![value, pattern],
            ExprKind::Let { value, body, .. } => vec![value, body],
            ExprKind::Call { arguments, .. } => arguments.iter().collect(),
        }
    }
}
