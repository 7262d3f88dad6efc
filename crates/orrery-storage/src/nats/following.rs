//! A node that stands by: its copy follows what the owners of all logs write, so that it can answer reads and take over at once.
//!
//! Every stream is consumed as it grows. What arrives in order is applied as it is; anything else, and every silence that lasts,
//! makes the node look at the ends of the logs itself, so a consumer that stalls without saying so delays it for seconds and
//! no more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use orrery_model::LogId;
use orrery_partition::storage::Result;
use tokio_util::sync::DropGuard;

use super::message::{Message, StreamSequence};
use super::{NatsStore, Shared};

/// Silence after which the ends of the logs are looked at.
const SILENCE: Duration = Duration::from_secs(5);
/// Waited before a stream that could not be read is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// Keeps a node's copy following until it is dropped.
#[derive(Debug)]
pub struct Following {
    _stop: DropGuard,
}

impl NatsStore {
    /// Follows what other nodes write, from now until the answer is dropped or the store closed.
    pub fn follow(&self) -> Following {
        let stop = self.shared.closing.child_token();
        for idx in 0..self.shared.bus.n_streams() {
            let (shared, stopped) = (self.shared.clone(), stop.clone());
            self.shared.tasks.spawn(async move {
                // Nothing is lost between two polls: whatever was cut off is found again at the ends of the logs.
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = follow_stream(&shared, idx) => {}
                }
            });
        }
        Following {
            _stop: stop.drop_guard(),
        }
    }
}

/// Follows one stream for ever.
async fn follow_stream(shared: &Arc<Shared>, idx: u64) {
    loop {
        if let Err(error) = follow_once(shared, idx).await {
            tracing::warn!(stream = idx, %error, "a stream cannot be followed now");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Follows one stream until it falls silent or fails.
async fn follow_once(shared: &Arc<Shared>, idx: u64) -> Result<()> {
    let mut messages = shared.bus.consume(idx).await?;
    // What came before the consumer was there.
    shared.catch_up_stream(idx).await?;
    while let Ok(Some(message)) = tokio::time::timeout(SILENCE, messages.next()).await {
        let (log, sequence, payload) = message?;
        shared.clone().arrived(log, sequence, payload).await?;
    }
    Ok(())
}

impl Shared {
    /// Takes in one message that arrived by itself. Runs to its end also when the follower is stopped meanwhile.
    async fn arrived(self: Arc<Self>, log: LogId, sequence: StreamSequence, payload: Bytes) -> Result<()> {
        let shared = self.clone();
        self.complete(async move {
            let tail = shared.tail(log).await?;
            if tail.is_past(sequence) {
                return Ok(());
            }
            let mut known = tail.known.lock().await;
            if known.is_certain && sequence <= known.last {
                return Ok(());
            }
            let message = Message::decode(log, sequence, &payload)?;
            tail.arrived(&shared, &mut known, &message).await?;
            shared.tell_arrival();
            Ok(())
        })
        .await
    }
}
