//! Leases of other processors found where ours would be, and how their positions are carried over.
//!
//! Java's EPK processor uses the same ids and another document: `feedRange` in lower case and a continuation that is
//! base64 of a whole state. Sharing a unit with it would corrupt both, so a host that sees one refuses to start. Importing
//! keeps the position, because the innermost token is the same raw feed token everywhere.

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::{FeedMode, Lease};
use crate::range::EpkRange;
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
    /// One cursor per range of the lease.
    pub cursors: Vec<(EpkRange, Option<FeedToken>)>,
}

fn java_state(token: &str) -> Option<Value> {
    let bytes = URL_SAFE
        .decode(token)
        .or_else(|_| URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')))
        .ok()?;
    let state: Value = serde_json::from_slice(&bytes).ok()?;
    (state.get("V").is_some() && state.get("Continuation").is_some()).then_some(state)
}

/// Turns a Java lease into leases of ours at the same position, owned by nobody. `id_of` gives the id of a range's lease.
pub fn import(document: &Value, id_of: impl Fn(&EpkRange) -> String) -> Option<Vec<Lease>> {
    let Java { mode, cursors } = read_java(document)?;
    let lease = |(range, token): (EpkRange, Option<FeedToken>)| Lease {
        continuation: token,
        ..Lease::for_range(id_of(&range), range, mode)
    };
    Some(cursors.into_iter().map(lease).collect())
}

/// Legacy Java leases carry the raw token; EPK ones the state.
fn read_java(document: &Value) -> Option<Java> {
    let token = document.get("ContinuationToken").and_then(Value::as_str);
    let whole = document
        .pointer("/feedRange/Range")
        .and_then(|range| serde_json::from_value::<EpkRange>(range.clone()).ok());
    let Some(state) = token.and_then(java_state) else {
        let token = token.filter(|token| !token.is_empty()).map(FeedToken::new);
        return Some(Java {
            mode: FeedMode::LatestVersion,
            cursors: vec![(whole?, token)],
        });
    };
    let mode = match state.get("Mode").and_then(Value::as_str) {
        Some("FULL_FIDELITY") => FeedMode::AllVersionsAndDeletes,
        _ => FeedMode::LatestVersion,
    };
    let cursor = |entry: &Value| {
        let range = serde_json::from_value(entry.get("range")?.clone()).ok()?;
        let token = entry.get("token").and_then(Value::as_str).map(FeedToken::new);
        Some((range, token))
    };
    let inner = state.pointer("/Continuation/Continuation")?.as_array()?;
    let cursors = inner.iter().map(cursor).collect::<Option<Vec<_>>>()?;
    Some(Java { mode, cursors })
}
