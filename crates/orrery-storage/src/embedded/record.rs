//! What the records of a group mean: the bodies inside the frames of [`crate::frame`].

use orrery_model::log::Transaction;
use orrery_model::{Epoch, Position};
use orrery_partition::storage::{Result, StorageError};

use super::layers::Layers;
use crate::body::{POSITION_BYTES, decode_position, decode_transactions, encode_position, u32_of, u64_of};
use crate::frame::RawRecord;

/// Identity of the entries of one log in the view store. Never reused, so leftovers of a dropped log or an unfinished
/// seed can be swept while a new one is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ViewId(pub(super) u64);

/// One record of one log.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    /// One append: its transactions, all or nothing.
    Transactions(Vec<Transaction>),
    /// The log exists, empty.
    Created { view: ViewId, owner: Epoch },
    /// A higher epoch owns the log.
    Owned { epoch: Epoch },
    /// The log exists with a view that was flushed before this record was written.
    Seeded { view: ViewId, position: Position },
    /// The log is gone.
    Dropped,
    /// The log exists, and stands on views that it shares.
    Branched { layers: Layers, position: Position },
    /// The log has left its view to others, and goes on above it.
    Rebased { layers: Layers },
}

impl Record {
    pub(super) const TRANSACTIONS: u8 = 1;
    const CREATED: u8 = 2;
    const OWNED: u8 = 3;
    const SEEDED: u8 = 4;
    const DROPPED: u8 = 5;
    const BRANCHED: u8 = 6;
    const REBASED: u8 = 7;

    /// Kind and body of a record other than transactions, whose body [`encode_transactions`] makes.
    pub(super) fn encode_control(&self) -> (u8, Vec<u8>) {
        match self {
            Record::Transactions(_) => unreachable!("transactions are encoded where they are handed in"),
            Record::Created { view, owner } => (
                Record::CREATED,
                [view.0.to_le_bytes().as_slice(), &owner.0.to_le_bytes()].concat(),
            ),
            Record::Owned { epoch } => (Record::OWNED, epoch.0.to_le_bytes().to_vec()),
            Record::Seeded { view, position } => (
                Record::SEEDED,
                [view.0.to_le_bytes().as_slice(), &encode_position(*position)].concat(),
            ),
            Record::Dropped => (Record::DROPPED, Vec::new()),
            Record::Branched { layers, position } => (
                Record::BRANCHED,
                [layers.encode().as_slice(), &encode_position(*position)].concat(),
            ),
            Record::Rebased { layers } => (Record::REBASED, layers.encode()),
        }
    }

    pub(super) fn decode(raw: &RawRecord) -> Result<Record> {
        let body = &raw.body;
        let record = match raw.kind {
            Record::TRANSACTIONS => Some(Record::Transactions(decode_transactions(body)?)),
            Record::CREATED if body.len() == 12 => Some(Record::Created {
                view: ViewId(u64_of(&body[..8])),
                owner: Epoch(u32_of(&body[8..])),
            }),
            Record::OWNED if body.len() == 4 => Some(Record::Owned {
                epoch: Epoch(u32_of(body)),
            }),
            Record::SEEDED if body.len() == 8 + POSITION_BYTES => Some(Record::Seeded {
                view: ViewId(u64_of(&body[..8])),
                position: decode_position(&body[8..]),
            }),
            Record::DROPPED if body.is_empty() => Some(Record::Dropped),
            Record::BRANCHED => match Layers::decode(body) {
                Some((layers, rest)) if rest.len() == POSITION_BYTES => Some(Record::Branched {
                    layers,
                    position: decode_position(rest),
                }),
                _ => None,
            },
            Record::REBASED => match Layers::decode(body) {
                Some((layers, [])) => Some(Record::Rebased { layers }),
                _ => None,
            },
            _ => None,
        };
        record.ok_or_else(|| StorageError::Corrupt(format!("log {}: unknown record of kind {}", raw.log, raw.kind)))
    }
}
