//! How current an account's answers are, as far as a client can tell.
//!
//! Each account's role writes the time into it every few seconds, less often while nothing happens, and with it when it will do so
//! again. What another region reads of it is old by that much at most, plus however far that region is behind. Clocks of two
//! machines are compared here, so a lag is an indication, to be shown and not to be acted on.

use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ContentPublishDatabase;
use crate::account::Seen;
use crate::clock;
use crate::error::{CallError, CallKind};

const HEARTBEAT: &str = "heartbeat";
/// When the next time comes, where that is not said.
const NEXT_MS: u64 = 2000;

/// What an account said of itself when it answered, or why it did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountAnswer {
    pub account: String,
    /// The region that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Its position, comparable within the account only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lsn: Option<u64>,
    /// How far that region is behind the account's write region, when last heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The time as a role wrote it, and where that role ran.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Heartbeat {
    pub at: u64,
    #[serde(default)]
    pub region: Option<String>,
    /// When the next one comes at the latest.
    #[serde(default = "next_ms")]
    pub next_ms: u64,
}

fn next_ms() -> u64 {
    NEXT_MS
}

impl Heartbeat {
    /// How far whoever reads it is behind.
    fn lag_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.at).saturating_sub(self.next_ms)
    }
}

impl AccountAnswer {
    pub(super) fn new(account: &str) -> AccountAnswer {
        AccountAnswer {
            account: account.to_owned(),
            ..AccountAnswer::default()
        }
    }

    /// Adds what another answer of the same account knows.
    pub(super) fn completed_by(&mut self, other: AccountAnswer) {
        self.region = self.region.take().or(other.region);
        self.lag_ms = other.lag_ms;
    }

    pub(super) fn heard<T>(&mut self, seen: &Seen<T>) {
        self.region = seen.region.clone().or_else(|| self.region.take());
        self.lsn = seen.lsn.or(self.lsn);
    }
}

impl ContentPublishDatabase {
    /// Writes the time and the own region into the own account; the next time comes within `every`.
    pub async fn beat(&self, every: Duration) -> Result<(), CallError> {
        let next_ms = every.as_millis() as u64;
        let document = json!({"id": HEARTBEAT, "at": clock::now_ms(), "region": self.region(), "next_ms": next_ms});
        self.local().put_coordination(HEARTBEAT, &document).await
    }

    /// The last time that was written into the own account.
    pub(crate) async fn last_beat(&self) -> Result<Option<Heartbeat>, CallError> {
        match self.local().read_coordination::<Heartbeat>(HEARTBEAT).await {
            Ok(seen) => Ok(Some(seen.value)),
            Err(error) if error.kind == CallKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How current this region's copy of every account is.
    pub async fn freshness(&self) -> Vec<AccountAnswer> {
        let read = self.accounts.iter().map(|account| async move {
            let mut answer = AccountAnswer::new(account.tag());
            if account.is_resting() {
                answer.failed = Some("it did not answer a moment ago".to_owned());
                return answer;
            }
            match account.read_coordination::<Heartbeat>(HEARTBEAT).await {
                Ok(seen) => {
                    answer.heard(&seen);
                    answer.lag_ms = Some(seen.value.lag_ms(clock::now_ms()));
                }
                // Nobody has written the time yet: the account answers, its lag is not known.
                Err(error) if error.kind == CallKind::NotFound => {}
                Err(error) => answer.failed = Some(error.message),
            }
            answer
        });
        join_all(read).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_late_only_when_the_next_one_is_overdue() {
        let beat = |text: &str| serde_json::from_str::<Heartbeat>(text).unwrap();
        let quiet = beat(r#"{"id": "heartbeat", "at": 100000, "next_ms": 20000}"#);
        assert_eq!(
            (quiet.lag_ms(90_000), quiet.lag_ms(119_000), quiet.lag_ms(125_000)),
            (0, 0, 5000)
        );
        let of_an_older_version = beat(r#"{"id": "heartbeat", "at": 100000}"#);
        assert_eq!(of_an_older_version.lag_ms(103_000), 1000);
    }
}
