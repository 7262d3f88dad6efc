//! What the records of a group mean: the bodies inside the frames of [`super::frame`].

use bytes::Bytes;
use orrery_model::log::Transaction;
use orrery_model::{ChainHash, Epoch, Lsn, Position};
use orrery_partition::storage::{Result, Staged, StorageError};

use super::frame::RawRecord;

/// Identity of the entries of one log in the view store. Never reused, so leftovers of a dropped log or an unfinished
/// seed can be swept while a new one is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ViewId(pub(super) u64);

pub(super) const POSITION_BYTES: usize = 28;

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
}

impl Record {
    pub(super) const TRANSACTIONS: u8 = 1;
    const CREATED: u8 = 2;
    const OWNED: u8 = 3;
    const SEEDED: u8 = 4;
    const DROPPED: u8 = 5;

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
            _ => None,
        };
        record.ok_or_else(|| StorageError::Corrupt(format!("log {}: unknown record of kind {}", raw.log, raw.kind)))
    }
}

/// The body of a record of transactions.
pub(super) fn encode_transactions(staged: &[Staged]) -> Vec<u8> {
    let mut body = Vec::new();
    for Staged { transaction, .. } in staged {
        let length_at = body.len();
        body.extend_from_slice(&[0; 4]);
        transaction.encode(&mut body);
        let length = (body.len() - length_at - 4) as u32;
        body[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
    body
}

/// Reads what [`encode_transactions`] wrote and checks that each transaction follows the one before it.
pub(super) fn decode_transactions(body: &Bytes) -> Result<Vec<Transaction>> {
    let mut transactions: Vec<Transaction> = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let begin = at + 4;
        let length = body.get(at..begin).map(u32_of).ok_or_else(truncated)? as usize;
        let end = begin
            .checked_add(length)
            .filter(|end| *end <= body.len())
            .ok_or_else(truncated)?;
        let transaction = Transaction::decode(&body.slice(begin..end))
            .map_err(|error| StorageError::Corrupt(format!("a log record holds no transaction: {error}")))?;
        let previous = transactions
            .last()
            .map_or_else(|| predecessor(&transaction), Transaction::position);
        if !transaction.follows(previous) {
            let problem = format!("transaction {} is not what its hash says", transaction.lsn);
            return Err(StorageError::Corrupt(problem));
        }
        transactions.push(transaction);
        at = end;
    }
    Ok(transactions)
}

/// Where the log stood before this transaction, as far as the transaction knows.
fn predecessor(transaction: &Transaction) -> Position {
    Position {
        epoch: transaction.epoch,
        lsn: transaction.previous,
        hash: transaction.previous_hash,
    }
}

pub(super) fn encode_position(position: Position) -> [u8; POSITION_BYTES] {
    let mut bytes = [0; POSITION_BYTES];
    bytes[..4].copy_from_slice(&position.epoch.0.to_le_bytes());
    bytes[4..12].copy_from_slice(&position.lsn.0.to_le_bytes());
    bytes[12..].copy_from_slice(&position.hash.0);
    bytes
}

/// The bytes must be [`POSITION_BYTES`] long.
pub(super) fn decode_position(bytes: &[u8]) -> Position {
    let hash = bytes[12..POSITION_BYTES].try_into().expect("sixteen bytes");
    Position {
        epoch: Epoch(u32_of(&bytes[..4])),
        lsn: Lsn(u64_of(&bytes[4..12])),
        hash: ChainHash(hash),
    }
}

pub(super) fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

pub(super) fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn truncated() -> StorageError {
    StorageError::Corrupt("a log record ends inside a transaction".into())
}
