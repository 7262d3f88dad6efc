//! Server-sent events as the body of an answer: one piece of text after the other, asked for as fast as they are read.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use crate::guard::InRequest;

/// Where events come from.
pub(super) trait EventSource: Sized + Send + 'static {
    /// The next text, and the source of what follows; `None` when it is over.
    fn next(self) -> impl Future<Output = Option<(Bytes, Self)>> + Send;
}

type Next = Pin<Box<dyn Future<Output = Option<(Bytes, Then)>> + Send>>;

/// How it goes on after a text.
struct Then(Box<dyn FnOnce() -> Next + Send>);

/// The text of events for as long as somebody listens.
pub struct EventStream {
    next: Next,
    /// The connection is in use as long as somebody listens.
    _in_request: InRequest,
    _place: OwnedSemaphorePermit,
}

impl EventStream {
    /// Begins with a text, if there is one to begin with.
    pub(super) fn new<S: EventSource>(
        first: Option<(Bytes, S)>,
        in_request: InRequest,
        place: OwnedSemaphorePermit,
    ) -> EventStream {
        EventStream {
            next: Box::pin(async move { first.map(then) }),
            _in_request: in_request,
            _place: place,
        }
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.next.as_mut().poll(cx).map(|next| {
            let (text, then) = next?;
            self.next = (then.0)();
            Some(text)
        })
    }
}

fn then<S: EventSource>((text, source): (Bytes, S)) -> (Bytes, Then) {
    let rest = Then(Box::new(|| Box::pin(async { source.next().await.map(then) })));
    (text, rest)
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventStream")
    }
}
