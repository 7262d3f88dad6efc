//! `GET feed`: the changes of a container as server-sent events, for browsers and shells.
//!
//! The last event of a page carries a token as its id, so a browser that reconnects, or a shell that begins again with it,
//! misses nothing; what it had of an unfinished page it sees again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use orrery_model::{Error, Result, Status};
use orrery_node::Request;
use orrery_node::api::{
    ChangeFeedRead, Changes, ContainerRef, FeedMode, FeedStart, FeedTarget, FromHistory, Operation, Options, Outcome,
    Principal, Selector,
};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::forms::decoded;
use super::stream::{EventSource, EventStream};
use crate::guard::InRequest;
use crate::handler::Handler;
use crate::wire::change_feed::envelope;

/// How long one read waits for a change; afterwards the listener is told where it stands.
const WAIT_MS: u64 = 15_000;
/// Pause after a refusal that will pass.
const PAUSE: Duration = Duration::from_millis(100);
const CHANGES_PER_PAGE: usize = 1_000;

/// `?database=…&container=…&from=…&mode=…&filter=…&committed=…`.
pub(super) fn wanted(query: Option<&str>, headers: &HeaderMap) -> Result<ChangeFeedRead> {
    let (mut database, mut container, mut filter) = (None, None, None);
    let (mut start, mut mode, mut committed_only) = (FeedStart::Now, FeedMode::LatestVersions, false);
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value)?;
        match name {
            "database" => database = Some(value),
            "container" => container = Some(value),
            "filter" => filter = Some(value),
            "from" => start = parse_start(&value)?,
            "mode" => mode = parse_mode(&value)?,
            "committed" => committed_only = value == "true",
            _ => return Err(Error::bad_request(format!("A feed has no parameter '{name}'."))),
        }
    }
    let named = database.zip(container);
    let (database, container) =
        named.ok_or_else(|| Error::bad_request("A feed is of a container: name its database and itself."))?;
    // What a browser sends when it connects again.
    if let Some(id) = headers.get("last-event-id").and_then(|value| value.to_str().ok()) {
        start = FeedStart::After(id.to_owned());
    }
    Ok(ChangeFeedRead {
        container: ContainerRef {
            database: Selector::Name(database),
            container: Selector::Name(container),
        },
        target: FeedTarget::default(),
        mode,
        start,
        newer_than: None,
        n_items_max: Some(CHANGES_PER_PAGE),
        filter,
        wait_ms: 0,
        from_history: FromHistory::Yes,
        facts_only: false,
        committed_only,
        lasting_tag: true,
    })
}

fn parse_start(text: &str) -> Result<FeedStart> {
    match text {
        "beginning" => Ok(FeedStart::Beginning),
        "now" => Ok(FeedStart::Now),
        _ if text.starts_with("f1.") => Ok(FeedStart::After(text.to_owned())),
        _ => text.parse().map(FeedStart::Time).map_err(|_| {
            Error::bad_request(
                "A feed starts from 'beginning', 'now', seconds since 1970, or a token that a feed gave.",
            )
        }),
    }
}

fn parse_mode(text: &str) -> Result<FeedMode> {
    match text {
        "latest" => Ok(FeedMode::LatestVersions),
        "all" => Ok(FeedMode::AllVersions),
        _ => Err(Error::bad_request("The mode of a feed is 'latest' or 'all'.")),
    }
}

pub(super) fn stream(
    handler: Arc<dyn Handler>,
    read: ChangeFeedRead,
    stopping: CancellationToken,
    in_request: InRequest,
    place: OwnedSemaphorePermit,
) -> EventStream {
    let source = Source {
        handler,
        read,
        stopping,
        ended: false,
    };
    EventStream::new(
        Some((Bytes::from_static(b": listening\n\n"), source)),
        in_request,
        place,
    )
}

struct Source {
    handler: Arc<dyn Handler>,
    read: ChangeFeedRead,
    stopping: CancellationToken,
    ended: bool,
}

impl EventSource for Source {
    async fn next(mut self) -> Option<(Bytes, Source)> {
        if self.ended {
            return None;
        }
        let stopping = self.stopping.clone();
        let text = tokio::select! {
            // Safe to drop: a page that was not returned is read again from its token.
            text = self.page() => text,
            () = stopping.cancelled() => return None,
        };
        Some((text, self))
    }
}

impl Source {
    /// The events of the next page, or where the listener stands if there is none in time.
    async fn page(&mut self) -> Bytes {
        loop {
            let request = Request {
                principal: Principal::Account { read_only: true },
                options: Options::default(),
                operation: Operation::ChangeFeed(self.read.clone()),
            };
            let outcome = self.handler.execute(request).await.map(|reply| reply.outcome);
            // The first read tells at once where the listener stands; the others wait.
            self.read.wait_ms = WAIT_MS;
            match outcome {
                Ok(Outcome::Changes(page)) => {
                    self.read.start = FeedStart::After(page.etag.clone());
                    return shown(&page);
                }
                Ok(Outcome::NotModified { etag }) => {
                    self.read.start = FeedStart::After(etag.clone());
                    return format!("id: {}\n\n", etag.trim_matches('"')).into();
                }
                Ok(_) => return self.end(&Error::new(Status::INTERNAL, "The feed answered something else.")),
                Err(failure) => match failure.error.status() {
                    Status::PARTITION_GONE | Status::THROTTLED | Status::UNAVAILABLE => tokio::time::sleep(PAUSE).await,
                    _ => return self.end(&failure.error),
                },
            }
        }
    }

    fn end(&mut self, error: &Error) -> Bytes {
        self.ended = true;
        let data = json!({"code": error.status().name(), "message": error.message()});
        format!("event: error\ndata: {data}\n\n").into()
    }
}

/// One event per change. Item texts have no line breaks: they are stored without blanks.
fn shown(page: &Changes) -> Bytes {
    let mut out = BytesMut::new();
    for (index, change) in page.changes.iter().enumerate() {
        if index + 1 == page.changes.len() {
            out.put_slice(b"id: ");
            out.put_slice(page.etag.trim_matches('"').as_bytes());
            out.put_u8(b'\n');
        }
        out.put_slice(b"data: ");
        out.put_slice(&envelope(change));
        out.put_slice(b"\n\n");
    }
    if page.changes.is_empty() {
        out.put_slice(b"id: ");
        out.put_slice(page.etag.trim_matches('"').as_bytes());
        out.put_slice(b"\n\n");
    }
    out.freeze()
}
