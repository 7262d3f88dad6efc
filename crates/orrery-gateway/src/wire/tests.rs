//! Doors through which the tests of this module go: a request as text in, what it means or why it was refused out.

use bytes::Bytes;
use http::Request;
use orrery_model::{Result, Status};
use orrery_node::api::Consistency;

use super::headers::Headers;
use super::{Decoded, decode, route};

/// A request as it stands on the wire. The request line is `VERB /path`.
pub(super) fn request(line: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Result<Decoded> {
    request_of(Consistency::Session, line, headers, body)
}

/// The same against an account of some consistency.
pub(super) fn request_of(
    account: Consistency,
    line: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<Decoded> {
    let (method, path) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (head, ()) = request.body(()).unwrap().into_parts();
    let headers = Headers::of(&head.headers);
    decode(route(&head.uri)?, &head.method, headers, body.into(), account)
}

/// Why a request is refused.
pub(super) fn refusal(line: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> (Status, String) {
    let error = request(line, headers, body).expect_err(line);
    (error.status(), error.message().to_owned())
}

/// The header every point operation needs.
pub(super) const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
