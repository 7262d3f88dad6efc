//! Reviews: written here, read from everywhere, summed over all accounts.

use futures::future::join_all;
use serde::Deserialize;

use super::freshness::AccountAnswer;
use super::lists::{List, ListPage, PageRequest};
use super::{CHANGE_ATTEMPTS, ContentPublishDatabase, contended, give_way, insist};
use crate::account::{AccountClient, ReadAt, Scope, Seen};
use crate::clock;
use crate::entity::{Entity as _, Review, ReviewTotals, check_article_id};
use crate::error::{CallError, CallKind, PublishError};
use crate::rating::{RatingSummary, RatingTotals};

/// One query per account and article, in the article's own partition.
const COUNT: &str = "SELECT COUNT(c.Rating = 1 ? 1 : undefined) AS one, COUNT(c.Rating = 2 ? 1 : undefined) AS two, \
     COUNT(c.Rating = 3 ? 1 : undefined) AS three, COUNT(c.Rating = 4 ? 1 : undefined) AS four, \
     COUNT(c.Rating = 5 ? 1 : undefined) AS five FROM c WHERE c.PartitionKey = @key AND c.Type = @type";

/// Up to this many reviews are counted when they are asked for; from there on what the change feed has counted is good
/// enough, and costs the same for any number.
const EXACT_MAX: u64 = 1000;

/// How an article is rated.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub rating: RatingSummary,
    pub missing: Vec<String>,
    pub accounts: Vec<AccountAnswer>,
}

#[derive(Deserialize)]
struct Counts {
    one: u64,
    two: u64,
    three: u64,
    four: u64,
    five: u64,
}

impl ContentPublishDatabase {
    /// Writes the user's review of an article into the own account. A user's second review there replaces the first.
    pub async fn write_review(
        &self,
        article: &str,
        user: &str,
        text: &str,
        rating: u8,
    ) -> Result<(Review, bool), PublishError> {
        let account = self.local();
        let mut review = Review::new(article, user, account.tag(), text, rating, clock::own_ms())?;
        for n_tried in 1..=CHANGE_ATTEMPTS {
            match insist(|| account.create(&review)).await {
                Ok(_) => return Ok((review, true)),
                Err(error) if error.kind == CallKind::Exists => {}
                Err(error) => return Err(error.into()),
            }
            let stored: Seen<Review> = account.read(article, review.id(), ReadAt::WriteRegion).await?;
            if review.is_same(&stored.value) {
                return Ok((stored.value, false));
            }
            review = review.replacing(&stored.value);
            match account
                .replace(&review, stored.etag.as_deref().unwrap_or_default())
                .await
            {
                Ok(_) => return Ok((review, false)),
                Err(error) if matches!(error.kind, CallKind::Changed | CallKind::NotFound) => give_way(n_tried).await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(contended(account).into())
    }

    /// The reviews of an article from all accounts, newest first.
    pub async fn read_reviews(&self, article: &str, request: &PageRequest) -> Result<ListPage<Review>, PublishError> {
        check_article_id(article)?;
        let list = List {
            kind: "reviews",
            subject: article,
            scope: Scope::Key(article),
            members: "*",
            condition: "",
            parameters: Vec::new(),
        };
        self.read_list(&list, request, |_| false).await
    }

    /// How an article is rated over all accounts: counts are added, and the average is taken last. An account with many
    /// reviews answers with the totals that its change feed keeps, which may be a moment old.
    pub async fn read_article_summary(&self, article: &str) -> Result<Summary, PublishError> {
        check_article_id(article)?;
        let counted = join_all(self.accounts.iter().map(|account| count(account, article))).await;
        let (mut totals, mut missing, mut accounts) = (RatingTotals::default(), Vec::new(), Vec::new());
        for (account, result) in self.accounts.iter().zip(counted) {
            let mut answer = AccountAnswer::new(account.tag());
            match result {
                Ok(seen) => {
                    answer.heard(&seen);
                    totals = totals.plus(seen.value);
                }
                Err(error) => {
                    answer.failed = Some(error.message);
                    missing.push(account.tag().to_owned());
                }
            }
            accounts.push(answer);
        }
        Ok(Summary {
            rating: totals.summary(),
            missing,
            accounts,
        })
    }
}

async fn count(account: &AccountClient, article: &str) -> Result<Seen<RatingTotals>, CallError> {
    if account.is_resting() {
        return Err(account.error(CallKind::Unreachable, "it did not answer a moment ago", None));
    }
    if let Some(kept) = kept(account, article).await? {
        return Ok(kept);
    }
    let parameters = [("@key", article.into()), ("@type", Review::TYPE.into())];
    let seen = account
        .noted(account.query::<Counts>(COUNT, &parameters, Scope::Key(article)))
        .await?;
    let sum = |totals: RatingTotals, counts: &Counts| {
        let Counts {
            one,
            two,
            three,
            four,
            five,
        } = counts;
        totals.plus(RatingTotals::from_counts([*one, *two, *three, *four, *five]))
    };
    let totals = seen.value.iter().fold(RatingTotals::default(), sum);
    Ok(seen.with(totals))
}

/// The totals that the account's change feed keeps, if they are of many reviews.
async fn kept(account: &AccountClient, article: &str) -> Result<Option<Seen<RatingTotals>>, CallError> {
    let result = account
        .read::<ReviewTotals>(article, ReviewTotals::ID, ReadAt::Near)
        .await;
    account.note(&result);
    match result {
        Ok(seen) => {
            let counts = seen.value.counts;
            Ok((counts.count() > EXACT_MAX).then(|| seen.with(counts)))
        }
        Err(error) if error.kind == CallKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
