use orrery_model::etag::Precondition;
use orrery_model::limits::ITEM_ID_BYTES_MAX;

use super::*;
use crate::wire::tests::{KEY, refusal, request};

const FEED: &str = "POST /dbs/d/colls/c/docs";
const POINT: &str = "/dbs/d/colls/c/docs/x";

fn item(line: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> (ItemOperation, ReplyForm) {
    let decoded = request(line, headers, body).unwrap_or_else(|error| panic!("{line}: {error}"));
    match decoded.operation {
        Operation::Item(operation) => (operation, decoded.form),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_created_item_keeps_its_text() {
    let text = r#"{ "id" : "x", "n" : 12345678901234567890 }"#;
    let (operation, _) = item(FEED, &[KEY], text);
    let ItemVerb::Create { body } = operation.verb else {
        panic!("{:?}", operation.verb)
    };
    assert_eq!(body.text, text);
    assert!(!body.parsed.canonical);
    assert_eq!(body.parsed.value.to_text(), r#"{"id":"x","n":12345678901234567890}"#);
}

#[test]
fn creating_may_leave_the_partition_key_to_the_body_but_points_may_not() {
    assert_eq!(item(FEED, &[], r#"{"id":"x"}"#).0.partition_key, None);
    for verb in ["GET", "PUT", "DELETE"] {
        let (status, message) = refusal(&format!("{verb} {POINT}"), &[], r#"{"id":"x"}"#);
        assert_eq!(status, Status::BAD_REQUEST);
        assert!(message.contains("PartitionKey value must be supplied"), "{message}");
    }
    // The resource id of an item says where it is.
    let by_rid = "GET /dbs/Lx1BAA==/colls/Lx1BALxJyZ8=/docs/Lx1BALxJyZ8BAAAAAAAAAA==";
    assert!(matches!(
        item(by_rid, &[], "").0.verb,
        ItemVerb::Read {
            item: ItemSelector::Rid(_)
        }
    ));
}

#[test]
fn preconditions_follow_the_kind_of_operation() {
    let tags = [KEY, ("if-match", "\"m\""), ("if-none-match", "\"n\"")];
    assert_eq!(
        item(&format!("GET {POINT}"), &tags, "").0.precondition,
        Precondition::IfNoneMatch("\"n\"".into())
    );
    assert_eq!(
        item(&format!("DELETE {POINT}"), &tags, "").0.precondition,
        Precondition::IfMatch("\"m\"".into())
    );
}

#[test]
fn a_write_says_how_its_item_is_indexed() {
    let directive = |value| {
        let headers = [KEY, ("x-ms-indexing-directive", value)];
        item(FEED, &headers, r#"{"id":"x"}"#).0.directive
    };
    assert_eq!(
        item(FEED, &[KEY], r#"{"id":"x"}"#).0.directive,
        IndexingDirective::Default
    );
    assert_eq!(directive("Default"), IndexingDirective::Default);
    assert_eq!(directive("exclude"), IndexingDirective::Exclude);
    assert_eq!(directive("1"), IndexingDirective::Include);
    for value in ["maybe", "3", "-1"] {
        let (status, _) = refusal(FEED, &[KEY, ("x-ms-indexing-directive", value)], r#"{"id":"x"}"#);
        assert_eq!(status, Status::BAD_REQUEST, "{value}");
    }
}

#[test]
fn writes_may_be_answered_without_a_body_but_reads_not() {
    let headers = [KEY, ("prefer", "return=minimal")];
    assert_eq!(
        item(FEED, &headers, r#"{"id":"x"}"#).1,
        ReplyForm::ItemWrite { minimal: true }
    );
    assert_eq!(
        item(FEED, &[KEY], r#"{"id":"x"}"#).1,
        ReplyForm::ItemWrite { minimal: false }
    );
    assert_eq!(item(&format!("GET {POINT}"), &headers, "").1, ReplyForm::Resource);
}

#[test]
fn bodies_that_are_not_items_are_refused() {
    for (body, word) in [
        (&b""[..], "not JSON"),
        (b"{", "not JSON"),
        (b"{\"id\":\"\xff\"}", "UTF-8"),
        (b"[]", "must be a JSON object"),
        (b"5", "must be a JSON object"),
        (b"{}", "'id; '"),
        (b"{\"id\":5}", "not a string"),
        (b"{\"id\":\"\"}", "invalid"),
        (b"{\"id\":\"x\",\"n\":1e400}", "invalid"),
        (b"{\"id\":\"x\"} x", "not JSON"),
    ] {
        for line in [FEED.to_owned(), format!("PUT {POINT}")] {
            let (status, message) = refusal(&line, &[KEY], body);
            assert_eq!(status, Status::BAD_REQUEST, "{line} {body:?}");
            assert!(message.contains(word), "{body:?}: {message}");
        }
    }
    let long_id = format!(r#"{{"id":"{}"}}"#, "x".repeat(ITEM_ID_BYTES_MAX + 1));
    assert_eq!(refusal(FEED, &[KEY], long_id).0, Status::BAD_REQUEST);
}

#[test]
fn nesting_beyond_the_limit_is_refused() {
    let deep = format!(r#"{{"id":"x","a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(refusal(FEED, &[KEY], deep).0, Status::BAD_REQUEST);
}

#[test]
fn an_item_is_too_large_by_its_text_as_it_was_sent() {
    let padded = |n_text: usize, rest: &str| format!(r#"{{"id":"x","t":"{}"{rest}}}"#, "t".repeat(n_text));
    let fits = ITEM_BYTES_MAX - padded(0, "").len();
    item(FEED, &[KEY], padded(fits, ""));
    item(FEED, &[KEY], padded(fits - 1, " "));
    assert_eq!(refusal(FEED, &[KEY], padded(fits + 1, "")).0, Status::TOO_LARGE);
    assert_eq!(refusal(FEED, &[KEY], padded(fits, " ")).0, Status::TOO_LARGE);
    let escaped = format!(r#"{{"id":"x","t":"{}"}}"#, "\\u00fc".repeat(ITEM_BYTES_MAX / 6));
    assert_eq!(refusal(FEED, &[KEY], escaped).0, Status::TOO_LARGE);
}

#[test]
fn a_write_that_relies_on_triggers_is_refused() {
    for name in [
        "x-ms-documentdb-pre-trigger-include",
        "x-ms-documentdb-post-trigger-include",
    ] {
        let (status, message) = refusal(FEED, &[KEY, (name, "audit")], r#"{"id":"x"}"#);
        assert_eq!(status, Status::BAD_REQUEST);
        assert!(message.contains("'audit' cannot run"), "{message}");
        item(FEED, &[KEY, (name, "")], r#"{"id":"x"}"#);
        item(&format!("GET {POINT}"), &[KEY, (name, "audit")], "");
    }
}

#[test]
fn a_patch_comes_with_its_operations_and_condition() {
    let body = r#"{"condition":"from c where c.n = 1","operations":[{"op":"incr","path":"/n","value":1}]}"#;
    let (operation, form) = item(&format!("PATCH {POINT}"), &[KEY], body);
    let ItemVerb::Patch { patch, .. } = operation.verb else {
        panic!("{:?}", operation.verb)
    };
    assert_eq!(
        (patch.operations.len(), patch.condition.as_deref()),
        (1, Some("from c where c.n = 1"))
    );
    assert_eq!(form, ReplyForm::ItemWrite { minimal: false });
    assert_eq!(refusal(&format!("PATCH {POINT}"), &[KEY], "{}").0, Status::BAD_REQUEST);
}

#[test]
fn a_binary_item_is_read_as_its_canonical_text() {
    let bytes = b"\x80\xED\x11\x03\x82id\x82b1\x81n\x01\x82pk\x84beta";
    let (operation, _) = item(FEED, &[KEY], &bytes[..]);
    let ItemVerb::Create { body } = operation.verb else {
        panic!("{:?}", operation.verb)
    };
    assert_eq!(body.text, r#"{"id":"b1","n":1,"pk":"beta"}"#);
    assert!(body.parsed.canonical);
    item(&format!("PUT {POINT}"), &[KEY], &bytes[..]);
}

#[test]
fn damaged_binary_items_are_refused() {
    for body in [&b"\x80"[..], b"\x80\xED\x11\x03", b"\x80\x05", b"\x80\xE8", b"\x81\x00"] {
        assert_eq!(refusal(FEED, &[KEY], body).0, Status::BAD_REQUEST, "{body:?}");
    }
}
