//! `ContentPublishDatabase`: the data access layer of one region.
//!
//! All writes go to the account of its own region, except changes of documents that another account owns. All reads of lists
//! ask every account, from the own region, and give the union; an account that does not answer is named and not waited for.
//! Every write has an id that is the same when it is tried again, so trying again is always safe.

mod articles;
mod backfill;
mod freshness;
mod lists;
mod notifications;
mod outbox;
mod reviews;
mod setup;
mod subscriptions;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex;

pub use articles::{Applied, Published};
pub use backfill::{BACKFILL_MAX, Backfilled};
pub use freshness::AccountAnswer;
pub(crate) use freshness::Heartbeat;
pub use lists::{ListPage, PageRequest};
pub use outbox::{Drained, Intent, Message, OutboxState};
pub use reviews::Summary;
pub use subscriptions::{ActiveSubscription, SUBSCRIPTIONS_MAX, Unsubscribed};
pub(crate) use subscriptions::{read_layout, write_listing};

use crate::account::{AccountClient, AccountSettings, SharedRuntime};
use crate::clock;
use crate::error::{CallError, CallKind, PublishError};
use crate::filter::Filter;
use crate::supervise::LONG_POLL;
use crate::topology::{AccountEntry, AccountTable};

/// How often a write to the own account is tried when it is not known whether it happened.
const WRITE_ATTEMPTS: u32 = 2;
/// Between two attempts.
const WRITE_PAUSE: Duration = Duration::from_millis(200);

/// Attempts at a change that whoever asks has set no condition for, against others who change the same.
const CHANGE_ATTEMPTS: u32 = 16;
/// Longest pause after the first of them, and after any.
const GIVE_WAY_FIRST: Duration = Duration::from_millis(5);
const GIVE_WAY_MOST: Duration = Duration::from_millis(320);

/// The data access layer of one region.
#[derive(Clone, Debug)]
pub struct ContentPublishDatabase {
    region: String,
    table: Arc<AccountTable>,
    accounts: Vec<Arc<AccountClient>>,
    local: usize,
    layouts: Arc<Mutex<subscriptions::LayoutCache>>,
    patient: Arc<OnceLock<ContentPublishDatabase>>,
}

impl ContentPublishDatabase {
    /// The layer of a region. Nothing is sent yet: accounts are connected to when they are first needed, so that one that is
    /// down does not keep a region from starting.
    pub fn new(
        table: AccountTable,
        region: &str,
        settings: &AccountSettings,
    ) -> Result<ContentPublishDatabase, PublishError> {
        let (region, own) = table.home(region)?;
        let (own_tag, region) = (own.tag.clone(), region.to_owned());
        let preferred = table.preferred_regions(&region)?;
        let runtime = SharedRuntime::default();
        let client = |entry: &AccountEntry| {
            let (preferred, settings) = (preferred.clone(), settings.clone());
            Arc::new(AccountClient::new(
                entry.clone(),
                preferred,
                settings,
                Arc::clone(&runtime),
            ))
        };
        let accounts: Vec<_> = table.accounts().iter().map(client).collect();
        let local = accounts.iter().position(|account| account.tag() == own_tag);
        Ok(ContentPublishDatabase {
            local: local.expect("the own account is one of the accounts"),
            region,
            accounts,
            table: Arc::new(table),
            layouts: Arc::default(),
            patient: Arc::default(),
        })
    }

    /// The same layer for roles, with connections of its own that all of them share: never answered by another region than the
    /// nearest that works, and free to wait. A role that found its subscribers in a region that lags would leave some out.
    pub(crate) fn unhedged(&self) -> ContentPublishDatabase {
        let made = self.patient.get_or_init(|| {
            let settings = AccountSettings {
                hedge_after: None,
                hold: Some(LONG_POLL),
                ..self.local().settings().clone()
            };
            let table = AccountTable::clone(&self.table);
            ContentPublishDatabase::new(table, &self.region, &settings).expect("the region is one of the table")
        });
        made.clone()
    }

    /// The same layer, from the same region, for a role of another account.
    pub(crate) fn of_account(&self, index: usize) -> ContentPublishDatabase {
        ContentPublishDatabase {
            local: index,
            layouts: Arc::default(),
            ..self.clone()
        }
    }

    /// The region, as its account spells it.
    pub fn region(&self) -> &str {
        &self.region
    }

    pub fn table(&self) -> &AccountTable {
        &self.table
    }

    /// The account that takes this region's writes, or the one whose role this is.
    pub fn local(&self) -> &Arc<AccountClient> {
        &self.accounts[self.local]
    }

    /// All accounts, the own one among them.
    pub fn accounts(&self) -> &[Arc<AccountClient>] {
        &self.accounts
    }

    fn account(&self, tag: &str) -> Option<&Arc<AccountClient>> {
        self.accounts.iter().find(|account| account.tag() == tag)
    }

    /// Subscriptions of a filter that is known to be spread go to a bucket's key; see [`Filter::partition_key`].
    pub async fn spread_filter(&self, filter: &Filter, buckets: u32) -> Result<(), PublishError> {
        self.spread(filter, buckets).await
    }
}

/// Tries a write again while nobody can say whether it happened. Its id makes that safe: what did happen answers `Exists`.
async fn insist<T, F>(work: impl Fn() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut n_tried = 1;
    loop {
        let result = work().await;
        match &result {
            Err(error) if error.kind == CallKind::Unreachable && n_tried < WRITE_ATTEMPTS => {
                n_tried += 1;
                tokio::time::sleep(WRITE_PAUSE).await;
            }
            _ => return result,
        }
    }
}

/// After an attempt that others were quicker than: lets them finish, and does not meet them again at the same moment.
async fn give_way(n_tried: u32) {
    tokio::time::sleep(pause_after(n_tried, clock::chance())).await;
}

/// Ever longer, and anything up to that by chance.
fn pause_after(n_tried: u32, [high, low, ..]: [u8; 10]) -> Duration {
    let doubled = GIVE_WAY_FIRST.saturating_mul(1 << n_tried.saturating_sub(1).min(16));
    let part = u32::from(u16::from_be_bytes([high, low]));
    doubled.min(GIVE_WAY_MOST) * part / u32::from(u16::MAX)
}

/// Others were quicker every time. Nobody's condition failed: it may be asked for again.
fn contended(account: &AccountClient) -> CallError {
    let kind = CallKind::Busy { retry_after: None };
    account.error(kind, "changed again and again", None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_attempts_grow_and_are_not_the_same_for_everybody() {
        let longest: Vec<u128> = (1..=9)
            .map(|n_tried| pause_after(n_tried, [0xff; 10]).as_millis())
            .collect();
        assert_eq!(longest, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
        assert_eq!(pause_after(u32::MAX, [0xff; 10]), GIVE_WAY_MOST);
        assert_eq!(pause_after(3, [0; 10]), Duration::ZERO);
        assert!(pause_after(3, [0x40; 10]) < pause_after(3, [0x80; 10]));
    }
}
