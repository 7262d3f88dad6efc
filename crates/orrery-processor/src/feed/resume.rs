//! Resume tokens of the official SDK, written and read by hand.
//!
//! The SDK resumes a range only from a token of its own, whose layout is private: `c1.` and base64url of a JSON text. Ours
//! holds one interval with the raw feed token of a lease, which the SDK then sends as it is. Which intervals its next token
//! lists shows whether the range was split behind our back. A test compares what we write with what the SDK writes, so that
//! a change of layout is noticed. Invariant: the intervals we write cover the range that is read, or the SDK would start
//! the rest from its beginning.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::lease::FeedMode;
use crate::range::EpkRange;
use crate::start::StartFrom;
use crate::token::FeedToken;

const PREFIX: &str = "c1.";

#[derive(Debug, Serialize, Deserialize)]
struct Layout {
    op: String,
    rid: String,
    root: Root,
    #[serde(rename = "cfm", default, skip_serializing_if = "std::ops::Not::not")]
    all_versions: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Root {
    kind: String,
    #[serde(default)]
    active_tokens: Vec<Interval>,
    start_from: serde_json::Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct Interval {
    min_epk: String,
    max_epk: String,
    server_continuation: Option<String>,
}

/// A token of the SDK that goes on reading `range` after `token`, leaving out what is not newer than a time, if one is given.
pub fn write(
    container_rid: &str,
    range: &EpkRange,
    token: &FeedToken,
    newer_than: Option<SystemTime>,
    mode: FeedMode,
) -> String {
    let start_from = match newer_than {
        None => serde_json::json!({"kind": "beginning"}),
        Some(time) => serde_json::json!({"kind": "point_in_time", "value": StartFrom::Time(time).to_text()}),
    };
    let layout = Layout {
        op: "ChangeFeed".to_owned(),
        rid: container_rid.to_owned(),
        root: Root {
            kind: "unordered_merge".to_owned(),
            active_tokens: vec![Interval {
                min_epk: range.start().to_owned(),
                max_epk: range.end().to_owned(),
                server_continuation: Some(token.as_str().to_owned()),
            }],
            start_from,
        },
        all_versions: mode == FeedMode::AllVersionsAndDeletes,
    };
    let text = serde_json::to_vec(&layout).expect("text becomes JSON");
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
}

/// The intervals a token of the SDK lists, each with its raw feed token if it has been read.
pub fn read(token: &str) -> Option<Vec<(EpkRange, Option<FeedToken>)>> {
    let text = URL_SAFE_NO_PAD.decode(token.strip_prefix(PREFIX)?).ok()?;
    let layout: Layout = serde_json::from_slice(&text).ok()?;
    let interval = |interval: Interval| {
        let range = EpkRange::new(interval.min_epk, interval.max_epk).ok()?;
        Some((range, interval.server_continuation.map(FeedToken::new)))
    };
    layout.root.active_tokens.into_iter().map(interval).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let (range, token) = ("-1FFF".parse().unwrap(), FeedToken::at(101));
        for mode in [FeedMode::LatestVersion, FeedMode::AllVersionsAndDeletes] {
            let text = write("hK0QAJf7nW4=", &range, &token, None, mode);
            assert_eq!(read(&text), Some(vec![(range.clone(), Some(token.clone()))]));
        }
    }

    #[test]
    fn a_layout_that_is_not_known_is_refused() {
        for text in ["", "c2.e30", "c1.???", "c1.e30", "\"101\""] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
