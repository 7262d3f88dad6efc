//! Bodies that records of every durable log have in common: transactions and positions. Described in
//! `docs/formats/log-record.md`; a change of one is a change of both.

use bytes::Bytes;
use orrery_model::log::Transaction;
use orrery_model::{ChainHash, Epoch, Lsn, Position};
use orrery_partition::storage::{Result, Staged, StorageError};

pub(crate) const POSITION_BYTES: usize = 28;

/// The body of a record of transactions.
pub(crate) fn encode_transactions(staged: &[Staged]) -> Vec<u8> {
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
pub(crate) fn decode_transactions(body: &Bytes) -> Result<Vec<Transaction>> {
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

pub(crate) fn encode_position(position: Position) -> [u8; POSITION_BYTES] {
    let mut bytes = [0; POSITION_BYTES];
    bytes[..4].copy_from_slice(&position.epoch.0.to_le_bytes());
    bytes[4..12].copy_from_slice(&position.lsn.0.to_le_bytes());
    bytes[12..].copy_from_slice(&position.hash.0);
    bytes
}

/// The bytes must be [`POSITION_BYTES`] long.
pub(crate) fn decode_position(bytes: &[u8]) -> Position {
    let hash = bytes[12..POSITION_BYTES].try_into().expect("sixteen bytes");
    Position {
        epoch: Epoch(u32_of(&bytes[..4])),
        lsn: Lsn(u64_of(&bytes[4..12])),
        hash: ChainHash(hash),
    }
}

pub(crate) fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

pub(crate) fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn truncated() -> StorageError {
    StorageError::Corrupt("a log record ends inside a transaction".into())
}
