//! Statements made to be deep, long or costly to plan: each is answered or refused, on the stack that a server's threads have,
//! and soon. An overflow of the stack would end this process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

use std::time::{Duration, Instant};

use orrery_model::json::parse_value;
use orrery_model::key::{KeyKind, KeyVersion, PropertyPath};
use orrery_model::{PartitionKeyDefinition, Value};
use orrery_query::plan::{Features, plan, query_plan};
use orrery_query::run::{ListCursor, PageLimits, Unlimited, run};
use orrery_query::{Allowance, Context, Definition, Parameters, Query, parse_condition};

/// What the threads of a server have, and what a query may take here: a build without optimisation on a busy machine.
const STACK_BYTES: usize = 2 << 20;
const TIME_MAX: Duration = Duration::from_secs(60);

fn item() -> Value {
    let nested = format!("{}1{}", r#"{"a":"#.repeat(120), "}".repeat(120));
    let text = format!(r#"{{"id":"1","pk":"p","n":1,"x":"a","list":[1,2,3],"a":{nested}}}"#);
    parse_value(text.as_bytes()).unwrap()
}

/// Everything that is done with a text: parsed, planned both ways, run, dropped. What went wrong first, if anything did.
fn handle(sql: &str, definition: &Definition) -> Result<usize, String> {
    let key = PartitionKeyDefinition::new(
        vec![PropertyPath::parse("/pk").unwrap()],
        KeyKind::Hash,
        KeyVersion::V2,
        false,
    );
    let parameters = Parameters::none();
    let text = |error: orrery_query::QueryError| error.inner();
    let query = Query::parse(sql).map_err(text)?;
    _ = query.clone();
    let for_client = query_plan(&query, definition, &key, &parameters, &Features::all()).map(|plan| plan.to_json());
    _ = for_client.map_err(text);
    let plan = plan(&query, definition, &parameters).map_err(text)?;
    _ = plan.clone();
    let items = [item()];
    let limits = PageLimits {
        memory_bytes_max: 64 << 20,
        ..PageLimits::unlimited()
    };
    let context = Context::default();
    let page = run(
        &plan,
        &mut ListCursor::new(&items),
        &context,
        limits,
        None,
        &mut Unlimited,
    )
    .map_err(text)?;
    Ok(page.rows.len())
}

fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap();
    thread.join().unwrap()
}

/// Hands each statement to a thread of its own.
fn check(statements: Vec<String>) {
    for sql in statements {
        let shown: String = sql.chars().take(90).collect();
        let started = Instant::now();
        _ = on_a_thread(move || handle(&sql, &Definition::plain()));
        let taken = started.elapsed();
        assert!(taken < TIME_MAX, "{shown} took {taken:?}");
    }
}

/// `head`, then `part` so often that the text is nearly as long as one may be, then `tail`.
fn long(head: &str, part: &str, tail: &str) -> String {
    format!("{head}{}{tail}", part.repeat(500_000 / part.len()))
}

/// The same, only as long as what is quadratic without optimisation bears.
fn wide(head: &str, part: &str, tail: &str) -> String {
    format!("{head}{}{tail}", part.repeat(10_000 / part.len()))
}

/// `open` n times, `core`, `close` n times, within `SELECT VALUE … FROM c`.
fn nested(open: &str, core: &str, close: &str, n: usize) -> String {
    format!("SELECT VALUE {}{core}{} FROM c", open.repeat(n), close.repeat(n))
}

#[test]
fn chains_without_end_are_refused_or_answered() {
    let mut all = Vec::new();
    for step in [".a", "[c.x]", "['a']", "[0]", "[@p]", ".a[c.x]", "[1+1]"] {
        for (head, tail) in [
            ("SELECT VALUE c", " FROM c"),
            ("SELECT VALUE (c)", " FROM c"),
            ("SELECT VALUE {a: c}", " FROM c"),
            ("SELECT c", " FROM c"),
            ("SELECT * FROM c WHERE c", " = 1"),
            ("SELECT * FROM c", ""),
            ("SELECT * FROM x IN c", ""),
            ("SELECT * FROM c JOIN x IN c", ""),
            ("SELECT * FROM c ORDER BY c", ""),
            ("SELECT 1 FROM c GROUP BY c", ""),
            ("SELECT VALUE COUNT(c", ") FROM c"),
        ] {
            all.push(long(head, step, tail));
        }
    }
    for part in [
        " + 1",
        " || 'a'",
        " AND c.n",
        " OR c.n",
        " = 1",
        " < c.n",
        " & 1",
        " * c.n",
        " ?? 1",
        " ? 1 : 1",
        " IN (1)",
        " LIKE 'a'",
        " BETWEEN 1 AND 1 AND 1",
        " NOT IN (1) AND 1",
        " = 1 AND c.n",
        " + 1 * 2",
    ] {
        all.push(long("SELECT VALUE c.n", part, " FROM c"));
        all.push(long("SELECT * FROM c WHERE c.n", part, ""));
        all.push(long("SELECT * FROM c ORDER BY c.n", part, ""));
        all.push(long("SELECT 1 FROM c GROUP BY c.n", part, ""));
    }
    for part in [
        "NOT ",
        "- ",
        "+ ",
        "~",
        "- NOT ",
        "(",
        "[",
        "{a:",
        "ABS(",
        "(SELECT VALUE ",
        "EXISTS(SELECT VALUE ",
        "ARRAY(SELECT VALUE ",
        "(LET x = 1 IN ",
        "c[",
        "udf.f(",
        "IIF(true, 1, ",
        "c.n ? ",
        "1 ?? ",
        "1 + (",
        "(1 = (",
        "NOT (",
        "COUNT(",
    ] {
        all.push(long("SELECT VALUE ", part, "c.n FROM c"));
        all.push(long("SELECT * FROM c WHERE ", part, "c.n"));
    }
    for part in [
        "(SELECT * FROM ",
        "(SELECT DISTINCT * FROM ",
        "x IN (SELECT VALUE 1 FROM ",
    ] {
        all.push(long("SELECT * FROM ", part, "c"));
    }
    for part in [
        ", 1",
        ", c.n",
        ", c",
        ", [c]",
        ", c.list[0]",
        ", {a: c}",
        ", COUNT(1)",
        ", (SELECT VALUE c.n)",
    ] {
        all.push(wide("SELECT VALUE [1", part, "] FROM c"));
        all.push(wide("SELECT 1", part, " FROM c"));
        all.push(wide("SELECT VALUE c.n IN (1", part, ") FROM c"));
        all.push(wide("SELECT VALUE CONCAT(1", part, ") FROM c"));
        all.push(wide("SELECT 1 FROM c GROUP BY 1", part, ""));
        all.push(wide("SELECT 1 FROM c ORDER BY c.n", part, ""));
    }
    for part in [
        " JOIN x IN c.list",
        " JOIN c.a",
        " JOIN (SELECT VALUE 1) t",
        " JOIN (SELECT c.n) t JOIN x IN t.n",
    ] {
        all.push(long("SELECT VALUE c.n FROM c", part, ""));
        all.push(long("SELECT VALUE EXISTS(SELECT 1 FROM x IN c.list", part, ") FROM c"));
    }
    check(all);
}

/// How deep a statement may be depends on what it is made of: all depths up to the first that is refused, in steps.
#[test]
fn what_is_just_not_too_deep_runs() {
    let forms: [(&str, &str, &str); 20] = [
        ("[", "c", "]"),
        ("{a: ", "c", "}"),
        ("(SELECT VALUE ", "c.n", ")"),
        ("ARRAY(SELECT VALUE ", "c", ")"),
        ("EXISTS(SELECT VALUE ", "c", ")"),
        ("(SELECT VALUE MAKELIST(c) FROM x IN ARRAY(SELECT VALUE ", "c", "))"),
        ("(LET x = c IN ", "x", ")"),
        ("ABS(1 + ", "c.n", ")"),
        ("IIF(true, c, ", "c", ")"),
        ("(c.n ?? ", "c.n", ")"),
        ("c[", "c.x", "]"),
        ("NOT ", "c.n", ""),
        ("(c.n = 1 AND (c.n = 2 OR ", "c.n", "))"),
        ("(c.n IN (1, ", "c.n", "))"),
        ("(c.n LIKE ", "c.n", ")"),
        ("(SELECT VALUE x FROM x IN ", "[1]", ")"),
        ("(SELECT VALUE x FROM (SELECT VALUE ", "1", ") x)"),
        ("(SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE ", "1", ") x)"),
        ("(SELECT VALUE 1 WHERE EXISTS(SELECT VALUE ", "1", "))"),
        ("OBJECTTOARRAY({a: ", "c", "})"),
    ];
    let mut all = Vec::new();
    for (open, core, close) in forms {
        for n in [30, 40, 48, 60, 80, 120, 240] {
            all.push(nested(open, core, close, n));
            let filter = format!("{}{core}{}", open.repeat(n), close.repeat(n));
            all.push(format!("SELECT * FROM c WHERE {filter}"));
            all.push(format!("SELECT 1 FROM c GROUP BY {filter}"));
        }
    }
    check(all);
}

/// Names stand for values that are made of names: the text is short and flat, what it means is not.
#[test]
fn names_do_not_make_values_deeper_or_wider_than_they_may_be() {
    let lets = |n: usize, value: &dyn Fn(usize) -> String| {
        let lets: String = (1..=n).map(|n| format!("(LET x{n} = {} IN ", value(n - 1))).collect();
        format!("SELECT VALUE (LET x0 = c IN {lets}x{n}{}) FROM c", ")".repeat(n))
    };
    let joins = |n: usize, value: &dyn Fn(usize) -> String| {
        let joins: String = (1..=n)
            .map(|n| format!(" JOIN (SELECT VALUE {}) x{n}", value(n - 1)))
            .collect();
        format!("SELECT VALUE x{n} FROM c JOIN (SELECT VALUE c) x0{joins}")
    };
    let inner = |n: usize, value: &dyn Fn(usize) -> String| {
        let open: String = (1..=n)
            .rev()
            .map(|n| format!("(SELECT VALUE {} FROM ", value(n)))
            .collect();
        let close: String = (1..=n).map(|n| format!(") x{}", n + 1)).collect();
        format!("SELECT VALUE x{} FROM {open}c x1{close}", n + 1)
    };
    let deeper = |levels: usize| move |n: usize| format!("{}x{n}{}", "[".repeat(levels), "]".repeat(levels));
    let wider = |n: usize| format!("{{a: x{n}, b: x{n}}}");
    let path = |n: usize| format!("x{n}{}", ".a".repeat(100));
    let mut all = Vec::new();
    for n in [9, 40, 60, 100] {
        for levels in [5, 50, 100, 200] {
            all.extend([
                lets(n, &deeper(levels)),
                joins(n, &deeper(levels)),
                inner(n, &deeper(levels)),
            ]);
        }
        all.extend([lets(n, &wider), joins(n, &wider), inner(n, &wider)]);
        all.extend([lets(n, &path), joins(n, &path), inner(n, &path)]);
        let sources: String = (1..=n)
            .map(|n| format!(" JOIN x{}{} x{n}", n - 1, ".a".repeat(200)))
            .collect();
        all.push(format!("SELECT * FROM c JOIN c x0{sources}"));
        let open: String = (1..=n)
            .map(|n| format!("EXISTS(SELECT 1 FROM x{n} IN x{}{} WHERE ", n - 1, ".a".repeat(100)))
            .collect();
        all.push(format!("SELECT * FROM c x0 WHERE {open}x{n}{}", ")".repeat(n)));
    }
    check(all);
}

/// Planning looks at some parts more than once; parts of parts would be looked at without end.
#[test]
fn planning_ends_soon() {
    let mut all = Vec::new();
    for n in [20, 40, 60, 80] {
        all.push(nested("(SELECT 1 ORDER BY ", "1", ")", n));
        all.push(format!(
            "SELECT 1 FROM c ORDER BY {}1{}",
            "(SELECT 1 ORDER BY ".repeat(n),
            ")".repeat(n)
        ));
        all.push(nested("(SELECT VALUE ", "1", " GROUP BY (SELECT 1))", n));
        all.push(nested("(SELECT VALUE ", "1", " FROM c GROUP BY (SELECT c), [c])", n));
        all.push(nested("(SELECT VALUE COUNT(1) ORDER BY ", "1", ")", n));
        all.push(format!(
            "SELECT VALUE COUNT(1) FROM c ORDER BY {}1{}",
            "(SELECT COUNT(1) ORDER BY ".repeat(n),
            ")".repeat(n)
        ));
        all.push(nested("[", "c.n", "]", n).replace(" FROM c", " FROM c GROUP BY [c.n]"));
        all.push(format!(
            "SELECT * FROM {}c{}",
            "(SELECT DISTINCT * FROM ".repeat(n),
            ")".repeat(n)
        ));
        all.push(format!(
            "SELECT * FROM {}c{}",
            "(SELECT * FROM ".repeat(n),
            " WHERE true)".repeat(n)
        ));
        all.push(format!(
            "SELECT VALUE 1 FROM {}c{}",
            "(SELECT VALUE COUNT(1) FROM ".repeat(n),
            ")".repeat(n)
        ));
    }
    check(all);
}

/// Conditions of patches and filters of feeds are read by the same parser and planned by the same planner.
#[test]
fn conditions_are_no_deeper_than_queries() {
    let filters = [
        ".a".repeat(15_000),
        "[c.x]".repeat(5_000),
        " + 1".repeat(15_000),
        " AND c.n".repeat(8_000),
    ];
    for filter in filters {
        on_a_thread(move || {
            for text in [format!("FROM c WHERE c{filter} = 1"), format!("FROM c{filter}")] {
                let mut allowance = Allowance::default();
                if let Ok(condition) = parse_condition(&text, &mut allowance) {
                    _ = condition.holds(&item(), &Context::default(), &mut allowance);
                }
            }
        });
    }
}
