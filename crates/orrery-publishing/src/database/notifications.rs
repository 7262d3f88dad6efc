//! A user's notifications: the union of all accounts, without what the user no longer wants.

use futures::future::join_all;

use super::articles::Applied;
use super::lists::{List, ListPage, PageRequest};
use super::outbox::Intent;
use super::{CHANGE_ATTEMPTS, ContentPublishDatabase, contended, give_way};
use crate::account::{AccountClient, ReadAt, Scope, Seen};
use crate::entity::{Notification, check_user};
use crate::error::{CallError, CallKind, PublishError};
use crate::union::Cancellations;
use crate::{clock, ids};

impl ContentPublishDatabase {
    /// A page of the user's notifications, by the time their articles were published, newest first.
    pub async fn read_notification_feed(
        &self,
        user: &str,
        request: &PageRequest,
    ) -> Result<ListPage<Notification>, PublishError> {
        check_user(user)?;
        let listings = self.read_listings(user).await;
        let cancellations = Cancellations::new(
            listings
                .iter()
                .flat_map(|result| result.iter().flat_map(|seen| &seen.value)),
        );
        let list = List {
            kind: "notifications",
            subject: user,
            scope: Scope::Key(user),
            members: "*",
            condition: "",
            parameters: Vec::new(),
        };
        // Not in the query: the withdrawal of one copy counts for those of other accounts, which may hear of it later.
        let is_hidden = |copies: &[Notification]| {
            let is_withdrawn = copies.iter().any(|copy| copy.withdrawn_at.is_some());
            is_withdrawn || cancellations.hides(copies)
        };
        self.read_list(&list, request, is_hidden).await
    }

    /// Marks a notification as read, in whichever account it is.
    pub async fn mark_read(&self, user: &str, notification: &str) -> Result<Applied<u64>, PublishError> {
        check_user(user)?;
        // Nothing has another id, so nobody needs to be asked.
        if !ids::is_hash_id(notification) {
            return Err(PublishError::NotFound);
        }
        let now = clock::now_ms();
        let mut marked = self.mark_everywhere(user, notification, now, ReadAt::Near).await?;
        if marked.since.is_none() {
            // Replicas nearby may not have it yet. Only now, since this asks every account far away.
            marked = self
                .mark_everywhere(user, notification, now, ReadAt::WriteRegion)
                .await?;
        }
        for target in &marked.silent {
            let intent = Intent::MarkRead {
                user: user.to_owned(),
                notification: notification.to_owned(),
                at: now,
            };
            match self.enqueue(target, intent).await {
                // A copy that stays unread does not count beside the one that is marked.
                Err(error) if marked.since.is_some() => {
                    tracing::warn!(account = %target, %error, "a copy of a notification cannot be marked as read");
                }
                result => result?,
            }
        }
        match marked.since {
            Some(since) => Ok(Applied::Now(since)),
            None if marked.silent.is_empty() => Err(PublishError::NotFound),
            None => Ok(Applied::Queued),
        }
    }

    async fn mark_everywhere(
        &self,
        user: &str,
        notification: &str,
        now_ms: u64,
        at: ReadAt<'_>,
    ) -> Result<Marked, PublishError> {
        let accounts = self.accounts.iter();
        let marks = accounts.map(|account| mark_in(account, user, notification, now_ms, at));
        let mut marked = Marked::default();
        for (account, result) in self.accounts.iter().zip(join_all(marks).await) {
            match result {
                Ok(since) => marked.since = marked.since.into_iter().chain([since]).min(),
                Err(error) if error.kind == CallKind::NotFound => {}
                Err(error) if error.kind == CallKind::Refused => return Err(error.into()),
                Err(_) => marked.silent.push(account.tag().to_owned()),
            }
        }
        Ok(marked)
    }
}

/// What accounts made of a mark.
#[derive(Debug, Default)]
struct Marked {
    /// Since when it is read, if somebody has it.
    since: Option<u64>,
    /// Who may have it and did not say.
    silent: Vec<String>,
}

/// Marks it in one account, looked for in this place, and says since when it is.
pub(super) async fn mark_in(
    account: &AccountClient,
    user: &str,
    notification: &str,
    now_ms: u64,
    at: ReadAt<'_>,
) -> Result<u64, CallError> {
    let mut read_at = at;
    for n_tried in 1..=CHANGE_ATTEMPTS {
        let stored: Seen<Notification> = account.read(user, notification, read_at).await?;
        if let Some(since) = stored.value.read_at {
            return Ok(since);
        }
        let marked = Notification {
            read_at: Some(now_ms),
            ..stored.value
        };
        match account
            .replace(&marked, stored.etag.as_deref().unwrap_or_default())
            .await
        {
            Ok(_) => return Ok(now_ms),
            // The nearest region is behind the one that takes the write.
            Err(error) if error.kind == CallKind::Changed => {
                read_at = ReadAt::WriteRegion;
                give_way(n_tried).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(contended(account))
}
