//! Continuation tokens of other SDKs as cursors of ours.
//!
//! Every SDK wraps the same thing in its own way: a list of EPK ranges, each with the raw feed token of its last answer. So a
//! reader can change its language and go on at the very next change. Invariant: nothing is guessed; a token that does not
//! say a range's position, or is about something else than ranges, is refused.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::{BadCursor, Cursor, Part};
use crate::lease::FeedMode;
use crate::range::EpkRange;
use crate::start::{Position, StartFrom};
use crate::token::FeedToken;

impl Cursor {
    /// Reads a continuation token of the .NET, Java, JavaScript, Python, Go or Rust SDK. Some of them do not say which feed
    /// they are about; `mode` does, and must not contradict those that do.
    pub fn import(text: &str, mode: FeedMode) -> Result<Cursor, BadCursor> {
        let token = unwrap(text.trim()).ok_or(BadCursor::Malformed)?;
        if said_mode(&token).is_some_and(|said| said != mode) {
            return Err(BadCursor::OtherMode);
        }
        let rid = ["Rid", "rid", "containerRid", "resourceId"]
            .into_iter()
            .find_map(|name| token.get(name)?.as_str());
        let start = start(&token);
        let parts = entries(&token)?.iter().map(|entry| part(entry, start));
        Cursor {
            container_rid: rid.ok_or(BadCursor::Malformed)?.to_owned(),
            mode,
            parts: parts.collect::<Result<_, _>>()?,
            key: None,
        }
        .checked()
    }
}

/// The JSON within: as it is, in base64 of either alphabet, or behind the Rust SDK's mark.
fn unwrap(text: &str) -> Option<Value> {
    if text.starts_with('{') {
        return serde_json::from_str(text).ok();
    }
    let text = text.strip_prefix("c1.").unwrap_or(text).trim_end_matches('=');
    let bytes = URL_SAFE_NO_PAD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
    serde_json::from_slice(&bytes.ok()?).ok()
}

/// Java, Python and Rust say it; Rust by a mark that is there or not.
fn said_mode(token: &Value) -> Option<FeedMode> {
    if token.get("op").is_some() {
        let all = token.get("cfm").and_then(Value::as_bool).unwrap_or(false);
        return Some(if all {
            FeedMode::AllVersionsAndDeletes
        } else {
            FeedMode::LatestVersion
        });
    }
    match token.get("Mode").or_else(|| token.get("mode"))?.as_str()? {
        "FULL_FIDELITY" | "AllVersionsAndDeletes" => Some(FeedMode::AllVersionsAndDeletes),
        "INCREMENTAL" | "LatestVersion" => Some(FeedMode::LatestVersion),
        _ => None,
    }
}

/// Where ranges begin that were not read yet.
fn start(token: &Value) -> Option<StartFrom> {
    let said = ["/StartFrom", "/startFrom", "/root/start_from"]
        .into_iter()
        .find_map(|path| token.pointer(path))?;
    let kind = said.get("Type").or_else(|| said.get("kind"))?.as_str()?;
    match kind.to_ascii_lowercase().replace('_', "").as_str() {
        "beginning" => Some(StartFrom::Beginning),
        "now" => Some(StartFrom::Now),
        "pointintime" => match said.get("PointInTimeMs").and_then(Value::as_u64) {
            Some(ms) => Some(StartFrom::Time(SystemTime::UNIX_EPOCH + Duration::from_millis(ms))),
            None => StartFrom::parse(said.get("value")?.as_str()?),
        },
        _ => None,
    }
}

/// The list of ranges, however deep it lies.
fn entries(token: &Value) -> Result<&Vec<Value>, BadCursor> {
    let is_key = ["/PK", "/partitionKey", "/Continuation/PK", "/continuation/PK"]
        .into_iter()
        .any(|path| token.pointer(path).is_some());
    let is_one_request = token.pointer("/root/kind").and_then(Value::as_str) == Some("request");
    if is_key || is_one_request {
        return Err(BadCursor::NotRanges);
    }
    [
        "/Continuation/Continuation",
        "/continuation/continuation",
        "/root/active_tokens",
        "/Continuation",
        "/continuation",
    ]
    .into_iter()
    .find_map(|path| token.pointer(path)?.as_array())
    .filter(|entries| !entries.is_empty())
    .ok_or(BadCursor::Malformed)
}

fn part(entry: &Value, start: Option<StartFrom>) -> Result<Part, BadCursor> {
    let range = range(entry)?;
    let state = entry.get("State");
    let token = ["token", "continuationToken", "server_continuation"]
        .into_iter()
        .find_map(|name| entry.get(name)?.as_str())
        .or_else(|| state_token(state?))
        .filter(|token| !token.is_empty());
    let position = match token {
        // The time that a reader began at goes on beside its tokens.
        Some(token) => Position::of(Some(FeedToken::new(token)), start),
        None => state.and_then(state_start).or(start).map(Position::From),
    };
    let position = position.ok_or(BadCursor::NoPosition)?;
    Ok(Part { range, position })
}

fn range(entry: &Value) -> Result<EpkRange, BadCursor> {
    // JavaScript reads a part of a partition by these, and the partition's bounds stand beside them.
    let bounds = match (text(entry, "epkMinHeader"), text(entry, "epkMaxHeader")) {
        (Some(min), Some(max)) => Some((min, max)),
        _ => None,
    };
    let pair = |of: &Value, min, max| Some((text(of, min)?, text(of, max)?));
    let bounds = bounds
        .or_else(|| pair(entry.get("range")?, "min", "max"))
        .or_else(|| pair(entry, "minInclusive", "maxExclusive"))
        .or_else(|| pair(entry, "min_epk", "max_epk"))
        .or_else(|| pair(entry.pointer("/FeedRange/value")?, "min", "max"));
    let (min, max) = bounds.ok_or(match entry.pointer("/FeedRange/type") {
        Some(_) => BadCursor::NotRanges,
        None => BadCursor::Malformed,
    })?;
    EpkRange::new(min, max).map_err(|_| BadCursor::Malformed)
}

fn text(of: &Value, name: &str) -> Option<String> {
    Some(of.get(name)?.as_str()?.to_owned())
}

/// .NET says for every range what its position is.
fn state_token(state: &Value) -> Option<&str> {
    let is_token = state.get("type")?.as_str()? == "continuation";
    state.get("value")?.as_str().filter(|_| is_token)
}

fn state_start(state: &Value) -> Option<StartFrom> {
    match state.get("type")?.as_str()? {
        "time" => StartFrom::parse(state.get("value")?.as_str()?),
        word => StartFrom::parse(word),
    }
}

#[cfg(test)]
mod tests;
