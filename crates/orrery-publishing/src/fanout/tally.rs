//! Counting a review into its article's totals, once per version.

use super::serve::{ServeError, Server};
use crate::account::{Changes, ReadAt, Seen};
use crate::entity::{CountedReview, Entity, Review, ReviewTotals};
use crate::error::{CallError, CallKind};
use crate::ids;

/// Attempts while another host counts reviews of the same article.
const ATTEMPTS: usize = 8;

impl Server {
    /// Brings the totals of the own account up to a review.
    pub async fn tally(&self, review: &Review) -> Result<(), ServeError> {
        let (mut at, counted_id) = (ReadAt::Near, ids::counted_id(review.id()));
        for _ in 0..ATTEMPTS {
            let (totals, counted) = futures::try_join!(
                self.known::<ReviewTotals>(review, ReviewTotals::ID, at),
                self.known::<CountedReview>(review, &counted_id, at),
            )?;
            let known = (totals.as_ref(), counted.as_ref());
            let Some((sum, one)) = ReviewTotals::count(known.0.map(value), known.1.map(value), review) else {
                return Ok(());
            };
            let changes = Changes::of_key(&review.article_id)
                .put(&sum, known.0.and_then(etag))
                .and_then(|changes| changes.put(&one, known.1.and_then(etag)))
                .map_err(|error| {
                    self.local()
                        .error(CallKind::Refused, "cannot be written", Some(error.into()))
                })?;
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

    async fn known<E: Entity>(&self, review: &Review, id: &str, at: ReadAt<'_>) -> Result<Option<Seen<E>>, CallError> {
        match self.local().read(&review.article_id, id, at).await {
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
