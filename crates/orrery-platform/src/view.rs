//! What clients are shown of the platform's documents: their own names, apart from how they are stored.

use orrery_publishing::database::{AccountAnswer, ListPage, Summary};
use orrery_publishing::entity::{Article, ArticleState, Notification, Review};
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArticleView {
    pub id: String,
    pub account: String,
    pub author: String,
    pub category: String,
    pub tags: Vec<String>,
    pub title: String,
    /// Absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    pub state: ArticleState,
    pub revision: u64,
    pub created_at: u64,
    pub changed_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
}

impl ArticleView {
    pub fn whole(article: Article) -> ArticleView {
        let body = article.body.clone();
        ArticleView {
            body: Some(body),
            ..ArticleView::listed(article)
        }
    }

    pub fn listed(article: Article) -> ArticleView {
        ArticleView {
            id: article.id,
            account: article.home_account,
            author: article.author,
            category: article.category,
            tags: article.tags,
            title: article.title,
            body: None,
            state: article.state,
            revision: article.revision,
            created_at: article.created_at,
            changed_at: article.changed_at,
            etag: article.etag,
        }
    }
}

pub fn review(review: Review) -> Value {
    json!({
        "id": review.id, "account": review.home_account, "articleId": review.article_id, "user": review.user_id,
        "text": review.review_text, "rating": review.rating, "createdAt": review.created_at, "changedAt": review.changed_at,
    })
}

pub fn notification(notification: Notification) -> Value {
    json!({
        "id": notification.id, "account": notification.home_account, "articleId": notification.article_id,
        "title": notification.title, "author": notification.author, "category": notification.category,
        "filter": notification.subscription_filter, "matchedFilters": notification.matched_filters,
        "publishedAt": notification.published_at, "createdAt": notification.created_at, "readAt": notification.read_at,
        "articleToken": notification.article_token,
    })
}

/// A page of any list.
pub fn page<T>(page: ListPage<T>, view: impl Fn(T) -> Value) -> Value {
    let items: Vec<Value> = page.items.into_iter().map(view).collect();
    let mut shown = json!({"items": items, "missing": page.missing, "accounts": page.accounts});
    if let Some(continuation) = page.continuation {
        shown["continuation"] = continuation.into();
    }
    shown
}

pub fn summary(summary: Summary) -> Value {
    json!({
        "count": summary.rating.count, "average": summary.rating.average, "histogram": summary.rating.histogram,
        "missing": summary.missing, "accounts": summary.accounts,
    })
}

/// The accounts among these that did not answer.
pub fn missing(accounts: &[AccountAnswer]) -> Vec<&str> {
    let failed = accounts.iter().filter(|account| account.failed.is_some());
    failed.map(|account| account.account.as_str()).collect()
}
