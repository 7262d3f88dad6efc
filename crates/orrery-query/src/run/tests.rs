//! Budgets, pages and limits of a run.

use orrery_model::json::parse_value;
use orrery_model::{Error, Value};

use super::*;
use crate::{Allowance, Definition, Parameters, Query, page_of_list, parse_condition, plan};

fn items(n: usize) -> Vec<Value> {
    (0..n)
        .map(|n| parse_value(format!(r#"{{"id":"{n}","n":{n},"list":[1,2,3]}}"#).as_bytes()).unwrap())
        .collect()
}

fn planned(sql: &str) -> Plan {
    plan::plan(&Query::parse(sql).unwrap(), &Definition::plain(), &Parameters::none()).unwrap()
}

/// Pauses after a number of items, or fails after a number of steps.
#[derive(Default)]
struct Limited {
    pause_after_items: Option<u64>,
    fail_after_steps: Option<u64>,
    work_seen: u64,
}

impl Budget for Limited {
    fn check(&mut self, progress: &Progress) -> orrery_model::Result<Pace> {
        self.work_seen = progress.work;
        if self.fail_after_steps.is_some_and(|limit| progress.steps >= limit) {
            return Err(Error::bad_request("out of time"));
        }
        let pause = self.pause_after_items.is_some_and(|limit| progress.items_read >= limit);
        Ok(if pause { Pace::Pause } else { Pace::GoOn })
    }
}

fn run_limited(sql: &str, items: &[Value], limits: PageLimits, budget: &mut Limited) -> Result<Page> {
    run(
        &planned(sql),
        &mut ListCursor::new(items),
        &Context::default(),
        limits,
        None,
        budget,
    )
}

#[test]
fn a_streaming_query_pauses_between_items_and_goes_on() {
    let items = items(10);
    let plan = planned("SELECT VALUE c.n FROM c");
    let mut budget = Limited {
        pause_after_items: Some(4),
        ..Limited::default()
    };
    let page = run(
        &plan,
        &mut ListCursor::new(&items),
        &Context::default(),
        PageLimits::unlimited(),
        None,
        &mut budget,
    )
    .unwrap();
    assert_eq!(page.rows.len(), 4);
    let resume = page.resume.expect("six items are left");
    assert!(!resume.repeats_item());
    let rest = run(
        &plan,
        &mut ListCursor::new(&items[4..]),
        &Context::default(),
        PageLimits::unlimited(),
        Some(&resume),
        &mut Unlimited,
    )
    .unwrap();
    assert_eq!(rest.rows.len(), 6);
    assert!(rest.resume.is_none());
}

#[test]
fn groups_in_pieces_pause_between_items_and_the_next_piece_begins_with_the_next_item() {
    let items = items(10);
    let plan = planned("SELECT VALUE SUM(c.n) FROM c").in_pieces();
    let mut sums = Vec::new();
    for from in [0, 4, 8] {
        let mut budget = Limited {
            pause_after_items: Some(4),
            ..Limited::default()
        };
        let mut cursor = ListCursor::new(&items[from..]);
        let page = run(
            &plan,
            &mut cursor,
            &Context::default(),
            PageLimits::unlimited(),
            None,
            &mut budget,
        )
        .unwrap();
        assert_eq!(page.resume.is_some(), from < 8, "the last piece is the last");
        sums.extend(page.rows.into_iter().map(|row| row.into_value().unwrap()));
    }
    assert_eq!(sums, [Value::from(6), Value::from(22), Value::from(17)]);
}

#[test]
fn distinct_rows_in_pieces_are_those_of_a_page() {
    let items = items(6);
    let limits = PageLimits {
        rows_max: 2,
        ..PageLimits::unlimited()
    };
    let plan = planned("SELECT DISTINCT VALUE c.n % 3 FROM c").in_pieces();
    let run = |from: usize| {
        let mut cursor = ListCursor::new(&items[from..]);
        run(&plan, &mut cursor, &Context::default(), limits, None, &mut Unlimited).unwrap()
    };
    let (first, second) = (run(0), run(2));
    assert_eq!((first.rows.len(), first.resume.is_some()), (2, true));
    assert_eq!(
        (second.rows.len(), second.resume.is_some()),
        (2, true),
        "2 and, again, 0"
    );
    let windowed = planned("SELECT DISTINCT TOP 2 VALUE c.n FROM c").in_pieces();
    assert!(!windowed.is_streaming(), "a window counts whole rows");
}

#[test]
fn a_query_that_must_see_everything_does_not_pause() {
    let mut budget = Limited {
        pause_after_items: Some(1),
        ..Limited::default()
    };
    let page = run_limited(
        "SELECT VALUE SUM(c.n) FROM c",
        &items(10),
        PageLimits::unlimited(),
        &mut budget,
    )
    .unwrap();
    assert_eq!(page.rows, [Row::Value(Value::from(45))]);
    assert_eq!(page.progress.items_read, 10);
}

#[test]
fn a_budget_can_end_a_product_within_one_item() {
    let joins: String = (0..10).map(|n| format!(" JOIN t{n} IN c.list")).collect();
    let sql = format!("SELECT VALUE COUNT(1) FROM c{joins}");
    let mut budget = Limited {
        fail_after_steps: Some(5000),
        ..Limited::default()
    };
    let error = run_limited(&sql, &items(1), PageLimits::unlimited(), &mut budget).unwrap_err();
    assert_eq!(error.inner(), "out of time");
}

#[test]
fn sorting_more_than_memory_allows_is_refused() {
    let limits = PageLimits {
        memory_bytes_max: 10_000,
        ..PageLimits::unlimited()
    };
    let error = run_limited(
        "SELECT * FROM c ORDER BY c.n",
        &items(1000),
        limits,
        &mut Limited::default(),
    )
    .unwrap_err();
    assert!(error.inner().contains("memory"), "{error}");
}

#[test]
fn memory_of_subqueries_is_given_back_after_each_item() {
    let limits = PageLimits {
        memory_bytes_max: 20_000,
        ..PageLimits::unlimited()
    };
    let sql = "SELECT VALUE (SELECT VALUE MAKELIST(t) FROM t IN c.list GROUP BY 1) FROM c \
               WHERE ARRAY_LENGTH(ARRAY(SELECT DISTINCT VALUE t FROM t IN c.list)) = 3";
    let page = run_limited(sql, &items(5000), limits, &mut Limited::default()).unwrap();
    assert_eq!(page.rows.len(), 5000);
    assert_eq!(page.progress.memory_bytes, 0);
}

#[test]
fn a_subquery_cannot_collect_more_than_memory_allows() {
    let limits = PageLimits {
        memory_bytes_max: 20_000,
        ..PageLimits::unlimited()
    };
    let joins: String = (0..8).map(|n| format!(" JOIN t{n} IN c.list")).collect();
    let sql = format!("SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT VALUE 1 FROM c{joins})) FROM c");
    let error = run_limited(&sql, &items(1), limits, &mut Limited::default()).unwrap_err();
    assert!(error.inner().contains("memory"), "{error}");
}

#[test]
fn sorting_for_a_small_page_holds_only_that_page() {
    let limits = PageLimits {
        rows_max: 10,
        memory_bytes_max: 40_000,
        bytes_max: usize::MAX,
    };
    let page = run_limited(
        "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
        &items(5000),
        limits,
        &mut Limited::default(),
    )
    .unwrap();
    let wanted: Vec<Row> = (4990..5000).rev().map(Value::from).map(Row::Value).collect();
    assert_eq!(page.rows, wanted);
    assert!(page.resume.is_some());
}

#[test]
fn a_page_ends_after_the_row_that_fills_its_bytes() {
    let limits = PageLimits {
        bytes_max: 1,
        ..PageLimits::unlimited()
    };
    let page = run_limited("SELECT * FROM c", &items(3), limits, &mut Limited::default()).unwrap();
    assert_eq!(page.rows.len(), 1);
}

#[test]
fn a_client_can_say_where_a_sorted_result_begins() {
    let items: Vec<Value> = [
        r#"{"id":"a","k":1}"#,
        r#"{"id":"b","k":2}"#,
        r#"{"id":"c","k":2}"#,
        r#"{"id":"d","k":3}"#,
        r#"{"id":"e"}"#,
    ]
    .iter()
    .map(|text| parse_value(text.as_bytes()).unwrap())
    .collect();
    let ids = |direction: &str, filter: &str| {
        let filter = parse_value(filter.as_bytes()).unwrap();
        let resume = Resume::from_filter(&filter, |rid| rid.parse().ok()).unwrap();
        let plan = planned(&format!("SELECT VALUE c.id FROM c ORDER BY c.k {direction}"));
        let mut cursor = ListCursor::new(&items);
        let page = run(
            &plan,
            &mut cursor,
            &Context::default(),
            PageLimits::unlimited(),
            Some(&resume),
            &mut Unlimited,
        );
        let text = |row: Row| row.into_value().unwrap().as_str().map(str::to_owned);
        page.unwrap().rows.into_iter().filter_map(text).collect::<String>()
    };
    assert_eq!(ids("ASC", r#"{"value":[2],"exclude":false}"#), "bcd");
    assert_eq!(ids("ASC", r#"{"value":[2],"exclude":true}"#), "d");
    assert_eq!(ids("ASC", r#"{"value":[2],"rid":"2","exclude":false}"#), "cd");
    assert_eq!(ids("DESC", r#"{"value":[2],"exclude":true}"#), "ae");
    assert_eq!(ids("ASC", r#"{"value":[[]],"exclude":true}"#), "abcd");
    let hashed = parse_value(br#"{"value":[{"type":"array","low":1,"high":2}],"exclude":true}"#).unwrap();
    assert!(Resume::from_filter(&hashed, |_| None).is_none());
}

#[test]
fn conditions_hold_or_do_not() {
    let item = parse_value(br#"{"id":"a","n":5,"tags":["x"]}"#).unwrap();
    for (text, wanted) in [
        ("FROM c WHERE c.n = 5", true),
        ("from c where c.n > 5", false),
        (
            "FROM item WHERE ARRAY_CONTAINS(item.tags, 'x') AND NOT IS_DEFINED(item.gone)",
            true,
        ),
        ("FROM c JOIN t IN c.tags WHERE t = 'x'", true),
        ("FROM c WHERE c.missing = 1", false),
        ("FROM c", true),
    ] {
        assert_eq!(ask(text, &item, &mut Allowance::default()).unwrap(), wanted, "{text}");
    }
    for text in [
        "WHERE c.n = 5",
        "FROM c WHERE",
        "FROM c WHERE x = 1",
        "SELECT * FROM c",
        "FROM c WHERE true ORDER BY c.n",
    ] {
        assert!(parse_condition(text, &mut Allowance::default()).is_err(), "{text}");
    }
}

fn ask(text: &str, item: &Value, allowance: &mut Allowance) -> Result<bool> {
    parse_condition(text, allowance)?.holds(item, &Context::default(), allowance)
}

#[test]
fn a_condition_that_takes_too_much_is_refused() {
    let list: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let text = "a".repeat(500_000);
    let item = format!(r#"{{"id":"a","list":[{}],"text":"{text}"}}"#, list.join(","));
    let item = parse_value(item.as_bytes()).unwrap();
    let of_many_terms = |term: &str| format!("FROM c WHERE NOT ({})", vec![term; 2_000].join(" AND "));
    for text in [
        "FROM c JOIN a IN c.list JOIN b IN c.list JOIN d IN c.list WHERE a + b + d < 0".to_owned(),
        "FROM c WHERE (SELECT VALUE COUNT(1) FROM a IN c.list JOIN b IN c.list JOIN d IN c.list) = 1".to_owned(),
        "FROM c WHERE ARRAY_LENGTH(ARRAY(SELECT VALUE c FROM a IN c.list JOIN b IN c.list)) = 1".to_owned(),
        "FROM (SELECT DISTINCT VALUE [a, b, c.text] FROM c JOIN a IN c.list JOIN b IN c.list) x WHERE x[0] < 0"
            .to_owned(),
        "FROM c JOIN a IN c.list WHERE c.text LIKE '%a%a%a%a%b'".to_owned(),
        "FROM c JOIN a IN c.list WHERE REGEXMATCH(c.text, '^(a+)+b$')".to_owned(),
        "FROM c JOIN a IN c.list JOIN b IN c.list WHERE c.text != c.text".to_owned(),
        of_many_terms("c.text = c.text"),
        of_many_terms("c = c"),
        of_many_terms("CONTAINS(c.text, 'a')"),
        of_many_terms("LENGTH(TOSTRING(c)) > 0"),
        of_many_terms("[c.text] = [c.text]"),
        format!("FROM c WHERE c.text = '{}'", "a".repeat(100_000)),
    ] {
        let short = &text[..text.len().min(60)];
        let started = std::time::Instant::now();
        let error = ask(&text, &item, &mut Allowance::default()).expect_err(short);
        assert_eq!(error.status(), orrery_model::Status::BAD_REQUEST, "{short}");
        // Far from what it may take, and from what it takes without a limit: builds for tests are slow.
        assert!(started.elapsed().as_secs() < 20, "{short}");
    }
}

#[test]
fn one_row_that_passes_tells_that_a_condition_holds() {
    let list: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let item = parse_value(format!(r#"{{"list":[{}]}}"#, list.join(",")).as_bytes()).unwrap();
    let text = "FROM c JOIN a IN c.list JOIN b IN c.list JOIN d IN c.list WHERE a + b + d >= 0";
    assert!(ask(text, &item, &mut Allowance::default()).unwrap());
    let text = "FROM c WHERE EXISTS(SELECT VALUE 1 FROM a IN c.list WHERE a = 999)";
    assert!(ask(text, &item, &mut Allowance::default()).unwrap());
    // The first combination, and no other.
    let text = "FROM c JOIN a IN c.list JOIN b IN c.list WHERE a = 0 AND b = 0";
    assert!(ask(text, &item, &mut Allowance::default()).unwrap());
}

#[test]
fn conditions_that_share_an_allowance_use_it_up_together() {
    let list: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let item = parse_value(format!(r#"{{"list":[{}]}}"#, list.join(",")).as_bytes()).unwrap();
    let text = "FROM c JOIN a IN c.list JOIN b IN c.list WHERE a + b < 0";
    let mut allowance = Allowance::default();
    assert!(!ask(text, &item, &mut allowance).unwrap());
    let refused = (0..20).find(|_| ask(text, &item, &mut allowance).is_err());
    assert!(refused.is_some());
    assert!(!ask(text, &item, &mut Allowance::default()).unwrap());
}

#[test]
fn conditions_see_the_time_they_are_given() {
    let item = parse_value(br#"{"exp":1700000000000}"#).unwrap();
    let ask_at = |ms: i64| {
        let context = Context {
            now_ticks: ms * 10_000,
            ..Context::default()
        };
        let mut allowance = Allowance::default();
        let condition = parse_condition("FROM c WHERE c.exp < GetCurrentTimestamp()", &mut allowance).unwrap();
        condition.holds(&item, &context, &mut allowance).unwrap()
    };
    assert!(!ask_at(1_699_999_999_999));
    assert!(ask_at(1_700_000_000_001));
}

#[test]
fn pages_of_a_list_follow_each_other() {
    let items: Vec<Value> = (0..5)
        .map(|n| parse_value(format!(r#"{{"n":{n},"list":[1,2]}}"#).as_bytes()).unwrap())
        .collect();
    for (text, wanted) in [
        ("SELECT VALUE c.n FROM c", "[0,1][2,3][4]"),
        (
            "SELECT VALUE c.n * 10 + a FROM c JOIN a IN c.list WHERE c.n < 2",
            "[1,2][11,12]",
        ),
        ("SELECT VALUE c.n FROM c ORDER BY c.n DESC", "[4,3][2,1][0]"),
        ("SELECT DISTINCT VALUE c.n % 3 FROM c", "[0,1][2]"),
        ("SELECT VALUE COUNT(1) FROM c", "[5]"),
        ("SELECT VALUE c.n FROM c OFFSET 1 LIMIT 3", "[1,2][3]"),
        ("SELECT TOP 2 VALUE c.n FROM c", "[0,1]"),
    ] {
        let (query, limits) = (
            Query::parse(text).unwrap(),
            PageLimits {
                rows_max: 2,
                ..PageLimits::unlimited()
            },
        );
        let (mut seen, mut n_rows) = (String::new(), 0);
        loop {
            let (given, context) = (Parameters::none(), Context::default());
            let page = page_of_list(&query, &items, &given, &context, n_rows, limits, &mut Unlimited).unwrap();
            n_rows += page.rows.len() as u64;
            let more = page.resume.is_some();
            let rows = page.rows.into_iter().map(|row| row.into_value().unwrap()).collect();
            seen.push_str(&Value::Array(rows).to_text());
            if !more {
                break;
            }
        }
        assert_eq!(seen, wanted, "{text}");
    }
}

#[test]
fn deep_expressions_run_on_a_small_stack() {
    let deep = format!("SELECT VALUE {}1{}", "ABS(1 + ".repeat(80), ")".repeat(80));
    let subqueries = format!("SELECT VALUE {}1{}", "(SELECT VALUE ".repeat(80), ")".repeat(80));
    let arrays = format!("SELECT VALUE {}1{}", "[".repeat(240), "]".repeat(240));
    let run = move || {
        for sql in [&deep, &subqueries, &arrays] {
            let plan = planned(sql);
            let page = run(
                &plan,
                &mut ListCursor::new(&[]),
                &Context::default(),
                PageLimits::unlimited(),
                None,
                &mut Unlimited,
            );
            assert_eq!(page.unwrap().rows.len(), 1);
        }
    };
    let small = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap();
    small.join().expect("a megabyte of stack is enough");
}

#[test]
fn long_work_within_one_expression_is_counted() {
    let item = |text: &str| parse_value(format!(r#"{{"text":"{text}","list":[[1,2,3]]}}"#).as_bytes()).unwrap();
    // The budget is asked about the first before the second is read.
    let items = [item(&"a".repeat(20_000)), item("")];
    let pattern = "a".repeat(2_000);
    for expression in [
        format!("c.text LIKE '%{pattern}b'"),
        format!("c.text LIKE CONCAT('%', '{pattern}', 'b')"),
        format!("TRIM(c.text, '{pattern}')"),
        format!("FULLTEXTCONTAINS(REPLICATE('x ', 5000), '{}')", "x ".repeat(2_000)),
        format!("c.text IN ({})", vec!["c.text || 'b'"; 200].join(", ")),
        vec!["c.text < c.text"; 300].join(" OR "),
    ] {
        let mut budget = Limited::default();
        let sql = format!("SELECT VALUE {expression} FROM c");
        run_limited(&sql, &items, PageLimits::unlimited(), &mut budget).unwrap();
        assert!(budget.work_seen > 1_000_000, "{}: {}", &sql[..60], budget.work_seen);
    }
}

#[test]
fn what_goes_wrong_after_a_full_page_is_told_by_the_next_one() {
    let items = items(4);
    let plan = planned("SELECT VALUE c.n FROM c WHERE c.n < 2 OR udf.missing(c)");
    let limits = PageLimits {
        rows_max: 2,
        ..PageLimits::unlimited()
    };
    let ask = |items: &[Value], resume: Option<&Resume>| {
        let mut cursor = ListCursor::new(items);
        run(&plan, &mut cursor, &Context::default(), limits, resume, &mut Unlimited)
    };
    let page = ask(&items, None).unwrap();
    assert_eq!(page.rows.len(), 2);
    ask(&items[2..], Some(&page.resume.unwrap())).unwrap_err();
}

#[test]
fn a_full_page_looks_only_a_little_further_within_its_last_item() {
    let list: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
    let item = parse_value(format!(r#"{{"list":[{}]}}"#, list.join(",")).as_bytes()).unwrap();
    let limits = PageLimits {
        rows_max: 1,
        ..PageLimits::unlimited()
    };
    let ask = |plan: &Plan, resume: Option<&Resume>| {
        let mut cursor = ListCursor::new(std::slice::from_ref(&item));
        run(plan, &mut cursor, &Context::default(), limits, resume, &mut Unlimited).unwrap()
    };
    // The row that there is comes first, and four million combinations after it.
    let plan = planned("SELECT VALUE a FROM c JOIN a IN c.list JOIN b IN c.list WHERE a = 0 AND b = 0");
    let page = ask(&plan, None);
    assert_eq!(page.rows.len(), 1);
    assert!(page.progress.work < 1 << 22, "{}", page.progress.work);
    let last = ask(
        &plan,
        Some(&page.resume.expect("nobody knows yet that it was the last")),
    );
    assert!(last.rows.is_empty() && last.resume.is_none());
    // What is found on the way says that there is more.
    let plan = planned("SELECT VALUE a FROM c JOIN a IN c.list WHERE a < 2");
    let page = ask(&plan, None);
    let last = ask(&plan, Some(&page.resume.unwrap()));
    assert_eq!((last.rows.len(), last.resume), (1, None));
}
