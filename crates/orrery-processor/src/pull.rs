//! Reading a feed at one's own pace: a position that can be kept, split among workers and put together again.
//!
//! A [`Cursor`] is a list of ranges, each with its own position. It survives splits and merges of partitions, because a
//! position is never shared between ranges that could move apart and never collapsed into one number. A [`Puller`] reads
//! from one. Invariant: everything a puller has returned is before its cursor, and nothing else is.

mod cursor;
mod foreign;

use std::sync::Arc;

pub use cursor::{BadCursor, Cursor};

use crate::error::FeedError;
use crate::feed::{Change, FeedRead, FeedSource};
use crate::lease::FeedMode;
use crate::range::EpkRange;
use crate::start::{Position, StartFrom};
use cursor::Part;

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
            n_idle: 0,
        }
    }

    #[must_use]
    pub fn with_max_items(mut self, items: u32) -> Puller {
        self.items_max = Some(items);
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

    /// The next page with changes, or nothing once every range has been read and had none.
    pub async fn next(&mut self) -> Result<Option<PulledPage>, FeedError> {
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
                Err(FeedError::Gone) if n_gone < 10 => {
                    n_gone += 1;
                    self.fit().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The next page of a part, and whether there may be more of it right away.
    async fn read(&mut self, index: usize) -> Result<(PulledPage, bool), FeedError> {
        let part = &self.cursor.parts[index];
        let read = FeedRead {
            items_max: self.items_max,
            ..FeedRead::new(&part.range, &part.position, self.cursor.mode)
        };
        let page = self.source.read(read).await?;
        let range = part.range.clone();
        let before = std::mem::replace(&mut self.cursor.parts[index].position, Position::After(page.token));
        // A page may be empty although there is more to look through; then it got further.
        let goes_on = !page.is_last && before != self.cursor.parts[index].position;
        let pulled = PulledPage {
            range,
            changes: page.changes,
            charge: page.charge,
        };
        Ok((pulled, goes_on))
    }

    /// Cuts ranges at the partitions' bounds, so that each lies within one.
    async fn fit(&mut self) -> Result<(), FeedError> {
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
