//! Subscriptions: made here, cancelled everywhere, listed from all accounts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use super::freshness::AccountAnswer;
use super::outbox::Intent;
use super::{CHANGE_ATTEMPTS, ContentPublishDatabase, contended, give_way, insist};
use crate::account::{AccountClient, ReadAt, Scope, Seen};
use crate::entity::{Entity, FilterLayout, Listing, Subscription, SubscriptionState, check_user};
use crate::error::{CallError, CallKind, PublishError};
use crate::filter::Filter;
use crate::union::Cancellations;
use crate::{clock, ids};

const LISTINGS: &str = "SELECT * FROM c WHERE c.PartitionKey = @key AND c.Type = @type";
/// Active subscriptions of one user, over all accounts: their list is read as a whole whenever the feed is.
pub const SUBSCRIPTIONS_MAX: usize = 1000;
/// How long it may take until a filter that was spread is written to by bucket. What is written under the old key meanwhile
/// is found there.
const LAYOUT_MEMORY: Duration = Duration::from_secs(30);
/// Filters whose layout is remembered.
const LAYOUTS_MAX: usize = 10_000;

/// How filters are laid out in the own account, as lately read.
#[derive(Debug, Default)]
pub(super) struct LayoutCache {
    buckets: BTreeMap<Filter, (u32, Instant)>,
}

/// A subscription that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveSubscription {
    pub filter: Filter,
    pub since: u64,
}

/// What became of a cancellation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribed {
    pub filter: Filter,
    /// Accounts that could not be told yet.
    pub queued: Vec<String>,
}

impl ContentPublishDatabase {
    /// Subscribes a user to a category, an author or a tag; see [`Filter`]. Subscribing twice is one subscription, which counts
    /// from the second time on: a cancellation of before may still be under way to this account.
    pub async fn create_subscription(&self, user: &str, filter: &str) -> Result<ActiveSubscription, PublishError> {
        check_user(user)?;
        let filter = Filter::parse(filter)?;
        let listings = self.read_listings(user).await;
        let states = Cancellations::new(listings.iter().flatten().flat_map(|seen| &seen.value));
        check_room(&states, &filter, SUBSCRIPTIONS_MAX)?;
        let since = after(clock::now_ms(), newest_of(&listings, &filter));
        let since = self.subscribe_at(user, &filter, since).await?;
        Ok(ActiveSubscription { filter, since })
    }

    /// Makes a subscription of the own account active, not before this time. Gives when.
    async fn subscribe_at(&self, user: &str, filter: &Filter, mut at_ms: u64) -> Result<u64, PublishError> {
        let account = self.local();
        let buckets = self.buckets(filter).await?;
        for n_tried in 1..=CHANGE_ATTEMPTS {
            let subscription = Subscription::new(user, filter.clone(), buckets, account.tag(), at_ms);
            match write_newer(account, subscription, Write::Create).await? {
                Some(stored) if stored.state == SubscriptionState::Cancelled => at_ms = stored.changed_at + 1,
                Some(stored) => return Ok(stored.changed_at),
                None => unreachable!("what is not there is made"),
            }
            give_way(n_tried).await;
        }
        Err(contended(account).into())
    }

    /// As [`ContentPublishDatabase::create_subscription`] for an author.
    pub async fn create_author_subscription(
        &self,
        user: &str,
        author: &str,
    ) -> Result<ActiveSubscription, PublishError> {
        self.create_subscription(user, &format!("author:{author}")).await
    }

    /// Cancels a subscription in the own account at once, and in every other account that has or may have it as soon as it
    /// can be reached. Until then the feed hides what that account still raises.
    pub async fn delete_subscription(&self, user: &str, filter: &str) -> Result<Unsubscribed, PublishError> {
        check_user(user)?;
        let filter = Filter::parse(filter)?;
        let now = after(clock::now_ms(), newest_of(&self.read_listings(user).await, &filter));
        // Also where there was none: this is what hides notifications of other accounts until they know.
        cancel_in(self.local(), user, &filter, now, Write::Create).await?;
        let others = self
            .accounts
            .iter()
            .filter(|account| account.tag() != self.local().tag());
        let queued = self.cancel_elsewhere(others, user, &filter, now).await?;
        Ok(Unsubscribed { filter, queued })
    }

    /// Cancels a subscription in other accounts that have it. Gives those that could not be told yet.
    async fn cancel_elsewhere(
        &self,
        others: impl Iterator<Item = &Arc<AccountClient>>,
        user: &str,
        filter: &Filter,
        at_ms: u64,
    ) -> Result<Vec<String>, PublishError> {
        let cancelled = others.map(|account| async move {
            let result = cancel_in(account, user, filter, at_ms, Write::IfThere).await;
            (account.tag(), result)
        });
        let mut queued = Vec::new();
        for (tag, result) in join_all(cancelled).await {
            if let Err(error) = result {
                tracing::debug!(%error, "a cancellation waits");
                let intent = Intent::Cancel {
                    user: user.to_owned(),
                    filter: filter.clone(),
                    at: at_ms,
                };
                self.enqueue(tag, intent).await?;
                queued.push(tag.to_owned());
            }
        }
        Ok(queued)
    }

    /// What the user is subscribed to, over all accounts; and what each account said.
    pub async fn list_subscriptions(
        &self,
        user: &str,
    ) -> Result<(Vec<ActiveSubscription>, Vec<AccountAnswer>), PublishError> {
        check_user(user)?;
        let listings = self.read_listings(user).await;
        let mut answers = Vec::new();
        for (account, result) in self.accounts.iter().zip(&listings) {
            let mut answer = AccountAnswer::new(account.tag());
            match result {
                Ok(seen) => answer.heard(seen),
                Err(error) => answer.failed = Some(error.message.clone()),
            }
            answers.push(answer);
        }
        let states = Cancellations::new(listings.iter().flatten().flat_map(|seen| &seen.value));
        let active = states.active().map(|(filter, since)| ActiveSubscription {
            filter: filter.clone(),
            since,
        });
        Ok((active.collect(), answers))
    }

    /// Takes subscriptions that the user made in other regions over into the own account, and cancels them there. Ids make
    /// it safe to repeat. Invariant: a subscription is in force somewhere at every moment, wherever this ends halfway.
    pub async fn migrate_subscriptions(&self, user: &str) -> Result<Vec<Filter>, PublishError> {
        check_user(user)?;
        let listings = self.read_listings(user).await;
        let silent: Vec<String> = self
            .accounts
            .iter()
            .zip(&listings)
            .filter(|(_, result)| result.is_err())
            .map(|(account, _)| account.tag().to_owned())
            .collect();
        if !silent.is_empty() {
            return Err(PublishError::Incomplete(silent));
        }
        let states = Cancellations::new(listings.iter().flatten().flat_map(|seen| &seen.value));
        let mut moved = Vec::new();
        for (filter, _) in states.active() {
            let mut elsewhere = Vec::new();
            for (index, account) in self.accounts.iter().enumerate() {
                let seen = listings[index].iter().flat_map(|seen| &seen.value);
                let mut active = seen.filter(|listing| listing.state == SubscriptionState::Active);
                let is_listed = active.any(|listing| listing.subscription_filter == *filter);
                // The list may be of before it was taken over.
                if index != self.local && is_listed && is_active_in(account, user, filter).await? {
                    elsewhere.push(account);
                }
            }
            if elsewhere.is_empty() {
                continue;
            }
            let at = after(clock::now_ms(), newest_of(&listings, filter));
            // First and later than the cancellations: whatever becomes of them, the newest state is the active one.
            self.subscribe_at(user, filter, at + 1).await?;
            self.cancel_elsewhere(elsewhere.into_iter(), user, filter, at).await?;
            moved.push(filter.clone());
        }
        Ok(moved)
    }

    /// The user's list in every account, in the order of the accounts.
    pub(super) async fn read_listings(&self, user: &str) -> Vec<Result<Seen<Vec<Listing>>, CallError>> {
        let read = self.accounts.iter().map(|account| async move {
            if account.is_resting() {
                return Err(account.error(CallKind::Unreachable, "it did not answer a moment ago", None));
            }
            let parameters = [("@key", user.into()), ("@type", Listing::TYPE.into())];
            account
                .noted(account.query(LISTINGS, &parameters, Scope::Key(user)))
                .await
        });
        join_all(read).await
    }

    async fn buckets(&self, filter: &Filter) -> Result<u32, PublishError> {
        let mut layouts = self.layouts.lock().await;
        if let Some((buckets, at)) = layouts.buckets.get(filter)
            && at.elapsed() < LAYOUT_MEMORY
        {
            return Ok(*buckets);
        }
        let buckets = read_layout(self.local(), filter).await?;
        if layouts.buckets.len() >= LAYOUTS_MAX {
            layouts.buckets.clear();
        }
        layouts.buckets.insert(filter.clone(), (buckets, Instant::now()));
        Ok(buckets)
    }

    /// Spreads a filter of the own account over buckets. What lies under its one key stays there and is found.
    pub(super) async fn spread(&self, filter: &Filter, buckets: u32) -> Result<(), PublishError> {
        let layout = FilterLayout {
            subscription_filter: filter.clone(),
            buckets,
        };
        match self.local().create(&layout).await {
            Ok(_) => {}
            // Buckets are never counted anew: users would be looked for in the wrong one.
            Err(error) if error.kind == CallKind::Exists => {}
            Err(error) => return Err(error.into()),
        }
        self.layouts.lock().await.buckets.remove(filter);
        Ok(())
    }
}

/// Whether a user may subscribe to a filter, beside the subscriptions that are known. One that is there may be made again.
fn check_room(states: &Cancellations, filter: &Filter, n_max: usize) -> Result<(), PublishError> {
    let is_there = states.active().any(|(active, _)| active == filter);
    let has_room = is_there || states.active().count() < n_max;
    has_room.then_some(()).ok_or(PublishError::TooManySubscriptions(n_max))
}

/// When a change happens that a user makes now: after every change the user can know of, whatever the clocks of two regions
/// make of it. Otherwise the earlier change would win.
fn after(now_ms: u64, known: Option<u64>) -> u64 {
    known.map_or(now_ms, |known| now_ms.max(known + 1))
}

/// When a user's state of a filter last changed, as far as accounts have answered.
fn newest_of(listings: &[Result<Seen<Vec<Listing>>, CallError>], filter: &Filter) -> Option<u64> {
    let listings = listings.iter().flatten().flat_map(|seen| &seen.value);
    let same = listings.filter(|listing| listing.subscription_filter == *filter);
    same.map(|listing| listing.changed_at).max()
}

/// Whether a user's list in an account has the filter as active, where the account takes its writes.
async fn is_active_in(account: &AccountClient, user: &str, filter: &Filter) -> Result<bool, PublishError> {
    let id = ids::listing_id(user, &filter.to_string());
    match account.read::<Listing>(user, &id, ReadAt::WriteRegion).await {
        Ok(seen) => Ok(seen.value.state == SubscriptionState::Active),
        Err(error) if error.kind == CallKind::NotFound => Ok(false),
        Err(error) if error.kind == CallKind::Unreachable => {
            Err(PublishError::Incomplete(vec![account.tag().to_owned()]))
        }
        Err(error) => Err(error.into()),
    }
}

/// How many buckets a filter has in an account.
pub(crate) async fn read_layout(account: &AccountClient, filter: &Filter) -> Result<u32, CallError> {
    match account
        .read::<FilterLayout>(&filter.to_string(), "layout", ReadAt::Near)
        .await
    {
        Ok(seen) => Ok(seen.value.buckets),
        Err(error) if error.kind == CallKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Whether a document is made where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Create,
    IfThere,
}

/// Cancels a subscription in one account, under every key where it may lie.
pub(super) async fn cancel_in(
    account: &AccountClient,
    user: &str,
    filter: &Filter,
    at_ms: u64,
    write: Write,
) -> Result<(), CallError> {
    let buckets = read_layout(account, filter).await?;
    let places = if buckets == 0 { vec![0] } else { vec![buckets, 0] };
    for (index, buckets) in places.into_iter().enumerate() {
        let subscription = Subscription::new(user, filter.clone(), buckets, account.tag(), at_ms);
        let cancelled = subscription.with_state(SubscriptionState::Cancelled, at_ms);
        let write = if index == 0 { write } else { Write::IfThere };
        write_newer(account, cancelled, write).await?;
    }
    Ok(())
}

/// Writes a state unless a newer one is there, and the user's list after it. Gives what is stored then.
async fn write_newer(
    account: &AccountClient,
    wanted: Subscription,
    write: Write,
) -> Result<Option<Subscription>, CallError> {
    for n_tried in 1..=CHANGE_ATTEMPTS {
        if write == Write::Create {
            match insist(|| account.create(&wanted)).await {
                Ok(_) => {
                    write_listing(account, Listing::of(&wanted)).await?;
                    return Ok(Some(wanted));
                }
                Err(error) if error.kind == CallKind::Exists => {}
                Err(error) => return Err(error),
            }
        }
        let key = wanted.partition_key();
        let stored: Seen<Subscription> = match account.read(&key, wanted.id(), ReadAt::WriteRegion).await {
            Ok(stored) => stored,
            Err(error) if error.kind == CallKind::NotFound && write == Write::IfThere => return Ok(None),
            Err(error) if error.kind == CallKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let Some(next) = wanted.clone().over(&stored.value) else {
            write_listing(account, Listing::of(&stored.value)).await?;
            return Ok(Some(stored.value));
        };
        match account.replace(&next, stored.etag.as_deref().unwrap_or_default()).await {
            Ok(_) => {
                write_listing(account, Listing::of(&next)).await?;
                return Ok(Some(next));
            }
            Err(error) if error.kind == CallKind::Changed => give_way(n_tried).await,
            Err(error) => return Err(error),
        }
    }
    Err(contended(account))
}

/// Writes the entry of a user's list, unless a newer one is there.
pub(crate) async fn write_listing(account: &AccountClient, listing: Listing) -> Result<(), CallError> {
    for n_tried in 1..=CHANGE_ATTEMPTS {
        match account.create(&listing).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind == CallKind::Exists => {}
            Err(error) => return Err(error),
        }
        let stored: Seen<Listing> = account.read(&listing.user_id, &listing.id, ReadAt::WriteRegion).await?;
        if stored.value.changed_at >= listing.changed_at {
            return Ok(());
        }
        match account
            .replace(&listing, stored.etag.as_deref().unwrap_or_default())
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) if error.kind == CallKind::Changed => give_way(n_tried).await,
            Err(error) => return Err(error),
        }
    }
    Err(contended(account))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_as_many_subscriptions_as_there_may_be_keeps_them_and_gets_no_other() {
        let filter = |text: &str| Filter::parse(text).unwrap();
        let listing = |text: &str, state: SubscriptionState| {
            let subscription = Subscription::new("bob", filter(text), 0, "usa", 1);
            Listing::of(&subscription.with_state(state, 5))
        };
        let (active, cancelled) = (SubscriptionState::Active, SubscriptionState::Cancelled);
        let states = Cancellations::new(&[
            listing("art", active),
            listing("sports", active),
            listing("author:ann", cancelled),
        ]);
        assert!(check_room(&states, &filter("author:ann"), 3).is_ok());
        assert!(check_room(&states, &filter("sports"), 2).is_ok(), "it is there already");
        let refused = check_room(&states, &filter("author:ann"), 2);
        assert!(
            matches!(refused, Err(PublishError::TooManySubscriptions(2))),
            "{refused:?}"
        );
    }

    #[test]
    fn what_a_user_does_now_is_later_than_what_another_regions_clock_has_written() {
        assert_eq!(after(1000, None), 1000);
        assert_eq!(after(1000, Some(900)), 1000);
        assert_eq!(after(1000, Some(1500)), 1501);
    }
}
