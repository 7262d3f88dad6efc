//! Reading a request's body: at most so many bytes, within so much time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use orrery_model::{Error, Result, Status};

/// A request's body before it is read.
#[derive(Debug)]
pub enum Unread {
    /// On its way from the client.
    Incoming(Incoming),
    /// Another node has read it.
    Whole(Bytes),
}

impl Unread {
    /// Is nothing left to come?
    pub fn is_end_stream(&self) -> bool {
        match self {
            Unread::Incoming(body) => body.is_end_stream(),
            Unread::Whole(_) => true,
        }
    }
}

/// The whole body. An announced length above the limit is refused before a byte is read; a body that grows beyond it, as
/// soon as it does.
pub async fn read(body: Unread, bytes_max: usize, limit: Duration) -> Result<Bytes> {
    let mut body = match body {
        Unread::Incoming(body) => body,
        Unread::Whole(body) if body.len() > bytes_max => return Err(too_large()),
        Unread::Whole(body) => return Ok(body),
    };
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max {
        return Err(too_large());
    }
    // Boxed, so that the many requests without a body do not carry the state of reading one.
    Box::pin(tokio::time::timeout(limit, collect(&mut body, announced, bytes_max)))
        .await
        .unwrap_or_else(|_| {
            Err(Error::new(
                Status::REQUEST_TIMEOUT,
                "The request's body did not arrive in time.",
            ))
        })
}

/// A body that came in one piece is not copied.
async fn collect(body: &mut Incoming, announced: usize, bytes_max: usize) -> Result<Bytes> {
    let first = next(body).await?.unwrap_or_default();
    if first.len() > bytes_max {
        return Err(too_large());
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(announced.max(first.len()));
    whole.extend_from_slice(&first);
    while let Some(part) = next(body).await? {
        if whole.len() + part.len() > bytes_max {
            return Err(too_large());
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// The next data; trailers are of no interest.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::bad_request("The request's body ended early or was malformed.").with_source(error)
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn too_large() -> Error {
    Error::new(Status::TOO_LARGE, "Request size is too large")
}
