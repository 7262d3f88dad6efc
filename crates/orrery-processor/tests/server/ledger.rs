//! What the hosts of a test wrote down: every delivery, also one that comes late from a host whose lease is another's by then.
//!
//! A host notes a batch in one write, with the epoch of its lease. A note is late if its key has been delivered under a higher
//! epoch before: its writer held the lease no more. Only a process that was frozen in the middle of a batch can write such a
//! note, because nothing can stop it between its waking and its next look at the lease.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use orrery_processor::testkit::{Delivery, Ledger};
use serde_json::Value;

use crate::process::Process;
use crate::scene::Scene;

/// A line of the ledger.
#[derive(Clone, Debug)]
pub struct Note {
    pub delivery: Delivery,
    pub epoch: u64,
    /// Number of the batch, counted by its host.
    pub batch: u64,
    /// What happened to the item.
    pub operation: String,
}

impl Note {
    fn parse(line: &str) -> Option<Note> {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| Some(line[name].as_str()?.to_owned());
        Some(Note {
            delivery: Delivery {
                key: text("key")?,
                id: text("id")?,
                lsn: line["lsn"].as_u64()?,
                host: text("host")?,
                lease: text("lease")?,
            },
            epoch: line["epoch"].as_u64()?,
            batch: line["batch"].as_u64()?,
            operation: text("operation")?,
        })
    }

    /// The version that was delivered.
    pub fn version(&self) -> (String, String, u64) {
        let Delivery { key, id, lsn, .. } = self.delivery.clone();
        (key, id, lsn)
    }
}

/// The notes that came while their writer held the lease, and the late ones.
fn parted(notes: Vec<Note>) -> (Vec<Note>, Vec<Note>) {
    let mut epochs: BTreeMap<String, u64> = BTreeMap::new();
    notes.into_iter().partition(|note| {
        let known = epochs.entry(note.delivery.key.clone()).or_default();
        *known = note.epoch.max(*known);
        note.epoch == *known
    })
}

impl Scene {
    /// Everything that was noted, in the order it was written.
    pub fn notes(&self) -> Vec<Note> {
        let text = std::fs::read_to_string(self.ledger_path()).unwrap_or_default();
        text.lines().filter_map(Note::parse).collect()
    }

    /// All deliveries, late ones included.
    pub fn ledger(&self) -> Ledger {
        let ledger = Ledger::default();
        ledger.extend(self.notes().into_iter().map(|note| note.delivery));
        ledger
    }

    /// The deliveries of another unit.
    pub fn ledger_in(&self, name: &str) -> Ledger {
        let (ledger, text) = (Ledger::default(), std::fs::read_to_string(self.ledger_of(name)));
        let text = text.unwrap_or_default();
        let notes = text.lines().filter_map(Note::parse);
        ledger.extend(notes.map(|note| note.delivery));
        ledger
    }

    /// What was delivered by a host that did not hold the lease any more.
    pub fn late(&self) -> Vec<Note> {
        parted(self.notes()).1
    }

    /// How many batches have been handled.
    pub fn n_batches(&self) -> usize {
        let notes = self.notes().into_iter();
        let batches: BTreeSet<_> = notes.map(|note| (note.delivery.host, note.batch)).collect();
        batches.len()
    }

    /// Stops a process where it stands. From now on, it may deliver late.
    pub fn freeze(&self, name: &str, host: &Process) {
        self.frozen.lock().unwrap().insert(name.to_owned());
        host.signal("STOP");
    }

    /// Every key came in order, and nobody delivered late who was never frozen.
    pub fn assert_in_order(&self) {
        let (in_time, late) = parted(self.notes());
        let frozen = self.frozen.lock().unwrap();
        let stray = late.iter().find(|note| !frozen.contains(&note.delivery.host));
        assert!(stray.is_none(), "delivered without the lease: {stray:?}");
        let ledger = Ledger::default();
        ledger.extend(in_time.into_iter().map(|note| note.delivery));
        assert_eq!(ledger.out_of_order(), None);
    }

    /// Batches of which something was delivered again, by the lease that delivered it first; each by its host and number.
    pub fn repeated_batches(&self) -> BTreeMap<String, BTreeSet<(String, u64)>> {
        let (mut first, mut repeated) = (BTreeMap::new(), BTreeMap::<String, BTreeSet<_>>::new());
        for note in self.notes() {
            let Delivery { lease, host, .. } = note.delivery.clone();
            let place = (lease, (host, note.batch));
            match first.entry(note.version()) {
                Entry::Vacant(unseen) => drop(unseen.insert(place)),
                Entry::Occupied(seen) => {
                    let (lease, batch) = seen.get().clone();
                    repeated.entry(lease).or_default().insert(batch);
                }
            }
        }
        repeated
    }

    /// At most one batch of every lease came again, and nothing came a third time.
    pub fn assert_at_most_a_batch_of_each_lease_came_again(&self) {
        let batches = self.repeated_batches();
        assert!(batches.values().all(|batches| batches.len() == 1), "{batches:?}");
        assert!(self.ledger().repeated().values().all(|count| *count == 2));
    }
}

#[test]
fn a_delivery_under_an_epoch_that_is_over_is_late() {
    let line = |host: &str, lsn: u64, epoch: u64| {
        let text = serde_json::json!({
            "key": "k", "id": "i", "lsn": lsn, "host": host, "lease": "l", "operation": "", "batch": 0, "epoch": epoch,
        });
        Note::parse(&text.to_string()).unwrap()
    };
    let (in_time, late) = parted(vec![line("a", 1, 1), line("b", 2, 2), line("a", 2, 1), line("b", 3, 2)]);
    let lsns = |notes: &[Note]| notes.iter().map(|note| note.delivery.lsn).collect::<Vec<_>>();
    assert_eq!((lsns(&in_time), lsns(&late)), (vec![1, 2, 3], vec![2]));
    assert_eq!(late[0].delivery.host, "a");
}
