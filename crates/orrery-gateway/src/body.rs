//! Reading a request's body: at most so many bytes, within so much time, and with room for it among all the others.
//!
//! Room is taken for a whole body as soon as a part of it is there. A client that sends a few bytes of each of many large bodies and no
//! more would keep everybody else waiting, so a body that holds room while others wait for some has to arrive at a pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use orrery_model::{Error, Result, Status};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

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

/// A body, and the room it takes up until this is dropped.
#[derive(Debug, Default)]
pub struct Body {
    pub bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

impl Body {
    fn of(bytes: Bytes) -> Body {
        Body { bytes, _room: None }
    }
}

/// When a client that was sent away should come back.
const RETRY_AFTER_MS: u64 = 500;

/// How fast a body arrives at least while others wait for the room it holds, not counting its first moment, and how often somebody looks.
const PACE_BYTES_PER_SECOND: f64 = 64.0 * 1024.0;
const PACE_GRACE: Duration = Duration::from_secs(1);
const PACE_LOOK: Duration = Duration::from_millis(250);

/// The room that all bodies share. A body takes what it needs at once: bodies that each have a part of theirs and wait for the
/// rest would wait for each other.
#[derive(Debug)]
pub struct Room {
    bytes: Arc<Semaphore>,
    bytes_max: usize,
    wait: Duration,
    n_waiting: AtomicUsize,
}

/// Somebody who waits for room.
struct Waiting<'r>(&'r Room);

impl<'r> Waiting<'r> {
    fn begin(room: &'r Room) -> Waiting<'r> {
        room.n_waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(room)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.n_waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Room {
    pub fn new(bytes_max: usize, wait: Duration) -> Room {
        Room {
            bytes: Arc::new(Semaphore::new(bytes_max)),
            bytes_max,
            wait,
            n_waiting: AtomicUsize::new(0),
        }
    }

    fn is_wanted(&self) -> bool {
        self.n_waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits until there is room for so many bytes; for more than all of it, until all is free.
    async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let n_permits = u32::try_from(bytes.min(self.bytes_max)).map_err(|_| too_large())?;
        if let Ok(room) = Arc::clone(&self.bytes).try_acquire_many_owned(n_permits) {
            return Ok(room);
        }
        let _waiting = Waiting::begin(self);
        let waiting = tokio::time::timeout(self.wait, Arc::clone(&self.bytes).acquire_many_owned(n_permits));
        match waiting.await {
            Ok(Ok(room)) => Ok(room),
            _ => Err(no_room()),
        }
    }
}

/// The whole body. An announced length above the limit is refused before a byte is read; a body that grows beyond it, as
/// soon as it does. One that another node has read has its room there.
pub async fn read(body: Unread, bytes_max: usize, limit: Duration, room: &Room) -> Result<Body> {
    let mut body = match body {
        Unread::Incoming(body) => body,
        Unread::Whole(body) if body.len() > bytes_max => return Err(too_large()),
        Unread::Whole(body) => return Ok(Body::of(body)),
    };
    if body.is_end_stream() {
        return Ok(Body::default());
    }
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max {
        return Err(too_large());
    }
    // Boxed, so that the many requests without a body do not carry the state of reading one.
    Box::pin(tokio::time::timeout(
        limit,
        collect(&mut body, announced, bytes_max, room),
    ))
    .await
    .unwrap_or_else(|_| {
        Err(Error::new(
            Status::REQUEST_TIMEOUT,
            "The request's body did not arrive in time.",
        ))
    })
}

/// A body that came in one piece is not copied.
async fn collect(body: &mut Incoming, announced: usize, bytes_max: usize, room: &Room) -> Result<Body> {
    let first = next(body).await?.unwrap_or_default();
    if first.len() > bytes_max {
        return Err(too_large());
    }
    // Whoever has sent nothing yet takes nothing.
    let is_whole = body.is_end_stream();
    let wanted = match (is_whole, announced) {
        (true, _) => first.len(),
        (false, 0) => bytes_max,
        (false, announced) => announced.max(first.len()),
    };
    let mut held = room.take(wanted).await?;
    if is_whole {
        return Ok(Body {
            bytes: first,
            _room: Some(held),
        });
    }
    let mut whole = BytesMut::with_capacity(announced.max(first.len()));
    whole.extend_from_slice(&first);
    let since = Instant::now();
    while let Some(part) = next_in_time(body, || keeps_pace(whole.len(), since.elapsed()) || !room.is_wanted()).await? {
        if whole.len() + part.len() > bytes_max {
            return Err(too_large());
        }
        whole.extend_from_slice(&part);
    }
    // One that did not say how long it would be took room for the longest there is.
    drop(held.split(wanted.saturating_sub(whole.len())));
    Ok(Body {
        bytes: whole.freeze(),
        _room: Some(held),
    })
}

/// Has so much arrived that nobody who waits for its room waits in vain?
fn keeps_pace(n_bytes: usize, elapsed: Duration) -> bool {
    n_bytes as f64 >= PACE_BYTES_PER_SECOND * elapsed.saturating_sub(PACE_GRACE).as_secs_f64()
}

/// The next data, for as long as it may be waited for.
async fn next_in_time(body: &mut Incoming, may_wait: impl Fn() -> bool) -> Result<Option<Bytes>> {
    loop {
        // Nothing that has arrived is lost with a look that comes first.
        tokio::select! {
            biased;
            part = next(body) => return part,
            () = tokio::time::sleep(PACE_LOOK) => {}
        }
        if !may_wait() {
            return Err(Error::new(
                Status::REQUEST_TIMEOUT,
                "The request's body arrives too slowly while others wait.",
            ));
        }
    }
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

fn no_room() -> Error {
    Error::new(
        Status::RESOURCE_LIMIT,
        "The server holds as many requests as it can at the moment.",
    )
    .with_retry_after_ms(RETRY_AFTER_MS)
}

fn too_large() -> Error {
    Error::new(Status::TOO_LARGE, "Request size is too large")
}
