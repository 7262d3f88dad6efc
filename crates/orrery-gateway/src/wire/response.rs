//! Responses: a reply or a failure becomes status, headers and body.
//!
//! Error bodies are built in exactly one function, [`error_body`]. A point read is the hot path: its body is passed on
//! untouched and numbers become header values without a detour through strings.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use orrery_model::json;
use orrery_model::{Error, Status};
use orrery_node::api::{Failure, Feed, Outcome, Reply, StepResult};

use super::headers::names;
use super::request::ReplyForm;
use super::{batch, change_feed, feed};
use crate::activity::ActivityId;

mod diagnostics;
mod facts;
mod values;

/// What answering a request needs to know about it.
#[derive(Clone, Debug)]
pub struct RequestMeta {
    pub activity_id: ActivityId,
    pub form: ReplyForm,
    /// Of the account, beside the region that takes writes.
    pub n_read_regions: usize,
}

/// The answer to a request that reached the node.
pub fn encode(meta: &RequestMeta, answer: Result<Reply, Failure>) -> Response<Bytes> {
    let encoded = match answer {
        Ok(reply) => encode_reply(meta, reply),
        Err(failure) => Err(failure),
    };
    encoded.unwrap_or_else(|failure| encode_failure(meta, &failure))
}

/// The answer to a request that was refused on the way: not understood, not allowed.
pub fn refuse(activity_id: ActivityId, error: Error) -> Response<Bytes> {
    let meta = RequestMeta {
        activity_id,
        form: ReplyForm::default(),
        n_read_regions: 0,
    };
    encode_failure(&meta, &error.into())
}

/// Tells how long an answer took to make, in milliseconds.
pub fn insert_duration(headers: &mut HeaderMap, took: Duration) {
    headers.insert(names::REQUEST_DURATION, values::milliseconds(took));
}

/// The answer to `GET /`.
pub fn encode_account(activity_id: ActivityId, document: Bytes) -> Response<Bytes> {
    let mut headers = general_headers(activity_id);
    headers.insert(names::REQUEST_CHARGE, HeaderValue::from_static("0"));
    respond(StatusCode::OK, headers, document)
}

fn encode_reply(meta: &RequestMeta, reply: Reply) -> Result<Response<Bytes>, Failure> {
    let mut headers = match meta.form {
        ReplyForm::Plan => general_headers(meta.activity_id),
        _ => facts::headers(meta, &reply.facts),
    };
    let (status, body) = match reply.outcome {
        Outcome::Created(resource) => (
            StatusCode::CREATED,
            single(meta, &mut headers, resource.etag, resource.body),
        ),
        Outcome::Found(resource) => (StatusCode::OK, single(meta, &mut headers, resource.etag, resource.body)),
        Outcome::Deleted if meta.form == ReplyForm::PartitionKeyDeletion => (StatusCode::OK, Bytes::new()),
        Outcome::Deleted => (StatusCode::NO_CONTENT, Bytes::new()),
        Outcome::NotModified { etag } => {
            insert_etag(&mut headers, etag);
            if let ReplyForm::Feed | ReplyForm::ChangeFeed { .. } = meta.form {
                headers.insert(names::ITEM_COUNT, HeaderValue::from_static("0"));
            }
            (StatusCode::NOT_MODIFIED, Bytes::new())
        }
        Outcome::Feed(page) => (StatusCode::OK, self::page(meta, &mut headers, page)?),
        Outcome::Changes(changes) => {
            headers.insert(names::ITEM_COUNT, HeaderValue::from(changes.changes.len()));
            let enveloped = meta.form == (ReplyForm::ChangeFeed { enveloped: true });
            let body = change_feed::page(&changes, enveloped);
            insert_etag(&mut headers, changes.etag);
            (StatusCode::OK, body)
        }
        Outcome::Batch(results) => steps(meta, results),
        Outcome::Plan(plan) => {
            headers.insert(names::CACHE_CONTROL, HeaderValue::from_static("no-store, no-cache"));
            (StatusCode::OK, plan.to_text().into())
        }
    };
    let mut response = respond(status, headers, body);
    if let ReplyForm::Batch { hybrid_row: true, .. } = meta.form {
        response.headers_mut().insert(
            names::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
    }
    Ok(response)
}

fn single(meta: &RequestMeta, headers: &mut HeaderMap, etag: String, body: Bytes) -> Bytes {
    insert_etag(headers, etag);
    match meta.form {
        ReplyForm::ItemWrite { minimal: true } => Bytes::new(),
        _ => body,
    }
}

fn page(meta: &RequestMeta, headers: &mut HeaderMap, mut page: Feed) -> Result<Bytes, Failure> {
    headers.insert(names::ITEM_COUNT, HeaderValue::from(page.entries.len()));
    if let Some(continuation) = page.continuation.take() {
        // Left out, it would end the feed early and lose what is left of it.
        let value = HeaderValue::try_from(continuation)
            .map_err(|error| Error::new(Status::INTERNAL, "The continuation is not header text.").with_source(error))?;
        headers.insert(names::CONTINUATION, value);
    }
    if let Some(etag) = page.etag.take() {
        insert_etag(headers, etag);
    }
    if matches!(meta.form, ReplyForm::Query { .. }) {
        headers.insert(
            names::QUERY_EXECUTION_INFO,
            HeaderValue::from_static(QUERY_EXECUTION_INFO),
        );
    }
    Ok(feed::envelope(&page))
}

/// Ties of equal ORDER BY values come in ascending order of resource ids, whatever the direction.
const QUERY_EXECUTION_INFO: &str = r#"{"reverseRidEnabled":false,"reverseIndexScan":false}"#;

/// 200 when every step succeeded, 207 otherwise.
fn steps(meta: &RequestMeta, results: Vec<StepResult>) -> (StatusCode, Bytes) {
    let none_rejected = !matches!(&meta.form, ReplyForm::Batch { rejected, .. } if !rejected.is_empty());
    let all_succeeded = none_rejected && results.iter().all(|result| result.status < 400);
    let status = if all_succeeded {
        StatusCode::OK
    } else {
        StatusCode::MULTI_STATUS
    };
    (status, batch::encode(results, &meta.form))
}

fn encode_failure(meta: &RequestMeta, failure: &Failure) -> Response<Bytes> {
    let error = &failure.error;
    let mut headers = facts::headers(meta, &failure.facts);
    let Status { code, sub } = error.status();
    // A bad request that says no more has none; Rust's SDK compares it with its own refusals.
    if sub != 0 || code != 400 {
        headers.insert(names::SUBSTATUS, HeaderValue::from(sub));
    }
    if let Some(milliseconds) = error.retry_after_ms() {
        headers.insert(names::RETRY_AFTER_MS, HeaderValue::from(milliseconds));
    }
    let status = StatusCode::from_u16(error.status().code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    respond(status, headers, error_body(meta, failure))
}

/// The one place that builds an error body.
fn error_body(meta: &RequestMeta, failure: &Failure) -> Bytes {
    let error = &failure.error;
    let activity_id = meta.activity_id.as_str();
    let message = [error.message(), "\r\nActivityId: ", activity_id, ", ", AGENT].concat();
    let mut body = Vec::with_capacity(message.len() + 64);
    body.extend_from_slice(b"{\"code\":\"");
    body.extend_from_slice(error.status().name().as_bytes());
    body.extend_from_slice(b"\",\"message\":");
    json::print_string(&message, &mut body);
    body.push(b'}');
    body.into()
}

const AGENT: &str = concat!("orrery/", env!("CARGO_PKG_VERSION"));

fn general_headers(activity_id: ActivityId) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(N_HEADERS_USUAL);
    headers.insert(names::ACTIVITY_ID, activity_id.to_value());
    insert_versions(&mut headers);
    headers
}

/// Room for what most answers have.
const N_HEADERS_USUAL: usize = 24;

fn insert_versions(headers: &mut HeaderMap) {
    headers.insert(names::SCHEMA_VERSION, HeaderValue::from_static("1.18"));
    headers.insert(names::SERVICE_VERSION, HeaderValue::from_static("version=2.14.0.0"));
    headers.insert(names::GATEWAY_VERSION, HeaderValue::from_static("version=2.14.0"));
}

fn insert_etag(headers: &mut HeaderMap, etag: String) {
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(etag)) {
        headers.insert(names::ETAG, value);
    }
}

/// Bodies are JSON and have a length. Where HTTP forbids a body it forbids the length as well.
fn respond(status: StatusCode, mut headers: HeaderMap, body: Bytes) -> Response<Bytes> {
    if !body.is_empty() {
        headers.insert(names::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        headers.insert(names::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests;
