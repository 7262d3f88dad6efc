//! A node that stands by: its copy follows what the owners of all logs write, so that it can answer reads and take over at once.
//!
//! Every stream is consumed as it grows. What has arrived in order is applied as it is, all of it at once; anything else, and every
//! silence that lasts, makes the node look at the ends of the logs itself, so a consumer that stalls without saying so delays it for seconds and
//! no more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use orrery_model::LogId;
use orrery_partition::storage::Result;
use tokio_util::sync::DropGuard;

use super::message::{Message, StreamSequence};
use super::tail::Tail;
use super::{NatsStore, Shared};

/// Silence after which the ends of the logs are looked at.
const SILENCE: Duration = Duration::from_secs(5);
/// Messages of a stream that are taken in at once when they have all arrived.
const TAKEN_AT_ONCE: usize = 64;
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
    let messages = shared.bus.consume(idx).await?;
    // What came before the consumer was there.
    shared.catch_up_stream(idx).await?;
    let mut arriving = messages.ready_chunks(TAKEN_AT_ONCE);
    while let Ok(Some(arrived)) = tokio::time::timeout(SILENCE, arriving.next()).await {
        let mut by_log = BTreeMap::new();
        for message in arrived {
            let (log, sequence, payload) = message?;
            let messages: &mut Vec<_> = by_log.entry(log).or_default();
            messages.push((sequence, payload));
        }
        shared.arrived(by_log).await?;
    }
    Ok(())
}

/// Sequence and payload of messages that arrived, in their order.
type Arrived = Vec<(StreamSequence, Bytes)>;

impl Shared {
    /// Takes in messages that arrived by themselves. Runs to its end also when the follower is stopped meanwhile.
    async fn arrived(self: &Arc<Self>, by_log: BTreeMap<LogId, Arrived>) -> Result<()> {
        let mut others = Vec::new();
        for (log, mut messages) in by_log {
            let tail = self.tail(log).await?;
            messages.retain(|(sequence, _)| !tail.is_past(*sequence));
            if !messages.is_empty() {
                others.push((tail, messages));
            }
        }
        // Most of what arrives where logs are owned is what this node added itself.
        if others.is_empty() {
            return Ok(());
        }
        let shared = self.clone();
        self.complete(async move {
            let taking_in = others.iter().map(|(tail, messages)| shared.take_in(tail, messages));
            futures::future::try_join_all(taking_in).await?;
            shared.tell_arrival();
            Ok(())
        })
        .await
    }

    async fn take_in(&self, tail: &Tail, messages: &Arrived) -> Result<()> {
        let mut known = tail.known.lock().await;
        let is_known = |sequence: StreamSequence| known.is_certain && sequence <= known.last;
        let unknown = messages.iter().filter(|(sequence, _)| !is_known(*sequence));
        let unknown: Vec<Message> = unknown
            .map(|(sequence, payload)| Message::decode(tail.id, *sequence, payload))
            .collect::<Result<_>>()?;
        tail.arrived(self, &mut known, &unknown).await
    }
}
