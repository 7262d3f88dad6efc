//! User-defined functions in queries.

use orrery_model::etag::Precondition;
use orrery_model::json;
use orrery_node::api::{MetadataVerb, ResourceKind};

use crate::support::{World, create, named};

const PATH: [&str; 2] = ["db", "c"];

async fn define(world: &World, name: &str, script: &str) {
    let body = format!(r#"{{"id":"{name}","body":{}}}"#, json::Value::from(script).to_text());
    let path = PATH.map(named).to_vec();
    world
        .metadata(ResourceKind::UserDefinedFunction, path, create(&body))
        .await
        .unwrap();
}

async fn world() -> World {
    let world = World::new().await;
    world.with_container("").await;
    for n in 1..=3 {
        world
            .create("p", &format!(r#"{{"id":"{n}","pk":"p","n":{n},"list":[{n},2]}}"#))
            .await
            .unwrap();
    }
    world
}

async fn refusal(world: &World, sql: &str) -> String {
    let error = world.query(sql).await.unwrap_err().error;
    assert_eq!(error.status().code, 400, "{error}");
    error.message().to_owned()
}

#[tokio::test]
async fn a_query_calls_the_functions_of_its_container() {
    let world = world().await;
    define(&world, "twice", "function (x) { return x * 2; }").await;
    define(&world, "max", "function (list) { return Math.max.apply(null, list); }").await;
    let rows = world
        .query("SELECT VALUE udf.twice(c.n) FROM c WHERE udf.max(c.list) > 2")
        .await
        .unwrap();
    assert_eq!(rows, ["6"]);
    let rows = world.query("SELECT udf.twice(c.missing) AS v FROM c").await.unwrap();
    assert_eq!(
        rows,
        ["{}", "{}", "{}"],
        "a call without its argument does not take place"
    );
}

#[tokio::test]
async fn a_missing_function_is_refused_when_it_is_called() {
    let world = world().await;
    let unused = world.query("SELECT udf.absent(c.n) FROM c WHERE false").await;
    assert!(unused.unwrap().is_empty());
    let message = refusal(&world, "SELECT udf.absent(c.n) FROM c").await;
    assert!(message.contains("'absent' could not be found"), "{message}");
}

#[tokio::test]
async fn an_exception_of_a_function_is_the_answer() {
    let world = world().await;
    define(
        &world,
        "tax",
        "function (n) { if (n > 2) throw new Error('too much'); return n; }",
    )
    .await;
    let message = refusal(&world, "SELECT VALUE udf.tax(c.n) FROM c").await;
    assert!(message.starts_with(r#"Message: {"Errors":["#), "{message}");
    assert!(message.contains("Error: too much"), "{message}");
}

#[tokio::test]
async fn the_next_query_sees_a_replaced_function() {
    let world = world().await;
    define(&world, "f", "function (n) { return n; }").await;
    assert_eq!(world.query("SELECT VALUE udf.f(1)").await.unwrap(), ["1"]);
    let replace = MetadataVerb::Replace {
        target: named("f"),
        body: json::parse_value(br#"{"id":"f","body":"function (n) { return -n; }"}"#).unwrap(),
        precondition: Precondition::None,
        migration: orrery_model::offer::Migration::None,
    };
    let path = PATH.map(named).to_vec();
    world
        .metadata(ResourceKind::UserDefinedFunction, path, replace)
        .await
        .unwrap();
    assert_eq!(world.query("SELECT VALUE udf.f(1)").await.unwrap(), ["-1"]);
}
