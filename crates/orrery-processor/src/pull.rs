//! Reading a feed at one's own pace: a position that can be kept, split among workers and put together again.
//!
//! A [`Cursor`] is a list of ranges, each with its own position. It survives splits and merges of partitions, because a
//! position is never shared between ranges that could move apart and never collapsed into one number. Invariants: the
//! ranges of a cursor do not overlap; sharing it out and joining it again covers the same keys; a position that is joined
//! is the earlier one.

mod foreign;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::error::FeedError;
use crate::feed::{Change, FeedRead, FeedSource};
use crate::lease::FeedMode;
use crate::range::EpkRange;
use crate::start::{Position, StartFrom};
use crate::token::FeedToken;

/// A position within a container's feed, as a value: to keep, to share among workers, to start a unit at.
///
/// ```
/// use orrery_processor::lease::FeedMode;
/// use orrery_processor::pull::{Cursor, Puller};
/// use orrery_processor::range::EpkRange;
/// use orrery_processor::testkit::ScriptedFeed;
/// use orrery_processor::StartFrom;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (orders, mode) = (ScriptedFeed::new(2), FeedMode::LatestVersion);
/// orders.put("ada", "order 1", serde_json::json!(42));
/// let mut puller = Puller::start(orders.clone(), EpkRange::full(), StartFrom::Beginning, mode).await?;
/// while let Some(page) = puller.next().await? {
///     assert_eq!(page.changes.len(), 1);
/// }
/// let kept: String = puller.cursor().to_text();
///
/// orders.put("bob", "order 2", serde_json::json!(43));
/// let mut puller = Puller::resume(orders, Cursor::parse(&kept)?, mode).await?;
/// let page = puller.next().await?.expect("only what is new");
/// assert_eq!(page.changes[0].id(), Some("order 2"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    container_rid: String,
    mode: FeedMode,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    range: EpkRange,
    position: Position,
}

/// Text that is no cursor, or not one of this container and mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCursor {
    #[error("this is no cursor")]
    Malformed,
    #[error("the cursor belongs to another container")]
    OtherContainer,
    #[error("the cursor belongs to the other feed mode")]
    OtherMode,
    #[error("the cursors overlap")]
    Overlap,
    #[error("the token is about one logical key or one partition id, not about ranges of keys")]
    NotRanges,
    #[error("the token does not say where a range that was not read yet begins")]
    NoPosition,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    v: u8,
    rid: String,
    mode: FeedMode,
    parts: Vec<StoredPart>,
}

#[derive(Serialize, Deserialize)]
struct StoredPart {
    range: EpkRange,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<FeedToken>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<String>,
}

impl Cursor {
    /// The position of a unit: one part per lease.
    pub(crate) fn of(
        container_rid: String,
        mode: FeedMode,
        parts: Vec<(EpkRange, Position)>,
    ) -> Result<Cursor, BadCursor> {
        let part = |(range, position)| Part { range, position };
        Cursor {
            container_rid,
            mode,
            parts: parts.into_iter().map(part).collect(),
        }
        .checked()
    }

    fn new(container_rid: String, mode: FeedMode, range: EpkRange, start: StartFrom) -> Cursor {
        let position = Position::From(start);
        Cursor {
            container_rid,
            mode,
            parts: vec![Part { range, position }],
        }
    }

    /// The ranges and where each stands.
    pub fn ranges(&self) -> impl Iterator<Item = (&EpkRange, &Position)> {
        self.parts.iter().map(|part| (&part.range, &part.position))
    }

    /// Where a reader of one range begins, so that it misses nothing that a reader from this cursor would see. The earliest
    /// of several positions, where it spans them; nothing if the cursor does not cover the range.
    pub fn position_of(&self, range: &EpkRange) -> Option<Position> {
        let overlapping = self.parts.iter().filter(|part| part.range.overlaps(range));
        if !range.without(overlapping.clone().map(|part| &part.range)).is_empty() {
            return None;
        }
        let mut positions = overlapping.map(|part| part.position.clone());
        let first = positions.next()?;
        positions.try_fold(first, earlier)
    }

    pub fn container_rid(&self) -> &str {
        &self.container_rid
    }

    pub fn mode(&self) -> FeedMode {
        self.mode
    }

    /// Text to keep it as.
    pub fn to_text(&self) -> String {
        let part = |part: &Part| StoredPart {
            range: part.range.clone(),
            token: match &part.position {
                Position::After(token) => Some(token.clone()),
                Position::From(_) => None,
            },
            start: match &part.position {
                Position::After(_) => None,
                Position::From(start) => Some(start.to_text()),
            },
        };
        let stored = Stored {
            v: 1,
            rid: self.container_rid.clone(),
            mode: self.mode,
            parts: self.parts.iter().map(part).collect(),
        };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&stored).expect("text becomes JSON"))
    }

    pub fn parse(text: &str) -> Result<Cursor, BadCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).map_err(|_| BadCursor::Malformed)?;
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|_| BadCursor::Malformed)?;
        let part = |part: StoredPart| {
            let start = part.start.as_deref().and_then(StartFrom::parse).map(Position::From);
            let position = part.token.map(Position::After).or(start).ok_or(BadCursor::Malformed)?;
            Ok(Part {
                range: part.range,
                position,
            })
        };
        let parts: Vec<Part> = stored.parts.into_iter().map(part).collect::<Result<_, BadCursor>>()?;
        if stored.v != 1 || parts.is_empty() {
            return Err(BadCursor::Malformed);
        }
        Cursor {
            container_rid: stored.rid,
            mode: stored.mode,
            parts,
        }
        .checked()
    }

    fn checked(mut self) -> Result<Cursor, BadCursor> {
        self.parts.sort_by(|one, other| one.range.cmp(&other.range));
        let overlaps = self.parts.windows(2).any(|pair| pair[0].range.overlaps(&pair[1].range));
        if overlaps { Err(BadCursor::Overlap) } else { Ok(self) }
    }

    /// Shares the cursor among `n` workers. Ranges are cut where there are fewer than workers; both halves keep the place.
    pub fn split(&self, n: usize) -> Vec<Cursor> {
        let n = n.max(1);
        let mut parts = self.parts.clone();
        while parts.len() < n {
            let widest = (0..parts.len()).max_by_key(|index| parts[*index].range.width());
            let Some(widest) = widest else { break };
            let halves = parts[widest].range.split_evenly(2);
            if halves.len() < 2 {
                break;
            }
            let position = parts[widest].position.clone();
            let halves = halves.into_iter().map(|range| Part {
                range,
                position: position.clone(),
            });
            parts.splice(widest..=widest, halves);
        }
        let mut cursors: Vec<Vec<Part>> = vec![Vec::new(); n.min(parts.len())];
        let n_cursors = cursors.len();
        for (index, part) in parts.into_iter().enumerate() {
            cursors[index % n_cursors].push(part);
        }
        let cursor = |parts| Cursor { parts, ..self.clone() };
        cursors.into_iter().map(cursor).collect()
    }

    /// Puts workers' cursors together again. Neighbours at the same place become one range; others stay apart.
    pub fn join(cursors: impl IntoIterator<Item = Cursor>) -> Result<Cursor, BadCursor> {
        let mut cursors = cursors.into_iter();
        let mut whole = cursors.next().ok_or(BadCursor::Malformed)?;
        for cursor in cursors {
            if cursor.container_rid != whole.container_rid {
                return Err(BadCursor::OtherContainer);
            }
            if cursor.mode != whole.mode {
                return Err(BadCursor::OtherMode);
            }
            whole.parts.extend(cursor.parts);
        }
        let mut whole = whole.checked()?;
        let mut joined: Vec<Part> = Vec::new();
        for part in whole.parts {
            match joined.last_mut() {
                Some(last) if last.position == part.position && last.range.end() == part.range.start() => {
                    last.range = last.range.joined(&part.range);
                }
                _ => joined.push(part),
            }
        }
        whole.parts = joined;
        Ok(whole)
    }
}

/// The earlier of two positions, where that can be told.
fn earlier(one: Position, other: Position) -> Option<Position> {
    match (&one, &other) {
        _ if one == other => Some(one),
        (Position::From(StartFrom::Beginning), _) => Some(one),
        (_, Position::From(StartFrom::Beginning)) => Some(other),
        (Position::After(left), Position::After(right)) => {
            let is_left = left.lsn()? <= right.lsn()?;
            Some(if is_left { one } else { other })
        }
        (Position::From(StartFrom::Time(left)), Position::From(StartFrom::Time(right))) => {
            Some(if left <= right { one } else { other })
        }
        _ => None,
    }
}

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
