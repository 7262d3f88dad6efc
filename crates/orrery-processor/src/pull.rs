//! Reading a feed at one's own pace: a position that can be kept, split among workers and put together again.
//!
//! A [`Cursor`] is a list of ranges, each with its own position. It survives splits and merges of partitions, because a
//! position is never shared between ranges that could move apart and never collapsed into one number. A [`Puller`] reads
//! from one. Invariant: everything a puller has returned is before its cursor, and nothing else is.

mod cursor;
mod foreign;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::Value;

pub use cursor::{BadCursor, Cursor};

use crate::error::FeedError;
use crate::feed::{Change, FeedPage, FeedRead, FeedSource};
use crate::lease::FeedMode;
use crate::range::EpkRange;
use crate::start::StartFrom;
use cursor::Part;

/// How often in a row a range may be found to be gone.
const GONE_MAX: u32 = 10;

/// A page of one of a cursor's ranges.
#[derive(Clone, Debug)]
pub struct PulledPage {
    pub range: EpkRange,
    pub changes: Vec<Change>,
    pub charge: f64,
}

/// Reads a feed from a cursor, range after range in turn.
pub struct Puller {
    source: Arc<dyn FeedSource>,
    cursor: Cursor,
    next: usize,
    items_max: Option<u32>,
    /// How long the server may wait for a change, if there is none.
    wait: Option<Duration>,
    /// Ranges in a row that had nothing new.
    n_idle: usize,
}

impl std::fmt::Debug for Puller {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Puller")
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl Puller {
    /// Reads `range` from `start`. "Now" is this moment for every partition, also for those whose turn comes later.
    pub async fn start(
        source: impl FeedSource,
        range: EpkRange,
        start: StartFrom,
        mode: FeedMode,
    ) -> Result<Puller, FeedError> {
        let rid = source.describe().await?.identity.container_rid;
        let mut puller = Puller::over(Arc::new(source), Cursor::new(rid, mode, range, start));
        puller.fit().await?;
        if start == StartFrom::Now {
            puller.prime().await?;
        }
        Ok(puller)
    }

    /// Reads the changes of one partition key, a value per path, from `start`.
    pub async fn start_key(
        source: impl FeedSource,
        key: Vec<Value>,
        start: StartFrom,
        mode: FeedMode,
    ) -> Result<Puller, FeedError> {
        let rid = source.describe().await?.identity.container_rid;
        let mut cursor = Cursor::new(rid, mode, EpkRange::full(), start);
        cursor.key = Some(key);
        let mut puller = Puller::over(Arc::new(source), cursor);
        if start == StartFrom::Now {
            puller.prime().await?;
        }
        Ok(puller)
    }

    /// Goes on where a cursor stands.
    pub async fn resume(source: impl FeedSource, cursor: Cursor, mode: FeedMode) -> Result<Puller, PullError> {
        if cursor.container_rid != source.describe().await?.identity.container_rid {
            return Err(BadCursor::OtherContainer.into());
        }
        if cursor.mode != mode {
            return Err(BadCursor::OtherMode.into());
        }
        let mut puller = Puller::over(Arc::new(source), cursor);
        puller.fit().await?;
        Ok(puller)
    }

    fn over(source: Arc<dyn FeedSource>, cursor: Cursor) -> Puller {
        Puller {
            source,
            cursor,
            next: 0,
            items_max: None,
            wait: None,
            n_idle: 0,
        }
    }

    #[must_use]
    pub fn with_max_items(mut self, items: u32) -> Puller {
        self.items_max = Some(items);
        self
    }

    /// Lets the server hold an empty answer back for `wait`, so that [`Puller::next`] returns as soon as something changes.
    /// Servers that cannot do that answer at once.
    #[must_use]
    pub fn with_long_poll(mut self, wait: Duration) -> Puller {
        self.wait = Some(wait);
        self
    }

    /// Where to go on: everything that was returned is before it.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Whether every range had nothing new when it was last read.
    pub fn is_caught_up(&self) -> bool {
        self.n_idle >= self.cursor.parts.len()
    }

    /// The next page with changes, or nothing once every range has been read and had none, and, with a long poll, had none
    /// for that long.
    pub async fn next(&mut self) -> Result<Option<PulledPage>, FeedError> {
        let mut n_gone = 0;
        loop {
            let found = self.sweep().await?;
            let Some(wait) = self.wait.filter(|_| found.is_none()) else {
                return Ok(found);
            };
            match self.wait_for_change(wait).await {
                Err(FeedError::Gone) if n_gone < GONE_MAX => {
                    n_gone += 1;
                    self.fit().await?;
                }
                found => return found,
            }
        }
    }

    /// Asks for every range at once, and takes the first answer with changes. What the others would have answered comes
    /// again, because only what was taken moves the cursor.
    async fn wait_for_change(&mut self, wait: Duration) -> Result<Option<PulledPage>, FeedError> {
        let cursor = self.cursor.clone();
        let reads = cursor.parts.iter().enumerate().map(|(index, part)| {
            let read = FeedRead {
                wait: Some(wait),
                ..self.read_of(&cursor, part)
            };
            let source = Arc::clone(&self.source);
            async move { (index, source.read(read).await) }
        });
        let mut reads: FuturesUnordered<_> = reads.collect();
        while let Some((index, page)) = reads.next().await {
            let (page, _) = self.take(index, page?);
            if !page.changes.is_empty() {
                self.next = index + 1;
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    async fn sweep(&mut self) -> Result<Option<PulledPage>, FeedError> {
        self.n_idle = 0;
        let mut n_gone = 0;
        while !self.is_caught_up() {
            let index = self.next % self.cursor.parts.len();
            match self.read(index).await {
                Ok((page, goes_on)) => {
                    n_gone = 0;
                    if page.changes.is_empty() && goes_on {
                        continue;
                    }
                    self.next = index + 1;
                    if !page.changes.is_empty() {
                        return Ok(Some(page));
                    }
                    self.n_idle += 1;
                }
                Err(FeedError::Gone) if n_gone < GONE_MAX => {
                    n_gone += 1;
                    self.fit().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn read_of<'a>(&self, cursor: &'a Cursor, part: &'a Part) -> FeedRead<'a> {
        FeedRead {
            items_max: self.items_max,
            key: cursor.key.as_deref(),
            ..FeedRead::new(&part.range, &part.position, cursor.mode)
        }
    }

    /// The next page of a part, and whether there may be more of it right away.
    async fn read(&mut self, index: usize) -> Result<(PulledPage, bool), FeedError> {
        let read = self.read_of(&self.cursor, &self.cursor.parts[index]);
        let page = self.source.read(read).await?;
        Ok(self.take(index, page))
    }

    /// Moves the cursor behind a page.
    fn take(&mut self, index: usize, page: FeedPage) -> (PulledPage, bool) {
        let part = &mut self.cursor.parts[index];
        let reached = part.position.moved_to(page.token);
        let before = std::mem::replace(&mut part.position, reached);
        // A page may be empty although there is more to look through; then it got further.
        let goes_on = !page.is_last && before != part.position;
        let pulled = PulledPage {
            range: part.range.clone(),
            changes: page.changes,
            charge: page.charge,
        };
        (pulled, goes_on)
    }

    /// Cuts ranges at the partitions' bounds, so that each lies within one.
    async fn fit(&mut self) -> Result<(), FeedError> {
        if self.cursor.key.is_some() {
            return Ok(());
        }
        let partitions = self.source.partitions().await?;
        let mut parts = Vec::new();
        for part in &self.cursor.parts {
            let pieces = partitions
                .iter()
                .filter_map(|partition| partition.range.intersection(&part.range));
            parts.extend(pieces.map(|range| Part {
                range,
                position: part.position.clone(),
            }));
        }
        parts.sort_by(|one, other| one.range.cmp(&other.range));
        self.cursor.parts = parts;
        Ok(())
    }

    /// Turns "now" into positions.
    async fn prime(&mut self) -> Result<(), FeedError> {
        for index in 0..self.cursor.parts.len() {
            self.read(index).await?;
        }
        Ok(())
    }
}

/// A cursor that cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error(transparent)]
    Cursor(#[from] BadCursor),
    #[error(transparent)]
    Feed(#[from] FeedError),
}

#[cfg(test)]
mod tests;
