//! Everything beside the Cosmos API: health, metrics, the certificate authority and administration.
//!
//! Health and the certificate need no key. Metrics need one unless the client is on this machine. Everything under
//! `/_orrery/v1/` is signed like any other request, with an empty resource type and the path as its link.

mod events;
mod feed;
mod forms;
mod simulation;
mod stream;
mod v1;

pub(crate) use events::LISTENERS_MAX;
pub use stream::EventStream;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use orrery_model::{Error, Result, Status};
use orrery_node::api::Principal;
use serde_json::{Value, json};

use crate::metrics;
use crate::pipeline::{Answered, Incomplete, Pipeline, leave_unread};
use crate::relay::Relay;

/// Name under which these requests are counted.
const OPERATION: &str = "administration";
const V1: &str = "/_orrery/v1/";

/// A part of an administration path, as it was meant.
pub fn decoded(part: &str) -> Result<String> {
    forms::decoded(part)
}

/// Is this path ours?
pub(crate) fn serves(path: &str) -> bool {
    path.starts_with("/_orrery/") || matches!(path, "/healthz" | "/readyz" | "/metrics")
}

pub(crate) async fn answer(pipeline: &Pipeline, request: Incomplete<'_>) -> Answered {
    let activity_id = request.activity_id;
    let path = request.head.uri.path().to_owned();
    let result = match path.strip_prefix(V1) {
        Some(rest) => v1::answer(pipeline, request, rest).await,
        None => open(pipeline, &request, &path),
    };
    let mut answered = result.unwrap_or_else(|error| pipeline.refuse(activity_id, error));
    answered.operation = OPERATION;
    answered
}

/// What can be read without being signed, or without in some cases.
fn open(pipeline: &Pipeline, request: &Incomplete<'_>, path: &str) -> Result<Answered> {
    leave_unread(request.peer, &request.body);
    if request.head.method != Method::GET {
        return Err(Error::new(Status::METHOD_NOT_ALLOWED, "This path can only be read."));
    }
    let response = match path {
        "/healthz" => respond(StatusCode::OK, &json!({"status": "ok"})),
        "/readyz" if pipeline.stopping().is_cancelled() => {
            respond(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "stopping"}))
        }
        "/readyz" if !pipeline.parts().handler.relay().is_none_or(Relay::is_ready) => {
            respond(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "out of touch"}))
        }
        "/readyz" => respond(StatusCode::OK, &json!({"status": "ready"})),
        "/metrics" => {
            if !request.peer.address.ip().to_canonical().is_loopback() {
                authorize(pipeline, request, "metrics")?;
            }
            text("text/plain; version=0.0.4; charset=utf-8", metrics(pipeline).into())
        }
        "/_orrery/ca.pem" => match &pipeline.parts().ca_pem {
            Some(pem) => text("application/x-pem-file", pem.clone()),
            None => {
                return Err(Error::new(
                    Status::NOT_FOUND,
                    "This server has no certificate authority of its own.",
                ));
            }
        },
        _ => return Err(unknown_path()),
    };
    Ok(Answered::new(OPERATION, response))
}

/// Everything that is counted, here and behind the handler.
fn metrics(pipeline: &Pipeline) -> String {
    let mut text = pipeline.metrics().render();
    metrics::render_measures(&mut text, &pipeline.parts().handler.measures());
    text
}

/// Administration is for holders of an account key; those with a read-only key may look.
fn authorize(pipeline: &Pipeline, request: &Incomplete<'_>, link: &str) -> Result<()> {
    match pipeline.authenticate(request, "", link)? {
        Principal::Account { read_only } if !read_only || request.head.method == Method::GET => Ok(()),
        _ => Err(Error::new(
            Status::FORBIDDEN,
            "Administration needs an account key that may write.",
        )),
    }
}

fn unknown_path() -> Error {
    Error::new(Status::NOT_FOUND, "There is no such administration path.")
}

fn respond(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = text("application/json", body.to_string().into());
    *response.status_mut() = status;
    response
}

fn text(content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
