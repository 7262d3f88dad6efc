//! Printing is the inverse of parsing: any tree, printed, parses to that tree. What parses is planned or refused.

use orrery_model::key::{KeyKind, KeyVersion, PropertyPath};
use orrery_model::{Number, PartitionKeyDefinition};
use orrery_query::parse::ast::{
    BinaryOperator, Collection, Count, CountValue, Direction, Expr, ExprKind, From, Name, OrderBy, OrderKey, PathStep,
    SelectItem, SelectList, Source, Statement, Step, SubqueryForm, Top, UnaryOperator, Window,
};
use orrery_query::parse::{Span, parse, print};
use orrery_query::plan::{Features, plan, query_plan};
use orrery_query::{Definition, Parameters, Query};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn expr(kind: ExprKind) -> Expr {
    Expr::new(kind, Span::default())
}

fn boxed(kind: Expr) -> Box<Expr> {
    Box::new(kind)
}

fn name(text: String) -> Name {
    Name {
        text,
        span: Span::default(),
    }
}

/// Words that mean nothing by themselves, and some that mean something elsewhere.
fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-d]",
        Just("rank".to_owned()),
        Just("first".to_owned()),
        Just("_x1".to_owned())
    ]
}

fn numbers() -> impl Strategy<Value = Number> {
    prop_oneof![
        (0..i64::MAX).prop_map(Number::Int),
        (0.0..1e300f64).prop_map(|double| match double.fract() == 0.0 {
            true => Number::Double(double + 0.5),
            false => Number::Double(double),
        }),
    ]
}

fn counts() -> impl Strategy<Value = Count> {
    let value = prop_oneof![
        (0..1000i64).prop_map(|count| CountValue::Literal(Number::Int(count))),
        "@[a-d]".prop_map(CountValue::Parameter),
    ];
    value.prop_map(|value| Count {
        value,
        span: Span::default(),
    })
}

fn operators() -> impl Strategy<Value = BinaryOperator> {
    use BinaryOperator::*;
    prop::sample::select(vec![
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
    ])
}

fn leaves() -> impl Strategy<Value = Expr> {
    let kind = prop_oneof![
        Just(ExprKind::Undefined),
        Just(ExprKind::Null),
        any::<bool>().prop_map(ExprKind::Bool),
        numbers().prop_map(ExprKind::Number),
        any::<String>().prop_map(ExprKind::String),
        "@[a-d]".prop_map(ExprKind::Parameter),
        words().prop_map(ExprKind::Name),
    ];
    kind.prop_map(expr)
}

/// Operators of one level, as the parser keeps them: the first operand is no chain of that level.
fn chain(first: Expr, operator: BinaryOperator, rest: Vec<Expr>) -> Expr {
    let rest: Vec<_> = rest.into_iter().map(|operand| (operator, operand)).collect();
    match first.kind {
        ExprKind::Chain { first, rest: mut all } if all[0].0.precedence() == operator.precedence() => {
            all.extend(rest);
            expr(ExprKind::Chain { first, rest: all })
        }
        kind => expr(ExprKind::Chain {
            first: boxed(expr(kind)),
            rest,
        }),
    }
}

/// Coalescing, flat to the right as the parser keeps it.
fn coalesce(mut operands: Vec<Expr>, last: Expr) -> Expr {
    match last.kind {
        ExprKind::Coalesce(more) => operands.extend(more),
        kind => operands.push(expr(kind)),
    }
    expr(ExprKind::Coalesce(operands))
}

/// Steps after a value, joined to those it has.
fn postfix(base: Expr, steps: Vec<Step>) -> Expr {
    match base.kind {
        ExprKind::Postfix { base, steps: mut all } => {
            all.extend(steps);
            expr(ExprKind::Postfix { base, steps: all })
        }
        kind => expr(ExprKind::Postfix {
            base: boxed(expr(kind)),
            steps,
        }),
    }
}

fn steps(inner: impl Strategy<Value = Expr> + Clone) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        words().prop_map(|word| Step::Member(name(word))),
        inner.prop_map(Step::Index)
    ];
    vec(step, 1..3)
}

fn operations(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    let one = inner.clone();
    let two = (one.clone(), one.clone());
    let three = (one.clone(), one.clone(), one.clone());
    let signs = prop::sample::select(vec![
        UnaryOperator::Minus,
        UnaryOperator::Plus,
        UnaryOperator::BitNot,
        UnaryOperator::Not,
    ]);
    prop_oneof![
        (one.clone(), operators(), vec(one.clone(), 1..4))
            .prop_map(|(first, operator, rest)| chain(first, operator, rest)),
        (vec(one.clone(), 1..3), one.clone()).prop_map(|(operands, last)| coalesce(operands, last)),
        (one.clone(), steps(one.clone())).prop_map(|(base, steps)| postfix(base, steps)),
        (signs, one.clone()).prop_map(|(operator, operand)| expr(ExprKind::Unary {
            operator,
            operand: boxed(operand)
        })),
        three
            .clone()
            .prop_map(|(condition, then, otherwise)| expr(ExprKind::Conditional {
                condition: boxed(condition),
                then: boxed(then),
                otherwise: boxed(otherwise)
            })),
        (three, any::<bool>()).prop_map(|((value, low, high), negated)| expr(ExprKind::Between {
            value: boxed(value),
            low: boxed(low),
            high: boxed(high),
            negated
        })),
        (one.clone(), vec(one.clone(), 1..3), any::<bool>()).prop_map(|(value, list, negated)| expr(ExprKind::In {
            value: boxed(value),
            list,
            negated
        })),
        (two, option::of("[!~]"), any::<bool>()).prop_map(|((value, pattern), escape, negated)| expr(ExprKind::Like {
            value: boxed(value),
            pattern: boxed(pattern),
            escape: escape.map(name),
            negated
        })),
    ]
}

/// Functions that do not exist, and some that have rules of their own about where they may stand.
fn functions() -> impl Strategy<Value = String> {
    let known = [
        "COUNT",
        "MAX",
        "MAKELIST",
        "ABS",
        "IIF",
        "RRF",
        "DOCUMENTID",
        "ST_DISTANCE",
        "VectorDistance",
    ];
    prop_oneof!["[a-d]{3}", prop::sample::select(known.map(str::to_owned).to_vec())]
}

fn constructions(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    let form = prop::sample::select(vec![
        SubqueryForm::Scalar,
        SubqueryForm::Exists,
        SubqueryForm::Array,
        SubqueryForm::All,
        SubqueryForm::First,
        SubqueryForm::Last,
    ]);
    let binding = (words(), inner.clone(), inner.clone());
    prop_oneof![
        vec(inner.clone(), 0..3).prop_map(|items| expr(ExprKind::Array(items))),
        vec(("[a-d]{1,3}".prop_map(name), inner.clone()), 0..3).prop_map(|members| expr(ExprKind::Object(members))),
        (functions(), any::<bool>(), vec(inner.clone(), 0..3)).prop_map(|(text, udf, arguments)| expr(
            ExprKind::Call {
                name: name(text),
                udf,
                arguments
            }
        )),
        binding.prop_map(|(word, value, body)| expr(ExprKind::Let {
            name: name(word),
            value: boxed(value),
            body: boxed(body)
        })),
        (form, statements(inner)).prop_map(|(form, query)| expr(ExprKind::Subquery {
            form,
            query: Box::new(query)
        })),
    ]
}

fn exprs() -> impl Strategy<Value = Expr> {
    leaves().prop_recursive(4, 24, 3, |inner| {
        prop_oneof![operations(inner.clone()), constructions(inner)]
    })
}

fn sources(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Source> {
    let step = prop_oneof![
        words().prop_map(PathStep::Member),
        any::<String>().prop_map(PathStep::Name),
        (0..10i64).prop_map(|index| PathStep::Index(Number::Int(index))),
    ];
    let path = ("[a-d]", vec(step, 0..3)).prop_map(|(root, steps)| Collection::Path {
        root: name(root),
        steps,
    });
    let subquery = inner.prop_map(|value| {
        Collection::Subquery(Box::new(Statement {
            distinct: false,
            top: None,
            list: SelectList::Value(value),
            from: None,
            filter: None,
            group_by: Vec::new(),
            order_by: None,
            window: None,
            span: Span::default(),
        }))
    });
    (prop_oneof![path, subquery], option::of("[a-d]"), any::<bool>()).prop_map(|(collection, alias, iterate)| {
        let alias = alias.or_else(|| iterate.then(|| "a".to_owned()));
        Source {
            alias: alias.map(name),
            collection,
            iterate,
            span: Span::default(),
        }
    })
}

fn lists(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = SelectList> {
    let item = (inner.clone(), option::of("[a-d]".prop_map(name))).prop_map(|(expr, alias)| SelectItem { expr, alias });
    prop_oneof![
        Just(SelectList::Star(Span::default())),
        inner.prop_map(SelectList::Value),
        vec(item, 1..3).prop_map(SelectList::Items),
    ]
}

fn orders(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = OrderBy> {
    let direction = prop::sample::select(vec![None, Some(Direction::Ascending), Some(Direction::Descending)]);
    let score = vec(inner.clone(), 0..2).prop_map(|arguments| {
        expr(ExprKind::Call {
            name: name("score".to_owned()),
            udf: false,
            arguments,
        })
    });
    // A parenthesis after RANK would make it a function.
    let score = (score, direction.clone()).prop_map(|(expr, direction)| OrderKey { expr, direction });
    let key = (inner, direction).prop_map(|(expr, direction)| OrderKey { expr, direction });
    let scores = vec(score, 1..3).prop_map(|keys| (true, keys));
    prop_oneof![vec(key, 1..3).prop_map(|keys| (false, keys)), scores].prop_map(|(rank, keys)| OrderBy {
        rank,
        keys,
        span: Span::default(),
    })
}

fn statements(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Statement> {
    let top = option::of(counts().prop_map(|count| Top {
        count,
        span: Span::default(),
    }));
    let from = option::of(vec(sources(inner.clone()), 1..3).prop_map(|sources| From {
        sources,
        span: Span::default(),
    }));
    let window = option::of((counts(), counts()).prop_map(|(offset, limit)| Window {
        offset,
        limit,
        span: Span::default(),
    }));
    let head = (any::<bool>(), top, lists(inner.clone()), from);
    let tail = (
        option::of(inner.clone()),
        vec(inner.clone(), 0..2),
        option::of(orders(inner)),
        window,
    );
    (head, tail).prop_map(
        |((distinct, top, list, from), (filter, group_by, order_by, window))| Statement {
            distinct,
            top,
            list,
            from,
            filter,
            group_by,
            order_by,
            window,
            span: Span::default(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_tree_parses_to_the_same_tree(statement in statements(exprs().boxed())) {
        let text = print(&statement);
        let parsed = parse(&text).map_err(|error| TestCaseError::fail(format!("{text}\n{error}")))?;
        prop_assert!(parsed == statement, "{text}\nparsed as\n{}", print(&parsed));
    }

    #[test]
    fn a_statement_that_parses_is_planned_or_refused(statement in statements(exprs().boxed())) {
        let query = Query::parse(&print(&statement)).expect("it has been printed");
        let key = PartitionKeyDefinition::new(
            vec![PropertyPath::parse("/a").expect("a path")],
            KeyKind::Hash,
            KeyVersion::V2,
            false,
        );
        let definition = Definition::plain();
        // A panic is what must not be.
        let planned = plan(&query, &definition, &Parameters::none());
        let for_clients = query_plan(&query, &definition, &key, &Parameters::none(), &Features::all());
        prop_assert!(planned.is_ok() || for_clients.is_err(), "{}", query.text());
    }
}
