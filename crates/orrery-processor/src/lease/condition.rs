//! What a host says about a lease it holds, for whoever looks at the unit from outside.
//!
//! It travels in the lease's properties with writes that happen anyway, so it costs nothing and is as old as the last
//! renewal at most. Invariant: a lease that is released, taken or reset says nothing.

use serde::{Deserialize, Serialize};

/// Longest error text that is kept in a lease.
const ERROR_CHARS_MAX: usize = 300;

/// Why the position of a lease does not move. Times are those of the host's clock, RFC 3339.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum Condition {
    /// The delegate fails at the batch that comes next.
    Failing {
        attempts: u32,
        since: String,
        error: String,
    },
    /// A call of the delegate has not returned for so long that the lease was renewed meanwhile.
    Running { since: String },
    /// It is held and not read, until it is reset or another process takes it.
    Halted { since: String, reason: String },
}

impl Condition {
    pub(crate) fn failing(attempts: u32, since: &str, error: &str) -> Condition {
        Condition::Failing {
            attempts,
            since: since.to_owned(),
            error: shortened(error),
        }
    }

    pub(crate) fn halted(since: String, reason: &str) -> Condition {
        let reason = shortened(reason);
        Condition::Halted { since, reason }
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("text and numbers become JSON")
    }

    pub(super) fn parse(text: &str) -> Option<Condition> {
        serde_json::from_str(text).ok()
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_long_errors_are_cut() {
        let said = Condition::failing(7, "2026-08-20T09:15:02.123Z", &"ä".repeat(1000));
        assert_eq!(Condition::parse(&said.to_text()), Some(said.clone()));
        assert!(said.to_text().len() < 2 * ERROR_CHARS_MAX + 100);
        assert_eq!(Condition::parse("fine"), None);
    }
}
