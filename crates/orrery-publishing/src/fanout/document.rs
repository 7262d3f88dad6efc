//! A change of a source account's feed as a role sees it, and what the role does about it.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use orrery_processor::Batch;
use orrery_processor::dead_letters::DeadLetter;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::serve::{ServeError, Server};
use super::tally::TOGETHER_MAX;
use crate::database::Message;
use crate::entity::{Article, Entity as _, Review, Subscription};
use crate::error::{Cause, PublishError};

/// A change as far as the role cares. What lacks a type is nobody's document of this platform.
pub(super) enum Document {
    Article(Box<Article>),
    Subscription(Box<Subscription>),
    Review(Box<Review>),
    /// Something waits for another account, or has been given up.
    Message,
    Other,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Document, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value.get("Type").and_then(Value::as_str) {
            Some(Article::TYPE) => Ok(Document::Article(Box::new(
                serde_json::from_value(value).map_err(D::Error::custom)?,
            ))),
            Some(Subscription::TYPE) => Ok(Document::Subscription(Box::new(
                serde_json::from_value(value).map_err(D::Error::custom)?,
            ))),
            Some(Review::TYPE) => Ok(Document::Review(Box::new(
                serde_json::from_value(value).map_err(D::Error::custom)?,
            ))),
            Some(Message::TYPE) => Ok(Document::Message),
            _ => Ok(Document::Other),
        }
    }
}

/// Whether something was put into the outbox.
pub(super) fn has_mail(batch: &Batch<Document>) -> bool {
    let mut documents = batch.iter().filter_map(|change| change.current.as_ref());
    documents.any(|document| matches!(document, Document::Message))
}

/// Articles are served side by side, and so are lists of users: a page of the feed has each document once, so no two of them
/// are about the same one.
pub(super) async fn handle(
    server: &Server,
    batch: Batch<Document>,
    is_local: bool,
    cancelled: &CancellationToken,
) -> Result<(), ServeError> {
    let (mut articles, mut subscriptions, mut reviews) = (Vec::new(), Vec::new(), Vec::new());
    for document in batch.into_iter().filter_map(|change| change.current) {
        match document {
            Document::Article(article) => articles.push(article),
            Document::Subscription(subscription) if is_local => subscriptions.push(subscription),
            Document::Review(review) if is_local => reviews.push(review),
            _ => {}
        }
    }
    let mut services = Vec::new();
    for article in &articles {
        services.push(server.serve(article, cancelled).boxed());
    }
    let mut listings = Vec::new();
    for subscription in &subscriptions {
        listings.push(server.list(subscription).boxed());
    }
    let counts = by_article(&reviews)
        .into_values()
        .map(|reviews| count(server, reviews).boxed())
        .collect();
    let (articles_max, listings_max) = (server.limits.articles, server.limits.in_flight);
    futures::try_join!(
        all_of(services, articles_max),
        all_of(listings, listings_max),
        all_of(counts, articles_max)
    )
    .map(drop)
}

/// The reviews of each article, every one in its last version.
fn by_article(reviews: &[Box<Review>]) -> BTreeMap<&str, Vec<&Review>> {
    let mut by_article: BTreeMap<&str, BTreeMap<&str, &Review>> = BTreeMap::new();
    for review in reviews {
        let of_article = by_article.entry(&review.article_id).or_default();
        of_article.insert(review.id(), review);
    }
    by_article
        .into_iter()
        .map(|(article, reviews)| (article, reviews.into_values().collect()))
        .collect()
}

/// Counts reviews of one article, as many as possible in one write: a burst of them must not hold up the articles after it.
async fn count(server: &Server, reviews: Vec<&Review>) -> Result<(), ServeError> {
    for together in reviews.chunks(TOGETHER_MAX) {
        server.tally(together).await?;
    }
    Ok(())
}

/// Does all of it, so much at the same time.
async fn all_of(work: Vec<BoxFuture<'_, Result<(), ServeError>>>, n_max: usize) -> Result<(), ServeError> {
    let results = futures::stream::iter(work).buffer_unordered(n_max);
    results.try_for_each(|()| std::future::ready(Ok(()))).await
}

/// What a letter is about, as it is now: it may have been repaired, have changed or be gone since.
pub(super) async fn handle_again(server: &Server, letter: &DeadLetter) -> Result<(), Cause> {
    let of_letter = |name: &str| {
        letter
            .current
            .as_ref()
            .and_then(|item| item.get(name))
            .and_then(Value::as_str)
    };
    match (of_letter("Type"), &letter.item_id) {
        (Some(Article::TYPE), Some(id)) => match server.database.read_article(id, None).await {
            Ok(article) => Ok(server.serve(&article, &CancellationToken::new()).await?),
            Err(PublishError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        },
        (Some(Subscription::TYPE), _) => {
            let subscription = serde_json::from_value(letter.current.clone().unwrap_or_default())?;
            Ok(server.list(&subscription).await?)
        }
        (Some(Review::TYPE), _) => {
            let review = serde_json::from_value(letter.current.clone().unwrap_or_default())?;
            Ok(server.tally(&[&review]).await?)
        }
        _ => Ok(()),
    }
}
