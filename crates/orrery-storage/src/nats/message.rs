//! What a message in a log's stream says. Described in `docs/formats/nats.md`; a change of one is a change of both.
//!
//! A message is one group of records as the embedded log has them, so it carries its own checksum, and its transactions
//! their LSNs, epochs and chain hashes. Beside what it changes, every message says where the log stands after it, so the
//! last message of a log tells all that must be known to write the next. Each names the message before it: one that was lost
//! from the middle of a stream cannot go unnoticed.

use bytes::Bytes;
use orrery_model::log::Transaction;
use orrery_model::{Epoch, LogId, Position};
use orrery_partition::storage::{Mark, Result, StorageError};

use crate::body::{POSITION_BYTES, decode_position, decode_transactions, encode_position, u32_of, u64_of};
use crate::frame::{Group, GroupWriter, RawRecord};

/// Number of a message in its stream, which many logs share. Zero is before the first.
pub(super) type StreamSequence = u64;

const TRANSACTIONS: u8 = 1;
const DROPPED: u8 = 5;
const STANDING: u8 = 6;
const BEGUN: u8 = 7;
const STANDING_BYTES: usize = 20 + POSITION_BYTES;

/// Who may append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) epoch: Epoch,
    /// The open store that claimed the log; a process that comes back with its old epoch is another one.
    pub(super) instance: u64,
}

/// Where a log stands after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Tells a log from an earlier, dropped one that had its id.
    pub(super) life: u64,
    pub(super) owner: Owner,
    pub(super) position: Position,
}

impl Standing {
    pub(super) fn mark(&self) -> Mark {
        Mark {
            life: self.life,
            owner: self.owner.epoch,
            instance: self.owner.instance,
        }
    }
}

/// What a message changes. One that changes nothing but the owner holds none of these.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// One append: its transactions, all or nothing, encoded.
    Transactions(Bytes),
    /// The log exists from where it stands, with the view that was saved under this name, or with an empty one.
    Begun { saved: Option<String> },
    /// The log is gone. No earlier message of it is left.
    Dropped,
}

/// A message as found in a stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    pub(super) sequence: StreamSequence,
    /// The message of this log before it.
    pub(super) previous: StreamSequence,
    pub(super) standing: Standing,
    pub(super) change: Option<Change>,
}

/// The bytes of a message that follows `previous`.
pub(super) fn encode(log: LogId, previous: StreamSequence, standing: Standing, change: Option<&Change>) -> Bytes {
    let mut group = GroupWriter::new();
    group.push(STANDING, log.0, &encode_standing(standing));
    match change {
        None => {}
        Some(Change::Transactions(body)) => drop(group.push(TRANSACTIONS, log.0, body)),
        Some(Change::Begun { saved }) => {
            let saved = saved.as_deref().unwrap_or_default();
            group.push(BEGUN, log.0, saved.as_bytes());
        }
        Some(Change::Dropped) => drop(group.push(DROPPED, log.0, &[])),
    }
    group.into_bytes(log.0, previous)
}

impl Message {
    /// Reads what [`encode`] wrote.
    pub(super) fn decode(log: LogId, sequence: StreamSequence, payload: &Bytes) -> Result<Message> {
        let damaged = || StorageError::Corrupt(format!("message {sequence} of log {log} is not what was written"));
        let group = Group::read(payload, 0, log.0).filter(|group| group.end() == payload.len());
        let group = group.ok_or_else(damaged)?;
        let records = group.records().ok_or_else(damaged)?;
        let (standing, changes) = records.split_first().ok_or_else(damaged)?;
        let change = match changes {
            [] => None,
            [raw] => Some(decode_change(raw).ok_or_else(damaged)?),
            _ => return Err(damaged()),
        };
        Ok(Message {
            sequence,
            previous: group.sequence,
            standing: decode_standing(standing).ok_or_else(damaged)?,
            change,
        })
    }

    /// The transactions it holds, each following the one before it.
    pub(super) fn transactions(&self) -> Result<Vec<Transaction>> {
        decode_transactions(&self.body())
    }

    /// The same, encoded. Those of messages that follow each other, put together, are those of one.
    pub(super) fn body(&self) -> Bytes {
        match &self.change {
            Some(Change::Transactions(body)) => body.clone(),
            _ => Bytes::new(),
        }
    }
}

fn encode_standing(standing: Standing) -> Vec<u8> {
    [
        standing.life.to_le_bytes().as_slice(),
        &standing.owner.epoch.0.to_le_bytes(),
        &standing.owner.instance.to_le_bytes(),
        &encode_position(standing.position),
    ]
    .concat()
}

fn decode_standing(raw: &RawRecord) -> Option<Standing> {
    let body = &raw.body;
    (raw.kind == STANDING && body.len() == STANDING_BYTES).then(|| Standing {
        life: u64_of(&body[..8]),
        owner: Owner {
            epoch: Epoch(u32_of(&body[8..12])),
            instance: u64_of(&body[12..20]),
        },
        position: decode_position(&body[20..]),
    })
}

fn decode_change(raw: &RawRecord) -> Option<Change> {
    match raw.kind {
        TRANSACTIONS => Some(Change::Transactions(raw.body.clone())),
        BEGUN => {
            let saved = String::from_utf8(raw.body.to_vec()).ok()?;
            Some(Change::Begun {
                saved: (!saved.is_empty()).then_some(saved),
            })
        }
        DROPPED if raw.body.is_empty() => Some(Change::Dropped),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::Lsn;

    use super::*;

    const LOG: LogId = LogId(7);

    fn standing() -> Standing {
        Standing {
            life: 11,
            owner: Owner {
                epoch: Epoch(3),
                instance: 99,
            },
            position: Position {
                epoch: Epoch(2),
                lsn: Lsn(40),
                ..Position::default()
            },
        }
    }

    #[test]
    fn a_message_says_what_was_written() {
        let changes = [
            None,
            Some(Change::Transactions(Bytes::from_static(b"bytes"))),
            Some(Change::Begun { saved: None }),
            Some(Change::Begun {
                saved: Some("7-1".into()),
            }),
            Some(Change::Dropped),
        ];
        for change in changes {
            let payload = encode(LOG, 5, standing(), change.as_ref());
            let expected = Message {
                sequence: 9,
                previous: 5,
                standing: standing(),
                change,
            };
            assert_eq!(Message::decode(LOG, 9, &payload), Ok(expected));
        }
    }

    #[test]
    fn a_message_of_another_log_or_with_a_changed_byte_is_refused() {
        let payload = encode(LOG, 5, standing(), None);
        assert!(Message::decode(LogId(8), 9, &payload).is_err());
        for at in 0..payload.len() {
            let mut damaged = payload.to_vec();
            damaged[at] ^= 1;
            assert!(Message::decode(LOG, 9, &damaged.into()).is_err(), "byte {at}");
        }
    }
}
