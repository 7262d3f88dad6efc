//! How far regions are, where what the account promises depends on it: told by those that follow, asked for by those that
//! answer reads.
//!
//! The node that acts for a region that follows tells the nodes of the one that writes what it has taken in, as soon as it has, and
//! everything now and then: words may be lost, and nodes come and go. Under strong consistency every node that reads a log which it does
//! not write asks whoever does ([`keep_proven`]). Under bounded staleness every node of a region that follows
//! asks the other way round where the logs stand where they are written, and what it is told says which reads it may answer.
//!
//! Invariant: what is told was durable in the region's streams and visible to its readers before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use orrery_model::{Epoch, LogId, Lsn};
use orrery_node::geo::topology::RegionState;
use orrery_storage::nats::Client;
use orrery_storage::nats::calls::Listener;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::geography::Mode;
use super::office::Office;
use super::records::store_of;
use super::reign;
use crate::cluster::questions::{ask_everything, ask_proven};
use crate::cluster::records::to_bytes;

/// Everything is told this often, also when nothing has changed.
const BEAT: Duration = Duration::from_secs(1);
/// Between two words, so that what comes at once is told at once.
const PAUSE: Duration = Duration::from_millis(5);
/// Between two questions, at least.
const ASK_PAUSE: Duration = Duration::from_millis(20);

/// Questions for strong reads that are under way at a time, and how long wishes are gathered for one.
const PROOFS_AT_A_TIME: usize = 8;
const GATHER: Duration = Duration::from_millis(2);

/// What a region tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Word {
    region: String,
    /// Of the topology it knows.
    epoch: u32,
    /// By log: epoch and LSN of the last transaction it has.
    reached: BTreeMap<u64, (u32, u64)>,
}

type Reached = BTreeMap<LogId, (Epoch, Lsn)>;

/// What the nodes of a store listen to.
fn subject(store: &str) -> String {
    format!("orrery.{store}.progress")
}

/// Tells and listens until the end, if the account's promise asks for it.
pub async fn begin(office: &Arc<Office>, client: &Client, end: &CancellationToken, tasks: &TaskTracker) -> Result<()> {
    if !office.station.node.heeds_regions() {
        return Ok(());
    }
    let listener = Listener::listen(client, &subject(&store_of(&office.geography.name))).await?;
    let (office, end, asking) = (Arc::clone(office), end.clone(), tasks.clone());
    tasks.spawn(async move {
        tokio::select! {
            // Nothing here is left half done: words are told again, questions asked again.
            () = end.cancelled() => {}
            () = hear(&office, listener) => {}
            () = tell(&office) => {}
            () = keep_fresh(&office) => {}
            () = keep_proven(&office, &asking) => {}
            () = reign::hold(&office) => {}
        }
    });
    Ok(())
}

/// Takes in what other regions tell while this one writes.
async fn hear(office: &Office, mut listener: Listener) {
    while let Some(bytes) = listener.next().await {
        let Ok(word) = serde_json::from_slice::<Word>(&bytes) else {
            tracing::debug!("what another region tells cannot be understood");
            continue;
        };
        let topology = office.geography.topology();
        // Who knows of a later epoch follows another region by now.
        if !office.geography.is_writer() || word.epoch > topology.epoch.0 {
            continue;
        }
        if let Some(region) = topology.find(&word.region) {
            let reached = word.reached.iter();
            let reached: Reached = reached
                .map(|(log, (epoch, lsn))| (LogId(*log), (Epoch(*epoch), Lsn(*lsn))))
                .collect();
            office.station.node.note_progress(region.id, &reached).await;
        }
    }
    // Without a connection there is nothing to hear until the node ends.
    std::future::pending().await
}

/// Tells the region that writes what this one has, while this node acts for it.
async fn tell(office: &Office) {
    let mut arrivals = office.store.arrivals();
    let mut told = Reached::new();
    let mut all_told: Option<Instant> = None;
    loop {
        arrivals.mark_unchanged();
        let topology = office.geography.topology();
        // One that comes back serves nothing yet, and is counted before it does.
        let has_a_say = office.geography.mode() == Mode::Reads || office.geography.own().state == RegionState::Seeding;
        let is_teller = has_a_say && office.station.is_steward();
        if !is_teller || all_told.is_none_or(|at| at.elapsed() >= BEAT) {
            told.clear();
        }
        if is_teller {
            let positions = office.station.node.visible_positions().into_iter();
            let reached: Reached = positions.map(|(log, at)| (log, (at.epoch, at.lsn))).collect();
            if told.is_empty() {
                all_told = Some(Instant::now());
            }
            let news = reached.iter().filter(|(log, at)| told.get(log) != Some(at));
            let word = Word {
                region: office.geography.name.clone(),
                epoch: topology.epoch.0,
                reached: news.map(|(log, (epoch, lsn))| (log.0, (epoch.0, lsn.0))).collect(),
            };
            if !word.reached.is_empty() {
                let writer = subject(&store_of(&topology.writer().name));
                office.caller.tell(&writer, to_bytes(&word)).await;
            }
            told = reached;
        }
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            // Both are safe to drop.
            _ = arrivals.changed() => {}
            () = tokio::time::sleep(BEAT) => {}
        }
    }
}

/// Asks the region that writes where its logs stand, now and then and at once when a read waits for that.
async fn keep_fresh(office: &Office) {
    let node = &office.station.node;
    let Some(interval) = node.asks_every() else {
        return std::future::pending().await;
    };
    loop {
        if office.geography.mode() == Mode::Reads {
            let writer = office.geography.topology().writer().name.clone();
            let asked = Instant::now();
            if let Some(peer) = office.geography.reachable(&writer)
                && let Some(heads) = ask_everything(&office.caller, &store_of(&writer), &peer.record.node).await
            {
                node.learn_heads(heads, asked);
            }
        }
        // One question after the other, however many wait for the answer.
        tokio::time::sleep(ASK_PAUSE).await;
        tokio::select! {
            // Both are safe to drop.
            () = node.wants_heads() => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
}

/// Asks whoever writes about the logs that strong reads of this node wait for. What is wanted while a question is under way goes into the
/// next one, which does not wait for it.
async fn keep_proven(office: &Arc<Office>, tasks: &TaskTracker) {
    let places = Arc::new(Semaphore::new(PROOFS_AT_A_TIME));
    loop {
        let logs = office.station.node.wanted_proofs().await;
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let office = Arc::clone(office);
        tasks.spawn(async move {
            let _place = place;
            let asked = Instant::now();
            let heads = office.ask_writer(&logs).await;
            office.station.node.learn_proofs(&heads, asked);
        });
        tokio::time::sleep(GATHER).await;
    }
}

impl Office {
    /// Where logs stand with whoever writes them, proven and in every region that counts; those that could be told of.
    async fn ask_writer(&self, logs: &BTreeSet<LogId>) -> Vec<(LogId, Lsn)> {
        let writer = self.geography.topology().writer().name.clone();
        let node = match self.geography.is_writer() {
            true => self.station.routes().coordinator.clone(),
            false => self.geography.reachable(&writer).map(|peer| peer.record.node),
        };
        match node {
            Some(node) if node == self.id => self.questions.proven(&self.station, logs, None).await,
            Some(node) => ask_proven(&self.caller, &store_of(&writer), &node, logs).await,
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_was_told() {
        let word = Word {
            region: "West US".into(),
            epoch: 3,
            reached: BTreeMap::from([(0, (1, 17)), (4, (3, 1 << 33))]),
        };
        assert_eq!(serde_json::from_slice::<Word>(&to_bytes(&word)).unwrap(), word);
    }
}
