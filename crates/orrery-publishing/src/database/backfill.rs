//! What a new subscriber gets of what was published before: fan-out serves only those who subscribed in time.

use futures::{StreamExt as _, TryStreamExt as _};

use super::ContentPublishDatabase;
use super::lists::PageRequest;
use super::{insist, subscriptions::ActiveSubscription};
use crate::clock;
use crate::entity::{Article, Notification};
use crate::error::{CallError, CallKind, PublishError};

/// Most articles a new subscription brings: a page of them.
pub const BACKFILL_MAX: usize = 100;
/// Notifications written at the same time.
const WRITES_IN_FLIGHT: usize = 8;

/// A subscription and what it brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backfilled {
    pub subscription: ActiveSubscription,
    /// Articles the user is notified of now and was not before.
    pub n_new: usize,
    /// Accounts whose articles could not be looked for.
    pub missing: Vec<String>,
}

impl ContentPublishDatabase {
    /// As [`ContentPublishDatabase::create_subscription`], and notifies of the last articles that match, at most `n_articles`.
    /// The subscription counts even if they cannot be had; calling again brings what is missing and nothing twice.
    pub async fn create_subscription_with_backfill(
        &self,
        user: &str,
        filter: &str,
        n_articles: usize,
    ) -> Result<Backfilled, PublishError> {
        if n_articles > BACKFILL_MAX {
            return Err(PublishError::Backfill(BACKFILL_MAX));
        }
        // First, so that what is published from now on comes by itself.
        let subscription = self.create_subscription(user, filter).await?;
        if n_articles == 0 {
            return Ok(Backfilled {
                subscription,
                n_new: 0,
                missing: Vec::new(),
            });
        }
        let request = PageRequest {
            size: n_articles,
            ..PageRequest::default()
        };
        let page = self.list_articles(&subscription.filter, &request).await?;
        let notify = |article: Article| self.notify_of(user, &subscription, article);
        let written: Vec<bool> = futures::stream::iter(page.items)
            .map(notify)
            .buffer_unordered(WRITES_IN_FLIGHT)
            .try_collect()
            .await?;
        Ok(Backfilled {
            n_new: written.into_iter().filter(|is_new| *is_new).count(),
            subscription,
            missing: page.missing,
        })
    }

    /// Writes the notification that fan-out would have written. One that is there stays as it is.
    async fn notify_of(
        &self,
        user: &str,
        subscription: &ActiveSubscription,
        article: Article,
    ) -> Result<bool, CallError> {
        let account = self.local();
        let filters = vec![subscription.filter.clone()];
        let notification = Notification::new(user, &article, filters, None, account.tag(), clock::now_ms());
        match insist(|| account.create(&notification)).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == CallKind::Exists => Ok(false),
            Err(error) => Err(error),
        }
    }
}
