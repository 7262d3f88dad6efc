//! Brings the view up to the log: checks every record that is still there and applies those the view has not seen.
//!
//! The view is never trusted beyond what the log says. It must stand exactly where the log puts it, and a record it lacks
//! must follow from where it stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::log::Transaction;
use orrery_model::{LogId, Position};
use orrery_partition::storage::{Project, Result, StorageError};

use super::catalog::{Catalog, Location, LogState};
use super::effect::Effect;
use super::layers::Layers;
use super::record::{Record, ViewId};
use super::segments::SegmentId;
use super::snapshot::EmbeddedSnapshot;
use super::view::{Batch, LogMeta, ViewStore};
use crate::frame::{Group, RawRecord, Sequence};

pub(super) struct Replay<'a> {
    pub(super) view: &'a Arc<ViewStore>,
    pub(super) catalog: &'a Catalog,
    pub(super) project: &'a dyn Project,
    /// The last group the view holds.
    pub(super) applied: Sequence,
    /// Groups up to this are in the catalog already.
    pub(super) indexed: Sequence,
    write_buffer_bytes: u64,
    /// Where the records seen so far leave each log.
    seen: BTreeMap<LogId, Position>,
    /// The highest view named by a record.
    pub(super) view_max: ViewId,
    is_first: bool,
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        view: &'a Arc<ViewStore>,
        catalog: &'a Catalog,
        project: &'a dyn Project,
        write_buffer_bytes: u64,
    ) -> Result<Replay<'a>> {
        Ok(Replay {
            view,
            catalog,
            project,
            applied: view.applied()?,
            indexed: 0,
            write_buffer_bytes,
            seen: BTreeMap::new(),
            view_max: ViewId(0),
            is_first: true,
        })
    }

    /// Takes the next group. Groups must come in order.
    pub(super) fn group(&mut self, segment: SegmentId, group: &Group) -> Result<()> {
        if std::mem::take(&mut self.is_first) && group.sequence > self.applied + 1 {
            return Err(StorageError::Corrupt(format!(
                "the log starts with group {}, but the view holds only those up to {}",
                group.sequence, self.applied
            )));
        }
        let records = group.records().ok_or_else(|| {
            StorageError::Corrupt(format!("group {} in segment {segment} is malformed", group.sequence))
        })?;
        for raw in &records {
            self.record(segment, group.sequence, raw)?;
        }
        if group.sequence == self.applied {
            self.check_seen()?;
        } else if group.sequence > self.applied {
            let mut batch = Batch::default();
            batch.applied(group.sequence);
            self.view.publish(self.view.write(batch), || ());
            self.applied = group.sequence;
            self.flush_when_large()?;
        }
        Ok(())
    }

    /// Keeps a long replay within the memory of a store at work.
    fn flush_when_large(&self) -> Result<()> {
        if self.view.unsealed_bytes() < self.write_buffer_bytes {
            return Ok(());
        }
        self.view.seal();
        self.view
            .flush()
            .map_err(|error| StorageError::Unavailable(format!("cannot flush the view: {error}")))
    }

    /// The log must end exactly where the view now stands.
    pub(super) fn finish(&self, last: Sequence) -> Result<()> {
        if self.applied != last {
            return Err(StorageError::Corrupt(format!(
                "the log ends with group {last}, but the view holds those up to {}",
                self.applied
            )));
        }
        Ok(())
    }

    fn record(&mut self, segment: SegmentId, sequence: Sequence, raw: &RawRecord) -> Result<()> {
        let log = LogId(raw.log);
        let record = Record::decode(raw)?;
        match &record {
            Record::Created { view, .. } | Record::Seeded { view, .. } => self.view_max = self.view_max.max(*view),
            Record::Branched { layers, .. } | Record::Rebased { layers } => {
                self.view_max = layers.all().fold(self.view_max, ViewId::max);
            }
            Record::Transactions(_) | Record::Owned { .. } | Record::Dropped => {}
        }
        let Record::Transactions(transactions) = record else {
            if !matches!(record, Record::Owned { .. } | Record::Rebased { .. }) {
                self.begin_anew(log, sequence);
            }
            return if sequence > self.applied {
                self.control(log, &record)
            } else {
                Ok(())
            };
        };
        if let (Some(first), Some(last)) = (transactions.first(), transactions.last()) {
            let (offset, length) = (raw.offset, raw.body.len() as u32);
            let location = Location {
                last: last.lsn,
                sequence,
                segment,
                offset,
                length,
            };
            if sequence > self.applied {
                self.apply(log, &transactions, location)?;
            } else {
                self.index(log, first, last, location)?;
            }
        }
        Ok(())
    }

    /// The log begins or ends here; records before this are of another log that had its id.
    fn begin_anew(&mut self, log: LogId, sequence: Sequence) {
        self.seen.remove(&log);
        if sequence > self.indexed
            && sequence <= self.applied
            && let Some(state) = self.catalog.get(log)
        {
            state.lock().forget(state.position().lsn);
        }
    }

    /// A record the view holds already: remembers where it is.
    fn index(&mut self, log: LogId, first: &Transaction, last: &Transaction, location: Location) -> Result<()> {
        if self.seen.get(&log).is_some_and(|position| !first.follows(*position)) {
            return Err(unchained(log, first));
        }
        self.seen.insert(log, last.position());
        if location.sequence > self.indexed
            && let Some(state) = self.catalog.get(log)
        {
            state.lock().add(first.previous, location);
        }
        Ok(())
    }

    /// A record the view lacks.
    fn apply(&mut self, log: LogId, transactions: &[Transaction], location: Location) -> Result<()> {
        let unknown = || StorageError::Corrupt(format!("a record of log {log}, which does not exist"));
        let state = self.catalog.get(log).ok_or_else(unknown)?;
        let (mut position, layers) = (state.position(), state.layers());
        for transaction in transactions {
            if !transaction.follows(position) {
                return Err(unchained(log, transaction));
            }
            let (reader, ()) = self.view.reader(|| ());
            let before = EmbeddedSnapshot {
                reader,
                layers: layers.clone(),
                position,
            };
            let writes = self.project.project(&before, transaction)?;
            position = transaction.position();
            let mut batch = Batch::default();
            batch.entries(&layers, writes);
            self.view.publish(self.view.write(batch), || ());
        }
        let previous = state.position().lsn;
        self.show(Effect::Appended {
            state,
            previous,
            last: position,
            location,
        });
        Ok(())
    }

    fn control(&mut self, log: LogId, record: &Record) -> Result<()> {
        let existing = self.catalog.get(log);
        let begin = |meta| Effect::Began {
            state: Arc::new(LogState::new(log, meta)),
        };
        let effect = match (record, existing) {
            (Record::Created { view, owner }, None) => begin(LogMeta {
                layers: Layers::single(*view),
                owner: *owner,
                position: Position::default(),
            }),
            (Record::Seeded { view, position }, None) => begin(LogMeta {
                layers: Layers::single(*view),
                owner: Default::default(),
                position: *position,
            }),
            (Record::Branched { layers, position }, None) => begin(LogMeta {
                layers: layers.clone(),
                owner: Default::default(),
                position: *position,
            }),
            (Record::Rebased { layers }, Some(state)) => Effect::Rebased {
                state,
                layers: layers.clone(),
            },
            (Record::Owned { epoch }, Some(state)) => Effect::Owned { state, epoch: *epoch },
            (Record::Dropped, Some(state)) => Effect::Dropped { state },
            _ => {
                return Err(StorageError::Corrupt(format!(
                    "log {log} cannot become what a record says"
                )));
            }
        };
        self.show(effect);
        Ok(())
    }

    fn show(&self, effect: Effect) {
        let mut batch = Batch::default();
        effect.stage(&mut batch);
        self.view.publish(self.view.write(batch), || effect.show(self.catalog));
    }

    /// Where the records leave each log, the view must stand.
    fn check_seen(&self) -> Result<()> {
        for (log, position) in &self.seen {
            let stands = self.catalog.get(*log).map(|state| state.position());
            if stands.is_some_and(|stands| stands != *position) {
                let problem = format!("the view of log {log} stands at {stands:?}, its log at {position:?}");
                return Err(StorageError::Corrupt(problem));
            }
        }
        Ok(())
    }
}

fn unchained(log: LogId, transaction: &Transaction) -> StorageError {
    StorageError::Corrupt(format!(
        "log {log}: transaction {} does not follow what is before it",
        transaction.lsn
    ))
}
