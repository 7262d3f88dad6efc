//! Waiting for a change: on the logs themselves, so that a reader learns of a write as soon as it is visible, and nothing is
//! asked again and again meanwhile. A waiting reader holds no partition, so it is in nobody's way when one ends.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use orrery_model::{Error, Result, Status};
use tokio::sync::SemaphorePermit;

use crate::node::Node;

/// Completes when something has happened.
pub type News = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A partition whose news is waited for.
pub struct Watched {
    /// Completes when there is more to read than was read.
    pub news: News,
    /// Completes when the partition ends: split, merged, or deleted.
    pub ended: News,
}

/// Makes room for one more reader that may wait.
pub fn admit(node: &Node) -> Result<SemaphorePermit<'_>> {
    node.feed_waiters.try_acquire().map_err(|_| {
        Error::new(
            Status::THROTTLED,
            "Too many readers are waiting for changes; read without waiting.",
        )
        .with_retry_after_ms(1_000)
    })
}

/// Returns when any of the logs has moved on or ended, or at the deadline.
pub async fn for_news(watched: Vec<Watched>, deadline: tokio::time::Instant) {
    let both = |watched: Watched| [watched.ended, watched.news];
    let mut news: Vec<News> = watched.into_iter().flat_map(both).collect();
    let any = poll_fn(|context| {
        let ready = news.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    });
    // Running out of time is no error: the reader is told that there is nothing.
    let _ = tokio::time::timeout_at(deadline, any).await;
}
