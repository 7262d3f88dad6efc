//! Counting reviews into their article's totals, once per version.

use futures::{StreamExt as _, TryStreamExt as _};

use super::serve::{ServeError, Server};
use crate::account::{Changes, ReadAt, Seen};
use crate::entity::{CountedReview, Entity, Review, ReviewTotals};
use crate::error::{CallError, CallKind};
use crate::ids;

/// Attempts while another host counts reviews of the same article.
const ATTEMPTS: usize = 8;
/// Reviews that are counted together: with the totals, as many documents as may be written at once.
pub(super) const TOGETHER_MAX: usize = 99;
const READS_IN_FLIGHT: usize = 8;

impl Server {
    /// Brings the totals of the own account up to reviews of one article, at most [`TOGETHER_MAX`].
    pub async fn tally(&self, reviews: &[&Review]) -> Result<(), ServeError> {
        let mut at = ReadAt::Near;
        for _ in 0..ATTEMPTS {
            let Some(changes) = self.uncounted(reviews, at).await? else {
                return Ok(());
            };
            match self.local().write_together(changes).await {
                Ok(()) => return Ok(()),
                // Somebody else was quicker, or the nearest region is behind the one that takes the write.
                Err(error) if matches!(error.kind, CallKind::Exists | CallKind::Changed | CallKind::NotFound) => {
                    at = ReadAt::WriteRegion;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(self
            .local()
            .error(CallKind::Changed, "changed again and again", None)
            .into())
    }

    /// What is to be written so that all of them are counted; nothing if they are.
    async fn uncounted(&self, reviews: &[&Review], at: ReadAt<'_>) -> Result<Option<Changes>, CallError> {
        let Some(article) = reviews.first().map(|review| review.article_id.as_str()) else {
            return Ok(None);
        };
        let counted_ids: Vec<String> = reviews.iter().map(|review| ids::counted_id(review.id())).collect();
        let mut reads = Vec::new();
        for id in &counted_ids {
            reads.push(self.known::<CountedReview>(article, id, at));
        }
        let reads = futures::stream::iter(reads).buffered(READS_IN_FLIGHT);
        let totals = self.known::<ReviewTotals>(article, ReviewTotals::ID, at);
        let (totals, counted) = futures::try_join!(totals, reads.try_collect::<Vec<_>>())?;
        let mut sum = totals.as_ref().map(|seen| seen.value.clone());
        let mut put = Vec::new();
        for (review, counted) in reviews.iter().zip(&counted) {
            if let Some((next, one)) = ReviewTotals::count(sum.as_ref(), counted.as_ref().map(value), review) {
                sum = Some(next);
                put.push((one, counted.as_ref().and_then(etag)));
            }
        }
        let Some(sum) = sum.filter(|_| !put.is_empty()) else {
            return Ok(None);
        };
        let changes = Changes::of_key(article)
            .put(&sum, totals.as_ref().and_then(etag))
            .and_then(|changes| {
                put.iter()
                    .try_fold(changes, |changes, (one, seen)| changes.put(one, *seen))
            });
        changes.map(Some).map_err(|error| {
            self.local()
                .error(CallKind::Refused, "cannot be written", Some(error.into()))
        })
    }

    async fn known<E: Entity>(&self, article: &str, id: &str, at: ReadAt<'_>) -> Result<Option<Seen<E>>, CallError> {
        match self.local().read(article, id, at).await {
            Ok(seen) => Ok(Some(seen)),
            Err(error) if error.kind == CallKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn value<T>(seen: &Seen<T>) -> &T {
    &seen.value
}

fn etag<T>(seen: &Seen<T>) -> Option<&str> {
    seen.etag.as_deref()
}
