//! Dead letters through the delegate that could not handle them.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Processor;
use crate::dead_letters::{DeadLetter, Replay, ReplayError, replay};
use crate::delegate::{BatchContext, RawBatch, Verdict};
use crate::error::StoreError;
use crate::range::EpkRange;
use crate::start::{Position, StartFrom};
use crate::token::FeedToken;

impl Processor {
    /// Gives this processor's dead letters for which `wanted` says yes to its own delegate, each as a batch of one, key by key
    /// and oldest first, and deletes those that it handles. A key whose letter it does not handle keeps it and everything
    /// behind it. The processor need not be started.
    pub async fn replay(&self, wanted: impl Fn(&DeadLetter) -> bool) -> Result<Replay, ReplayError> {
        let Some(store) = &self.dead_letters else {
            let source = StoreError::Refused("the processor has no place for dead letters".into());
            return Err(ReplayError { handled: 0, source });
        };
        replay(store.as_ref(), &self.name, wanted, |letter| self.handle_again(letter)).await
    }

    async fn handle_again(&self, letter: DeadLetter) -> Result<(), String> {
        let (checkpoints, mut asked) = mpsc::channel(1);
        let context = context(&letter, checkpoints);
        let batch = RawBatch::new(Arc::new(vec![letter.change()]), 0..1);
        let delegate = Arc::clone(&self.delegate);
        // A task of its own, as for any other batch: a delegate may panic.
        let mut called = tokio::spawn(async move { delegate.call(batch, context).await });
        let verdict = loop {
            // Joining and receiving lose nothing when the other branch is taken.
            tokio::select! {
                done = &mut called => break done.map_err(|error| error.to_string())?,
                // There is no position to save: the letter is deleted when it is handled.
                Some(request) = asked.recv() => drop(request.done.send(Ok(()))),
            }
        };
        settled(verdict)
    }
}

fn context(letter: &DeadLetter, checkpoints: mpsc::Sender<crate::delegate::CheckpointRequest>) -> BatchContext {
    BatchContext {
        lease: letter.lease_token.clone(),
        range: letter.range.clone().unwrap_or_else(EpkRange::full),
        attempt: letter.attempts.saturating_add(1),
        epoch: letter.epoch,
        from: Position::From(StartFrom::Beginning),
        token: FeedToken::at(letter.lsn.unwrap_or_default()),
        charge: 0.0,
        session: None,
        activity_id: None,
        region: None,
        lag: None,
        cancelled: CancellationToken::new(),
        checkpoints,
        ends_page: true,
    }
}

/// Whether a letter is handled, or why it stays.
fn settled(verdict: Verdict) -> Result<(), String> {
    let first = |reason: Option<String>| reason.unwrap_or_else(|| "it failed".to_owned());
    match verdict {
        Verdict::Done => Ok(()),
        Verdict::Failed(error) => Err(error),
        Verdict::Items(items) => Err(first(items.into_iter().next().map(|item| item.reason))),
        Verdict::Unreadable(items) => Err(first(items.into_iter().next().map(|(_, error)| error))),
        Verdict::RetryBatch { .. } => Err("the delegate asked for it to come again".to_owned()),
        Verdict::HaltLease(reason) => Err(reason),
        Verdict::StopHost => Err("the delegate asked its host to stop".to_owned()),
    }
}
