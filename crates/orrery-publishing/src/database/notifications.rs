//! A user's notifications: the union of all accounts, without what the user no longer wants.

use futures::future::join_all;

use super::ContentPublishDatabase;
use super::articles::Applied;
use super::lists::{List, ListPage, PageRequest};
use super::outbox::Intent;
use crate::account::{AccountClient, ReadAt, Scope, Seen};
use crate::entity::{Notification, check_user};
use crate::error::{CallError, CallKind, PublishError};
use crate::union::Cancellations;
use crate::{clock, ids};

/// Attempts to mark something as read while it changes.
const MARK_ATTEMPTS: usize = 5;

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
            condition: "NOT IS_DEFINED(c.WithdrawnAt)",
            parameters: Vec::new(),
        };
        self.read_list(&list, request, |row| cancellations.hides(row)).await
    }

    /// Marks a notification as read, in whichever account it is.
    pub async fn mark_read(&self, user: &str, notification: &str) -> Result<Applied<u64>, PublishError> {
        check_user(user)?;
        // Nothing has another id, so nobody needs to be asked.
        if !ids::is_hash_id(notification) {
            return Err(PublishError::NotFound);
        }
        let now = clock::now_ms();
        let marked = join_all(
            self.accounts
                .iter()
                .map(|account| mark_in(account, user, notification, now)),
        )
        .await;
        let (mut first, mut silent) = (None, Vec::new());
        for (account, result) in self.accounts.iter().zip(marked) {
            match result {
                Ok(read_at) => first = first.or(Some(read_at)),
                Err(error) if error.kind == CallKind::NotFound => {}
                Err(error) if error.kind == CallKind::Refused => return Err(error.into()),
                Err(_) => silent.push(account.tag().to_owned()),
            }
        }
        if let Some(read_at) = first {
            return Ok(Applied::Now(read_at));
        }
        if silent.is_empty() {
            return Err(PublishError::NotFound);
        }
        for target in &silent {
            let intent = Intent::MarkRead {
                user: user.to_owned(),
                notification: notification.to_owned(),
                at: now,
            };
            self.enqueue(target, intent).await?;
        }
        Ok(Applied::Queued)
    }
}

/// Marks it in one account, and says since when it is.
pub(super) async fn mark_in(
    account: &AccountClient,
    user: &str,
    notification: &str,
    now_ms: u64,
) -> Result<u64, CallError> {
    let mut read_at = ReadAt::Near;
    for _ in 0..MARK_ATTEMPTS {
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
            Err(error) if error.kind == CallKind::Changed => read_at = ReadAt::WriteRegion,
            Err(error) => return Err(error),
        }
    }
    Err(account.error(CallKind::Changed, "changed again and again", None))
}
