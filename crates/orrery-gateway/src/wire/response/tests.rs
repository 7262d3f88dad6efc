use std::sync::Arc;

use orrery_model::json::Value;
use orrery_model::{Charge, Lsn, PartitionId, ResourceId, Timestamp};
use orrery_node::api::{Change, Changes, ContainerFacts, Facts, FeedOf, PartitionFacts, Resource, ResourceKind, Usage};

use super::*;

const ACTIVITY: &str = "6b1e6a7c-55e3-4f62-8c9c-4ad4dbb8e4a3";

fn activity_id() -> ActivityId {
    ActivityId::parse(ACTIVITY.as_bytes()).unwrap()
}

fn meta(form: ReplyForm) -> RequestMeta {
    RequestMeta {
        activity_id: activity_id(),
        form,
        n_read_regions: 2,
    }
}

fn facts() -> Facts {
    Facts {
        charge: Charge::hundredths(571),
        container: Some(Arc::new(ContainerFacts::new(
            "shop".into(),
            "größe".into(),
            ResourceId::parse("Lx1BALxJyZ8=").unwrap(),
        ))),
        partition: Some(PartitionFacts {
            partition: PartitionId(3),
            lsn: Lsn(42),
            item_lsn: Some(Lsn(17)),
            session_version: 0,
            committed: Some(Lsn(40)),
            since: Timestamp(1_493_254_272_045),
        }),
        ..Facts::default()
    }
}

fn answer(form: ReplyForm, outcome: Outcome) -> Response<Bytes> {
    encode(
        &meta(form),
        Ok(Reply {
            outcome,
            facts: facts(),
        }),
    )
}

fn resource() -> Resource {
    Resource {
        body: Bytes::from_static(br#"{"id":"x"}"#),
        etag: "\"t\"".into(),
    }
}

fn header<'a>(response: &'a Response<Bytes>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn an_item_is_answered_with_everything_a_client_files_away() {
    let response = answer(ReplyForm::Resource, Outcome::Found(resource()));
    assert_eq!(response.status(), 200);
    assert_eq!(response.body(), &br#"{"id":"x"}"#[..]);
    for (name, value) in [
        ("content-type", "application/json"),
        ("content-length", "10"),
        ("x-ms-activity-id", ACTIVITY),
        ("x-ms-request-charge", "5.71"),
        ("etag", "\"t\""),
        ("x-ms-session-token", "3:0#42"),
        ("x-ms-alt-content-path", "dbs/shop/colls/gr%C3%B6%C3%9Fe"),
        ("x-ms-content-path", "Lx1BALxJyZ8="),
        ("x-ms-documentdb-partitionkeyrangeid", "3"),
        ("x-ms-cosmos-internal-partition-id", "3"),
        ("lsn", "42"),
        ("x-ms-cosmos-llsn", "42"),
        ("x-ms-item-lsn", "17"),
        ("x-ms-cosmos-item-llsn", "17"),
        ("x-ms-quorum-acked-lsn", "42"),
        ("x-ms-cosmos-quorum-acked-llsn", "42"),
        ("x-ms-global-committed-lsn", "40"),
        ("x-ms-last-state-change-utc", "Thu, 27 Apr 2017 00:51:12.045 GMT"),
        ("x-ms-schemaversion", "1.18"),
    ] {
        assert_eq!(header(&response, name), Some(value), "{name}");
    }
    assert!(header(&response, "x-ms-gatewayversion").is_some() && header(&response, "x-ms-serviceversion").is_some());
    assert_eq!(header(&response, "x-ms-item-count"), None);
}

#[test]
fn a_container_is_answered_with_the_path_of_its_database() {
    let response = answer(ReplyForm::Container { quota: false }, Outcome::Found(resource()));
    assert_eq!(header(&response, "x-ms-alt-content-path"), Some("dbs/shop"));
    assert_eq!(header(&response, "x-ms-content-path"), Some("Lx1BAA=="));
}

#[test]
fn a_session_token_names_partition_version_and_lsn() {
    let mut facts = facts();
    facts.partition.as_mut().unwrap().session_version = 7;
    let reply = Reply {
        outcome: Outcome::Deleted,
        facts,
    };
    let response = encode(&meta(ReplyForm::Resource), Ok(reply));
    assert_eq!(header(&response, "x-ms-session-token"), Some("3:7#42"));
    assert_eq!(header(&response, "lsn"), Some("42"));
    assert_eq!(header(&response, "x-ms-number-of-read-regions"), Some("2"));
}

#[test]
fn a_minimal_answer_differs_only_in_its_body() {
    let full = answer(ReplyForm::ItemWrite { minimal: false }, Outcome::Created(resource()));
    let minimal = answer(ReplyForm::ItemWrite { minimal: true }, Outcome::Created(resource()));
    assert_eq!(
        (full.status(), minimal.status()),
        (StatusCode::CREATED, StatusCode::CREATED)
    );
    assert_eq!((full.body().len(), minimal.body().len()), (10, 0));
    assert_eq!(header(&minimal, "etag"), Some("\"t\""));
    assert_eq!(header(&minimal, "content-length"), Some("0"));
}

#[test]
fn a_deletion_has_no_body_and_the_deletion_of_a_key_is_accepted_as_done() {
    let response = answer(ReplyForm::ItemWrite { minimal: false }, Outcome::Deleted);
    assert_eq!((response.status().as_u16(), response.body().len()), (204, 0));
    assert_eq!(header(&response, "content-type"), None);
    assert_eq!(header(&response, "content-length"), None);
    assert_eq!(answer(ReplyForm::PartitionKeyDeletion, Outcome::Deleted).status(), 200);
}

#[test]
fn a_feed_that_has_nothing_new_still_counts_its_items() {
    for (form, count) in [
        (ReplyForm::Feed, Some("0")),
        (ReplyForm::ChangeFeed { enveloped: false }, Some("0")),
        (ReplyForm::Resource, None),
    ] {
        let response = answer(form.clone(), Outcome::NotModified { etag: "\"9\"".into() });
        assert_eq!((response.status().as_u16(), response.body().len()), (304, 0));
        assert_eq!(header(&response, "etag"), Some("\"9\""));
        assert_eq!(header(&response, "x-ms-item-count"), count, "{form:?}");
        assert_eq!(header(&response, "x-ms-session-token"), Some("3:0#42"));
    }
}

fn page(continuation: Option<&str>) -> Outcome {
    Outcome::Feed(Feed {
        of: FeedOf::Items,
        parent: None,
        entries: vec![Bytes::from_static(br#"{"id":"x","_ts":8,"_lsn":5}"#)],
        continuation: continuation.map(str::to_owned),
        etag: Some("\"5\"".into()),
    })
}

#[test]
fn a_page_says_how_many_entries_it_has_and_where_to_go_on() {
    let response = answer(
        ReplyForm::Query {
            compact_index_use: false,
        },
        page(Some("next")),
    );
    assert_eq!(response.status(), 200);
    assert_eq!(header(&response, "x-ms-item-count"), Some("1"));
    assert_eq!(header(&response, "x-ms-continuation"), Some("next"));
    assert_eq!(header(&response, "etag"), Some("\"5\""));
    assert_eq!(
        header(&response, "x-ms-cosmos-query-execution-info"),
        Some(QUERY_EXECUTION_INFO)
    );
    assert!(response.body().starts_with(br#"{"_rid":"","Documents":["#));
    assert_eq!(header(&answer(ReplyForm::Feed, page(None)), "x-ms-continuation"), None);
}

#[test]
fn a_page_whose_continuation_cannot_be_sent_is_an_error_and_not_the_last() {
    assert_eq!(answer(ReplyForm::Feed, page(Some("a\nb"))).status(), 500);
}

fn changes() -> Outcome {
    let current = Bytes::from_static(br#"{"id":"x","_ts":8}"#);
    let change = Change {
        lsn: Lsn(5),
        at: 8,
        current,
        version: None,
    };
    Outcome::Changes(Changes {
        container: ResourceId::parse("Lx1BALxJyZ8=").unwrap(),
        changes: vec![change],
        etag: "\"5\"".into(),
    })
}

#[test]
fn changes_are_enveloped_when_asked_for() {
    let bare = answer(ReplyForm::ChangeFeed { enveloped: false }, changes());
    assert_eq!(
        bare.body(),
        &br#"{"_rid":"Lx1BALxJyZ8=","Documents":[{"id":"x","_ts":8,"_lsn":5}],"_count":1}"#[..]
    );
    assert_eq!(
        (header(&bare, "etag"), header(&bare, "x-ms-item-count")),
        (Some("\"5\""), Some("1"))
    );
    let enveloped = answer(ReplyForm::ChangeFeed { enveloped: true }, changes());
    let wanted = br#"{"_rid":"Lx1BALxJyZ8=","Documents":[{"current":{"id":"x","_ts":8,"_lsn":5},"metadata":{"lsn":5,"crts":8}}],"_count":1}"#;
    assert_eq!(enveloped.body(), &wanted[..]);
}

#[test]
fn a_plan_has_neither_charge_nor_token() {
    let response = answer(ReplyForm::Plan, Outcome::Plan(Value::Array(vec![])));
    assert_eq!((response.status().as_u16(), &response.body()[..]), (200, &b"[]"[..]));
    for name in ["x-ms-request-charge", "x-ms-session-token", "lsn"] {
        assert_eq!(header(&response, name), None, "{name}");
    }
    assert_eq!(header(&response, "cache-control"), Some("no-store, no-cache"));
}

#[test]
fn a_batch_with_a_failed_step_is_a_multi_status() {
    let step = |status| StepResult {
        status,
        sub_status: 0,
        charge: Charge::ZERO,
        etag: None,
        body: None,
        retry_after_ms: None,
    };
    let form = || ReplyForm::Batch {
        minimal: vec![],
        rejected: vec![],
        hybrid_row: false,
    };
    assert_eq!(answer(form(), Outcome::Batch(vec![step(201), step(304)])).status(), 200);
    let failed = answer(form(), Outcome::Batch(vec![step(424), step(409)]));
    assert_eq!(failed.status(), 207);
    assert_eq!(
        failed.body(),
        &br#"[{"statusCode":424,"requestCharge":0},{"statusCode":409,"requestCharge":0}]"#[..]
    );
}

#[test]
fn a_container_shows_its_index_progress_always_and_its_usage_when_asked() {
    let facts = || Facts {
        index_progress: Some(100),
        usage: Some(Usage {
            n_items: 12,
            size_kib: 2,
        }),
        ..facts()
    };
    let read = |quota| {
        encode(
            &meta(ReplyForm::Container { quota }),
            Ok(Reply {
                outcome: Outcome::Found(resource()),
                facts: facts(),
            }),
        )
    };
    let progress = "x-ms-documentdb-collection-index-transformation-progress";
    assert_eq!(header(&read(false), progress), Some("100"));
    assert_eq!(header(&read(false), "x-ms-resource-usage"), None);
    assert_eq!(
        header(&read(true), "x-ms-resource-usage"),
        Some("documentSize=0;documentsSize=2;documentsCount=12;collectionSize=2;")
    );
    assert!(header(&read(true), "x-ms-resource-quota").is_some());
}

#[test]
fn an_offer_shows_its_least_throughput_and_no_pending_change() {
    let facts = Facts {
        min_throughput: Some(400),
        ..Facts::default()
    };
    let response = encode(
        &meta(ReplyForm::Resource),
        Ok(Reply {
            outcome: Outcome::Found(resource()),
            facts,
        }),
    );
    assert_eq!(header(&response, "x-ms-cosmos-min-throughput"), Some("400"));
    assert_eq!(header(&response, "x-ms-offer-replace-pending"), Some("false"));
}

#[test]
fn resources_of_the_catalogue_have_their_own_envelope() {
    let feed = Feed {
        of: FeedOf::Resources(ResourceKind::Offer),
        parent: None,
        entries: vec![],
        continuation: None,
        etag: None,
    };
    let response = answer(ReplyForm::Feed, Outcome::Feed(feed));
    assert_eq!(response.body(), &br#"{"_rid":"","Offers":[],"_count":0}"#[..]);
    assert_eq!(header(&response, "x-ms-item-count"), Some("0"));
}

#[test]
fn every_status_a_client_can_get_has_a_json_body_with_its_name_and_activity() {
    for (status, code) in [
        (Status::BAD_REQUEST, "BadRequest"),
        (Status::PARTITION_KEY_MISMATCH, "BadRequest"),
        (Status::CROSS_PARTITION_QUERY, "BadRequest"),
        (Status::STALE_CONTAINER_RID, "BadRequest"),
        (Status::UNAUTHORIZED, "Unauthorized"),
        (Status::FORBIDDEN, "Forbidden"),
        (Status::WRITE_FORBIDDEN, "Forbidden"),
        (Status::NOT_FOUND, "NotFound"),
        (Status::READ_SESSION_NOT_AVAILABLE, "NotFound"),
        (Status::PARENT_NOT_FOUND, "NotFound"),
        (Status::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        (Status::REQUEST_TIMEOUT, "RequestTimeout"),
        (Status::CONFLICT, "Conflict"),
        (Status::PARTITION_GONE, "Gone"),
        (Status::PRECONDITION_FAILED, "PreconditionFailed"),
        (Status::TOO_LARGE, "RequestEntityTooLarge"),
        (Status::LOCKED, "Locked"),
        (Status::THROTTLED, "TooManyRequests"),
        (Status::RETRY_WITH, "RetryWith"),
        (Status::INTERNAL, "InternalServerError"),
        (Status::NOT_IMPLEMENTED, "NotImplemented"),
        (Status::UNAVAILABLE, "ServiceUnavailable"),
    ] {
        let response = refuse(activity_id(), Error::new(status, "No \"good\"\u{1}"));
        assert_eq!(response.status(), status.code);
        let sub = (status.sub != 0 || status.code != 400).then(|| status.sub.to_string());
        assert_eq!(header(&response, "x-ms-substatus"), sub.as_deref());
        assert_eq!(header(&response, "content-type"), Some("application/json"));
        assert_eq!(
            header(&response, "content-length"),
            Some(response.body().len().to_string().as_str())
        );
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["code"], code);
        let message = body["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("No \"good\"\u{1}\r\nActivityId: {ACTIVITY}, ")),
            "{message}"
        );
        assert_eq!(body.as_object().unwrap().len(), 2);
    }
}

#[test]
fn a_failure_carries_what_was_known_when_it_happened() {
    let error = Error::new(Status::THROTTLED, "slow down").with_retry_after_ms(120);
    let response = encode(
        &meta(ReplyForm::Resource),
        Err(Failure {
            error,
            facts: Box::new(facts()),
        }),
    );
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "x-ms-retry-after-ms"), Some("120"));
    assert_eq!(header(&response, "x-ms-session-token"), Some("3:0#42"));
    assert_eq!(header(&response, "x-ms-request-charge"), Some("5.71"));
}

#[test]
fn the_account_document_is_answered_like_any_resource() {
    let response = encode_account(activity_id(), Bytes::from_static(b"{}"));
    assert_eq!(
        (response.status().as_u16(), header(&response, "content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(header(&response, "etag"), None);
}

#[test]
fn a_batch_in_hybrid_row_is_not_called_json() {
    let step = StepResult {
        status: 200,
        sub_status: 0,
        charge: Charge::ZERO,
        etag: None,
        body: None,
        retry_after_ms: None,
    };
    let form = ReplyForm::Batch {
        minimal: vec![false],
        rejected: vec![],
        hybrid_row: true,
    };
    let response = answer(form, Outcome::Batch(vec![step]));
    assert_eq!(header(&response, "content-type"), Some("application/octet-stream"));
    assert_eq!(response.body().first(), Some(&0x81));
}
