//! A position within a container's feed: ranges, each with a place of its own.
//!
//! Invariants: the ranges do not overlap; sharing a cursor out and joining it again covers the same keys; a position that
//! stands for several is the earliest.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    pub(super) container_rid: String,
    pub(super) mode: FeedMode,
    pub(super) parts: Vec<Part>,
    /// Only the changes of one partition key; then there is one part.
    pub(super) key: Option<Vec<Value>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub range: EpkRange,
    pub position: Position,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Vec<Value>>,
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
            key: None,
        }
        .checked()
    }

    pub(super) fn new(container_rid: String, mode: FeedMode, range: EpkRange, start: StartFrom) -> Cursor {
        let position = Position::From(start);
        Cursor {
            container_rid,
            mode,
            parts: vec![Part { range, position }],
            key: None,
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

    /// The one partition key it is about, if it is about one: a value per path.
    pub fn key(&self) -> Option<&[Value]> {
        self.key.as_deref()
    }

    /// Whether a unit can take it: units read ranges.
    pub(crate) fn check_ranges(&self) -> Result<(), BadCursor> {
        match self.key {
            Some(_) => Err(BadCursor::NotRanges),
            None => Ok(()),
        }
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
            token: part.position.token().cloned(),
            start: part.position.start().map(StartFrom::to_text),
        };
        let stored = Stored {
            v: 1,
            rid: self.container_rid.clone(),
            mode: self.mode,
            parts: self.parts.iter().map(part).collect(),
            key: self.key.clone(),
        };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&stored).expect("text becomes JSON"))
    }

    pub fn parse(text: &str) -> Result<Cursor, BadCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).map_err(|_| BadCursor::Malformed)?;
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|_| BadCursor::Malformed)?;
        let part = |part: StoredPart| {
            let start = part.start.as_deref().and_then(StartFrom::parse);
            let position = Position::of(part.token, start).ok_or(BadCursor::Malformed)?;
            Ok(Part {
                range: part.range,
                position,
            })
        };
        let parts: Vec<Part> = stored.parts.into_iter().map(part).collect::<Result<_, BadCursor>>()?;
        if stored.v != 1 || parts.is_empty() || (stored.key.is_some() && parts.len() > 1) {
            return Err(BadCursor::Malformed);
        }
        Cursor {
            container_rid: stored.rid,
            mode: stored.mode,
            parts,
            key: stored.key,
        }
        .checked()
    }

    pub(super) fn checked(mut self) -> Result<Cursor, BadCursor> {
        self.parts.sort_by(|one, other| one.range.cmp(&other.range));
        let overlaps = self.parts.windows(2).any(|pair| pair[0].range.overlaps(&pair[1].range));
        if overlaps { Err(BadCursor::Overlap) } else { Ok(self) }
    }

    /// Shares the cursor among `n` workers. Ranges are cut where there are fewer than workers; both halves keep the place.
    pub fn split(&self, n: usize) -> Vec<Cursor> {
        // A key has one reader.
        let n = if self.key.is_some() { 1 } else { n.max(1) };
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
            cursor.check_ranges().and(whole.check_ranges())?;
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
        (Position::From(StartFrom::Time(left)), Position::From(StartFrom::Time(right))) => {
            Some(if left <= right { one } else { other })
        }
        _ => {
            let (left, right) = (one.token()?, other.token()?);
            let token = if left.lsn()? <= right.lsn()? { left } else { right };
            // A reader that was told no time is given everything.
            let time = one.time().zip(other.time()).map(|(left, right)| left.min(right));
            Position::of(Some(token.clone()), time.map(StartFrom::Time))
        }
    }
}
