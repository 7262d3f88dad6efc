//! Pages of a query put together are the answer in one page, however large the pages are, however many partitions there
//! are, and whatever happens to them in between.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use orrery_model::Status;
use orrery_model::json::{self, Value};
use orrery_node::admin::PartitionInfo;
use orrery_node::api::{FeedTarget, Outcome};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::support::{World, settings, texts};

const N_ITEMS: usize = 60;

/// Items with repeated values, values of all types, and values missing.
fn item(n: usize) -> (String, String) {
    let key = format!("k{}", n % 23);
    let tags: Vec<String> = (0..n % 4)
        .map(|tag| format!(r#"{{"t":{},"u":"{}"}}"#, tag, n % 3))
        .collect();
    let mut members = vec![
        format!(r#""id":"i{n}","pk":"{key}","n":{},"tags":[{}]"#, n % 7, tags.join(",")),
        format!(r#""g":{{"a":{},"b":[{}]}}"#, n % 2, n % 3),
    ];
    if !n.is_multiple_of(3) {
        members.push(format!(r#""s":"{}""#, ["b", "a", "B", "ä"][n % 4]));
    }
    let mixed = ["null", "true", "1.5", "\"x\"", "[1]", "{}", ""][n % 7];
    if !mixed.is_empty() {
        members.push(format!(r#""m":{mixed}"#));
    }
    (key, format!("{{{}}}", members.join(",")))
}

async fn world(n_partitions: u32) -> World {
    let mut settings = settings();
    settings.partitions = n_partitions;
    let world = World::with(settings).await;
    world.with_container("").await;
    for n in 0..N_ITEMS {
        let (key, body) = item(n);
        world.create(&key, &body).await.unwrap();
    }
    world
}

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(texts).prop_map(str::to_owned)
}

fn filter() -> impl Strategy<Value = String> {
    one_of(&[
        "",
        " WHERE c.n > 2",
        " WHERE IS_DEFINED(c.s) AND c.n != 3",
        " WHERE c.s IN ('a', 'B') OR c.m = null",
        " WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.t = 1)",
        " WHERE c.pk = 'k3'",
        " WHERE false",
    ])
}

fn window() -> impl Strategy<Value = (String, String)> {
    prop_oneof![
        3 => Just((String::new(), String::new())),
        1 => (0..80u32).prop_map(|n| (format!("TOP {n} "), String::new())),
        1 => (0..30u32, 0..50u32).prop_map(|(a, b)| (String::new(), format!(" OFFSET {a} LIMIT {b}"))),
    ]
}

fn plain() -> impl Strategy<Value = String> {
    let list = one_of(&[
        "*",
        "VALUE c",
        "VALUE c.id",
        "c.id, c.n AS x, c.s",
        "VALUE c.s",
        "VALUE [c.m, c.tags[0].t]",
        "VALUE ARRAY(SELECT VALUE t.u FROM t IN c.tags)",
        "VALUE {a: c.g, b: c.n * 2}",
    ]);
    let order = one_of(&[
        "",
        "",
        " ORDER BY c.n",
        " ORDER BY c.n DESC",
        " ORDER BY c.s",
        " ORDER BY c.m DESC",
        " ORDER BY c.g.b[0]",
        " ORDER BY VectorDistance(c.g.b, [1], true, {'distanceFunction': 'euclidean'})",
        " ORDER BY RANK FullTextScore(c.s, 'a', 'b')",
        " ORDER BY RANK RRF(FullTextScore(c.s, 'b'), VectorDistance(c.g.b, [1]), [2, -1])",
    ]);
    let distinct = one_of(&["", "", "", "DISTINCT "]);
    (list, filter(), order, distinct, window()).prop_map(|(list, filter, order, distinct, (top, limit))| {
        format!("SELECT {distinct}{top}{list} FROM c{filter}{order}{limit}")
    })
}

fn joined() -> impl Strategy<Value = String> {
    let list = one_of(&["VALUE t", "c.id, t.u", "VALUE t.t + u.t", "DISTINCT VALUE t.u"]);
    let order = one_of(&["", " ORDER BY c.n DESC", " ORDER BY c.s"]);
    (list, filter(), order, window()).prop_map(|(list, filter, order, (top, limit))| {
        let (first, rest) = list
            .split_once(' ')
            .filter(|(first, _)| *first == "DISTINCT")
            .unwrap_or(("", &list));
        format!("SELECT {first} {top}{rest} FROM c JOIN t IN c.tags JOIN u IN c.tags{filter}{order}{limit}")
    })
}

fn grouped() -> impl Strategy<Value = String> {
    let shape = one_of(&[
        "c.n, COUNT(1) AS k, AVG(c.n) AS a|c.n",
        "c.s, MAX(c.m) AS most|c.s",
        "c.g, MAKELIST(c.id) AS ids|c.g",
        "c.n, c.s, SUM(ARRAY_LENGTH(c.tags)) AS tags|c.n, c.s",
    ]);
    (shape, filter(), window()).prop_map(|(shape, filter, (top, limit))| {
        let (list, keys) = shape.split_once('|').unwrap();
        format!("SELECT {top}{list} FROM c{filter} GROUP BY {keys}{limit}")
    })
}

fn query() -> impl Strategy<Value = String> {
    prop_oneof![4 => plain(), 2 => joined(), 1 => grouped()]
}

/// Where a page ends for a reason other than its size, no row may be lost or come twice either.
async fn pages(world: &World, sql: &str, n_rows: usize, split_after: Option<usize>) -> Vec<String> {
    let mut rows = Vec::new();
    let mut continuation = None;
    for n_pages in 0.. {
        assert!(n_pages < 10_000, "{sql} does not end");
        if split_after == Some(n_pages) {
            split_all(world).await;
        }
        let feed = world.query_page(sql, n_rows, continuation).await.unwrap();
        assert!(feed.entries.len() <= n_rows);
        rows.extend(texts(&feed));
        continuation = feed.continuation;
        if continuation.is_none() {
            break;
        }
    }
    rows
}

async fn split_all(world: &World) {
    for partition in world.node.partitions(Some(("db", "c"))).unwrap() {
        world.node.split("db", "c", partition.partition.0).await.unwrap();
    }
}

/// Runs `check` for many generated queries and page sizes.
fn for_queries(n_cases: u32, n_partitions: u32, split: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let shared = runtime.block_on(world(n_partitions));
    let mut runner = TestRunner::new(Config {
        cases: n_cases,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&(query(), 1..20usize, 0..4usize), |(sql, n_rows, split_after)| {
        runtime.block_on(async {
            let own;
            let world = if split {
                own = world(n_partitions).await;
                &own
            } else {
                &shared
            };
            let whole = world.query(&sql).await;
            let whole = whole.map_err(|failure| TestCaseError::fail(format!("{sql}: {}", failure.error)))?;
            let paged = pages(world, &sql, n_rows, split.then_some(split_after)).await;
            prop_assert_eq!(paged, whole, "{} in pages of {}", sql, n_rows);
            Ok(())
        })
    });
    outcome.unwrap();
}

#[test]
fn over_one_partition() {
    for_queries(200, 1, false);
}

#[test]
fn over_eight_partitions() {
    for_queries(200, 8, false);
}

#[test]
fn with_every_partition_split_between_two_pages() {
    for_queries(40, 2, true);
}

#[test]
fn the_number_of_partitions_does_not_change_the_rows() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let (one, eight) = runtime.block_on(async { (world(1).await, world(8).await) });
    for sql in [
        "SELECT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c WHERE c.n > 2 ORDER BY c.id",
        "SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n",
        "SELECT DISTINCT VALUE c.m FROM c",
    ] {
        let (mut from_one, mut from_eight) =
            runtime.block_on(async { (one.query(sql).await.unwrap(), eight.query(sql).await.unwrap()) });
        from_one.sort();
        from_eight.sort();
        assert_eq!(from_one, from_eight, "{sql}");
    }
}

/// The rows of all partitions as a client collects them that asks one after the other, and goes on with the same continuation
/// in the children of a partition that is gone.
async fn rows_of_partitions(world: &World, sql: &str, n_rows: usize, split_after: usize) -> Vec<String> {
    let ids = |world: &World| -> Vec<PartitionInfo> { world.node.partitions(Some(("db", "c"))).unwrap() };
    let mut waiting: VecDeque<_> = ids(world)
        .iter()
        .map(|info| (info.partition, info.range.clone(), None))
        .collect();
    let (mut rows, mut n_pages) = (Vec::new(), 0);
    while let Some((partition, range, continuation)) = waiting.pop_front() {
        if n_pages == split_after {
            split_all(world).await;
        }
        n_pages += 1;
        let target = FeedTarget {
            partition: Some(partition),
            ..FeedTarget::default()
        };
        match world.query_page_of(target, sql, n_rows, continuation.clone()).await {
            Ok(feed) => {
                rows.extend(texts(&feed));
                if feed.continuation.is_some() {
                    waiting.push_front((partition, range, feed.continuation));
                }
            }
            Err(failure) => {
                assert_eq!(failure.error.status(), Status::PARTITION_GONE, "{sql}");
                let children = ids(world).into_iter().filter(|info| range.covers(&info.range));
                waiting.extend(children.map(|info| (info.partition, info.range.clone(), continuation.clone())));
            }
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_rows_of_partitions_are_all_there_whenever_they_are_split() {
    for sql in [
        "SELECT DISTINCT VALUE c.pk FROM c",
        "SELECT DISTINCT c.n, c.s FROM c",
        "SELECT DISTINCT VALUE t.u FROM c JOIN t IN c.tags",
        "SELECT DISTINCT TOP 1000 VALUE c.pk FROM c",
        "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk",
    ] {
        for (n_rows, split_after) in [(1, 1), (2, 3), (3, 0), (5, 2)] {
            let world = world(2).await;
            let whole: BTreeSet<String> = world.query(sql).await.unwrap().into_iter().collect();
            let found = rows_of_partitions(&world, sql, n_rows, split_after).await;
            let found: BTreeSet<String> = found.into_iter().collect();
            assert_eq!(found, whole, "{sql} in pages of {n_rows}, split after {split_after}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_groups_add_up_whenever_partitions_are_split() {
    let sql = "SELECT c.pk, COUNT(1) AS k FROM c GROUP BY c.pk";
    for split_after in 0..3 {
        let world = world(2).await;
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        for row in rows_of_partitions(&world, sql, 1, split_after).await {
            let row = json::parse_value(row.as_bytes()).unwrap();
            let count = row.get("k").and_then(Value::as_number).unwrap().as_i64().unwrap();
            *counts
                .entry(row.get("pk").and_then(Value::as_str).unwrap().to_owned())
                .or_default() += count;
        }
        assert_eq!(counts.len(), 23);
        assert_eq!(counts.values().sum::<i64>(), N_ITEMS as i64);
        assert_eq!(counts["k0"], 3);
    }
}

#[tokio::test]
async fn a_full_page_says_that_it_is_the_last_when_no_item_comes_after_it() {
    let world = World::new().await;
    world.with_container("").await;
    for n in 0..6 {
        let body = format!(r#"{{"id":"{n}","pk":"k{}","n":{n},"tags":[1,2]}}"#, n % 2);
        world.create(&format!("k{}", n % 2), &body).await.unwrap();
    }
    for (sql, n_rows, sizes) in [
        ("SELECT * FROM c", 3, vec![3, 3]),
        ("SELECT * FROM c", 6, vec![6]),
        ("SELECT * FROM c WHERE c.n < 4", 2, vec![2, 2]),
        ("SELECT * FROM c WHERE c.n % 2 = 0", 3, vec![3]),
        ("SELECT c.id, t FROM c JOIN t IN c.tags", 4, vec![4, 4, 4]),
        ("SELECT c.id, t FROM c JOIN t IN c.tags WHERE t = 1", 3, vec![3, 3]),
        ("SELECT * FROM c ORDER BY c.n", 3, vec![3, 3]),
        ("SELECT * FROM c OFFSET 2 LIMIT 4", 2, vec![2, 2]),
    ] {
        let mut found = Vec::new();
        let mut continuation = None;
        loop {
            let feed = world.query_page(sql, n_rows, continuation).await.unwrap();
            found.push(feed.entries.len());
            continuation = feed.continuation;
            if continuation.is_none() {
                break;
            }
        }
        assert_eq!(found, sizes, "{sql}");
    }
}

#[tokio::test]
async fn what_a_full_page_looks_at_to_find_out_whether_it_is_the_last_is_paid_for_once() {
    let world = World::new().await;
    world.with_container("").await;
    let filler = "x".repeat(60_000);
    for n in 0..20 {
        let body = format!(r#"{{"id":"{n}","pk":"k","n":{n},"filler":"{filler}"}}"#);
        world.create("k", &body).await.unwrap();
    }
    let sql = "SELECT c.id FROM c WHERE c.n * 2 IN (0, 20)";
    let charged = async |n_rows: usize| {
        let (mut charged, mut continuation) = (0, None);
        loop {
            let reply = world
                .execute(world.page_query(FeedTarget::default(), sql, n_rows, continuation))
                .await
                .unwrap();
            charged += reply.facts.charge.as_hundredths();
            let Outcome::Feed(feed) = reply.outcome else {
                panic!("a query answers rows")
            };
            continuation = feed.continuation;
            if continuation.is_none() {
                return charged;
            }
        }
    };
    let (whole, in_pages) = (charged(100).await, charged(1).await);
    assert!(
        in_pages < whole + whole / 4,
        "{in_pages} for pages, {whole} for all at once"
    );
}
