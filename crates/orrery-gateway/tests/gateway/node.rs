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
    let took: f64 = answer.header("x-ms-request-duration-ms").parse().unwrap();
    assert!(took > 0.0, "{took} ms");
    let again = post(&server, CONTAINER, "docs", &json!({"id": "1", "pk": "a"})).await;
    assert_eq!(
        (again.status, again.json()["code"].as_str().unwrap()),
        (409, "Conflict")
    );
}

#[tokio::test]
async fn an_item_is_found_by_an_id_of_any_characters_once_they_are_encoded() {
    let server = shop().await;
    for (id, segment) in [
        ("a/b", "a%2Fb"),
        ("a\\b", "a%5Cb"),
        ("a?b", "a%3Fb"),
        ("a#b", "a%23b"),
        ("a\r\n\tb", "a%0D%0A%09b"),
        ("end ", "end%20"),
    ] {
        let created = post(&server, CONTAINER, "docs", &json!({"id": id, "pk": "a"})).await;
        assert_eq!(created.status, 201, "{id:?}: {created:?}");
        let path = format!("/{CONTAINER}/docs/{segment}");
        let link = format!("{CONTAINER}/docs/{id}");
        let read = send(server.address, signed("GET", &path, "docs", &link, "")).await;
        assert_eq!((read.status, &read.json()["id"]), (200, &json!(id)));
        let deleted = send(server.address, signed("DELETE", &path, "docs", &link, "")).await;
        assert_eq!(deleted.status, 204, "{id:?}: {deleted:?}");
    }
}

#[tokio::test]
async fn a_replace_by_an_item_of_another_id_renames_it() {
    let server = shop().await;
    let renamed = send(server.address, about("PUT", "1", r#"{"id":"2","pk":"a","n":8}"#)).await;
    assert_eq!((renamed.status, &renamed.json()["id"]), (200, &json!("2")));
    assert_eq!(send(server.address, read()).await.status, 404);
    let found = send(server.address, about("GET", "2", "")).await;
    assert_eq!((found.status, &found.json()["n"]), (200, &json!(8)));
    assert_eq!(
        post(&server, CONTAINER, "docs", &json!({"id": "1", "pk": "a"}))
            .await
            .status,
        201
    );
    let taken = send(server.address, about("PUT", "1", r#"{"id":"2","pk":"a"}"#)).await;
    assert_eq!(taken.status, 409);
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
async fn a_read_only_key_is_not_shown_tokens_that_write() {
    let server = shop().await;
    assert_eq!(
        post(&server, "dbs/shop", "users", &json!({"id": "ann"})).await.status,
        201
    );
    let permission = json!({"id": "p", "permissionMode": "All", "resource": CONTAINER});
    let created = post(&server, "dbs/shop/users/ann", "permissions", &permission).await;
    assert_eq!(created.status, 201, "{created:?}");
    let key = &server.keys().primary_read_only.0;
    for (path, link) in [
        ("/dbs/shop/users/ann/permissions/p", "dbs/shop/users/ann/permissions/p"),
        ("/dbs/shop/users/ann/permissions", "dbs/shop/users/ann"),
    ] {
        let header = authorization(key, "GET", "permissions", link, &now_text());
        let asked = signed("GET", path, "permissions", link, "");
        let answer = send(server.address, with_authorization(asked, &header)).await;
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        assert!(answer.json()["_token"].is_null());
    }
    let header = authorization(key, "GET", "users", "dbs/shop/users/ann", &now_text());
    let user = signed("GET", "/dbs/shop/users/ann", "users", "dbs/shop/users/ann", "");
    assert_eq!(
        send(server.address, with_authorization(user, &header)).await.status,
        200
    );
}

#[tokio::test]
async fn words_of_permissions_and_triggers_are_shown_as_they_were_sent() {
    let server = shop().await;
    assert_eq!(
        post(&server, "dbs/shop", "users", &json!({"id": "ann"})).await.status,
        201
    );
    let permission = json!({"id": "p", "permissionMode": "all", "resource": CONTAINER});
    let created = post(&server, "dbs/shop/users/ann", "permissions", &permission).await;
    assert_eq!(created.json()["permissionMode"], "all");
    let trigger = json!({"id": "t", "body": "function () {}", "triggerType": "pre", "triggerOperation": "CREATE"});
    let created = post(&server, CONTAINER, "triggers", &trigger).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.json()["triggerType"], "pre");
    assert_eq!(created.json()["triggerOperation"], "CREATE");
    let nonsense = json!({"id": "u", "body": "function () {}", "triggerType": "amid", "triggerOperation": "all"});
    assert_eq!(post(&server, CONTAINER, "triggers", &nonsense).await.status, 400);
}

#[tokio::test]
async fn pages_of_containers_leave_none_out_when_earlier_ones_are_deleted() {
    let server = shop().await;
    for name in ["b", "c", "d", "e"] {
        let container = json!({"id": name, "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
        assert_eq!(post(&server, "dbs/shop", "colls", &container).await.status, 201);
    }
    let page = async |continuation: Option<&str>| {
        let mut request = signed("GET", "/dbs/shop/colls", "colls", "dbs/shop", "");
        let headers = request.headers_mut();
        headers.insert("x-ms-max-item-count", "2".parse().unwrap());
        if let Some(continuation) = continuation {
            headers.insert("x-ms-continuation", continuation.parse().unwrap());
        }
        let answer = send(server.address, request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let shown = answer.json()["DocumentCollections"].as_array().unwrap().clone();
        let names: Vec<String> = shown.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
        let next = answer.headers.get("x-ms-continuation");
        (names, next.map(|next| next.to_str().unwrap().to_owned()))
    };
    let (first, next) = page(None).await;
    assert_eq!(first, ["orders", "b"]);
    let gone = signed("DELETE", "/dbs/shop/colls/orders", "colls", "dbs/shop/colls/orders", "");
    assert_eq!(send(server.address, gone).await.status, 204);
    let (second, next) = page(next.as_deref()).await;
    assert_eq!(second, ["c", "d"]);
    let (third, next) = page(next.as_deref()).await;
    assert_eq!((third, next), (vec!["e".to_owned()], None));
}

/// `[[[…]]]`, so many levels deep.
fn nested(n_levels: usize) -> Value {
    (1..n_levels).fold(json!([]), |inner, _| json!([inner]))
}

async fn batch(server: &Server, operations: &Value) -> Answer {
    send(server.address, batch_of(operations)).await
}

/// A transaction under the key `a`.
fn batch_of(operations: &Value) -> Request<Full<Bytes>> {
    let mut request = signed(
        "POST",
        &format!("/{CONTAINER}/docs"),
        "docs",
        CONTAINER,
        operations.to_string(),
    );
    let headers = request.headers_mut();
    headers.insert("x-ms-cosmos-is-batch-request", "True".parse().unwrap());
    headers.insert("x-ms-cosmos-batch-atomic", "True".parse().unwrap());
    headers.insert("x-ms-documentdb-partitionkey", r#"["a"]"#.parse().unwrap());
    request
}

#[tokio::test]
async fn an_item_may_be_as_deep_in_a_batch_or_by_a_patch_as_by_itself() {
    let server = shop().await;
    let create = |id: &str, n_levels: usize| json!({"operationType": "Create", "resourceBody": {"id": id, "pk": "a", "v": nested(n_levels)}});
    let answer = batch(&server, &json!([create("deep", 127)])).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = batch(&server, &json!([create("deeper", 128)])).await;
    assert_eq!(answer.status, 400, "{answer:?}");

    let patch = async |n_levels: usize| {
        let link = format!("{CONTAINER}/docs/1");
        let body = json!({"operations": [{"op": "set", "path": "/v", "value": nested(n_levels)}]});
        send(
            server.address,
            signed("PATCH", &format!("/{link}"), "docs", &link, body.to_string()),
        )
        .await
    };
    assert_eq!(patch(127).await.status, 200);
    assert_eq!(patch(128).await.status, 400);
    let in_batch = json!([{"operationType": "Patch", "id": "1", "resourceBody":
        {"operations": [{"op": "set", "path": "/w", "value": nested(127)}]}}]);
    let answer = batch(&server, &in_batch).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn a_batch_is_no_larger_than_an_item_may_be() {
    let server = shop().await;
    let create = |id: &str| json!({"operationType": "Create", "resourceBody": {"id": id, "pk": "a", "v": "x".repeat(1_100_000)}});
    assert_eq!(batch(&server, &json!([create("p")])).await.status, 200);
    let answer = batch(&server, &json!([create("q"), create("r")])).await;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str().unwrap()),
        (413, "RequestEntityTooLarge")
    );
}

#[tokio::test]
async fn a_session_token_of_partitions_that_were_never_there_keeps_nobody_waiting() {
    let server = shop().await;
    for token in ["7:0#999999", "5:0#99,0:0#1"] {
        let mut request = read();
        request
            .headers_mut()
            .insert("x-ms-session-token", token.parse().unwrap());
        let answer = send(server.address, request).await;
        assert_eq!(answer.status, 200, "{token}: {answer:?}");
    }
}

fn with(mut request: Request<Full<Bytes>>, name: &'static str, value: &str) -> Request<Full<Bytes>> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

#[tokio::test]
async fn whatever_a_partition_answers_tells_where_it_stands_and_what_it_cost() {
    let server = shop().await;
    let docs = format!("/{CONTAINER}/docs");
    let missing = format!("{CONTAINER}/docs/none");
    let etag = send(server.address, read()).await.header("etag").to_owned();
    let ahead = |request| with(request, "x-ms-session-token", "0:0#999999");
    let list = || signed("GET", &docs, "docs", CONTAINER, "");
    let query = |text: &str| {
        let body = json!({"query": text}).to_string();
        let request = signed("POST", &docs, "docs", CONTAINER, body);
        let request = with(request, "content-type", "application/query+json");
        with(request, "x-ms-documentdb-isquery", "true")
    };
    let changes = || with(list(), "a-im", "Incremental feed");
    let again = signed("POST", &docs, "docs", CONTAINER, r#"{"id":"1","pk":"a"}"#);
    let removal = |id: &str| {
        let link = format!("{CONTAINER}/docs/{id}");
        signed("DELETE", &format!("/{link}"), "docs", &link, "")
    };
    let cases = [
        (
            "not found",
            404,
            signed("GET", &format!("/{missing}"), "docs", &missing, ""),
        ),
        ("nothing to delete", 404, removal("none")),
        ("not changed", 304, with(read(), "if-none-match", &etag)),
        ("changed", 412, with(removal("1"), "if-match", "\"other\"")),
        ("taken", 409, again),
        ("a read that is behind", 404, ahead(read())),
        ("a list that is behind", 404, ahead(list())),
        (
            "a query that is behind",
            404,
            ahead(query("SELECT * FROM c WHERE c.n > 1")),
        ),
        (
            "a lookup that is behind",
            404,
            ahead(query("SELECT * FROM c WHERE c.id = '1'")),
        ),
        ("changes that are behind", 404, ahead(changes())),
    ];
    for (what, status, request) in cases {
        let answer = send(server.address, request).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        let is_behind = what.ends_with("behind");
        assert_eq!(
            answer.header("x-ms-substatus") == "1002",
            is_behind,
            "{what}: {answer:?}"
        );
        assert!(
            answer.header("x-ms-session-token").starts_with("0:0#"),
            "{what}: {answer:?}"
        );
        assert!(
            !answer.header("x-ms-session-token").contains("999999"),
            "{what}: {answer:?}"
        );
        for name in ["x-ms-request-charge", "x-ms-activity-id"] {
            assert!(!answer.header(name).is_empty(), "{what}: {name}");
        }
    }
    // What reaches no partition has no place in one to tell of.
    let nowhere = "dbs/shop/colls/none/docs/1";
    let answer = send(
        server.address,
        signed("GET", &format!("/{nowhere}"), "docs", nowhere, ""),
    )
    .await;
    assert_eq!((answer.status, answer.header("x-ms-session-token")), (404, ""));
    assert_eq!(answer.header("x-ms-request-charge"), "0");
}

#[tokio::test]
async fn the_partition_key_is_not_patched_even_to_what_it_is() {
    let server = shop().await;
    let link = format!("{CONTAINER}/docs/1");
    for operation in [
        json!({"op": "set", "path": "/pk", "value": "a"}),
        json!({"op": "move", "from": "/pk", "path": "/other"}),
    ] {
        let body = json!({"operations": [operation]}).to_string();
        let answer = send(
            server.address,
            signed("PATCH", &format!("/{link}"), "docs", &link, body),
        )
        .await;
        assert_eq!(answer.status, 400, "{operation}: {answer:?}");
    }
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

/// The token of a permission of the user ann.
async fn token(server: &Server, permission: &Value) -> String {
    let ann = post(server, "dbs/shop", "users", &json!({"id": "ann"})).await;
    assert!([201, 409].contains(&ann.status), "{ann:?}");
    let created = post(server, "dbs/shop/users/ann", "permissions", permission).await;
    assert_eq!(created.status, 201, "{created:?}");
    created.json()["_token"].as_str().expect("a token").to_owned()
}

/// A request about an item under the key `a`, by its id or resource id.
fn about(verb: &str, item: &str, body: &str) -> Request<Full<Bytes>> {
    let link = format!("{CONTAINER}/docs/{item}");
    signed(verb, &format!("/{link}"), "docs", &link, body.to_owned())
}

#[tokio::test]
async fn a_token_for_an_item_does_everything_with_it_and_nothing_with_others() {
    let server = shop().await;
    let other = post(&server, CONTAINER, "docs", &json!({"id": "other", "pk": "a"})).await;
    assert_eq!(other.status, 201);
    let (item, patch) = (
        r#"{"id":"1","pk":"a","n":8}"#,
        r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#,
    );
    let link = format!("{CONTAINER}/docs/1");
    for (name, key) in [("keyed", Some(json!(["a"]))), ("keyless", None)] {
        let mut permission = json!({"id": name, "permissionMode": "All", "resource": link});
        if let Some(key) = key {
            permission["resourcePartitionKey"] = key;
        }
        let token = token(&server, &permission).await;
        let status = async |request| send(server.address, with_authorization(request, &token)).await.status;
        assert_eq!(status(about("GET", "1", "")).await, 200, "{name}");
        assert_eq!(status(about("PUT", "1", item)).await, 200, "{name}");
        assert_eq!(status(about("PATCH", "1", patch)).await, 200, "{name}");
        let renamed = r#"{"id":"2","pk":"a"}"#;
        assert_eq!(status(about("PUT", "1", renamed)).await, 403, "{name}: another id");
        let replace =
            |id: &str| json!([{"operationType": "Replace", "id": "1", "resourceBody": {"id": id, "pk": "a", "n": 8}}]);
        assert_eq!(status(batch_of(&replace("1"))).await, 200, "{name}");
        assert_eq!(
            status(batch_of(&replace("2"))).await,
            403,
            "{name}: another id in a transaction"
        );
        for (verb, body) in [
            ("GET", ""),
            ("PUT", r#"{"id":"other","pk":"a"}"#),
            ("PATCH", patch),
            ("DELETE", ""),
        ] {
            assert_eq!(status(about(verb, "other", body)).await, 403, "{name}: {verb}");
        }
        assert_eq!(status(write()).await, 403, "{name}: a creation is about the container");
        let feed = signed("GET", &format!("/{CONTAINER}/docs"), "docs", CONTAINER, "");
        assert_eq!(status(feed).await, 403, "{name}: a feed shows other items");
        assert_eq!(status(reads(&["1"])).await, 200, "{name}");
        assert_eq!(status(reads(&["1", "other"])).await, 403, "{name}");
    }
    let read_only = json!({"id": "reads", "permissionMode": "Read", "resource": link, "resourcePartitionKey": ["a"]});
    let read_only = token(&server, &read_only).await;
    assert_eq!(
        send(server.address, with_authorization(about("GET", "1", ""), &read_only))
            .await
            .status,
        200
    );
    assert_eq!(
        send(server.address, with_authorization(about("PUT", "1", item), &read_only))
            .await
            .status,
        403
    );
    let elsewhere = json!({"id": "b", "permissionMode": "All", "resource": link, "resourcePartitionKey": ["b"]});
    let elsewhere = token(&server, &elsewhere).await;
    assert_eq!(
        send(server.address, with_authorization(about("GET", "1", ""), &elsewhere))
            .await
            .status,
        403
    );
    let all = json!({"id": "all", "permissionMode": "All", "resource": link, "resourcePartitionKey": ["a"]});
    let all = token(&server, &all).await;
    assert_eq!(
        send(server.address, with_authorization(about("DELETE", "1", ""), &all))
            .await
            .status,
        204
    );
    assert_eq!(
        send(server.address, with_authorization(about("GET", "1", ""), &all))
            .await
            .status,
        404
    );
}

/// A transaction that reads these items.
fn reads(ids: &[&str]) -> Request<Full<Bytes>> {
    let steps: Vec<Value> = ids
        .iter()
        .map(|id| json!({"operationType": "Read", "id": id}))
        .collect();
    let body = Value::Array(steps).to_string();
    let mut request = signed("POST", &format!("/{CONTAINER}/docs"), "docs", CONTAINER, body);
    let headers = request.headers_mut();
    headers.insert("x-ms-cosmos-is-batch-request", "True".parse().unwrap());
    headers.insert("x-ms-cosmos-batch-atomic", "True".parse().unwrap());
    request
}

#[tokio::test]
async fn a_token_for_an_item_works_by_resource_id_too() {
    let server = shop().await;
    let other = post(&server, CONTAINER, "docs", &json!({"id": "other", "pk": "a"}))
        .await
        .json();
    let item = send(server.address, read()).await.json();
    let link = |item: &Value| item["_self"].as_str().expect("a link").trim_end_matches('/').to_owned();
    let (own, others) = (link(&item), link(&other));
    let request = |verb: &str, link: &str, body: &str| {
        let rid = link.rsplit('/').next().unwrap().to_lowercase();
        signed(verb, &format!("/{link}"), "docs", &rid, body.to_owned())
    };
    for (name, resource, key) in [
        ("by-name", format!("{CONTAINER}/docs/1"), Some(["a"])),
        ("by-rid", own.clone(), Some(["a"])),
        ("by-rid-of-any-key", own.clone(), None),
    ] {
        let mut permission = json!({"id": name, "permissionMode": "All", "resource": resource});
        if let Some(key) = key {
            permission["resourcePartitionKey"] = json!(key);
        }
        let token = token(&server, &permission).await;
        let status = async |request| send(server.address, with_authorization(request, &token)).await.status;
        let body = r#"{"id":"1","pk":"a"}"#;
        assert_eq!(status(request("GET", &own, "")).await, 200, "{name}");
        assert_eq!(status(request("PUT", &own, body)).await, 200, "{name}");
        assert_eq!(status(about("GET", "1", "")).await, 200, "{name}");
        assert_eq!(status(request("GET", &others, "")).await, 403, "{name}");
        assert_eq!(status(request("DELETE", &others, "")).await, 403, "{name}");
    }
}

#[tokio::test]
async fn pages_go_on_after_a_long_partition_key_of_several_parts() {
    let server = shop().await;
    let container = json!({"id": "long", "partitionKey": {"paths": ["/a", "/b", "/c"], "kind": "Hash", "version": 1}});
    let made = post(&server, "dbs/shop", "colls", &container).await;
    assert_eq!(made.status, 201, "{made:?}");
    let parent = "dbs/shop/colls/long";
    for n in 0..3 {
        let part = |name: &str| format!("{n}{name}{}", "x".repeat(98));
        let (a, b, c) = (part("a"), part("b"), part("c"));
        let body = json!({"id": "1", "a": a, "b": b, "c": c}).to_string();
        let mut request = signed("POST", &format!("/{parent}/docs"), "docs", parent, body);
        let key = json!([a, b, c]).to_string();
        request
            .headers_mut()
            .insert("x-ms-documentdb-partitionkey", key.parse().unwrap());
        let created = send(server.address, request).await;
        assert_eq!(created.status, 201, "{created:?}");
    }
    for is_query in [false, true] {
        let (mut continuation, mut n_items) = (String::new(), 0);
        loop {
            let mut request = match is_query {
                false => signed("GET", &format!("/{parent}/docs"), "docs", parent, ""),
                true => signed(
                    "POST",
                    &format!("/{parent}/docs"),
                    "docs",
                    parent,
                    r#"{"query":"SELECT * FROM c"}"#,
                ),
            };
            let headers = request.headers_mut();
            headers.remove("x-ms-documentdb-partitionkey");
            headers.insert("x-ms-max-item-count", "1".parse().unwrap());
            if is_query {
                headers.insert("content-type", "application/query+json".parse().unwrap());
                headers.insert("x-ms-documentdb-isquery", "True".parse().unwrap());
                headers.insert("x-ms-documentdb-query-enablecrosspartition", "True".parse().unwrap());
            }
            if !continuation.is_empty() {
                headers.insert("x-ms-continuation", continuation.parse().unwrap());
            }
            let page = send(server.address, request).await;
            assert_eq!(page.status, 200, "{page:?}");
            n_items += page.json()["Documents"].as_array().unwrap().len();
            continuation = page.header("x-ms-continuation").to_owned();
            if continuation.is_empty() {
                break;
            }
        }
        assert_eq!(n_items, 3);
    }
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
