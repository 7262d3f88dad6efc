//! Feed tokens: where a reader stands in a range. A token is the entity tag of a change feed answer, quotes included, and
//! is kept as the service wrote it.
//!
//! Invariant: nothing here invents a position. Tokens are compared only to keep a saved one from going back, and only
//! where both are numbers, as every known service writes them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A raw feed token, such as `"48213"` with its quotes.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeedToken(String);

impl FeedToken {
    pub fn new(text: impl Into<String>) -> FeedToken {
        FeedToken(text.into())
    }

    /// The token of a position, as the service would write it.
    pub fn at(lsn: u64) -> FeedToken {
        FeedToken(format!("\"{lsn}\""))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The position, where the token is a number between optional quotes.
    pub fn lsn(&self) -> Option<u64> {
        self.0.trim_matches('"').parse().ok()
    }

    /// The later of two tokens; the other one where they cannot be compared, because it is the newer saying.
    pub fn later(&self, newer: FeedToken) -> FeedToken {
        match (self.lsn(), newer.lsn()) {
            (Some(saved), Some(said)) if said < saved => self.clone(),
            _ => newer,
        }
    }
}

/// Which history an LSN is of: where a region takes over by force, LSNs go on at the next multiple of 2^32.
pub fn epoch(lsn: u64) -> u64 {
    lsn >> 32
}

impl fmt::Debug for FeedToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for FeedToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_number_with_or_without_quotes() {
        assert_eq!(FeedToken::new("\"48213\"").lsn(), Some(48213));
        assert_eq!(FeedToken::new("48213").lsn(), Some(48213));
        assert_eq!(FeedToken::new("eyJWIjox").lsn(), None);
        assert_eq!(FeedToken::at(7).as_str(), "\"7\"");
    }

    #[test]
    fn a_saved_token_never_goes_back() {
        let saved = FeedToken::at(10);
        assert_eq!(saved.later(FeedToken::at(9)), saved);
        assert_eq!(saved.later(FeedToken::at(11)), FeedToken::at(11));
        assert_eq!(saved.later(FeedToken::new("opaque")), FeedToken::new("opaque"));
    }
}
