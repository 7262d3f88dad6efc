//! Computed properties are checked where a container is defined; one that is not valid is as if it were not there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

use orrery_model::Value;
use orrery_model::json::{Object, parse_value};
use orrery_query::plan::plan;
use orrery_query::run::{ListCursor, PageLimits, Unlimited, run};
use orrery_query::{Context, Definition, Parameters, Query, check_computed_properties};

fn rows(sql: &str, fields: &Object) -> Vec<String> {
    let query = Query::parse(sql).unwrap();
    let plan = plan(&query, &Definition::of_container(fields), &Parameters::none()).unwrap();
    let items = [parse_value(br#"{"id":"1","fine":"fine","cp1":"stored"}"#).unwrap()];
    let mut cursor = ListCursor::new(&items);
    let page = run(
        &plan,
        &mut cursor,
        &Context::default(),
        PageLimits::unlimited(),
        None,
        &mut Unlimited,
    )
    .unwrap();
    page.rows
        .into_iter()
        .map(|row| row.into_value().unwrap().to_text())
        .collect()
}

fn fields(queries: &[&str]) -> Object {
    let entry = |(n, query): (usize, &&str)| format!(r#"{{"name":"cp{n}","query":{}}}"#, Value::from(*query).to_text());
    let entries: Vec<String> = queries.iter().enumerate().map(entry).collect();
    let text = format!(r#"{{"computedProperties":[{}]}}"#, entries.join(","));
    parse_value(text.as_bytes()).unwrap().as_object().unwrap().clone()
}

#[test]
fn an_expression_over_one_item_is_a_computed_property() {
    let queries = [
        "SELECT VALUE LOWER(c.name) FROM c",
        "select value {a: p.x + 1, b: p['y'] ?? 'none'} from products p",
        "SELECT VALUE (LET x = c.a IN x * x) FROM c",
        "SELECT VALUE c.cp3 FROM c",
        "SELECT VALUE ARRAY_LENGTH(c.list) > 1 ? c.list[0] : 1 FROM root AS c",
    ];
    check_computed_properties(&fields(&queries)).unwrap();
}

#[test]
fn what_needs_more_than_one_item_is_refused_and_left_out() {
    for query in [
        "garbage",
        "SELECT c.x FROM c",
        "SELECT * FROM c",
        "SELECT VALUE 1",
        "SELECT VALUE c.x FROM c WHERE c.x > 1",
        "SELECT VALUE t FROM c JOIN t IN c.tags",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE [MAX(c.x)] FROM c",
        "SELECT VALUE udf.f(c.x) FROM c",
        "SELECT VALUE NOSUCH(c.x) FROM c",
        "SELECT VALUE ABS(c.x, 2) FROM c",
        "SELECT VALUE RAND() FROM c",
        "SELECT VALUE c.x + GetCurrentTimestamp() FROM c",
        "SELECT VALUE GETCURRENTDATETIMESTATIC() FROM c",
        "SELECT VALUE (SELECT VALUE c.x) FROM c",
        "SELECT VALUE EXISTS(SELECT VALUE t FROM t IN c.tags) FROM c",
        "SELECT VALUE ST_DISTANCE(c.a, c.b) FROM c",
        "SELECT DISTINCT VALUE c.x FROM c",
        "SELECT TOP 1 VALUE c.x FROM c",
        "SELECT VALUE c.x FROM c ORDER BY c.x",
        "SELECT VALUE c.x FROM c GROUP BY c.x",
        "SELECT VALUE c.x FROM c OFFSET 0 LIMIT 1",
        "SELECT VALUE c.y FROM c.x c",
        "SELECT VALUE x FROM x IN c",
        "SELECT VALUE c[@p] FROM c",
        "SELECT VALUE other.x FROM c",
        "SELECT VALUE c.cp0 FROM c",
        "SELECT VALUE LOWER(c['cp0']) FROM c",
    ] {
        let fields = fields(&["SELECT VALUE c.fine FROM c", query]);
        let error = check_computed_properties(&fields).expect_err(query).inner();
        assert!(error.contains("computed property 'cp1'"), "{error}");
        assert_eq!(
            rows("SELECT VALUE [c.cp0, c.cp1] FROM c", &fields),
            [r#"["fine","stored"]"#],
            "{query}"
        );
    }
}
