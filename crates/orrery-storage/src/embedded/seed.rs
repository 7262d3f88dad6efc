//! A view being installed: its entries go under a view of their own, are flushed, and only then a record makes the log.

use std::sync::Arc;

use orrery_model::{LogId, Position};
use orrery_partition::storage::{BoxFuture, Result, Seed, ViewWrite};

use super::Shared;
use super::layers::Layers;
use super::queue::Command;
use super::record::ViewId;
use super::view::Batch;

/// Bytes handed to the committer at a time, so that a large seed never holds up appends for long.
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct EmbeddedSeed {
    shared: Arc<Shared>,
    log: LogId,
    view: ViewId,
    is_finished: bool,
}

impl EmbeddedSeed {
    pub(super) async fn begin(shared: Arc<Shared>, log: LogId) -> Result<EmbeddedSeed> {
        let view = shared.queue.ask(|answer| Command::Seed { log, answer }).await?;
        Ok(EmbeddedSeed {
            shared,
            log,
            view,
            is_finished: false,
        })
    }

    async fn write(&mut self, writes: Vec<ViewWrite>) -> Result<()> {
        let mut chunk = Vec::new();
        let mut chunk_bytes = 0;
        for (key, value) in writes {
            chunk_bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
            chunk.push((key, value));
            if chunk_bytes >= CHUNK_BYTES {
                self.hand_over(std::mem::take(&mut chunk)).await?;
                chunk_bytes = 0;
            }
        }
        self.hand_over(chunk).await
    }

    async fn hand_over(&self, entries: Vec<ViewWrite>) -> Result<()> {
        let mut writes = Batch::default();
        writes.entries(&Layers::single(self.view), entries);
        self.shared
            .queue
            .ask(|answer| Command::SeedWrite { writes, answer })
            .await
    }

    async fn finish(mut self, position: Position) -> Result<()> {
        self.shared.checkpoint().await?;
        let (log, view) = (self.log, self.view);
        self.shared
            .queue
            .ask(|answer| Command::SeedFinish {
                log,
                view,
                position,
                answer,
            })
            .await?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for EmbeddedSeed {
    fn drop(&mut self) {
        if !self.is_finished {
            self.shared.queue.push(Command::SeedAbort {
                log: self.log,
                view: self.view,
            });
        }
    }
}

impl Seed for EmbeddedSeed {
    fn write(&mut self, writes: Vec<ViewWrite>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write(writes))
    }

    fn finish(self: Box<Self>, position: Position) -> BoxFuture<'static, Result<()>> {
        Box::pin((*self).finish(position))
    }
}
