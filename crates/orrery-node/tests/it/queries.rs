//! What a query is answered from, where it may go without being told, and what it costs.

use std::time::Duration;

use orrery_model::json::Value;
use orrery_model::{PartitionKey, Status};
use orrery_node::api::{FeedTarget, Operation, Outcome, Page, QueryDiagnostics, QueryMetrics, QueryText};
use orrery_node::{Failure, Reply};

use crate::support::{World, container, settings};

/// How a query is asked.
struct Asked<'a> {
    key: Option<&'a str>,
    cross_partition: bool,
    parameters: Vec<(String, Option<Value>)>,
    continuation: Option<String>,
}

fn under(key: &str) -> Asked<'_> {
    Asked {
        key: Some(key),
        cross_partition: false,
        parameters: Vec::new(),
        continuation: None,
    }
}

fn without_header() -> Asked<'static> {
    Asked { key: None, ..under("") }
}

async fn ask(world: &World, sql: &str, asked: Asked<'_>) -> Result<Reply, Failure> {
    let partition_key = asked.key.map(|key| PartitionKey::parse(&format!("[{key:?}]")).unwrap());
    let operation = Operation::Query {
        container: container(),
        target: FeedTarget {
            partition_key,
            ..FeedTarget::default()
        },
        query: QueryText {
            text: sql.to_owned(),
            parameters: asked.parameters,
            resume_filter: None,
        },
        page: Page {
            continuation: asked.continuation,
            ..Page::default()
        },
        cross_partition: asked.cross_partition,
        diagnostics: QueryDiagnostics {
            metrics: true,
            index_use: false,
        },
    };
    world.execute(operation).await
}

fn rows(reply: &Reply) -> Vec<String> {
    match &reply.outcome {
        Outcome::Feed(feed) => feed
            .entries
            .iter()
            .map(|row| String::from_utf8(row.to_vec()).unwrap())
            .collect(),
        other => panic!("{other:?}"),
    }
}

async fn world(n_partitions: u32) -> World {
    let mut settings = settings();
    settings.partitions = n_partitions;
    settings.purge_interval = Duration::from_secs(3600);
    let world = World::with(settings).await;
    world.with_container(r#","defaultTtl":-1"#).await;
    for n in 0..40 {
        let key = format!("k{}", n % 8);
        let ttl = if n == 9 { r#","ttl":5"# } else { "" };
        let body = format!(r#"{{"id":"i{n}","pk":"{key}","n":{n}{ttl}}}"#);
        world.create(&key, &body).await.unwrap();
    }
    world
}

#[tokio::test(start_paused = true)]
async fn an_item_asked_for_by_its_id_is_the_one_a_plan_finds_at_the_same_price() {
    let world = world(2).await;
    // Times are not measured the same way twice.
    let counts = |reply: &Reply| {
        let QueryMetrics {
            n_items_read,
            bytes_read,
            n_rows,
            bytes_given,
            ..
        } = reply.facts.query_metrics.unwrap();
        (n_items_read, bytes_read, n_rows, bytes_given)
    };
    for expired in [false, true] {
        if expired {
            world.clock.advance_ms(10_000);
        }
        for (key, id, n_rows) in [
            ("k1", "i1", 1),
            ("k1", "i2", 0),
            ("k1", "i9", usize::from(!expired)),
            ("x", "i1", 0),
        ] {
            let parameters = vec![("@id".to_owned(), Some(Value::from(id)))];
            let direct = Asked {
                parameters: parameters.clone(),
                ..under(key)
            };
            let direct = ask(&world, "SELECT * FROM c WHERE c.id = @id", direct).await.unwrap();
            let planned = Asked {
                parameters,
                ..under(key)
            };
            let planned = ask(&world, "SELECT * FROM c WHERE c.id = @id AND IS_DEFINED(c.id)", planned)
                .await
                .unwrap();
            assert_eq!(rows(&direct).len(), n_rows, "{key} {id}");
            assert_eq!(rows(&direct), rows(&planned), "{key} {id}");
            assert_eq!(counts(&direct), counts(&planned), "{key} {id}");
            assert_eq!(direct.facts.charge, planned.facts.charge, "{key} {id}");
            assert!(direct.facts.partition.is_some());
        }
    }
}

#[tokio::test]
async fn a_filter_that_leaves_one_partition_key_needs_no_header_and_any_other_does() {
    // Also where there is one partition: nobody has to know how many there are.
    for n_partitions in [1, 4] {
        let world = world(n_partitions).await;
        let sql = "SELECT VALUE c.n FROM c WHERE c.pk = 'k3' ORDER BY c.n DESC";
        let reply = ask(&world, sql, without_header()).await.unwrap();
        assert_eq!(rows(&reply), ["35", "27", "19", "11", "3"]);
        for sql in [
            "SELECT TOP 5 * FROM c WHERE c.n = 3",
            "SELECT * FROM c WHERE c.pk IN ('k1', 'k2')",
        ] {
            let failure = ask(&world, sql, without_header()).await.unwrap_err();
            // No substatus: clients that see the one of a query they must put together themselves would do so unasked.
            assert_eq!(failure.error.status(), Status::BAD_REQUEST, "{sql}");
            assert!(
                failure
                    .error
                    .message()
                    .starts_with("Cross partition query is required but disabled.")
            );
        }
        let wrong = ask(&world, "SELECT * FROM", without_header()).await.unwrap_err();
        assert!(wrong.error.message().contains("SC1002"), "{}", wrong.error);
    }
}

#[tokio::test]
async fn a_whole_container_is_more_than_one_partition_key_however_few_partitions_it_has() {
    let world = world(1).await;
    let failure = ask(&world, "SELECT * FROM c", without_header()).await.unwrap_err();
    assert_eq!(failure.error.status(), Status::BAD_REQUEST);
    let reply = ask(
        &world,
        "SELECT VALUE c.n FROM c WHERE c.pk = 'k3' AND c.n < 12",
        without_header(),
    )
    .await;
    assert_eq!(rows(&reply.unwrap()), ["3", "11"]);
}

#[tokio::test]
async fn work_within_an_item_is_paid_for() {
    let world = World::new().await;
    world.with_container("").await;
    let list: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let body = format!(r#"{{"id":"a","pk":"k","list":[{}]}}"#, list.join(","));
    world.create("k", &body).await.unwrap();
    let charge = async |sql: &str| ask(&world, sql, under("k")).await.unwrap().facts.charge;
    let once = charge("SELECT VALUE COUNT(1) FROM c JOIN a IN c.list").await;
    let pairs = charge("SELECT VALUE COUNT(1) FROM c JOIN a IN c.list JOIN b IN c.list").await;
    assert!(pairs.as_hundredths() > once.as_hundredths() + 300, "{once} and {pairs}");
}

#[tokio::test]
async fn a_continuation_that_was_not_issued_is_refused_in_the_words_of_the_service() {
    let world = world(1).await;
    let asked = Asked {
        continuation: Some("abc".to_owned()),
        ..under("k1")
    };
    let failure = ask(&world, "SELECT * FROM c", asked).await.unwrap_err();
    assert_eq!(failure.error.status(), Status::BAD_REQUEST);
    assert_eq!(failure.error.message(), "Invalid Continuation Token");
}
