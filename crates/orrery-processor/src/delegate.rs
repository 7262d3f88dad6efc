//! The user's code: what it is given and what it may answer.
//!
//! Typed and raw delegates come down to one trait object. A typed delegate never sees an item it cannot read: those are
//! reported by index, and the rest of the batch goes on. Invariant: a batch counts as handled only when the delegate
//! returned success.

use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::error::Cause;
use crate::feed::Change;
use crate::range::EpkRange;
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
    /// Where the batch ends.
    pub token: FeedToken,
    /// Request units of the read.
    pub charge: f64,
    /// Transactions that were waiting behind this batch when it was read, if known.
    pub lag: Option<u64>,
    /// Cancelled when the host stops or loses the lease: finish soon, or return.
    pub cancelled: CancellationToken,
    pub(crate) checkpoints: mpsc::Sender<CheckpointRequest>,
    /// Nothing of the page comes after this batch.
    pub(crate) ends_page: bool,
}

/// A delegate's wish to save the position after its batch.
#[derive(Debug)]
pub(crate) struct CheckpointRequest {
    pub token: FeedToken,
    pub done: oneshot::Sender<Result<(), CheckpointError>>,
}

/// A manual checkpoint that did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error("the lease is no longer held; another host goes on from the last checkpoint")]
    LeaseLost,
}

impl BatchContext {
    /// Saves that everything up to the end of this batch is done. With automatic checkpoints there is no need. Positions lie
    /// between pages: of a page that was cut because it failed as a whole, only the last part can be saved.
    pub async fn checkpoint(&self) -> Result<(), CheckpointError> {
        if !self.ends_page {
            return Ok(());
        }
        let (done, answer) = oneshot::channel();
        let token = self.token.clone();
        let sent = self.checkpoints.send(CheckpointRequest { token, done }).await;
        sent.map_err(|_| CheckpointError::LeaseLost)?;
        answer.await.unwrap_or(Err(CheckpointError::LeaseLost))
    }
}

/// What a delegate answers that handled its batch but for some items: those are tried again, one by one, and the others do
/// not come again. Whether later changes of a failed item's key may be handled before it is the delegate's decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} items failed", .0.len())]
pub struct ItemsFailed(
    /// Places in the batch, and why each failed.
    pub Vec<(usize, String)>,
);

/// Why a delegate did not handle a slice.
#[derive(Debug)]
pub(crate) enum DelegateError {
    /// It said so, or panicked.
    Failed(String),
    /// It handled all but these, by their index in the page.
    Items(Vec<(usize, String)>),
    /// These items, by their index in the batch, cannot be read as the delegate's type. The others were not tried yet.
    Unreadable(Vec<(usize, String)>),
}

/// A delegate without its types.
pub(crate) trait Delegate: Send + Sync + 'static {
    fn call(&self, batch: RawBatch, context: BatchContext) -> BoxFuture<'static, Result<(), DelegateError>>;
}

/// Wraps a function over raw changes.
pub(crate) struct RawDelegate<F>(pub F);

impl<F, R, E> Delegate for RawDelegate<F>
where
    F: Fn(RawBatch, BatchContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Cause>,
{
    fn call(&self, batch: RawBatch, context: BatchContext) -> BoxFuture<'static, Result<(), DelegateError>> {
        let slice = batch.slice.clone();
        let handled = (self.0)(batch, context);
        async move { handled.await.map_err(|error| told(error.into(), &slice)) }.boxed()
    }
}

/// What an error of the delegate's own says about a slice.
fn told(error: Cause, slice: &Range<usize>) -> DelegateError {
    match error.downcast::<ItemsFailed>() {
        Ok(failed) if !failed.0.is_empty() && failed.0.iter().all(|(place, _)| *place < slice.len()) => {
            let items = failed.0.into_iter();
            DelegateError::Items(items.map(|(place, error)| (slice.start + place, error)).collect())
        }
        // Without an item, or with one that is not there, it says nothing but that the batch failed.
        Ok(failed) => DelegateError::Failed(failed.to_string()),
        Err(error) => DelegateError::Failed(chain(&*error)),
    }
}

/// Wraps a function over typed changes.
pub(crate) struct TypedDelegate<F, T>(pub F, pub PhantomData<fn(T)>);

impl<F, T, R, E> Delegate for TypedDelegate<F, T>
where
    F: Fn(Batch<T>, BatchContext) -> R + Send + Sync + 'static,
    T: DeserializeOwned + Send + 'static,
    R: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Cause>,
{
    fn call(&self, batch: RawBatch, context: BatchContext) -> BoxFuture<'static, Result<(), DelegateError>> {
        let mut typed = Vec::with_capacity(batch.len());
        let mut unreadable = Vec::new();
        for (index, change) in batch.slice.clone().zip(batch.iter()) {
            match change.typed() {
                Ok(change) => typed.push(change),
                Err(error) => unreadable.push((index, error.to_string())),
            }
        }
        if !unreadable.is_empty() {
            return async move { Err(DelegateError::Unreadable(unreadable)) }.boxed();
        }
        let slice = batch.slice.clone();
        let handled = (self.0)(typed, context);
        async move { handled.await.map_err(|error| told(error.into(), &slice)) }.boxed()
    }
}

/// An error with its causes, outermost first.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
