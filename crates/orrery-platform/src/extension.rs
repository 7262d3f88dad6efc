//! A seam for further paths on the service's address: whoever builds the binary brings them.

use std::net::IpAddr;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use serde_json::Value;

use crate::answer::{Answer, Failure, json_answer};

/// What an extension answers: a status and JSON, or a failure in the service's shape.
#[derive(Debug)]
pub enum ExtensionAnswer {
    Json(http::StatusCode, Value),
    Failure(http::StatusCode, &'static str, String),
}

/// Answers requests that the API does not know, also while the service is closed.
pub trait Extension: Send + Sync + 'static {
    /// Whether a path is this extension's. Asked before anything of the body is read.
    fn owns(&self, path: &str) -> bool;

    fn answer<'a>(&'a self, parts: &'a Parts, body: Bytes, peer: IpAddr) -> BoxFuture<'a, ExtensionAnswer>;
}

impl ExtensionAnswer {
    pub(crate) fn into_answer(self) -> Result<Answer, Failure> {
        match self {
            ExtensionAnswer::Json(status, body) => Ok(json_answer(status, &body)),
            ExtensionAnswer::Failure(status, code, message) => Err(Failure::new(status, code, message)),
        }
    }
}
