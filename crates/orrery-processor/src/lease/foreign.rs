//! Leases of other processors found where ours would be, and how their positions are carried over.
//!
//! Java's EPK processor uses the same ids and another document: `feedRange` in lower case and a continuation that is
//! base64 of a whole state. Sharing a unit with it would corrupt both, so a host that sees one refuses to start. Importing
//! keeps the position, because the innermost token is the same raw feed token everywhere.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::{FeedMode, Lease};
use crate::range::EpkRange;
use crate::start::{Position, StartFrom};
use crate::token::FeedToken;

/// A lease document that is not ours to touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// `handleLatestVersionChanges` or `handleAllVersionsAndDeletesChanges` of the Java SDK.
    JavaEpk,
}

/// Whether a document under our prefix was written by another kind of processor.
pub fn detect(document: &Value) -> Option<Foreign> {
    let token = document.get("ContinuationToken").and_then(Value::as_str);
    let is_java = document.get("feedRange").is_some() || token.and_then(java_state).is_some();
    is_java.then_some(Foreign::JavaEpk)
}

/// What a Java lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Java {
    pub mode: FeedMode,
    /// One cursor per range of the lease. Where nothing was read and no start is said, its hosts begin as they are told to.
    pub cursors: Vec<(EpkRange, Option<Position>)>,
}

fn java_state(token: &str) -> Option<Value> {
    let bytes = URL_SAFE
        .decode(token)
        .or_else(|_| URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')))
        .ok()?;
    let state: Value = serde_json::from_slice(&bytes).ok()?;
    let is_state = state.get("Continuation").is_some() || state.get("StartFrom").is_some();
    (state.get("V").is_some() && is_state).then_some(state)
}

/// Turns a Java lease into leases of ours at the same position, owned by nobody. `id_of` gives the id of a range's lease.
pub fn import(document: &Value, id_of: impl Fn(&EpkRange) -> String) -> Option<Vec<Lease>> {
    let Java { mode, cursors } = read_java(document)?;
    let lease = |(range, position): (EpkRange, Option<Position>)| {
        let lease = Lease::for_range(id_of(&range), range, mode);
        match position {
            Some(position) => lease.at(&position),
            None => lease,
        }
    };
    Some(cursors.into_iter().map(lease).collect())
}

/// A Java lease as one of ours would look, to be looked at only: its owner, its age and where it stands. One per range, where
/// it has several.
pub(crate) fn look_at(document: &Value) -> Option<Vec<Lease>> {
    let text = |field: &str| document.get(field).and_then(Value::as_str).map(str::to_owned);
    let id = text("id")?;
    let mut leases = import(document, |_| id.clone())?;
    for lease in &mut leases {
        lease.owner = text("Owner");
        lease.timestamp = text("timestamp");
        lease.etag = text("_etag");
        lease.written_at_s = document.get("_ts").and_then(Value::as_u64);
    }
    Some(leases)
}

/// Legacy Java leases carry the raw token; EPK ones the state.
fn read_java(document: &Value) -> Option<Java> {
    let token = document.get("ContinuationToken").and_then(Value::as_str);
    let token = token.filter(|token| !token.is_empty());
    let whole = document
        .pointer("/feedRange/Range")
        .and_then(|range| serde_json::from_value::<EpkRange>(range.clone()).ok());
    let Some(state) = token.and_then(java_state) else {
        let position = token.map(|token| Position::After(FeedToken::new(token)));
        return Some(Java {
            mode: FeedMode::LatestVersion,
            cursors: vec![(whole?, position)],
        });
    };
    let mode = match state.get("Mode").and_then(Value::as_str) {
        Some("FULL_FIDELITY") => FeedMode::AllVersionsAndDeletes,
        _ => FeedMode::LatestVersion,
    };
    let start = state.get("StartFrom").and_then(java_start);
    let cursor = |entry: &Value| {
        let range = serde_json::from_value(entry.get("range")?.clone()).ok()?;
        let token = entry.get("token").and_then(Value::as_str);
        let token = token.filter(|token| !token.is_empty()).map(FeedToken::new);
        let position = match token {
            Some(token) => Position::of(Some(token), start.as_ref().and_then(Position::start)),
            None => start.clone(),
        };
        Some((range, position))
    };
    let inner = state.pointer("/Continuation/Continuation").and_then(Value::as_array);
    let cursors = match inner {
        Some(inner) => inner.iter().map(cursor).collect::<Option<Vec<_>>>()?,
        // Nothing has been read yet.
        None => vec![(whole?, start)],
    };
    Some(Java { mode, cursors })
}

/// Where ranges begin that were not read yet.
fn java_start(said: &Value) -> Option<Position> {
    match said.get("Type")?.as_str()? {
        "BEGINNING" => Some(Position::From(StartFrom::Beginning)),
        "NOW" => Some(Position::From(StartFrom::Now)),
        "POINT_IN_TIME" => {
            let since_1970 = Duration::from_millis(said.get("PointInTimeMs")?.as_u64()?);
            Some(Position::From(StartFrom::Time(SystemTime::UNIX_EPOCH + since_1970)))
        }
        "LEASE" => Some(Position::After(FeedToken::new(said.get("Etag")?.as_str()?))),
        _ => None,
    }
}
