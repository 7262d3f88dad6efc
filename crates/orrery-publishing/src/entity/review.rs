//! A review: written in the reviewer's account under the article's key, wherever the article itself is.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::article::{check_article_id, is_text};
use super::{Entity, EntityError, Ordered, check_user};
use crate::ids;

/// What a rating may be.
pub const RATINGS: std::ops::RangeInclusive<u8> = 1..=5;
pub(super) const TEXT_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Review {
    #[serde(rename = "id")]
    pub id: String,
    pub home_account: String,
    pub created_at: u64,
    pub article_id: String,
    pub user_id: String,
    pub review_text: String,
    pub rating: u8,
    /// Later than `created_at` when the reviewer has changed it, and later with every change.
    pub changed_at: u64,
}

impl Review {
    pub fn new(
        article: &str,
        user: &str,
        account: &str,
        text: &str,
        rating: u8,
        now_ms: u64,
    ) -> Result<Review, EntityError> {
        check_user(user)?;
        check_article_id(article)?;
        if !RATINGS.contains(&rating) {
            return Err(EntityError::Rating);
        }
        if text.len() > TEXT_BYTES_MAX || !is_text(text) {
            return Err(EntityError::ReviewText);
        }
        Ok(Review {
            id: ids::review_id(user, article, account),
            home_account: account.to_owned(),
            created_at: now_ms,
            article_id: article.to_owned(),
            user_id: user.to_owned(),
            review_text: text.to_owned(),
            rating,
            changed_at: now_ms,
        })
    }

    /// The same review with another opinion. It keeps its place in the list.
    pub fn replacing(self, earlier: &Review) -> Review {
        Review {
            created_at: earlier.created_at,
            changed_at: self.changed_at.max(earlier.changed_at + 1),
            ..self
        }
    }

    /// The same opinion: writing it again would change nothing.
    pub fn is_same(&self, other: &Review) -> bool {
        self.id == other.id && self.review_text == other.review_text && self.rating == other.rating
    }
}

impl Entity for Review {
    const TYPE: &'static str = "Review";

    fn id(&self) -> &str {
        &self.id
    }

    fn partition_key(&self) -> String {
        self.article_id.clone()
    }

    fn computed(&self) -> Vec<(&'static str, Value)> {
        vec![("SortKey", self.sort_key().into())]
    }
}

impl Ordered for Review {
    fn ordered_at(&self) -> u64 {
        self.created_at
    }

    fn created_at(&self) -> u64 {
        self.created_at
    }
}
