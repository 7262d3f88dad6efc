//! A log of an embedded store in the role it was opened in.

use std::sync::Arc;

use bytes::Bytes;
use orrery_model::log::Transaction;
use orrery_model::{LogId, Lsn, Position};
use orrery_partition::storage::{BoxFuture, Hold, Log, Result, Snapshot, Staged, StorageError};

use super::Shared;
use super::catalog::{Location, LogState};
use super::queue::{Append, Command};
use super::snapshot::EmbeddedSnapshot;
use super::view::Batch;
use crate::body::{decode_transactions, encode_transactions};
use crate::fence::{Claim, check_chain};

/// Bytes of transactions in one append, far above what a request may carry.
const APPEND_BYTES_MAX: usize = 256 << 20;

#[derive(Debug)]
pub(crate) struct EmbeddedLog {
    pub(super) shared: Arc<Shared>,
    pub(super) state: Arc<LogState>,
    pub(super) claim: Claim,
}

impl EmbeddedLog {
    async fn append(&self, expected: Position, staged: Vec<Staged>) -> Result<()> {
        check_chain(expected, &staged)?;
        let Some(last) = staged.last().map(|last| last.transaction.position()) else {
            return self.check_at(expected);
        };
        let body = encode_transactions(&staged);
        if body.len() > APPEND_BYTES_MAX {
            return Err(StorageError::Unavailable(format!(
                "an append of {} bytes is too large",
                body.len()
            )));
        }
        self.append_encoded(expected, last, body.into(), staged).await
    }

    /// Appends transactions whose chain was checked and which are encoded already; the last of them leaves the log at `last`.
    pub(crate) async fn append_encoded(
        &self,
        expected: Position,
        last: Position,
        body: Bytes,
        staged: Vec<Staged>,
    ) -> Result<()> {
        let mut writes = Batch::default();
        let changes = staged.into_iter().flat_map(|staged| staged.writes).collect();
        let layers = self.state.layers();
        writes.entries(&layers, changes);
        let (state, claim) = (self.state.clone(), self.claim);
        let command = |answer| {
            Command::Append(Append {
                state,
                claim,
                expected,
                last,
                body,
                view: layers.own,
                writes,
                answer,
            })
        };
        self.shared.queue.ask(command).await
    }

    /// What an append of nothing answers.
    fn check_at(&self, expected: Position) -> Result<()> {
        self.check_claim()?;
        match self.state.position() {
            position if position == expected => Ok(()),
            actual => Err(StorageError::Fenced { actual }),
        }
    }

    fn check_claim(&self) -> Result<()> {
        let content = self.state.lock();
        if content.is_dropped {
            return Err(StorageError::Fenced {
                actual: Position::default(),
            });
        }
        self.claim.check(content.owner, self.state.position())
    }

    async fn read_log(&self, after: Lsn, limit_bytes: usize) -> Result<Vec<Transaction>> {
        let locations = self.locate(after, limit_bytes)?;
        if locations.is_empty() {
            return Ok(Vec::new());
        }
        let readers = self.shared.readers.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut transactions = Vec::new();
            for Location {
                segment,
                offset,
                length,
                ..
            } in locations
            {
                transactions.extend(decode_transactions(&readers.read(segment, offset, length)?)?);
            }
            Ok(transactions)
        });
        match read
            .await
            .unwrap_or_else(|_| Err(StorageError::Unavailable("reading the log was cut off".into())))
        {
            Ok(mut transactions) => {
                transactions.retain(|transaction| transaction.lsn > after);
                Ok(transactions)
            }
            // When it was trimmed meanwhile, say so.
            Err(error) => {
                self.locate(after, limit_bytes)?;
                Err(self.shared.damage.noted(error))
            }
        }
    }

    fn locate(&self, after: Lsn, limit_bytes: usize) -> Result<Vec<Location>> {
        let content = self.state.lock();
        if after < content.start {
            return Err(StorageError::Trimmed { start: content.start });
        }
        Ok(content.find(after, limit_bytes))
    }

    fn trim(&self, below: Lsn) -> Lsn {
        let flushed = self.shared.keeper.flushed().sequence;
        let mut content = self.state.lock();
        let limit = self.state.holds.limit(below);
        let start = content.trim(limit, flushed);
        drop(content);
        self.shared.queue.push(Command::Tidy);
        start
    }
}

impl Log for EmbeddedLog {
    fn id(&self) -> LogId {
        self.state.id
    }

    fn head(&self) -> Position {
        self.state.position()
    }

    fn append(&self, expected: Position, staged: Vec<Staged>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.append(expected, staged))
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let both = || (self.state.position(), self.state.layers());
        let (reader, (position, layers)) = self.shared.view.reader(both);
        Ok(Arc::new(EmbeddedSnapshot {
            reader,
            layers,
            position,
        }))
    }

    fn read_log(&self, after: Lsn, limit_bytes: usize) -> BoxFuture<'_, Result<Vec<Transaction>>> {
        Box::pin(self.read_log(after, limit_bytes))
    }

    fn wait_past(&self, after: Lsn) -> BoxFuture<'_, Position> {
        Box::pin(self.state.head.wait_past(after))
    }

    fn hold(&self, after: Lsn) -> Box<dyn Hold> {
        // Trimming looks at the holds under the same lock, so none is overlooked.
        let _content = self.state.lock();
        self.state.holds.add(after)
    }

    fn trim(&self, below: Lsn) -> BoxFuture<'_, Result<Lsn>> {
        Box::pin(async move { Ok(self.trim(below)) })
    }

    fn barrier(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.check_claim() })
    }
}
