use orrery_node::api::FeedTarget;

use super::*;
use crate::wire::tests::{KEY, refusal, request};

const LINE: &str = "POST /dbs/d/colls/c/docs";
const MARK: (&str, &str) = ("x-ms-documentdb-isquery", "True");

fn query(headers: &[(&str, &str)], body: &'static str) -> (FeedTarget, QueryText, bool) {
    match request(LINE, headers, body).unwrap().operation {
        Operation::Query {
            target,
            query,
            cross_partition,
            ..
        } => (target, query, cross_partition),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_query_comes_with_its_parameters_in_any_order_of_members() {
    let body =
        r#"{"parameters":[{"name":"@a","value":[1]},{"name":"@b"}],"clientQLCompatibilityLevel":1,"query":"SELECT 1"}"#;
    let (_, query, cross_partition) = query(&[MARK, ("x-ms-documentdb-query-enablecrosspartition", "True")], body);
    assert_eq!(query.text, "SELECT 1");
    let one = Value::Array(vec![Value::from(1)]);
    assert_eq!(
        query.parameters,
        [("@a".to_owned(), Some(one)), ("@b".to_owned(), None)]
    );
    assert!(cross_partition);
}

#[test]
fn where_an_ordered_query_goes_on_is_kept_as_it_was_sent() {
    let body = r#"{"query":"SELECT 1","resumeFilter":{"exclude":false,"rid":"EAAAAYAAAAIEAAAAAAAAAA==","value":[4]}}"#;
    let (_, query, _) = query(&[MARK], body);
    assert_eq!(query.resume_filter.unwrap().get("exclude"), Some(&Value::Bool(false)));
}

#[test]
fn a_query_is_for_one_key_or_one_range() {
    let (target, ..) = query(&[MARK, KEY], r#"{"query":"SELECT 1"}"#);
    assert!(target.partition_key.is_some() && target.partition.is_none());
    let (target, ..) = query(
        &[MARK, ("x-ms-documentdb-partitionkeyrangeid", "1")],
        r#"{"query":"SELECT 1"}"#,
    );
    assert_eq!(target.partition.map(|id| id.0), Some(1));
}

#[test]
fn malformed_queries_are_refused() {
    for (body, word) in [
        ("", "not JSON"),
        ("SELECT 1", "not JSON"),
        ("[]", "an object"),
        ("{}", "'query' is missing"),
        (r#"{"query":5}"#, "'query' is missing"),
        (r#"{"query":"x","parameters":{}}"#, "not an array"),
        (r#"{"query":"x","parameters":[5]}"#, "no name"),
        (
            r#"{"query":"x","parameters":[{"name":"p"}]}"#,
            "Specified parameter name 'p' is invalid",
        ),
        (
            r#"{"query":"x","parameters":[{"name":"@"}]}"#,
            "Specified parameter name '@' is invalid",
        ),
        (
            r#"{"query":"x","parameters":[{"name":"@p"},{"name":"@p"}]}"#,
            "duplicate parameter name '@p'",
        ),
    ] {
        let (status, message) = refusal(LINE, &[MARK], body);
        assert_eq!(status.code, 400, "{body}");
        assert!(message.contains(word), "{body}: {message}");
    }
}

#[test]
fn a_plan_request_lists_what_the_client_can_do() {
    let headers = [
        ("x-ms-cosmos-is-query-plan-request", "True"),
        ("x-ms-cosmos-supported-query-features", "Top, OrderBy"),
        KEY,
    ];
    let decoded = request(LINE, &headers, r#"{"query":"SELECT 1"}"#).unwrap();
    assert_eq!(decoded.form, ReplyForm::Plan);
    let Operation::QueryPlan {
        features,
        partition_key,
        ..
    } = decoded.operation
    else {
        panic!("{:?}", decoded.operation)
    };
    assert_eq!(features, ["Top", "OrderBy"]);
    assert!(partition_key.is_some());
}
