//! The user's code: what it is given and what it may answer.
//!
//! Typed and raw delegates come down to one trait object. A typed delegate never sees an item it cannot read: those are
//! reported by index, and the rest of the batch goes on. Invariant: a batch counts as handled only when the delegate
//! said so.

use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::error::Cause;
use crate::feed::Change;
use crate::range::EpkRange;
use crate::start::Position;
use crate::token::FeedToken;

/// Changes of one lease as they came, in order.
#[derive(Clone, Debug)]
pub struct RawBatch {
    changes: Arc<Vec<Change>>,
    slice: Range<usize>,
}

impl RawBatch {
    pub(crate) fn new(changes: Arc<Vec<Change>>, slice: Range<usize>) -> RawBatch {
        RawBatch { changes, slice }
    }
}

impl Deref for RawBatch {
    type Target = [Change];

    fn deref(&self) -> &[Change] {
        &self.changes[self.slice.clone()]
    }
}

/// Changes of one lease with typed items, in order.
pub type Batch<T> = Vec<Change<T>>;

/// What a delegate knows about its batch.
#[derive(Clone, Debug)]
pub struct BatchContext {
    /// Token of the lease.
    pub lease: String,
    pub range: EpkRange,
    /// 1 for the first try of this slice.
    pub attempt: u32,
    /// Rises with every owner of the lease: whoever writes elsewhere can refuse lower ones.
    pub epoch: u64,
    /// Where the page that the batch is of begins.
    pub from: Position,
    /// Where it ends.
    pub token: FeedToken,
    /// Request units of the read.
    pub charge: f64,
    /// Session token of the read: a read with it sees at least these changes.
    pub session: Option<String>,
    /// The read's activity id, to be named when somebody has to look into the service's own records.
    pub activity_id: Option<String>,
    /// Region that answered.
    pub region: Option<String>,
    /// Transactions that were waiting behind this batch when it was read, if known.
    pub lag: Option<u64>,
    /// Cancelled when the host stops or loses the lease: finish soon, or return.
    pub cancelled: CancellationToken,
    pub(crate) checkpoints: mpsc::Sender<CheckpointRequest>,
    /// Everything of the page that is not in this batch is settled.
    pub(crate) ends_page: bool,
}

/// A delegate's wish to save the position after its batch.
#[derive(Debug)]
pub(crate) struct CheckpointRequest {
    pub token: FeedToken,
    pub done: oneshot::Sender<Result<(), CheckpointError>>,
}

/// What became of a delegate's wish to save its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The position after the batch is saved: nothing of it comes again.
    Now,
    /// Nothing is saved yet. The batch is a part of a page of which other parts are not done, and positions lie between pages:
    /// until the page is saved, it comes again as a whole if the host dies.
    WithTheRest,
}

/// A manual checkpoint that did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error("the lease is no longer held; another host goes on from the last checkpoint")]
    LeaseLost,
}

impl BatchContext {
    /// Saves that everything up to the end of this batch is done. With automatic checkpoints there is no need. Positions lie
    /// between pages: of a page that came in parts, because it failed as a whole or is handled by several calls at once, only
    /// the part that is left when all others are done can be saved; the answer says which.
    pub async fn checkpoint(&self) -> Result<Saved, CheckpointError> {
        if !self.ends_page {
            return Ok(Saved::WithTheRest);
        }
        let (done, answer) = oneshot::channel();
        let token = self.token.clone();
        let sent = self.checkpoints.send(CheckpointRequest { token, done }).await;
        sent.map_err(|_| CheckpointError::LeaseLost)?;
        answer.await.unwrap_or(Err(CheckpointError::LeaseLost))?;
        Ok(Saved::Now)
    }
}

/// What a delegate answers. `()` stands for [`Outcome::Done`], so that a delegate that only succeeds or fails need not name
/// it.
///
/// ```
/// use std::time::Duration;
///
/// use orrery_processor::{Batch, BatchContext, ItemFailure, Outcome};
///
/// # struct Order { total: f64 }
/// # fn mail_is_down() -> bool { false }
/// async fn handle(orders: Batch<Order>, _: BatchContext) -> Result<Outcome, std::io::Error> {
///     if mail_is_down() {
///         let after = Some(Duration::from_secs(30));
///         return Ok(Outcome::RetryBatch { after });
///     }
///     let orders = orders.iter().map(|change| change.current.as_ref()).enumerate();
///     let negative = orders.filter(|(_, order)| order.is_some_and(|order| order.total < 0.0));
///     let failed = negative.map(|(index, _)| ItemFailure::dead_letter(index, "a total below zero"));
///     Ok(Outcome::Failed(failed.collect()))
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The batch is handled.
    #[default]
    Done,
    /// The batch is handled but for these items; the others do not come again. Whether later changes of a failed item's key
    /// may be handled before it is the delegate's decision.
    Failed(Vec<ItemFailure>),
    /// Not now: the same batch again after a while, or after the pause of the retry policy. It does not count as a failure,
    /// so nothing is ever given up because of it.
    RetryBatch { after: Option<Duration> },
    /// Not here: the lease is kept at its position and not read any more, until it is reset or another process takes it.
    HaltLease { reason: String },
    /// The whole host stops, as [`crate::Running::stop`] does. The batch is not saved; a delegate that has handled it calls
    /// [`BatchContext::checkpoint`] first, which says whether that was enough.
    StopHost,
}

impl From<()> for Outcome {
    fn from((): ()) -> Outcome {
        Outcome::Done
    }
}

/// An item that was not handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemFailure {
    /// Place in the batch.
    pub index: usize,
    pub reason: String,
    /// Worth another attempt. Otherwise it becomes a dead letter at once, where there is a place for those.
    pub retry: bool,
}

impl ItemFailure {
    /// An item to be tried again, on its own.
    pub fn retry(index: usize, reason: impl Into<String>) -> ItemFailure {
        let reason = reason.into();
        ItemFailure {
            index,
            reason,
            retry: true,
        }
    }

    /// An item that no attempt can help.
    pub fn dead_letter(index: usize, reason: impl Into<String>) -> ItemFailure {
        let reason = reason.into();
        ItemFailure {
            index,
            reason,
            retry: false,
        }
    }
}

/// What a call came to. Indexes are those of the page.
#[derive(Debug)]
pub(crate) enum Verdict {
    Done,
    /// It failed as a whole, or panicked.
    Failed(String),
    /// All but these were handled.
    Items(Vec<ItemFailure>),
    /// These cannot be read as the delegate's type. The others were not tried yet.
    Unreadable(Vec<(usize, String)>),
    RetryBatch {
        after: Option<Duration>,
    },
    HaltLease(String),
    StopHost,
}

/// A delegate without its types.
pub(crate) trait Delegate: Send + Sync + 'static {
    fn call(&self, batch: RawBatch, context: BatchContext) -> BoxFuture<'static, Verdict>;
}

/// Wraps a function over raw changes.
pub(crate) struct RawDelegate<F>(pub F);

impl<F, R, O, E> Delegate for RawDelegate<F>
where
    F: Fn(RawBatch, BatchContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, E>> + Send + 'static,
    O: Into<Outcome>,
    E: Into<Cause>,
{
    fn call(&self, batch: RawBatch, context: BatchContext) -> BoxFuture<'static, Verdict> {
        let slice = batch.slice.clone();
        let handled = (self.0)(batch, context);
        async move { verdict(handled.await, &slice) }.boxed()
    }
}

/// What a delegate's answer says about a slice of a page.
fn verdict<O: Into<Outcome>, E: Into<Cause>>(answer: Result<O, E>, slice: &Range<usize>) -> Verdict {
    match answer.map(Into::into) {
        Err(error) => Verdict::Failed(chain(&*error.into())),
        Ok(Outcome::Done) => Verdict::Done,
        Ok(Outcome::Failed(items)) => failed_items(items, slice),
        Ok(Outcome::RetryBatch { after }) => Verdict::RetryBatch { after },
        Ok(Outcome::HaltLease { reason }) => Verdict::HaltLease(reason),
        Ok(Outcome::StopHost) => Verdict::StopHost,
    }
}

fn failed_items(mut items: Vec<ItemFailure>, slice: &Range<usize>) -> Verdict {
    if items.is_empty() {
        return Verdict::Done;
    }
    if items.iter().any(|item| item.index >= slice.len()) {
        // Nobody can say what was handled.
        return Verdict::Failed("the delegate names an item that its batch does not have".to_owned());
    }
    items.iter_mut().for_each(|item| item.index += slice.start);
    Verdict::Items(items)
}

/// Wraps a function over typed changes.
pub(crate) struct TypedDelegate<F, T>(pub F, pub PhantomData<fn(T)>);

impl<F, T, R, O, E> Delegate for TypedDelegate<F, T>
where
    F: Fn(Batch<T>, BatchContext) -> R + Send + Sync + 'static,
    T: DeserializeOwned + Send + 'static,
    R: Future<Output = Result<O, E>> + Send + 'static,
    O: Into<Outcome>,
    E: Into<Cause>,
{
    fn call(&self, batch: RawBatch, context: BatchContext) -> BoxFuture<'static, Verdict> {
        let mut typed = Vec::with_capacity(batch.len());
        let mut unreadable = Vec::new();
        for (index, change) in batch.slice.clone().zip(batch.iter()) {
            match change.typed() {
                Ok(change) => typed.push(change),
                Err(error) => unreadable.push((index, error.to_string())),
            }
        }
        if !unreadable.is_empty() {
            return async move { Verdict::Unreadable(unreadable) }.boxed();
        }
        let slice = batch.slice.clone();
        let handled = (self.0)(typed, context);
        async move { verdict(handled.await, &slice) }.boxed()
    }
}

/// An error with its causes, outermost first.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(answer: Outcome) -> String {
        format!("{:?}", verdict(Ok::<_, String>(answer), &(10..13)))
    }

    #[test]
    fn items_are_named_by_their_place_in_the_page() {
        let Verdict::Items(items) = verdict(
            Ok::<_, String>(Outcome::Failed(vec![
                ItemFailure::retry(2, "late"),
                ItemFailure::dead_letter(0, "bad"),
            ])),
            &(10..13),
        ) else {
            panic!("items failed");
        };
        let items: Vec<_> = items.into_iter().map(|item| (item.index, item.retry)).collect();
        assert_eq!(items, [(12, true), (10, false)]);
    }

    #[test]
    fn no_failed_item_is_success_and_one_that_is_not_there_fails_the_batch() {
        assert_eq!(said(Outcome::Failed(Vec::new())), "Done");
        assert!(said(Outcome::Failed(vec![ItemFailure::retry(3, "no")])).starts_with("Failed"));
        assert_eq!(said(().into()), "Done");
    }
}
