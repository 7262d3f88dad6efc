//! A node that stands by: its copy follows what the owners of all logs write, so that it can answer reads and take over at once.
//!
//! Every stream is consumed as it grows, apart from the logs that this node owns. What has arrived in order is applied as it is, all of it at once; anything else, and every
//! silence that lasts, makes the node look at the ends of the logs itself, so a consumer that stalls without saying so delays it for seconds and
//! no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use orrery_model::LogId;
use orrery_partition::storage::{Result, Store as _};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use super::message::{Message, StreamSequence};
use super::tail::Tail;
use super::{NatsStore, Shared};

/// Silence after which the ends of the logs are looked at.
const SILENCE: Duration = Duration::from_secs(5);
/// Messages of a stream that are taken in at once when they have all arrived.
const TAKEN_AT_ONCE: usize = 64;
/// Logs that a consumer is told by name. With more of them a node is rather sent what it wrote itself.
const NAMED_MAX: usize = 1_000;
/// Messages that a consumer may begin with so that no log need be looked at when another takes its place.
const REPEATED_MAX: u64 = 1_000;
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

/// The logs of a stream that are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// All there are, and those to come.
    Whole,
    /// Those that others may add to. What this store adds itself would only be thrown away.
    Logs(BTreeSet<LogId>),
}

impl Line {
    fn has(&self, log: LogId) -> bool {
        match self {
            Line::Whole => true,
            Line::Logs(logs) => logs.contains(&log),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Line::Logs(logs) if logs.is_empty())
    }
}

/// Follows one stream for ever.
async fn follow_stream(shared: &Arc<Shared>, idx: u64) {
    loop {
        if let Err(error) = follow_lines(shared, idx).await {
            tracing::warn!(stream = idx, %error, "a stream cannot be followed now");
        }
        shared.lines.send_modify(|lines| drop(lines.remove(&idx)));
        tokio::time::sleep(PAUSE).await;
    }
}

/// Follows one stream until it falls silent or fails, whatever this store comes to own meanwhile.
async fn follow_lines(shared: &Arc<Shared>, idx: u64) -> Result<()> {
    let mut changes = shared.owned.subscribe();
    let mut before: Option<Line> = None;
    // The last message of the stream that has been taken in.
    let mut reached = 0;
    loop {
        changes.mark_unchanged();
        let line = shared.line(idx);
        let last = shared.bus.last_sequence(idx).await?;
        let goes_on = before.filter(|_| (reached..=reached + REPEATED_MAX).contains(&last));
        if goes_on.is_none() {
            reached = last;
        }
        let messages = match line.is_empty() {
            true => futures::stream::pending().right_stream(),
            false => shared.bus.consume(idx, &line, reached + 1).await?.left_stream(),
        };
        // What came before the consumer was there.
        match (&goes_on, &line) {
            (Some(before), Line::Logs(logs)) => {
                let new = logs.iter().copied().filter(|log| !before.has(*log));
                shared.catch_up_logs(new).await?;
            }
            _ => shared.catch_up_stream(idx).await?,
        }
        shared.lines.send_modify(|lines| drop(lines.insert(idx, line.clone())));
        if follow_line(shared, idx, &line, messages, &mut reached, &mut changes).await? == Ended::Silent {
            return Ok(());
        }
        before = Some(line);
    }
}

/// Why a line is followed no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Silent,
    /// Other logs are to be followed.
    Changed,
}

async fn follow_line(
    shared: &Arc<Shared>,
    idx: u64,
    line: &Line,
    messages: impl futures::Stream<Item = Result<(LogId, StreamSequence, Bytes)>> + Unpin,
    reached: &mut StreamSequence,
    changes: &mut watch::Receiver<BTreeSet<LogId>>,
) -> Result<Ended> {
    let mut arriving = messages.ready_chunks(TAKEN_AT_ONCE);
    let (mut silent_at, mut next_look) = (Instant::now() + SILENCE, Instant::now() + SILENCE);
    loop {
        // All are safe to drop: what has arrived and was not taken out is still there.
        let arrived = tokio::select! {
            biased;
            // However many have changed, and change while the next line is begun: that is one change.
            _ = changes.changed() => match shared.line(idx) == *line {
                true => continue,
                false => return Ok(Ended::Changed),
            },
            () = tokio::time::sleep_until(silent_at) => return Ok(Ended::Silent),
            () = tokio::time::sleep_until(next_look), if *line != Line::Whole => {
                // A log that somebody has made is in no list of logs.
                shared.catch_up_unknown(idx, line).await?;
                next_look = Instant::now() + SILENCE;
                match shared.line(idx) == *line {
                    true => continue,
                    false => return Ok(Ended::Changed),
                }
            }
            arrived = arriving.next() => arrived,
        };
        let Some(arrived) = arrived else {
            return Ok(Ended::Silent);
        };
        silent_at = Instant::now() + SILENCE;
        let mut by_log = BTreeMap::new();
        let mut last = *reached;
        for message in arrived {
            let (log, sequence, payload) = message?;
            last = last.max(sequence);
            let messages: &mut Vec<_> = by_log.entry(log).or_default();
            messages.push((sequence, payload));
        }
        shared.arrived(by_log).await?;
        *reached = last;
    }
}

/// Sequence and payload of messages that arrived, in their order.
type Arrived = Vec<(StreamSequence, Bytes)>;

impl Shared {
    /// The logs of a stream that others may add to.
    fn line(&self, idx: u64) -> Line {
        let owned = self.owned.borrow().clone();
        if !owned.iter().any(|log| self.bus.stream_of(*log) == idx) {
            return Line::Whole;
        }
        let is_others = |log: &LogId| self.bus.stream_of(*log) == idx && !owned.contains(log);
        let held = self.local.list().unwrap_or_default().into_iter().map(|info| info.log);
        let others: BTreeSet<LogId> = held.filter(is_others).collect();
        match others.len() > NAMED_MAX {
            true => Line::Whole,
            false => Line::Logs(others),
        }
    }

    /// Waits until what others add to a log arrives by itself, where its stream is followed at all.
    pub(super) async fn is_followed(&self, log: LogId) {
        let idx = self.bus.stream_of(log);
        let mut lines = self.lines.subscribe();
        let arrives = lines.wait_for(|lines| lines.get(&idx).is_none_or(|line| line.has(log)));
        // Otherwise it is found at the end of the log, a little later.
        let _ = tokio::time::timeout(PAUSE, arrives).await;
    }

    /// Learns of logs of a stream that are neither followed nor this store's own.
    async fn catch_up_unknown(self: &Arc<Self>, idx: u64, line: &Line) -> Result<()> {
        let mut logs = self.bus.logs(idx).await?;
        logs.retain(|log| !line.has(*log) && !self.owned.borrow().contains(log) && !self.is_known_gone(*log));
        self.catch_up_logs(logs).await
    }

    /// Whether a log was found to be dropped. Where somebody is just looking, that is not known.
    fn is_known_gone(&self, log: LogId) -> bool {
        let tail = self.tails().get(&log).cloned();
        tail.is_some_and(|tail| {
            let known = tail.known.try_lock();
            known.is_ok_and(|known| known.is_certain && known.last > 0 && known.standing.is_none())
        })
    }

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
