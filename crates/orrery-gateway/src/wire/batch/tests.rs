use orrery_model::Etag;

use super::*;
use crate::wire::tests::{KEY, refusal, request};

const LINE: &str = "POST /dbs/d/colls/c/docs";
const MARK: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
const ATOMIC: (&str, &str) = ("x-ms-cosmos-batch-atomic", "True");

fn batch(headers: &[(&str, &str)], body: &str) -> (BatchOperation, ReplyForm) {
    let decoded = request(LINE, headers, body.to_owned()).unwrap_or_else(|error| panic!("{error}"));
    match decoded.operation {
        Operation::Batch(batch) => (batch, decoded.form),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transactional_batch_has_one_key_and_every_kind_of_step() {
    let body = r#"[
        {"operationType":"Create","resourceBody":{"id":"a"}},
        {"operationType":"Upsert","resourceBody":{"id":"b"},"ifMatch":"\"t\""},
        {"operationType":"Read","id":"c","ifNoneMatch":"\"n\""},
        {"operationType":"Replace","id":"d","resourceBody":{"id":"d"}},
        {"operationType":"Patch","id":"e","resourceBody":{"operations":[{"op":"set","path":"/x","value":1}]}},
        {"operationType":"delete","id":"f","ifMatch":null}
    ]"#;
    let (batch, form) = batch(&[MARK, ATOMIC, KEY], body);
    assert!(batch.atomic && !batch.continue_on_error && batch.partition_key.is_some());
    let [create, upsert, read, replace, patch, delete] = &batch.steps[..] else {
        panic!("{:?}", batch.steps)
    };
    let ItemVerb::Create { body } = &create.verb else {
        panic!("{create:?}")
    };
    assert_eq!((&body.text[..], body.parsed.canonical), (&br#"{"id":"a"}"#[..], true));
    assert!(matches!(upsert.verb, ItemVerb::Upsert { .. }));
    assert_eq!(upsert.precondition, Precondition::IfMatch("\"t\"".into()));
    assert!(matches!(&read.verb, ItemVerb::Read { item: ItemSelector::Id(id) } if id == "c"));
    assert_eq!(read.precondition, Precondition::IfNoneMatch("\"n\"".into()));
    assert!(matches!(&replace.verb, ItemVerb::Replace { item: ItemSelector::Id(id), .. } if id == "d"));
    assert!(matches!(&patch.verb, ItemVerb::Patch { patch, .. } if patch.operations.len() == 1));
    assert!(matches!(&delete.verb, ItemVerb::Delete { .. }));
    assert_eq!(
        form,
        ReplyForm::Batch {
            minimal: vec![false; 6],
            rejected: vec![],
            hybrid_row: false
        }
    );
}

#[test]
fn bulk_steps_carry_their_own_keys_and_name_a_range() {
    let range = ("x-ms-documentdb-partitionkeyrangeid", "3");
    let go_on = ("x-ms-cosmos-batch-continue-on-error", "true");
    let body = r#"[{"operationType":"Delete","id":"a","partitionKey":"[\"k\"]","minimalReturnPreference":true}]"#;
    let (batch, form) = batch(&[MARK, ("x-ms-cosmos-batch-atomic", "false"), go_on, range], body);
    assert!(!batch.atomic && batch.continue_on_error);
    assert_eq!(batch.partition.map(|id| id.0), Some(3));
    assert_eq!(
        batch.steps[0]
            .partition_key
            .as_ref()
            .map(ToString::to_string)
            .as_deref(),
        Some(r#"["k"]"#)
    );
    assert_eq!(
        form,
        ReplyForm::Batch {
            minimal: vec![true],
            rejected: vec![],
            hybrid_row: false
        }
    );
}

#[test]
fn a_minimal_answer_still_carries_what_was_read() {
    let body = r#"[{"operationType":"Create","resourceBody":{"id":"a"}},{"operationType":"Read","id":"a"}]"#;
    let (_, form) = batch(&[MARK, ATOMIC, KEY, ("prefer", "return=minimal")], body);
    assert_eq!(
        form,
        ReplyForm::Batch {
            minimal: vec![true, false],
            rejected: vec![],
            hybrid_row: false
        }
    );
}

#[test]
fn malformed_batches_are_refused() {
    for body in [
        "{}",
        "[]",
        "[5]",
        "[{}]",
        r#"[{"operationType":"Erase","id":"a"}]"#,
        r#"[{"operationType":5,"id":"a"}]"#,
        r#"[{"operationType":"Read"}]"#,
        r#"[{"operationType":"Read","id":5}]"#,
        r#"[{"operationType":"Create"}]"#,
        r#"[{"operationType":"Create","resourceBody":"text"}]"#,
        r#"[{"operationType":"Create","resourceBody":{}}]"#,
        r#"[{"operationType":"Patch","id":"a","resourceBody":{}}]"#,
        r#"[{"operationType":"Read","id":"a","partitionKey":"x"}]"#,
    ] {
        assert_eq!(
            refusal(LINE, &[MARK, ATOMIC, KEY], body).0,
            Status::BAD_REQUEST,
            "{body}"
        );
    }
}

#[test]
fn a_batch_needs_somewhere_to_go() {
    let body = r#"[{"operationType":"Read","id":"a"}]"#;
    let range = ("x-ms-documentdb-partitionkeyrangeid", "0");
    for headers in [&[MARK, ATOMIC][..], &[MARK, ATOMIC, range], &[MARK]] {
        assert_eq!(refusal(LINE, headers, body).0, Status::BAD_REQUEST, "{headers:?}");
    }
}

#[test]
fn more_than_a_hundred_operations_are_refused() {
    let body = |n: usize| format!("[{}]", vec![r#"{"operationType":"Read","id":"a"}"#; n].join(","));
    assert_eq!(batch(&[MARK, ATOMIC, KEY], &body(100)).0.steps.len(), 100);
    let (status, message) = refusal(LINE, &[MARK, ATOMIC, KEY], body(101));
    assert_eq!(status, Status::BAD_REQUEST);
    assert!(message.starts_with("Batch request has more operations than what is supported"));
}

#[test]
fn results_come_in_order_with_what_is_known_of_each() {
    let result = |status, sub_status| StepResult {
        status,
        sub_status,
        charge: Charge::hundredths(571),
        etag: None,
        body: None,
        retry_after_ms: None,
    };
    let created = StepResult {
        etag: Some(Etag([0; 16])),
        body: Some(Bytes::from_static(br#"{"id":"a"}"#)),
        ..result(201, 0)
    };
    let throttled = StepResult {
        retry_after_ms: Some(7),
        ..result(429, 3200)
    };
    let full = r#"{"statusCode":201,"requestCharge":5.71,"eTag":"\"00000000-0000-0000-0000-000000000000\"","resourceBody":{"id":"a"}}"#;
    let minimal = r#"{"statusCode":201,"requestCharge":5.71,"eTag":"\"00000000-0000-0000-0000-000000000000\""}"#;
    let last = r#"{"statusCode":429,"subStatusCode":3200,"requestCharge":5.71,"retryAfterMilliseconds":7}"#;
    let results = [created.clone(), created, throttled];
    assert_eq!(
        json::encode(&results, &[false, true, false]),
        format!("[{full},{minimal},{last}]")
    );
}

const BULK: (&str, &str) = ("x-ms-cosmos-batch-atomic", "false");
const GO_ON: (&str, &str) = ("x-ms-cosmos-batch-continue-on-error", "true");
const MIXED: &str = r#"[
    {"operationType":"Create","resourceBody":{}},
    {"operationType":"Read","id":"a"},
    {"operationType":"Erase","id":"b"},
    {"operationType":"Delete","id":"c"}
]"#;

fn result(status: u16) -> StepResult {
    StepResult {
        status,
        sub_status: 0,
        charge: Charge::ZERO,
        etag: None,
        body: None,
        retry_after_ms: None,
    }
}

fn statuses(form: &ReplyForm, results: Vec<StepResult>) -> Vec<u64> {
    let body: serde_json::Value = serde_json::from_slice(&encode(results, form)).unwrap();
    body.as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["statusCode"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_bulk_step_that_makes_no_sense_fails_alone_and_at_its_place() {
    let (batch, form) = batch(&[MARK, BULK, GO_ON, KEY], MIXED);
    assert_eq!(batch.steps.len(), 2);
    assert_eq!(statuses(&form, vec![result(200), result(204)]), [400, 200, 400, 204]);
    // Also if the node should answer less than it was asked.
    assert_eq!(statuses(&form, vec![]), [400, 400]);
}

#[test]
fn a_bulk_request_that_stops_at_its_first_error_stops_at_a_senseless_step() {
    let body = r#"[{"operationType":"Read","id":"a"},{"operationType":"Erase"},{"operationType":"Read","id":"b"}]"#;
    let (batch, form) = batch(&[MARK, BULK, KEY], body);
    assert_eq!(batch.steps.len(), 1);
    assert_eq!(statuses(&form, vec![result(200)]), [200, 400, 424]);
}

#[test]
fn one_senseless_step_refuses_an_atomic_batch() {
    assert_eq!(refusal(LINE, &[MARK, ATOMIC, KEY], MIXED).0, Status::BAD_REQUEST);
}

#[test]
fn a_bulk_request_without_a_single_sensible_step_is_refused() {
    let (status, message) = refusal(LINE, &[MARK, BULK, GO_ON, KEY], r#"[{"operationType":"Erase"}]"#);
    assert_eq!(status, Status::BAD_REQUEST);
    assert!(message.contains("operationType is unknown"), "{message}");
}

/// A HybridRow stream with one record: the columns of a row behind its schema.
fn hybrid_row(columns: &[&[u8]]) -> Vec<u8> {
    let row = [&b"\x81\x70\x54\xE1\x7F"[..], &columns.concat()].concat();
    let mut stream = b"\x81\xF0\xD8\xFF\x7F\x01\x0A\0\0\0\x81\xF1\xD8\xFF\x7F".to_vec();
    stream.extend((row.len() as u32).to_le_bytes());
    stream.extend(crc32fast::hash(&row).to_le_bytes());
    stream.extend(row);
    stream
}

#[test]
fn a_batch_in_hybrid_row_is_answered_in_hybrid_row() {
    // Type, resource type, partition key and body are there; the operation is an upsert.
    let stream = hybrid_row(&[b"\x47\x14\0\0\0\x02\0\0\0", b"\x05[\"k\"]", b"\x0a{\"id\":\"x\"}"]);
    let decoded = request(LINE, &[MARK, ATOMIC, KEY], stream).unwrap();
    let Operation::Batch(batch) = decoded.operation else {
        panic!("{:?}", decoded.operation)
    };
    let [step] = &batch.steps[..] else {
        panic!("{:?}", batch.steps)
    };
    assert_eq!(
        step.partition_key.as_ref().map(ToString::to_string).as_deref(),
        Some(r#"["k"]"#)
    );
    assert!(matches!(&step.verb, ItemVerb::Upsert { body } if body.text == r#"{"id":"x"}"#));
    assert_eq!(
        decoded.form,
        ReplyForm::Batch {
            minimal: vec![false],
            rejected: vec![],
            hybrid_row: true
        }
    );
    let answer = encode(vec![result(201)], &decoded.form);
    assert!(
        answer.starts_with(b"\x81\xF0\xD8\xFF\x7F\x01\x0A\0\0\0\x81\xF1\xD8\xFF\x7F"),
        "{answer:?}"
    );
}

#[test]
fn damaged_hybrid_rows_are_refused() {
    let good = hybrid_row(&[b"\x13\x02\0\0\0\x02\0\0\0", b"\x01x"]);
    request(LINE, &[MARK, ATOMIC, KEY], good.clone()).unwrap();
    for n_bytes in 1..good.len() {
        assert_eq!(
            refusal(LINE, &[MARK, ATOMIC, KEY], good[..n_bytes].to_vec()).0,
            Status::BAD_REQUEST,
            "{n_bytes}"
        );
    }
}
