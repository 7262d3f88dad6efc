//! What happened in a run, as clients and an observer of all regions saw it.

use orrery_model::{LogId, Lsn, Position};

/// When something happened: events of one run in the order they happened, no two at once.
pub type Tick = u64;

/// One item: its partition key and id.
pub type Item = (&'static str, &'static str);

/// A recorded run.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub calls: Vec<Call>,
    /// About something that the catalogue holds. LSNs in it are not told.
    pub catalogue: Vec<Call>,
    pub pairs: Vec<PairRead>,
    pub pages: Vec<PageRead>,
    pub standings: Vec<Standing>,
    pub losses: Vec<Loss>,
    /// Regions that came back after they had been away, and may have begun anew.
    pub returns: Vec<(Tick, &'static str)>,
    /// What every region holds once nothing happens any more.
    pub finals: Vec<(&'static str, Vec<(Item, u64)>)>,
}

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Call {
    pub client: usize,
    pub region: &'static str,
    pub item: Item,
    pub action: Action,
    pub invoked: Tick,
    pub completed: Tick,
    /// The same by the simulated clock, in milliseconds.
    pub asked_ms: u64,
    pub answered_ms: u64,
    /// What the client had seen of the partition and told the region.
    pub token: Option<(i64, Lsn)>,
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Read,
    /// Values are unique. `expected`: only over this version.
    Write {
        value: u64,
        expected: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value and its LSN; the version and LSN at which the partition stood.
    Read {
        found: Option<(u64, Lsn)>,
        at: (i64, Lsn),
    },
    Written {
        lsn: Lsn,
        version: i64,
    },
    /// A definite no: nothing happened.
    Refused(u16, u32),
    /// It happened, or did not, or will.
    Unknown,
}

/// Two items that are only ever written together, read at once.
#[derive(Clone, Debug)]
pub struct PairRead {
    pub at: Tick,
    pub region: &'static str,
    pub values: (Option<u64>, Option<u64>),
}

/// What a region showed at once of the items of one partition key.
#[derive(Clone, Debug)]
pub struct PageRead {
    pub at: Tick,
    pub region: &'static str,
    pub key: &'static str,
    pub values: Vec<(Item, u64)>,
}

/// Where one of a region's logs stood; the observer looks after every acknowledged write.
#[derive(Clone, Debug)]
pub struct Standing {
    pub at: Tick,
    pub region: &'static str,
    pub log: LogId,
    pub position: Position,
    /// Milliseconds of the simulated clock.
    pub now_ms: u64,
    pub serves: bool,
    /// Set when the look was taken because this was acknowledged in the part of the container that the log serves.
    pub acknowledged: Option<Lsn>,
}

/// What a forced failover cut off of the history of one item.
#[derive(Clone, Debug)]
pub struct Loss {
    pub at: Tick,
    pub item: Item,
    /// Everything after this LSN, up to `head`, is gone.
    pub after: Lsn,
    pub head: Lsn,
    /// Unless the two regions had other partitions: then a part of it may have been kept.
    pub is_exact: bool,
}

impl History {
    /// Was this write, acknowledged before, reported as lost?
    pub fn is_lost(&self, item: Item, lsn: Lsn, completed: Tick) -> bool {
        let covers = |loss: &Loss| completed < loss.at && loss.after < lsn && lsn <= loss.head;
        self.losses.iter().any(|loss| loss.item == item && covers(loss))
    }

    /// Writes of one item with what became of them.
    pub fn writes(&self, item: Item) -> impl Iterator<Item = (&Call, u64, Option<u64>)> {
        self.calls.iter().filter_map(move |call| match call.action {
            Action::Write { value, expected } if call.item == item => Some((call, value, expected)),
            _ => None,
        })
    }

    pub fn items(&self) -> Vec<Item> {
        items_of(&self.calls)
    }
}

/// What calls are about, each once.
pub fn items_of(calls: &[Call]) -> Vec<Item> {
    let mut items: Vec<Item> = calls.iter().map(|call| call.item).collect();
    items.sort_unstable();
    items.dedup();
    items
}
