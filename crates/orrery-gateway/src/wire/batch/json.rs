//! Batches in JSON: an array of operations, answered by an array of results.

use std::io::Write as _;

use bytes::Bytes;
use orrery_model::Result;
use orrery_model::json::{self, Object, Value};
use orrery_node::api::StepResult;

use super::{Body, Kind, RawStep, invalid};
use crate::wire::item;

/// Reads a request body. The outer error is about the request, the inner ones about single steps.
pub(super) fn parse(body: &[u8]) -> Result<Vec<Result<RawStep>>> {
    match item::parse(body)? {
        Value::Array(operations) => Ok(operations.into_iter().map(parse_operation).collect()),
        _ => Err(invalid("an array of operations is expected")),
    }
}

fn parse_operation(operation: Value) -> Result<RawStep> {
    let Value::Object(mut members) = operation else {
        return Err(invalid("an operation is not an object"));
    };
    let kind = take_text(&mut members, "operationType")?.ok_or_else(|| invalid("an operation has no operationType"))?;
    Ok(RawStep {
        kind: parse_kind(&kind).ok_or_else(|| invalid("an operationType is unknown"))?,
        id: take_text(&mut members, "id")?,
        body: members.remove("resourceBody").map(Body::Parsed),
        partition_key: take_text(&mut members, "partitionKey")?,
        if_match: take_text(&mut members, "ifMatch")?,
        if_none_match: take_text(&mut members, "ifNoneMatch")?,
        directive: take_text(&mut members, "indexingDirective")?,
        minimal: members
            .get("minimalReturnPreference")
            .and_then(Value::as_bool)
            .unwrap_or(false),
    })
}

fn parse_kind(name: &str) -> Option<Kind> {
    const KINDS: [(&str, Kind); 6] = [
        ("Create", Kind::Create),
        ("Upsert", Kind::Upsert),
        ("Read", Kind::Read),
        ("Replace", Kind::Replace),
        ("Patch", Kind::Patch),
        ("Delete", Kind::Delete),
    ];
    KINDS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, kind)| *kind)
}

fn take_text(members: &mut Object, name: &str) -> Result<Option<String>> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(&format!("the member '{name}' of an operation is not a string"))),
    }
}

/// The results, one entry per operation and in order. `minimal` says whose content is left out.
pub(super) fn encode(results: &[StepResult], minimal: &[bool]) -> Bytes {
    let n_bytes: usize = results
        .iter()
        .map(|result| 160 + result.body.as_ref().map_or(0, Bytes::len))
        .sum();
    let mut out = Vec::with_capacity(n_bytes + 2);
    out.push(b'[');
    for (index, result) in results.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let without_body = minimal.get(index).copied().unwrap_or(false);
        encode_result(result, without_body, &mut out);
    }
    out.push(b']');
    out.into()
}

fn encode_result(result: &StepResult, without_body: bool, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail, so the results are not looked at.
    let _ = write!(out, "{{\"statusCode\":{}", result.status);
    if result.sub_status != 0 {
        let _ = write!(out, ",\"subStatusCode\":{}", result.sub_status);
    }
    let _ = write!(out, ",\"requestCharge\":{}", result.charge);
    if let Some(etag) = &result.etag {
        out.extend_from_slice(b",\"eTag\":");
        json::print_string(&etag.to_string(), out);
    }
    if let Some(body) = result.body.as_ref().filter(|_| !without_body) {
        out.extend_from_slice(b",\"resourceBody\":");
        out.extend_from_slice(body);
    }
    if let Some(milliseconds) = result.retry_after_ms {
        let _ = write!(out, ",\"retryAfterMilliseconds\":{milliseconds}");
    }
    out.push(b'}');
}
