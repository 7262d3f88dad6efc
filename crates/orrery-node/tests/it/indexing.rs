//! The index as clients notice it: what a query reads, a policy that changes under load, a split.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::etag::Precondition;
use orrery_model::json;
use orrery_model::{Charge, IndexingDirective, PartitionKey, Status, Timestamp};
use orrery_node::api::{
    FeedTarget, ItemOperation, ItemVerb, MetadataVerb, Operation, Page, QueryDiagnostics, QueryMetrics, QueryText,
    ResourceKind,
};
use orrery_node::{ManualClock, Node};

use orrery_partition::project::Projector;
use orrery_partition::storage::Store;
use orrery_storage::{EmbeddedSettings, EmbeddedStore};

use crate::support::{World, container, item, named, settings, texts};

const N_ITEMS: usize = 600;

async fn world(policy: &str) -> World {
    filled(World::new().await, policy).await
}

async fn filled(world: World, policy: &str) -> World {
    world.with_container(&format!(r#","indexingPolicy":{policy}"#)).await;
    for n in 0..N_ITEMS {
        let body = format!(
            r#"{{"id":"i{n}","pk":"p{}","n":{n},"even":{},"tag":"t{}"}}"#,
            n % 7,
            n % 2 == 0,
            n % 100
        );
        world.create(&format!("p{}", n % 7), &body).await.unwrap();
    }
    world
}

const EVERYTHING: &str = r#"{"includedPaths":[{"path":"/*"}]}"#;
const ONLY_TAGS: &str = r#"{"includedPaths":[{"path":"/tag/?"}],"excludedPaths":[{"path":"/*"}],
    "compositeIndexes":[[{"path":"/tag"},{"path":"/n","order":"descending"}]]}"#;

async fn replace_policy(world: &World, policy: &str) {
    replace_fields(world, &format!(r#""indexingPolicy":{policy}"#)).await;
}

async fn replace_fields(world: &World, fields: &str) {
    let body = format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},{fields}}}"#);
    let verb = MetadataVerb::Replace {
        target: named("c"),
        body: json::parse_value(body.as_bytes()).unwrap(),
        precondition: Precondition::None,
        migration: orrery_model::offer::Migration::None,
    };
    world
        .metadata(ResourceKind::Container, vec![named("db")], verb)
        .await
        .unwrap();
}

async fn index_progress(world: &World) -> u8 {
    let verb = MetadataVerb::Read {
        target: named("c"),
        precondition: Precondition::None,
    };
    let reply = world
        .metadata(ResourceKind::Container, vec![named("db")], verb)
        .await
        .unwrap();
    reply.facts.index_progress.unwrap()
}

/// Waits until the policy has been applied; the percentages seen on the way.
async fn applied(world: &World) -> Vec<u8> {
    let mut seen = Vec::new();
    let done = async {
        loop {
            seen.push(index_progress(world).await);
            if seen.last() == Some(&100) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), done)
        .await
        .expect("the policy is applied in the end");
    seen
}

/// What a query took.
async fn metrics(world: &World, sql: &str) -> (QueryMetrics, Charge) {
    let operation = Operation::Query {
        container: container(),
        target: FeedTarget::default(),
        query: QueryText {
            text: sql.to_owned(),
            parameters: Vec::new(),
            resume_filter: None,
        },
        page: Page::default(),
        cross_partition: true,
        diagnostics: QueryDiagnostics {
            metrics: true,
            index_use: true,
        },
    };
    let reply = world.execute(operation).await.unwrap();
    (reply.facts.query_metrics.unwrap(), reply.facts.charge)
}

async fn n_read(world: &World, sql: &str) -> u64 {
    metrics(world, sql).await.0.n_items_read
}

#[tokio::test]
async fn a_query_reads_the_items_it_gives_and_no_others() {
    let world = world(EVERYTHING).await;
    for (sql, wanted) in [
        ("SELECT * FROM c WHERE c.n = 17", 1),
        ("SELECT * FROM c WHERE c.tag = 't5'", 6),
        ("SELECT * FROM c WHERE c.n >= 10 AND c.n < 20 AND c.even", 10),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.tag IN ('t1', 't2')", 12),
        ("SELECT * FROM c ORDER BY c.n DESC OFFSET 0 LIMIT 5", 5),
        ("SELECT TOP 5 * FROM c WHERE c.even ORDER BY c.n", 9),
        ("SELECT * FROM c WHERE c.n = 5000", 0),
        ("SELECT * FROM c WHERE CONTAINS(c.tag, '55')", 6),
        ("SELECT * FROM c WHERE c.tag LIKE '%8' AND c.n > 590", 9),
        ("SELECT * FROM c WHERE c.tag || 'x' = 't5x'", N_ITEMS as u64),
    ] {
        assert_eq!(n_read(&world, sql).await, wanted, "{sql}");
    }
}

#[tokio::test]
async fn a_computed_property_that_the_policy_names_is_searched_and_sorted_by_its_index() {
    let world = World::new().await;
    let fields = |half: &str| {
        format!(
            r#""indexingPolicy":{{"includedPaths":[{{"path":"/*"}},{{"path":"/half/?"}}],
                "compositeIndexes":[[{{"path":"/half"}},{{"path":"/id"}}]]}},
            "computedProperties":[{{"name":"half","query":"{half}"}},{{"name":"label","query":"SELECT VALUE UPPER(c.tag) FROM c"}}]"#
        )
    };
    world
        .with_container(&format!(",{}", fields("SELECT VALUE c.n / 2 FROM c")))
        .await;
    for n in 0..N_ITEMS {
        let body = format!(r#"{{"id":"i{n}","pk":"p{}","n":{n},"tag":"t{}"}}"#, n % 7, n % 100);
        world.create(&format!("p{}", n % 7), &body).await.unwrap();
    }
    for (sql, wanted) in [
        ("SELECT * FROM c WHERE c.half = 8.5", 1),
        ("SELECT * FROM c WHERE c.half > 295 AND NOT IS_DEFINED(c.missing)", 9),
        ("SELECT VALUE c.half FROM c ORDER BY c.half DESC OFFSET 0 LIMIT 5", 5),
        ("SELECT * FROM c ORDER BY c.half, c.id OFFSET 0 LIMIT 5", 5),
        ("SELECT * FROM c WHERE NOT IS_DEFINED(c.half)", 0),
        ("SELECT * FROM c WHERE c.label = 'T5'", N_ITEMS as u64),
    ] {
        assert_eq!(n_read(&world, sql).await, wanted, "{sql}");
    }
    replace_fields(&world, &fields("SELECT VALUE c.n / 4 FROM c")).await;
    applied(&world).await;
    assert_eq!(n_read(&world, "SELECT * FROM c WHERE c.half = 4.25").await, 1);
    assert_eq!(n_read(&world, "SELECT * FROM c WHERE c.half = 8.6").await, 0);
}

#[tokio::test]
async fn rows_below_a_source_that_is_an_indexed_computed_property_are_sorted_and_none_is_left_out() {
    let world = World::new().await;
    world
        .with_container(
            r#","indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/part/*"}],
                "compositeIndexes":[[{"path":"/part/n"},{"path":"/part/m"}]]},
            "computedProperties":[{"name":"part","query":"SELECT VALUE {n: c.n, m: c.m} FROM c"}]"#,
        )
        .await;
    for n in 0..N_ITEMS {
        let body = format!(r#"{{"id":"i{n}","pk":"p","n":{},"m":{n}}}"#, (n * 7) % N_ITEMS);
        world.create("p", &body).await.unwrap();
    }
    let wanted: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    for sql in [
        "SELECT VALUE p.n FROM c.part p ORDER BY p.n",
        "SELECT VALUE p.n FROM c.part p ORDER BY p.n, p.m",
        "SELECT VALUE c.part.n FROM c ORDER BY c.part.n",
        "SELECT VALUE p.n FROM c JOIN p IN (SELECT VALUE [c.part]) ORDER BY c.part.n",
    ] {
        let page = world.query_page(sql, 10, None).await.unwrap();
        assert_eq!(texts(&page), wanted, "{sql}");
    }
}

#[tokio::test]
async fn a_query_that_reads_more_costs_more() {
    let world = world(EVERYTHING).await;
    let (_, one) = metrics(&world, "SELECT * FROM c WHERE c.n = 17").await;
    let (_, some) = metrics(&world, "SELECT * FROM c WHERE c.tag = 't5'").await;
    let (_, all) = metrics(&world, "SELECT * FROM c WHERE c.tag || 'x' = 't5x'").await;
    assert!(one < some && some < all, "{one} {some} {all}");
}

#[tokio::test]
async fn a_changed_policy_is_applied_while_queries_and_writes_go_on() {
    let world = world(EVERYTHING).await;
    let queries = [
        "SELECT VALUE c.id FROM c WHERE c.tag = 't5'",
        "SELECT VALUE c.id FROM c WHERE c.n = 17",
        "SELECT VALUE c.id FROM c WHERE c.tag = 't7' ORDER BY c.tag",
    ];
    let mut wanted = Vec::new();
    for sql in queries {
        wanted.push(world.query(sql).await.unwrap());
    }
    assert_eq!(index_progress(&world).await, 100);
    replace_policy(&world, ONLY_TAGS).await;
    for round in 0.. {
        for (sql, wanted) in queries.iter().zip(&wanted) {
            assert_eq!(world.query(sql).await.unwrap(), *wanted, "{sql}");
        }
        let id = format!("new{round}");
        world
            .create("p1", &format!(r#"{{"id":"{id}","pk":"p1","tag":"fresh"}}"#))
            .await
            .unwrap();
        let fresh = world
            .query("SELECT VALUE c.id FROM c WHERE c.tag = 'fresh'")
            .await
            .unwrap();
        assert_eq!(fresh.len(), round + 1);
        if index_progress(&world).await == 100 {
            break;
        }
    }
    assert_eq!(n_read(&world, queries[0]).await, 6);
    assert!(
        n_read(&world, queries[1]).await > N_ITEMS as u64,
        "numbers are no longer indexed"
    );
    let refused = world.query("SELECT * FROM c ORDER BY c.n").await.unwrap_err();
    assert_eq!(refused.error.status(), Status::BAD_REQUEST);
    let sorted = "SELECT VALUE c.n FROM c WHERE c.tag = 't5' ORDER BY c.tag, c.n DESC";
    assert_eq!(
        world.query(sorted).await.unwrap(),
        ["505", "405", "305", "205", "105", "5"]
    );
}

/// Texts in a language and geometries have indexes of their own.
fn searched(language: &str) -> String {
    format!(
        r#""indexingPolicy":{{"includedPaths":[{{"path":"/n/?"}}],"excludedPaths":[{{"path":"/*"}}],
            "fullTextIndexes":[{{"path":"/text"}}],"spatialIndexes":[{{"path":"/at/*","types":["Point"]}}]}},
        "fullTextPolicy":{{"defaultLanguage":"{language}","fullTextPaths":[{{"path":"/text","language":"{language}"}}]}}"#
    )
}

#[tokio::test]
async fn words_and_places_are_found_by_indexes_once_the_policy_has_them() {
    let world = World::new().await;
    world
        .with_container(&format!(r#","indexingPolicy":{EVERYTHING}"#))
        .await;
    for n in 0..N_ITEMS {
        let text = ["Mountains and lakes", "running rivers", "tall houses"][n % 3];
        let at = format!(r#"{{"type":"Point","coordinates":[{},46]}}"#, n as f64 / 10.0);
        let body = format!(r#"{{"id":"i{n}","pk":"p{}","text":"{text} w{n}","at":{at}}}"#, n % 7);
        world.create(&format!("p{}", n % 7), &body).await.unwrap();
    }
    let words = "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'w17')";
    let near = r#"SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.at, {"type":"Point","coordinates":[3.1,46]}) < 500"#;
    let plural = "SELECT VALUE COUNT(1) FROM c WHERE FullTextContains(c.text, 'house')";
    let answers = async |world: &World| {
        let mut answers = Vec::new();
        for sql in [words, near, plural] {
            answers.push(world.query(sql).await.unwrap());
        }
        answers
    };
    let scanned = answers(&world).await;
    assert_eq!(scanned, [vec![r#""i17""#], vec![r#""i31""#], vec!["200"]]);
    assert_eq!(n_read(&world, words).await, N_ITEMS as u64);

    replace_fields(&world, &searched("en-US")).await;
    applied(&world).await;
    assert_eq!(answers(&world).await, scanned);
    assert_eq!([n_read(&world, words).await, n_read(&world, near).await], [1, 1]);
    assert_eq!(n_read(&world, plural).await, 200);

    // In another language the words have other stems, so the index is made anew.
    replace_fields(&world, &searched("it-IT")).await;
    applied(&world).await;
    assert_eq!(answers(&world).await[..2], scanned[..2]);
    assert_eq!(n_read(&world, words).await, 1);
    assert_eq!(
        world.query(plural).await.unwrap(),
        ["0"],
        "the plural is no form of it in Italian"
    );
}

async fn on_disk(dir: &std::path::Path) -> World {
    let store: Arc<dyn Store> =
        EmbeddedStore::open(dir, EmbeddedSettings::default(), Arc::new(Projector::default())).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
    let node = Node::start(settings(), Arc::clone(&store), clock.clone())
        .await
        .unwrap();
    World { node, clock, store }
}

#[tokio::test(flavor = "multi_thread")]
async fn applying_a_policy_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = filled(on_disk(dir.path()).await, EVERYTHING).await;
    replace_policy(&world, ONLY_TAGS).await;
    world.node.stop(Duration::from_secs(10)).await.unwrap();
    drop(world);
    let world = on_disk(dir.path()).await;
    let seen = applied(&world).await;
    assert!(seen.is_sorted(), "progress never goes back: {seen:?}");
    assert_eq!(n_read(&world, "SELECT * FROM c WHERE c.tag = 't5'").await, 6);
    world.node.stop(Duration::from_secs(10)).await.unwrap();
}

#[tokio::test]
async fn pages_of_a_sorted_query_follow_one_another_without_gaps() {
    let world = world(EVERYTHING).await;
    for (order, reverse) in [("c.tag", false), ("c.n DESC", true), ("c.missing", false)] {
        let sql = format!("SELECT VALUE c.n FROM c ORDER BY {order}");
        let (mut found, mut continuation) = (Vec::new(), None);
        loop {
            let feed = world.query_page(&sql, 70, continuation).await.unwrap();
            found.extend(texts(&feed));
            continuation = feed.continuation;
            if continuation.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), N_ITEMS, "{sql}");
        if reverse {
            let numbers: Vec<usize> = found.iter().map(|text| text.parse().unwrap()).collect();
            assert!(numbers.is_sorted_by(|a, b| a > b));
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), N_ITEMS, "{sql} gives every item once");
    }
}

/// Creates an item with a directive.
async fn directed(world: &World, key: &str, body: &str, directive: IndexingDirective) {
    let operation = Operation::Item(ItemOperation {
        container: container(),
        partition_key: Some(PartitionKey::parse(&format!("[{key:?}]")).unwrap()),
        precondition: Precondition::None,
        directive,
        verb: ItemVerb::Upsert { body: item(body) },
    });
    world.execute(operation).await.unwrap();
}

/// The ids that a query gives, sorted.
async fn ids(world: &World, sql: &str) -> Vec<String> {
    let rows = world.query(sql).await.unwrap();
    let mut ids: Vec<String> = rows.iter().map(|row| row.trim_matches('"').to_owned()).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn an_item_that_is_not_to_be_indexed_is_in_no_index_and_in_every_answer() {
    let world = world(EVERYTHING).await;
    let tagged = "SELECT VALUE c.id FROM c WHERE c.tag = 'rare'";
    let body = r#"{"id":"hidden","pk":"p1","n":-5,"tag":"rare"}"#;
    directed(&world, "p1", body, IndexingDirective::Include).await;
    assert_eq!(n_read(&world, "SELECT * FROM c WHERE c.n = 17").await, 1);
    directed(&world, "p1", body, IndexingDirective::Exclude).await;
    assert_eq!(ids(&world, tagged).await, ["hidden"]);
    // It is read besides what the index leads to.
    assert_eq!(n_read(&world, "SELECT * FROM c WHERE c.n = 17").await, 2);
    let first = "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n";
    assert_eq!(ids(&world, first).await, ["hidden", "i0"]);
    assert_eq!(
        ids(&world, "SELECT VALUE c.id FROM c WHERE c.id = 'hidden'").await,
        ["hidden"]
    );
    // The next write says something else.
    directed(&world, "p1", body, IndexingDirective::Default).await;
    assert_eq!(ids(&world, tagged).await, ["hidden"]);
    assert_eq!(n_read(&world, tagged).await, 1);
    assert_eq!(n_read(&world, "SELECT * FROM c WHERE c.n = 17").await, 1);
}

#[tokio::test]
async fn a_changed_policy_leaves_out_what_was_not_to_be_indexed_and_nothing_else() {
    const BY_DEFAULT_OF_AN_SDK: &str = r#"{"automatic":false,"includedPaths":[{"path":"/*"}]}"#;
    let world = world(BY_DEFAULT_OF_AN_SDK).await;
    let one = "SELECT VALUE c.id FROM c WHERE c.n = 17";
    assert_eq!(
        (ids(&world, one).await, n_read(&world, one).await),
        (vec!["i17".to_owned()], 1)
    );
    directed(
        &world,
        "p3",
        r#"{"id":"i17","pk":"p3","n":17}"#,
        IndexingDirective::Exclude,
    )
    .await;
    replace_policy(&world, EVERYTHING).await;
    applied(&world).await;
    assert_eq!(ids(&world, one).await, ["i17"]);
    let other = "SELECT VALUE c.id FROM c WHERE c.n = 24";
    assert_eq!(
        (ids(&world, other).await, n_read(&world, other).await),
        (vec!["i24".to_owned()], 2)
    );
}
