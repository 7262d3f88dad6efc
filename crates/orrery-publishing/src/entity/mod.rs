//! The documents of the platform: articles, reviews, subscriptions and notifications, all in one container of each account.
//!
//! Member names are those of the original data access layer, except that the service wants `id` in lower case. Every document
//! also says its `Type`, the account it was written in and when, because none of these can be told from the rest: a filter on
//! a user alone would find that user's reviews among the notifications. Invariant: the partition key is computed from the
//! other members, never stored by hand.

mod article;
mod notification;
mod review;
mod subscription;
mod totals;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(crate) use article::check_article_id;
pub use article::{Article, ArticleState, Draft, EntityError};
pub use notification::{NOTIFICATION_TTL_S, Notification};
pub use review::{RATINGS, Review};
pub use subscription::{FilterLayout, Listing, Subscription, SubscriptionState};
pub use totals::{CountedReview, ReviewTotals};

use crate::filter::Filter;

/// Longest user id: it is a partition key and part of answers.
pub const USER_BYTES_MAX: usize = 256;
/// The last instant a sort key can hold, in milliseconds since 1970: the year 2286.
const TIME_MAX: u64 = 9_999_999_999_999;

/// A kind of document.
pub trait Entity: Serialize + DeserializeOwned + Clone + Send + 'static {
    /// Value of `Type`.
    const TYPE: &'static str;

    fn id(&self) -> &str;

    fn partition_key(&self) -> String;

    /// Members that are computed from the others, besides the partition key.
    fn computed(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The document as it is stored.
    fn document(&self) -> Value {
        let mut document = Map::new();
        document.insert("id".into(), self.id().into());
        document.insert("PartitionKey".into(), self.partition_key().into());
        document.insert("Type".into(), Self::TYPE.into());
        for (name, value) in self.computed() {
            document.insert(name.into(), value);
        }
        match serde_json::to_value(self) {
            Ok(Value::Object(members)) => document.extend(members.into_iter().filter(|(name, _)| name != "_etag")),
            other => unreachable!("an entity is a JSON object: {other:?}"),
        }
        Value::Object(document)
    }
}

/// A document that is read in an order: newest first, then by id.
pub trait Ordered: Entity {
    /// What it is ordered by, in milliseconds since 1970.
    fn ordered_at(&self) -> u64;

    /// When it was written, in milliseconds since 1970.
    fn created_at(&self) -> u64;

    fn sort_key(&self) -> String {
        sort_key(self.ordered_at(), self.id())
    }

    /// This document and its copy in another account as one, after its user moved: the earlier one is the original.
    fn united(self, copy: Self) -> Self {
        if copy.created_at() < self.created_at() {
            copy
        } else {
            self
        }
    }
}

/// A text whose ascending order is newest first. One member with one index replaces an order by two, and no two documents of
/// a partition share it, so that a page can go on exactly after any of them.
pub fn sort_key(at_ms: u64, id: &str) -> String {
    format!("{:013}.{id}", TIME_MAX.saturating_sub(at_ms))
}

/// Checks a user's id as it comes from outside.
pub fn check_user(user: &str) -> Result<(), EntityError> {
    if user.trim().is_empty() || user.len() > USER_BYTES_MAX || user.contains(char::is_control) {
        return Err(EntityError::User);
    }
    // A user may also be subscribed to as an author, under this name and no other.
    match Filter::parse(&format!("author:{user}")) {
        Ok(author) if author.name() == user => Ok(()),
        _ => Err(EntityError::User),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn draft() -> Draft {
        Draft {
            category: "sports".into(),
            tags: vec!["ski".into()],
            title: "Snow".into(),
            body: "It snows.".into(),
        }
    }

    #[test]
    fn an_article_is_keyed_by_its_id_and_spelled_as_in_the_original() {
        let article = Article::new("usa.X".into(), "usa", "ann", draft(), 1_700_000_000_000).unwrap();
        assert_eq!(
            article.document(),
            json!({
                "id": "usa.X", "PartitionKey": "usa.X", "Type": "Article", "SortKey": "8299999999999.usa.X",
                "HomeAccount": "usa", "CreatedAt": 1_700_000_000_000_u64, "Author": "ann", "Category": "sports",
                "Tags": ["ski"], "Title": "Snow", "Body": "It snows.", "State": "published", "Revision": 1,
                "ChangedAt": 1_700_000_000_000_u64
            })
        );
    }

    #[test]
    fn every_kind_is_keyed_by_what_it_is_asked_for_with() {
        let article = Article::new("usa.X".into(), "usa", "ann", draft(), 5).unwrap();
        let review = Review::new("usa.X", "bob", "usa", "Fine.", 4, 7).unwrap();
        let subscription = Subscription::new("bob", Filter::parse("sports").unwrap(), 0, "usa", 7);
        let filters = vec![Filter::parse("sports").unwrap()];
        let notification = Notification::new("bob", &article, filters, None, "europe", 9);
        assert_eq!(review.partition_key(), "usa.X");
        assert_eq!(subscription.partition_key(), "category:sports");
        assert_eq!(notification.partition_key(), "bob");
        assert_eq!(notification.document()["SubscriptionFilter"], "category:sports");
        assert_eq!(notification.document()["HomeAccount"], "europe");
        assert_eq!(Listing::of(&subscription).partition_key(), "bob");
    }

    #[test]
    fn documents_are_read_back_as_they_were() {
        let article = Article::new("usa.X".into(), "usa", "ann", draft(), 5).unwrap();
        let review = Review::new("usa.X", "bob", "usa", "Fine.", 4, 7).unwrap();
        let filters = vec![Filter::parse("author:ann").unwrap(), Filter::parse("sports").unwrap()];
        let notification = Notification::new("bob", &article, filters, Some("0:-1#7".into()), "europe", 9);
        assert_eq!(serde_json::from_value::<Article>(article.document()).unwrap(), article);
        assert_eq!(serde_json::from_value::<Review>(review.document()).unwrap(), review);
        assert_eq!(
            serde_json::from_value::<Notification>(notification.document()).unwrap(),
            notification
        );
    }

    #[test]
    fn what_is_too_large_or_makes_no_sense_is_refused() {
        let refused = |change: fn(&mut Draft)| {
            let mut draft = draft();
            change(&mut draft);
            Article::new("usa.X".into(), "usa", "ann", draft, 5).unwrap_err()
        };
        assert_eq!(refused(|draft| draft.title = " ".into()), EntityError::Title);
        assert_eq!(refused(|draft| draft.title = "a\u{1b}[2J".into()), EntityError::Title);
        assert_eq!(refused(|draft| draft.body = "x".repeat(1 << 20)), EntityError::Body);
        assert_eq!(refused(|draft| draft.body = "a\u{0}b".into()), EntityError::Body);
        assert_eq!(refused(|draft| draft.tags = vec!["t".into(); 17]), EntityError::Tags);
        assert_eq!(refused(|draft| draft.tags = vec!["a#b".into()]), EntityError::Tags);
        assert_eq!(refused(|draft| draft.category = String::new()), EntityError::Category);
        for rating in [0, 6] {
            assert_eq!(Review::new("a", "bob", "usa", "", rating, 7), Err(EntityError::Rating));
        }
        assert_eq!(
            Review::new("a", "bob", "usa", "\u{7f}", 3, 7),
            Err(EntityError::ReviewText)
        );
        assert!(Review::new("a", "bob", "usa", "One.\r\n\tTwo.", 3, 7).is_ok());
        assert_eq!(check_user(""), Err(EntityError::User));
        assert_eq!(check_user("a\u{0}"), Err(EntityError::User));
        for another in [" ann", "ann ", "\u{a0}ann", "ann\u{2003}"] {
            assert_eq!(
                check_user(another),
                Err(EntityError::User),
                "{another:?} passes for ann"
            );
        }
        assert!(check_user("ann of green gables").is_ok());
        for nowhere in [".", ".."] {
            assert_eq!(check_article_id(nowhere), Err(EntityError::ArticleId));
        }
        assert!(check_article_id("...").is_ok() && check_article_id(".a").is_ok());
        assert_eq!(check_user("ann@example.org"), Ok(()));
    }

    proptest! {
        #[test]
        fn sort_keys_ascend_from_new_to_old(one in 0..TIME_MAX, other in 0..TIME_MAX, a in "[a-z]{1,5}", b in "[a-z]{1,5}") {
            let by_key = sort_key(one, &a).cmp(&sort_key(other, &b));
            prop_assert_eq!(by_key, other.cmp(&one).then(a.cmp(&b)));
        }
    }
}
