//! A notification: for one user about one article, written by the fan-out of the subscriber's account.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Article, Entity, Ordered};
use crate::filter::Filter;
use crate::ids;

/// Notifications go away by themselves after 90 days.
pub const NOTIFICATION_TTL_S: u64 = 90 * 24 * 3600;
/// Withdrawn ones after a day, when every region has heard of it.
const WITHDRAWN_TTL_S: u64 = 24 * 3600;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Notification {
    #[serde(rename = "id")]
    pub id: String,
    pub home_account: String,
    /// When fan-out wrote it.
    pub created_at: u64,
    pub user_id: String,
    /// The first of the filters that matched.
    pub subscription_filter: Filter,
    /// All of them.
    pub matched_filters: Vec<Filter>,
    pub article_id: String,
    /// When the article was published: the order of the feed.
    pub published_at: u64,
    /// What a list shows, so that it needs no read per article.
    pub title: String,
    pub author: String,
    pub category: String,
    /// Session token of the article where fan-out read it: a region that lacks the article then says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub article_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<u64>,
    /// Its article was retracted. Listeners hear of it, lists leave it out, and it goes away soon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn_at: Option<u64>,
    #[serde(rename = "ttl")]
    pub ttl_s: u64,
}

impl Notification {
    /// `filters`: those the user has subscribed to and the article matches, at least one.
    pub fn new(
        user: &str,
        article: &Article,
        mut filters: Vec<Filter>,
        article_token: Option<String>,
        account: &str,
        now_ms: u64,
    ) -> Notification {
        filters.sort();
        filters.dedup();
        Notification {
            id: ids::notification_id(user, &article.id),
            home_account: account.to_owned(),
            created_at: now_ms,
            user_id: user.to_owned(),
            subscription_filter: filters.first().cloned().expect("somebody is notified for a reason"),
            matched_filters: filters,
            article_id: article.id.clone(),
            published_at: article.created_at,
            title: article.title.clone(),
            author: article.author.clone(),
            category: article.category.clone(),
            article_token,
            read_at: None,
            withdrawn_at: None,
            ttl_s: NOTIFICATION_TTL_S,
        }
    }

    /// The last version, after its article was retracted.
    pub fn withdrawn(self, now_ms: u64) -> Notification {
        Notification {
            withdrawn_at: Some(now_ms),
            ttl_s: WITHDRAWN_TTL_S,
            ..self
        }
    }
}

impl Entity for Notification {
    const TYPE: &'static str = "Notification";

    fn id(&self) -> &str {
        &self.id
    }

    fn partition_key(&self) -> String {
        self.user_id.clone()
    }

    fn computed(&self) -> Vec<(&'static str, Value)> {
        vec![("SortKey", self.sort_key().into())]
    }
}

impl Ordered for Notification {
    fn ordered_at(&self) -> u64 {
        self.published_at
    }

    fn created_at(&self) -> u64 {
        self.created_at
    }

    /// Read once is read, and withdrawn once is withdrawn, whichever copy says so; the reasons are those of all copies.
    fn united(self, copy: Notification) -> Notification {
        let mut matched_filters = [self.matched_filters.as_slice(), &copy.matched_filters].concat();
        matched_filters.sort();
        matched_filters.dedup();
        let read_at = self.read_at.into_iter().chain(copy.read_at).min();
        let withdrawn_at = self.withdrawn_at.into_iter().chain(copy.withdrawn_at).min();
        let original = if copy.created_at < self.created_at { copy } else { self };
        Notification {
            matched_filters,
            read_at,
            withdrawn_at,
            ..original
        }
    }
}
