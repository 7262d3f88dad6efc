//! Answers to bytes that are no request.
//!
//! Such bytes never reach the pipeline: hyper refuses them by itself, with a status and nothing else, and some clients
//! cannot cope with an error without a body. What hyper writes is recognised here and replaced by an answer in the shape
//! of every other failure. Ordinary answers pass: they all carry an activity id.

use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, StatusCode};
use orrery_model::{Error, Status};

/// The statuses hyper refuses a head with.
const REFUSED: [u16; 3] = [400, 414, 431];
const VERSION: &[u8] = b"HTTP/1.1 ";
const ACTIVITY_ID: &[u8] = b"x-ms-activity-id";

/// The status of a refusal that hyper made itself, if these bytes are the start of one.
pub(crate) fn status_of(answer: &[u8]) -> Option<u16> {
    let code = answer.strip_prefix(VERSION)?.get(..3)?;
    let code: u16 = std::str::from_utf8(code).ok()?.parse().ok()?;
    let is_ours = || answer.windows(ACTIVITY_ID.len()).any(|window| window == ACTIVITY_ID);
    (REFUSED.contains(&code) && !is_ours()).then_some(code)
}

/// Why a head was refused, in words.
pub(crate) fn error(code: u16) -> Error {
    let message = match code {
        414 => "The path of the request is too long.",
        431 => "The headers of the request are too large.",
        _ => "The head of the request is not well-formed HTTP.",
    };
    Error::new(Status { code, sub: 0 }, message)
}

/// A whole answer as bytes. The connection ends with it.
pub(crate) fn bytes(response: &Response<Bytes>) -> Bytes {
    let status = response.status();
    let mut out = BytesMut::with_capacity(512 + response.body().len());
    out.put_slice(VERSION);
    out.put_slice(status.as_str().as_bytes());
    out.put_u8(b' ');
    out.put_slice(reason(status).as_bytes());
    for (name, value) in response.headers() {
        out.put_slice(b"\r\n");
        out.put_slice(name.as_str().as_bytes());
        out.put_slice(b": ");
        out.put_slice(value.as_bytes());
    }
    if !response.headers().contains_key(http::header::CONTENT_LENGTH) {
        out.put_slice(format!("\r\ncontent-length: {}", response.body().len()).as_bytes());
    }
    out.put_slice(b"\r\nconnection: close\r\n\r\n");
    out.put_slice(response.body());
    out.freeze()
}

fn reason(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_without_an_activity_id_are_replaced() {
        let bare = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(status_of(bare), Some(400));
        for other in [
            &b"HTTP/1.1 400 Bad Request\r\nx-ms-activity-id: 1\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 4",
            b"",
        ] {
            assert_eq!(status_of(other), None, "{other:?}");
        }
    }
}
