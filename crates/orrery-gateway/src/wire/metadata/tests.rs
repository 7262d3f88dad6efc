use orrery_model::Status;
use orrery_model::etag::Precondition;
use orrery_model::offer::Migration;
use orrery_model::offer::Throughput;

use super::*;
use crate::wire::tests::{refusal, request};

fn operation(line: &str, headers: &[(&str, &str)], body: &'static str) -> MetadataOperation {
    match request(line, headers, body)
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .operation
    {
        Operation::Metadata(operation) => operation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_path_names_the_ancestors_from_the_outside_in() {
    let name = |text: &str| Selector::Name(text.to_owned());
    assert_eq!(operation("GET /dbs", &[], "").path, []);
    assert_eq!(operation("GET /dbs/d/colls/c", &[], "").path, [name("d")]);
    assert_eq!(
        operation("GET /dbs/d/users/u/permissions/p", &[], "").path,
        [name("d"), name("u")]
    );
    assert_eq!(
        operation("GET /dbs/d/colls/c/udfs", &[], "").path,
        [name("d"), name("c")]
    );
}

#[test]
fn throughput_comes_with_the_creation_of_a_database_or_container() {
    let create = |headers: &[(&str, &str)]| match operation("POST /dbs/d/colls", headers, r#"{"id":"c"}"#).verb {
        MetadataVerb::Create { throughput, .. } => throughput,
        other => panic!("{other:?}"),
    };
    assert_eq!(create(&[]), None);
    assert_eq!(
        create(&[("x-ms-offer-throughput", "400")]),
        Some(Throughput::Manual(400))
    );
    let autoscale = ("x-ms-cosmos-offer-autopilot-settings", r#"{"maxThroughput":4000}"#);
    assert_eq!(
        create(&[autoscale]),
        Some(Throughput::Autoscale {
            max: 4000,
            increment_percent: None
        })
    );
    for headers in [
        &[("x-ms-offer-throughput", "x")][..],
        &[("x-ms-offer-throughput", "400"), autoscale],
    ] {
        assert_eq!(
            refusal("POST /dbs/d/colls", headers, r#"{"id":"c"}"#).0,
            Status::BAD_REQUEST
        );
    }
}

#[test]
fn a_resource_must_be_an_object() {
    for body in ["", "[]", "null", "{"] {
        assert_eq!(refusal("POST /dbs", &[], body).0, Status::BAD_REQUEST, "{body:?}");
        assert_eq!(
            refusal("PUT /dbs/d/colls/c", &[], body).0,
            Status::BAD_REQUEST,
            "{body:?}"
        );
    }
}

#[test]
fn databases_and_containers_cannot_be_upserted() {
    let upsert = [("x-ms-documentdb-is-upsert", "true")];
    assert_eq!(refusal("POST /dbs", &upsert, r#"{"id":"d"}"#).0, Status::BAD_REQUEST);
    let operation = operation("POST /dbs/d/users", &upsert, r#"{"id":"u"}"#);
    assert!(matches!(operation.verb, MetadataVerb::Create { upsert: true, .. }));
}

#[test]
fn an_offer_may_be_migrated_by_its_replacement() {
    let headers = [
        ("x-ms-cosmos-migrate-offer-to-autopilot", "true"),
        ("if-match", "\"t\""),
    ];
    let verb = operation("PUT /offers/AbC0", &headers, r#"{"content":{}}"#).verb;
    let MetadataVerb::Replace {
        migration,
        precondition,
        target,
        ..
    } = verb
    else {
        panic!("{verb:?}")
    };
    assert_eq!(migration, Migration::ToAutoscale);
    assert_eq!(precondition, Precondition::IfMatch("\"t\"".into()));
    assert!(matches!(target, Selector::Rid(_)));
}

#[test]
fn reading_again_what_has_not_changed_is_conditional() {
    let verb = operation("GET /dbs/d/colls/c", &[("if-none-match", "\"t\"")], "").verb;
    assert!(matches!(
        verb,
        MetadataVerb::Read {
            precondition: Precondition::IfNoneMatch(_),
            ..
        }
    ));
}
