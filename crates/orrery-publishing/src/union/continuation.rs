//! Where a reader of the union stands: one sort key per account, as an opaque text.
//!
//! The text names its version and what it was made for, so that a token of another user, another article or a later version
//! is refused instead of misread. Accounts it does not know join from their beginning; accounts that are gone are forgotten.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::ids;

const VERSION: u32 = 1;
/// Longest token that is looked at: far more than a hundred accounts need.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Positions by account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuation {
    positions: BTreeMap<String, String>,
}

/// A text that is no continuation of this list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the continuation is damaged, of another version, or was made for another list")]
pub struct TokenError;

#[derive(Serialize, Deserialize)]
struct Wire {
    v: u32,
    /// Mark of the list.
    m: String,
    p: BTreeMap<String, String>,
}

impl Continuation {
    pub fn position(&self, account: &str) -> Option<&str> {
        self.positions.get(account).map(String::as_str)
    }

    pub fn set(&mut self, account: &str, position: String) {
        self.positions.insert(account.to_owned(), position);
    }

    /// As given to clients. `kind` and `subject` say which list it belongs to.
    pub fn encode(&self, kind: &str, subject: &str) -> String {
        let wire = Wire {
            v: VERSION,
            m: ids::subject_mark(kind, subject),
            p: self.positions.clone(),
        };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).expect("maps of text are JSON"))
    }

    pub fn decode(text: &str, kind: &str, subject: &str) -> Result<Continuation, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError)?;
        let wire: Wire = serde_json::from_slice(&bytes).map_err(|_| TokenError)?;
        if wire.v != VERSION || wire.m != ids::subject_mark(kind, subject) {
            return Err(TokenError);
        }
        Ok(Continuation { positions: wire.p })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_is_good_for_its_own_list_only() {
        let mut place = Continuation::default();
        place.set("usa", "123.abc".into());
        let token = place.encode("notifications", "ann");
        assert_eq!(Continuation::decode(&token, "notifications", "ann"), Ok(place));
        for (kind, subject) in [("notifications", "bob"), ("reviews", "ann")] {
            assert_eq!(Continuation::decode(&token, kind, subject), Err(TokenError));
        }
        assert_eq!(
            Continuation::decode(&"A".repeat(20_000), "notifications", "ann"),
            Err(TokenError)
        );
    }

    proptest! {
        #[test]
        fn what_strangers_send_is_refused_and_never_panics(text in ".{0,200}") {
            prop_assert_eq!(Continuation::decode(&text, "reviews", "a"), Err(TokenError));
        }
    }
}
