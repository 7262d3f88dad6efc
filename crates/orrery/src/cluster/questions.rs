//! What nodes ask each other besides passing requests on: whether one has caught up with the catalogue, where the logs that it
//! owns stand; and, from other regions, where all logs stand.
//!
//! | | Bytes |
//! |---|---|
//! | question | version `01`, kind (1): `01` has it caught up, with an LSN of the system log (8); `02` where logs stand, what to prove (1): `00` nothing, `01` ownership, by a write, `02` also that a region counts, with its number (4), then logs (8 each); `03` where everything stands; `04` where logs (8 each) stand, proven; `05` how long the region cannot be replaced |
//! | answer | to `01` the LSN of the system log up to which it has (8); to `02` an LSN per log (8 each), or nothing when one is not its own; to `03` and `04` log and LSN (8 each) of the catalogue and of every log whose owner could say, or nothing when it does not coordinate the writes of its region; to `05` the epoch it writes in and milliseconds (8 each), or nothing when it is not sure |

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use orrery_model::{Epoch, LogId, Lsn};
use orrery_node::cluster::Reach;
use orrery_node::geo::topology::RegionId;
use orrery_storage::nats::calls::{Answerer, Caller};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::station::{Place, Station};

const VERSION: u8 = 1;
const CAUGHT_UP: u8 = 1;
const HEADS: u8 = 2;
const EVERYTHING: u8 = 3;
const PROVEN: u8 = 4;
const REIGN: u8 = 5;
/// How long an owner waits until every region that counts has what it is asked about.
const COMMIT_WAIT: Duration = Duration::from_secs(2);
/// How long a node that lags tries to catch up before it says how far it is.
const CATCHING_UP: Duration = Duration::from_secs(1);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How soon to ask again.
const ASK_AGAIN: Duration = Duration::from_millis(25);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Question {
    CaughtUp(Lsn),
    Heads { demand: Demand, logs: BTreeSet<LogId> },
    Everything,
    Proven { logs: BTreeSet<LogId> },
    Reign,
}

/// What an owner has to prove before it tells where its logs stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    Nothing,
    /// That it is the owner, by a write; under strong consistency of several regions also that every region which counts has them up to
    /// there, and that none can have taken over.
    Ownership,
    /// The same where a region counts.
    Counting(RegionId),
}

impl Question {
    fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u8(VERSION);
        match self {
            Question::CaughtUp(lsn) => {
                bytes.put_u8(CAUGHT_UP);
                bytes.put_u64(lsn.0);
            }
            Question::Heads { demand, logs } => {
                bytes.put_u8(HEADS);
                match demand {
                    Demand::Nothing => bytes.put_u8(0),
                    Demand::Ownership => bytes.put_u8(1),
                    Demand::Counting(region) => {
                        bytes.put_u8(2);
                        bytes.put_u32(region.0);
                    }
                }
                logs.iter().for_each(|log| bytes.put_u64(log.0));
            }
            Question::Everything => bytes.put_u8(EVERYTHING),
            Question::Proven { logs } => {
                bytes.put_u8(PROVEN);
                logs.iter().for_each(|log| bytes.put_u64(log.0));
            }
            Question::Reign => bytes.put_u8(REIGN),
        }
        bytes.freeze()
    }

    /// `None` when it is not understood.
    fn decode(mut bytes: Bytes) -> Option<Question> {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        match bytes.try_get_u8().ok()? {
            CAUGHT_UP => (bytes.len() == 8).then(|| Question::CaughtUp(Lsn(bytes.get_u64()))),
            HEADS => {
                let demand = match bytes.try_get_u8().ok()? {
                    0 => Demand::Nothing,
                    1 => Demand::Ownership,
                    2 => Demand::Counting(RegionId(bytes.try_get_u32().ok()?)),
                    _ => return None,
                };
                let logs = numbers(bytes)?.into_iter().map(LogId).collect();
                Some(Question::Heads { demand, logs })
            }
            EVERYTHING => bytes.is_empty().then_some(Question::Everything),
            PROVEN => Some(Question::Proven {
                logs: numbers(bytes)?.into_iter().map(LogId).collect(),
            }),
            REIGN => bytes.is_empty().then_some(Question::Reign),
            _ => None,
        }
    }
}

fn numbers(mut bytes: Bytes) -> Option<Vec<u64>> {
    let n = bytes.len() / 8;
    (bytes.len() == n * 8).then(|| (0..n).map(|_| bytes.get_u64()).collect())
}

/// Asks the nodes of a cluster.
#[derive(Clone, Debug)]
pub struct Questions {
    caller: Arc<Caller>,
    store: String,
}

impl Questions {
    pub fn new(caller: Arc<Caller>, store: &str) -> Questions {
        Questions {
            caller,
            store: store.to_owned(),
        }
    }

    async fn ask(&self, node: &str, question: &Question) -> Option<Vec<u64>> {
        let subject = subject(&self.store, node);
        let answer = self.caller.ask(&subject, question.encode(), PATIENCE).await;
        numbers(answer.ok()?)
    }

    /// Waits until every node that must know of it has caught up with the catalogue at `lsn`, or is a member no more. `false`
    /// when that takes longer than `patience`.
    pub async fn all_caught_up(&self, station: &Station, lsn: Lsn, patience: Duration) -> bool {
        let members = station.routes().confirming.clone();
        let others = members.iter().filter(|member| *member != station.me());
        let catching_up = others.map(|member| self.caught_up(station, member, lsn));
        tokio::time::timeout(patience, futures::future::join_all(catching_up))
            .await
            .is_ok()
    }

    async fn caught_up(&self, station: &Station, member: &str, lsn: Lsn) {
        while station.routes().confirming.contains(member) {
            let answer = self.ask(member, &Question::CaughtUp(lsn)).await;
            if answer.is_some_and(|reached| reached.first() >= Some(&lsn.0)) {
                return;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Where logs stand with whoever owns them, all of it learned after this was called. `None` when somebody could not say.
    pub async fn heads(&self, station: &Station, logs: &BTreeSet<LogId>, demand: Demand) -> Option<Vec<(LogId, Lsn)>> {
        let heads = self.heads_known(station, logs, demand).await;
        (heads.len() == logs.len()).then_some(heads)
    }

    /// The same as far as it is known.
    async fn heads_known(&self, station: &Station, logs: &BTreeSet<LogId>, demand: Demand) -> Vec<(LogId, Lsn)> {
        let routes = station.routes();
        let mut by_owner: std::collections::BTreeMap<Option<String>, BTreeSet<LogId>> = Default::default();
        for log in logs {
            let owner = match station.place_of_log(&routes, *log) {
                Place::Here => None,
                Place::There(owner) => Some(owner),
                Place::Scattered | Place::Nowhere => continue,
            };
            by_owner.entry(owner).or_default().insert(*log);
        }
        let asked = by_owner.into_iter().map(|(owner, logs)| async move {
            match owner {
                None => own_heads(station, &logs, demand).await,
                Some(owner) => {
                    let logs_asked = logs.clone();
                    let question = Question::Heads {
                        demand,
                        logs: logs_asked,
                    };
                    let heads = self.ask(&owner, &question).await?;
                    (heads.len() == logs.len()).then(|| logs.into_iter().zip(heads.into_iter().map(Lsn)).collect())
                }
            }
        });
        let answers = futures::future::join_all(asked).await;
        answers.into_iter().flatten().flatten().collect()
    }

    /// Where everything stands in the own region, if this node coordinates its writes, before this was asked and after.
    async fn everything(&self, station: &Station) -> Option<Vec<(LogId, Lsn)>> {
        let epoch = station.serving_epoch()?;
        let system = (LogId::SYSTEM, station.node.system_lsn());
        let logs = station.node.serving_logs();
        let mut heads = self.heads_known(station, &logs, Demand::Nothing).await;
        heads.push(system);
        (station.serving_epoch() == Some(epoch)).then_some(heads)
    }

    /// Where logs of the own region stand, the catalogue's among them, each proven by its owner; those that could be. Nothing when this
    /// node does not coordinate the region's writes.
    pub async fn proven(
        &self,
        station: &Station,
        logs: &BTreeSet<LogId>,
        counting: Option<RegionId>,
    ) -> Vec<(LogId, Lsn)> {
        let Some(epoch) = station.serving_epoch() else {
            return Vec::new();
        };
        let demand = counting.map_or(Demand::Ownership, Demand::Counting);
        let mut others = logs.clone();
        let asks_about_system = others.remove(&LogId::SYSTEM);
        let system = async {
            match asks_about_system {
                true => own_system(station, demand).await,
                false => None,
            }
        };
        let (mut heads, system) = tokio::join!(self.heads_known(station, &others, demand), system);
        heads.extend(system.map(|lsn| (LogId::SYSTEM, lsn)));
        match station.serving_epoch() == Some(epoch) {
            true => heads,
            false => Vec::new(),
        }
    }
}

/// Asks the node that acts for the region that writes where logs stand there, proven. Those of which it says nothing are left out.
pub async fn ask_proven(caller: &Caller, store: &str, node: &str, logs: &BTreeSet<LogId>) -> Vec<(LogId, Lsn)> {
    let question = Question::Proven { logs: logs.clone() };
    let answer = caller.ask(&subject(store, node), question.encode(), PATIENCE).await;
    answer.ok().and_then(pairs).unwrap_or_default()
}

/// Asks the node that acts for the own region in which epoch that writes, and for how long it cannot be replaced.
pub async fn ask_reign(caller: &Caller, store: &str, node: &str) -> Option<(Epoch, Duration)> {
    let answer = caller
        .ask(&subject(store, node), Question::Reign.encode(), PATIENCE)
        .await;
    let numbers = numbers(answer.ok()?)?;
    let [epoch, left_ms] = numbers.as_slice() else {
        return None;
    };
    Some((Epoch(u32::try_from(*epoch).ok()?), Duration::from_millis(*left_ms)))
}

fn pairs(bytes: Bytes) -> Option<Vec<(LogId, Lsn)>> {
    let numbers = numbers(bytes)?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    let pair = |[log, lsn]: &[u64; 2]| (LogId(*log), Lsn(*lsn));
    rest.is_empty().then(|| pairs.iter().map(pair).collect())
}

/// Asks the node that acts for the region that writes where everything stands there. `None` when it does not say.
pub async fn ask_everything(caller: &Caller, store: &str, node: &str) -> Option<Vec<(LogId, Lsn)>> {
    let subject = subject(store, node);
    let answer = caller.ask(&subject, Question::Everything.encode(), PATIENCE).await;
    pairs(answer.ok()?).filter(|heads| !heads.is_empty())
}

/// What a node of a store listens to.
pub fn subject(store: &str, node: &str) -> String {
    format!("orrery.{store}.ask.{node}")
}

/// Where logs stand that this node owns. It did so before it looked, so it had everything, and after: nobody had written them
/// by then.
async fn own_heads(station: &Station, logs: &BTreeSet<LogId>, demand: Demand) -> Option<Vec<(LogId, Lsn)>> {
    let reach = Reach::Logs {
        logs: logs.clone(),
        reads: true,
    };
    if station.place(&reach) != Place::Here || !counts(station, demand) {
        return None;
    }
    let heads = station.node.heads(logs)?;
    if demand != Demand::Nothing && !(station.node.proves_logs(logs).await && commits(station, &heads).await) {
        return None;
    }
    // Once more: one that does not count any more was not waited for.
    (station.place(&reach) == Place::Here && counts(station, demand)).then_some(heads)
}

/// The same of the catalogue.
async fn own_system(station: &Station, demand: Demand) -> Option<Lsn> {
    if !station.leads() || !counts(station, demand) {
        return None;
    }
    let lsn = station.node.system_lsn();
    let is_proven = station.node.proves_ownership().await && commits(station, &[(LogId::SYSTEM, lsn)]).await;
    (is_proven && station.leads() && counts(station, demand)).then_some(lsn)
}

/// Whether the region counts that is asked about.
fn counts(station: &Station, demand: Demand) -> bool {
    match demand {
        Demand::Counting(region) => station.node.counted_regions().contains(&region),
        Demand::Nothing | Demand::Ownership => true,
    }
}

/// Under strong consistency of several regions: whether all that count have logs up to there, and none has taken over.
async fn commits(station: &Station, heads: &[(LogId, Lsn)]) -> bool {
    if !station.node.promises_everywhere() {
        return true;
    }
    let committed = tokio::time::timeout(COMMIT_WAIT, station.node.commits(heads)).await;
    committed.unwrap_or(false)
}

/// Answers what other nodes ask, until it is told to stop.
pub async fn answer_all(mut answerer: Answerer, questions: Questions, station: Arc<Station>, stop: CancellationToken) {
    let tasks = TaskTracker::new();
    loop {
        let call = tokio::select! {
            // Both are safe to drop: a question that was not taken is asked again.
            call = answerer.next() => call,
            () = stop.cancelled() => None,
        };
        let Some(call) = call else { break };
        let (station, questions) = (Arc::clone(&station), questions.clone());
        tasks.spawn(async move {
            let answer = answer(&station, &questions, Question::decode(call.request.clone())).await;
            call.answer(answer).await;
        });
    }
    tasks.close();
    tasks.wait().await;
    answerer.flush().await;
}

async fn answer(station: &Station, questions: &Questions, question: Option<Question>) -> Bytes {
    let mut bytes = BytesMut::new();
    match question {
        None => {}
        Some(Question::CaughtUp(lsn)) => {
            // Then it says how far it is.
            let _ = tokio::time::timeout(CATCHING_UP, station.node.carries_out(lsn)).await;
            bytes.put_u64(station.node.carried_out().0);
        }
        Some(Question::Heads { demand, logs }) => {
            let heads = own_heads(station, &logs, demand).await.unwrap_or_default();
            heads.iter().for_each(|(_, lsn)| bytes.put_u64(lsn.0));
        }
        Some(Question::Everything) => {
            put_pairs(&mut bytes, &questions.everything(station).await.unwrap_or_default());
        }
        Some(Question::Proven { logs }) => put_pairs(&mut bytes, &questions.proven(station, &logs, None).await),
        Some(Question::Reign) => {
            if let (epoch, Some(left)) = station.node.reign() {
                bytes.put_u64(u64::from(epoch.0));
                bytes.put_u64(left.as_millis() as u64);
            }
        }
    }
    bytes.freeze()
}

fn put_pairs(bytes: &mut BytesMut, pairs: &[(LogId, Lsn)]) {
    for (log, lsn) in pairs {
        bytes.put_u64(log.0);
        bytes.put_u64(lsn.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written_and_anything_else_is_none() {
        let logs = BTreeSet::from([LogId(3), LogId(9)]);
        for question in [
            Question::CaughtUp(Lsn(77)),
            Question::Everything,
            Question::Reign,
            Question::Proven { logs: logs.clone() },
            Question::Heads {
                demand: Demand::Counting(RegionId(2)),
                logs: logs.clone(),
            },
            Question::Heads {
                demand: Demand::Ownership,
                logs,
            },
            Question::Heads {
                demand: Demand::Nothing,
                logs: BTreeSet::new(),
            },
        ] {
            let bytes = question.encode();
            assert_eq!(Question::decode(bytes.clone()), Some(question));
            assert_eq!(Question::decode(bytes.slice(..bytes.len() - 1)), None);
        }
        assert_eq!(Question::decode(Bytes::from_static(&[2, 1])), None);
        assert_eq!(Question::decode(Bytes::from_static(&[1, 9])), None);
    }
}
