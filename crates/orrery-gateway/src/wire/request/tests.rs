use orrery_node::api::{ContainerRef, FeedStart, ItemVerb, MetadataVerb, ResourceKind, Selector};
use proptest::prelude::*;

use super::*;
use crate::wire::tests::{KEY, refusal, request};

const ITEM: &str = r#"{"id":"x","pk":"a"}"#;
const QUERY: &str = r#"{"query":"SELECT * FROM c"}"#;

fn name(line: &str, headers: &[(&str, &str)], body: &'static str) -> &'static str {
    request(line, headers, body)
        .unwrap_or_else(|error| panic!("{line} {headers:?}: {error}"))
        .name
}

#[test]
fn a_post_of_items_is_classified_by_its_headers_in_order() {
    let line = "POST /dbs/d/colls/c/docs";
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    let batch = ("x-ms-cosmos-is-batch-request", "true");
    let atomic = ("x-ms-cosmos-batch-atomic", "True");
    let query = ("x-ms-documentdb-isquery", "True");
    let legacy_query = ("x-ms-documentdb-query", "true");
    let query_type = ("content-type", "application/query+json; charset=utf-8");
    let upsert = ("x-ms-documentdb-is-upsert", "True");
    assert_eq!(name(line, &[plan, query], QUERY), "query_plan");
    assert_eq!(
        name(
            line,
            &[batch, atomic, KEY, query],
            r#"[{"operationType":"Read","id":"x"}]"#
        ),
        "batch"
    );
    assert_eq!(name(line, &[query, upsert], QUERY), "query_items");
    assert_eq!(name(line, &[legacy_query], QUERY), "query_items");
    assert_eq!(name(line, &[query_type], QUERY), "query_items");
    assert_eq!(name(line, &[upsert, KEY], ITEM), "upsert_item");
    assert_eq!(
        name(line, &[("content-type", "application/json"), KEY], ITEM),
        "create_item"
    );
}

#[test]
fn what_may_write_is_known_from_the_head() {
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    let batch = ("x-ms-cosmos-is-batch-request", "true");
    let query = ("x-ms-documentdb-isquery", "True");
    for (method, headers, expected) in [
        ("GET", &[][..], false),
        ("POST", &[query], false),
        ("POST", &[plan, query], false),
        ("POST", &[batch, query], true),
        ("POST", &[], true),
        ("PUT", &[], true),
        ("PATCH", &[], true),
        ("DELETE", &[], true),
    ] {
        let request = headers
            .iter()
            .fold(http::Request::builder().method(method), |request, (name, value)| {
                request.header(*name, *value)
            });
        let (head, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(may_write(&head), expected, "{method} {headers:?}");
    }
}

/// What the head of a request says of the item that it writes: the operation's name and the key.
fn written_by(line: &str, headers: &[(&str, &str)]) -> Option<(&'static str, PartitionKey)> {
    let (method, path) = line.split_once(' ').unwrap();
    let request = headers
        .iter()
        .fold(http::Request::builder().method(method).uri(path), |request, header| {
            request.header(header.0, header.1)
        });
    let (head, ()) = request.body(()).unwrap().into_parts();
    let route = crate::wire::route(&head.uri).unwrap();
    let write = item_write(&route, &head.method, Headers::of(&head.headers))?;
    let named = |name: &str| Selector::Name(name.to_owned());
    assert_eq!(
        (write.container.database, write.container.container),
        (named("d"), named("c"))
    );
    Some((write.name, write.key))
}

#[test]
fn the_head_of_a_write_of_one_item_says_what_the_whole_request_means() {
    let upsert = ("x-ms-documentdb-is-upsert", "True");
    let patch = r#"[{"op":"set","path":"/n","value":1}]"#;
    for (line, headers, body) in [
        ("POST /dbs/d/colls/c/docs", &[KEY][..], ITEM),
        ("POST /dbs/d/colls/c/docs", &[KEY, upsert], ITEM),
        ("PUT /dbs/d/colls/c/docs/x", &[KEY], ITEM),
        ("PATCH /dbs/d/colls/c/docs/x", &[KEY], patch),
        ("DELETE /dbs/d/colls/c/docs/x", &[KEY], ""),
    ] {
        let whole = request(line, headers, body).unwrap();
        let Operation::Item(operation) = whole.operation else {
            panic!("{line} is about an item")
        };
        let expected = (whole.name, operation.partition_key.unwrap());
        assert_eq!(written_by(line, headers), Some(expected), "{line}");
    }
}

#[test]
fn whatever_is_not_surely_a_write_of_one_item_to_one_key_is_not_taken_for_one() {
    let query = ("x-ms-documentdb-isquery", "True");
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    let batch = ("x-ms-cosmos-is-batch-request", "true");
    let broken = ("x-ms-documentdb-partitionkey", "[");
    for (line, headers) in [
        ("POST /dbs/d/colls/c/docs", &[][..]),
        ("POST /dbs/d/colls/c/docs", &[broken]),
        ("POST /dbs/d/colls/c/docs", &[KEY, query]),
        ("POST /dbs/d/colls/c/docs", &[KEY, plan]),
        ("POST /dbs/d/colls/c/docs", &[KEY, batch]),
        ("POST /dbs/d/colls/c/docs/x", &[KEY]),
        ("PUT /dbs/d/colls/c/docs", &[KEY]),
        ("GET /dbs/d/colls/c/docs", &[KEY]),
        ("GET /dbs/d/colls/c/docs/x", &[KEY]),
        ("PUT /dbs/d/colls/c", &[KEY]),
        ("POST /dbs/d/colls/c/operations/partitionkeydelete", &[KEY]),
    ] {
        assert_eq!(written_by(line, headers), None, "{line} {headers:?}");
    }
}

#[test]
fn every_request_of_the_api_has_a_name() {
    let throughput = ("x-ms-offer-throughput", "400");
    for (line, headers, body, expected) in [
        ("POST /dbs", &[throughput][..], r#"{"id":"d"}"#, "create_database"),
        ("GET /dbs", &[], "", "list_databases"),
        (
            "POST /dbs",
            &[("x-ms-documentdb-isquery", "true")],
            QUERY,
            "query_databases",
        ),
        ("DELETE /dbs/d/", &[], "", "delete_database"),
        ("GET /dbs/d/colls/c", &[], "", "read_container"),
        ("PUT /dbs/d/colls/c", &[], r#"{"id":"c"}"#, "replace_container"),
        ("GET /dbs/d/colls/c/pkranges", &[], "", "read_partition_ranges"),
        ("GET /dbs/d/colls/c/docs", &[], "", "read_items"),
        (
            "GET /dbs/d/colls/c/docs",
            &[("a-im", "Incremental feed")],
            "",
            "change_feed",
        ),
        ("GET /dbs/d/colls/c/docs/x", &[KEY], "", "read_item"),
        ("PUT /dbs/d/colls/c/docs/x", &[KEY], ITEM, "replace_item"),
        (
            "PATCH /dbs/d/colls/c/docs/x",
            &[KEY],
            r#"[{"op":"set","path":"/n","value":1}]"#,
            "patch_item",
        ),
        ("DELETE /dbs/d/colls/c/docs/x", &[KEY], "", "delete_item"),
        (
            "POST /dbs/d/colls/c/operations/partitionkeydelete",
            &[KEY],
            "",
            "delete_partition_key",
        ),
        (
            "POST /dbs/d/users",
            &[("x-ms-documentdb-is-upsert", "true")],
            r#"{"id":"u"}"#,
            "create_user",
        ),
        ("GET /dbs/d/users/u/permissions", &[], "", "list_permissions"),
        (
            "POST /dbs/d/colls/c/sprocs",
            &[],
            r#"{"id":"s","body":""}"#,
            "create_stored_procedure",
        ),
        ("GET /dbs/d/colls/c/triggers/t", &[], "", "read_trigger"),
        ("DELETE /dbs/d/colls/c/udfs/f", &[], "", "delete_user_defined_function"),
        (
            "POST /offers",
            &[("x-ms-documentdb-isquery", "true")],
            QUERY,
            "query_offers",
        ),
        ("PUT /offers/AbC0", &[], r#"{"content":{}}"#, "replace_offer"),
    ] {
        assert_eq!(name(line, headers, body), expected, "{line}");
    }
}

#[test]
fn verbs_a_resource_does_not_have_are_not_allowed() {
    for line in [
        "POST /",
        "PUT /dbs/d",
        "POST /dbs/d",
        "PATCH /dbs/d",
        "DELETE /dbs",
        "POST /offers",
        "DELETE /offers/AbC0",
        "POST /dbs/d/colls/c/conflicts",
        "PUT /dbs/d/colls/c/conflicts/x",
        "PUT /dbs/d/colls/c/docs",
        "POST /dbs/d/colls/c/docs/x",
        "HEAD /dbs/d/colls/c/docs/x",
        "POST /dbs/d/colls/c/pkranges",
        "GET /dbs/d/colls/c/pkranges/0",
        "GET /dbs/d/colls/c/operations/partitionkeydelete",
    ] {
        assert_eq!(refusal(line, &[KEY], "{}").0, Status::METHOD_NOT_ALLOWED, "{line}");
    }
}

#[test]
fn features_that_do_not_exist_say_so() {
    for (line, word) in [
        ("GET /dbs/d/clientencryptionkeys", "encryption"),
        ("POST /dbs/d/colls/c/sprocs/s", "stored procedures"),
    ] {
        let (status, message) = refusal(line, &[KEY], "[]");
        assert_eq!(status, Status::NOT_IMPLEMENTED, "{line}");
        assert!(message.contains(word), "{message}");
    }
    let query_of_changes = [("a-im", "Incremental Feed"), ("x-ms-documentdb-isquery", "true")];
    assert_eq!(
        refusal("POST /dbs/d/colls/c/docs", &query_of_changes, QUERY).0,
        Status::NOT_IMPLEMENTED
    );
    assert_eq!(
        refusal("GET /dbs/d/colls/c/pkranges", &[("a-im", "Full-Fidelity Feed")], "").0,
        Status::BAD_REQUEST
    );
}

#[test]
fn a_body_beyond_the_limit_is_too_large() {
    let body = vec![b' '; REQUEST_BYTES_MAX + 1];
    assert_eq!(refusal("POST /dbs/d/colls/c/docs", &[KEY], body).0, Status::TOO_LARGE);
}

#[test]
fn the_ranges_of_a_container_can_be_polled() {
    let headers = [("a-im", "Incremental Feed"), ("if-none-match", "\"7\"")];
    let decoded = request("GET /dbs/d/colls/c/pkranges/", &headers, "").unwrap();
    assert_eq!(decoded.form, ReplyForm::Feed);
    let Operation::PartitionRanges { container, since } = decoded.operation else {
        panic!("{:?}", decoded.operation)
    };
    let name = |text: &str| Selector::Name(text.to_owned());
    assert_eq!(
        container,
        ContainerRef {
            database: name("d"),
            container: name("c")
        }
    );
    assert_eq!(since.as_deref(), Some("\"7\""));
}

#[test]
fn a_change_feed_request_keeps_its_target_start_and_envelope() {
    let headers = [
        ("a-im", "Incremental Feed"),
        ("if-none-match", "*"),
        ("x-ms-documentdb-partitionkeyrangeid", "2"),
        ("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15"),
    ];
    let decoded = request("GET /dbs/d/colls/c/docs", &headers, "").unwrap();
    assert_eq!(decoded.form, ReplyForm::ChangeFeed { enveloped: true });
    let Operation::ChangeFeed(read) = decoded.operation else {
        panic!("{:?}", decoded.operation)
    };
    assert_eq!(read.target.partition.map(|id| id.0), Some(2));
    assert_eq!((read.start, read.wait_ms, read.filter), (FeedStart::Now, 0, None));
}

#[test]
fn deleting_a_partition_key_needs_the_key() {
    let line = "POST /dbs/d/colls/c/operations/partitionkeydelete";
    assert_eq!(refusal(line, &[], "").0, Status::BAD_REQUEST);
    assert_eq!(request(line, &[KEY], "").unwrap().form, ReplyForm::PartitionKeyDeletion);
}

#[test]
fn a_container_by_resource_ids_is_selected_by_them() {
    let decoded = request(
        "GET /dbs/Lx1BAA==/colls/Lx1BALxJyZ8=",
        &[("x-ms-documentdb-populatequotainfo", "True")],
        "",
    )
    .unwrap();
    assert_eq!(decoded.form, ReplyForm::Container { quota: true });
    let Operation::Metadata(operation) = decoded.operation else {
        panic!("{:?}", decoded.operation)
    };
    assert_eq!(operation.kind, ResourceKind::Container);
    assert!(matches!(operation.path[..], [Selector::Rid(_)]));
    assert!(matches!(
        operation.verb,
        MetadataVerb::Read {
            target: Selector::Rid(_),
            ..
        }
    ));
}

#[test]
fn what_every_request_may_carry_is_read_for_every_kind() {
    let token = ("x-ms-session-token", "0:0#5");
    for line in ["GET /dbs", "GET /dbs/d/colls/c/docs/x", "GET /dbs/d/colls/c/docs"] {
        let options = request(line, &[KEY, token], "").unwrap().options;
        assert_eq!(options.session.unwrap().to_string(), "0:0#5", "{line}");
        assert_eq!(
            refusal(line, &[KEY, ("x-ms-session-token", "?")], "").0,
            Status::BAD_REQUEST,
            "{line}"
        );
    }
}

fn any_line() -> impl Strategy<Value = String> {
    let method = "GET|PUT|POST|PATCH|DELETE";
    let path =
        "(/dbs)|(/offers)|(/dbs/d)|(/dbs/d/colls/c)|(/dbs/d/colls/c/docs)|(/dbs/d/colls/c/docs/x)|(/dbs/d/users/u)";
    (method, path).prop_map(|(method, path)| format!("{method} {path}"))
}

fn any_marks() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    proptest::sample::subsequence(
        vec![
            KEY,
            ("x-ms-documentdb-isquery", "true"),
            ("x-ms-cosmos-is-batch-request", "true"),
            ("x-ms-cosmos-is-query-plan-request", "true"),
            ("x-ms-documentdb-is-upsert", "true"),
        ],
        0..5,
    )
}

proptest! {
    #[test]
    fn no_body_panics(line in any_line(), marks in any_marks(), body in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = request(&line, &marks, body);
    }

    #[test]
    fn no_json_body_panics(line in any_line(), marks in any_marks(), body in r#"[\[{]("(id|query|parameters|operationType|resourceBody|name|operations)":|[\[\]{},]|"@?[a-z]{0,3}"|[0-9]|null){0,12}[\]}]"#) {
        let _ = request(&line, &marks, body);
    }

    #[test]
    fn any_item_id_within_the_rules_can_be_created(id in "[^/\\\\?#\\x00-\\x1f]{1,50}") {
        let body = serde_json::json!({"id": id}).to_string();
        let decoded = request("POST /dbs/d/colls/c/docs", &[KEY], body).unwrap();
        let Operation::Item(operation) = decoded.operation else { panic!("{:?}", decoded.operation) };
        let ItemVerb::Create { body } = operation.verb else { panic!("{:?}", operation.verb) };
        prop_assert_eq!(body.parsed.value.get("id").and_then(|id| id.as_str()), Some(id.as_str()));
    }
}
