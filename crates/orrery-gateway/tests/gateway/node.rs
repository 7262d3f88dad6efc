use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::client::{Answer, administer, authorization, now_text, send, signed};
use crate::server::Server;

const CONTAINER: &str = "dbs/shop/colls/orders";

async fn post(server: &Server, parent: &str, kind: &str, body: &Value) -> Answer {
    let path = format!("/{parent}/{kind}").replace("//", "/");
    send(server.address, signed("POST", &path, kind, parent, body.to_string())).await
}

fn with_authorization(mut request: Request<Full<Bytes>>, value: &str) -> Request<Full<Bytes>> {
    request.headers_mut().insert("authorization", value.parse().unwrap());
    request
}

/// A read of the one item, with the partition key `a`.
fn read() -> Request<Full<Bytes>> {
    let link = format!("{CONTAINER}/docs/1");
    signed("GET", &format!("/{link}"), "docs", &link, "")
}

fn write() -> Request<Full<Bytes>> {
    signed(
        "POST",
        &format!("/{CONTAINER}/docs"),
        "docs",
        CONTAINER,
        r#"{"id":"2","pk":"a"}"#,
    )
}

/// A database, a container and an item in it.
async fn shop() -> Server {
    let server = Server::with_node().await;
    let container = json!({"id": "orders", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    assert_eq!(post(&server, "", "dbs", &json!({"id": "shop"})).await.status, 201);
    assert_eq!(post(&server, "dbs/shop", "colls", &container).await.status, 201);
    let item = post(&server, CONTAINER, "docs", &json!({"id": "1", "pk": "a", "n": 7})).await;
    assert_eq!(item.status, 201, "{item:?}");
    server
}

#[tokio::test]
async fn what_is_written_is_read_back_with_its_system_properties() {
    let server = shop().await;
    let answer = send(server.address, read()).await;
    assert_eq!(answer.status, 200);
    let item = answer.json();
    assert_eq!((&item["id"], &item["n"]), (&json!("1"), &json!(7)));
    assert_eq!(item["_etag"], answer.header("etag"));
    assert!(!answer.header("x-ms-session-token").is_empty());
    assert_eq!(answer.header("x-ms-number-of-read-regions"), "0");
    let again = post(&server, CONTAINER, "docs", &json!({"id": "1", "pk": "a"})).await;
    assert_eq!(
        (again.status, again.json()["code"].as_str().unwrap()),
        (409, "Conflict")
    );
}

#[tokio::test]
async fn a_read_only_key_reads_and_does_not_write() {
    let server = shop().await;
    let key = &server.keys().primary_read_only.0;
    let read_header = authorization(key, "GET", "docs", &format!("{CONTAINER}/docs/1"), &now_text());
    assert_eq!(
        send(server.address, with_authorization(read(), &read_header))
            .await
            .status,
        200
    );
    let write_header = authorization(key, "POST", "docs", CONTAINER, &now_text());
    let answer = send(server.address, with_authorization(write(), &write_header)).await;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str().unwrap()),
        (403, "Forbidden")
    );
}

#[tokio::test]
async fn a_token_for_a_container_reads_there_and_nowhere_else() {
    let server = shop().await;
    assert_eq!(
        post(&server, "dbs/shop", "users", &json!({"id": "ann"})).await.status,
        201
    );
    let permission = json!({"id": "p", "permissionMode": "Read", "resource": CONTAINER});
    let created = post(&server, "dbs/shop/users/ann", "permissions", &permission).await;
    assert_eq!(created.status, 201, "{created:?}");
    let token = created.json()["_token"].as_str().expect("a token").to_owned();
    assert_eq!(
        send(server.address, with_authorization(read(), &token)).await.status,
        200
    );
    assert_eq!(
        send(server.address, with_authorization(write(), &token)).await.status,
        403
    );
    let other = json!({"id": "other", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    assert_eq!(post(&server, "dbs/shop", "colls", &other).await.status, 201);
    let elsewhere = signed("GET", "/dbs/shop/colls/other/docs", "docs", "dbs/shop/colls/other", "");
    assert_eq!(
        send(server.address, with_authorization(elsewhere, &token)).await.status,
        403
    );
    let list = signed(
        "GET",
        "/dbs/shop/users/ann/permissions",
        "permissions",
        "dbs/shop/users/ann",
        "",
    );
    let list = send(server.address, list).await.json();
    assert!(list["Permissions"][0]["_token"].is_string(), "{list}");
}

#[tokio::test]
async fn a_rotated_key_takes_the_place_of_the_old_one_at_once() {
    let server = shop().await;
    let rotated = send(
        server.address,
        administer("POST", "/_orrery/v1/keys/primary/rotate", ""),
    )
    .await;
    assert_eq!((rotated.status, rotated.json()["key"].is_string()), (200, true));
    assert_eq!(send(server.address, read()).await.status, 401);
}

#[tokio::test]
async fn a_snapshot_brings_back_what_was_there() {
    let server = shop().await;
    let save = administer("POST", "/_orrery/v1/snapshots", r#"{"name":"clean"}"#);
    assert_eq!(send(server.address, save).await.status, 201);
    assert_eq!(send(server.address, write()).await.status, 201);
    let restore = administer("POST", "/_orrery/v1/snapshots/clean/restore", "");
    let restored = send(server.address, restore).await;
    assert_eq!(restored.status, 200, "{restored:?}");
    assert_eq!(
        send(server.address, write()).await.status,
        201,
        "the item written after the snapshot is gone"
    );
    assert_eq!(
        send(server.address, administer("POST", "/_orrery/v1/snapshots/reset", ""))
            .await
            .status,
        200
    );
    assert_eq!(send(server.address, read()).await.status, 404);
}

#[tokio::test]
async fn a_partition_can_be_listed_and_split() {
    let server = shop().await;
    let list = || administer("GET", "/_orrery/v1/partitions?database=shop&container=orders", "");
    let before = send(server.address, list()).await.json();
    let partition = &before["partitions"][0];
    assert_eq!(
        (&partition["items"], &partition["minInclusive"]),
        (&json!(1), &json!(""))
    );
    let split = json!({"database": "shop", "container": "orders", "partition": partition["partition"]}).to_string();
    let children = send(
        server.address,
        administer("POST", "/_orrery/v1/partitions/split", split),
    )
    .await;
    assert_eq!(children.status, 200, "{children:?}");
    assert_eq!(
        send(server.address, list()).await.json()["partitions"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(send(server.address, read()).await.status, 200);
}
