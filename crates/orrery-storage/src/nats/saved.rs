//! Snapshots of views in the servers' object store, so that a log need not be kept from its beginning.
//!
//! Beside each log the stream remembers the latest snapshot: which messages it includes and what it is called. Whoever saves
//! one replaces that memory only if it is still what they saw, so a process that stood still cannot bring an older one back.
//! A log is trimmed only behind a snapshot that is remembered, and never its last message.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_nats::jetstream::message::StreamMessage;
use bytes::Bytes;
use orrery_model::{LogId, Position};
use orrery_partition::storage::{Result, Role, Snapshot, StorageError, Store as _};

use super::Shared;
use super::bus::{cannot, saved_bucket};
use super::lane::Lane;
use super::message::{Change, Message, StreamSequence};
use super::publish::Outcome;
use super::spool::{self, Spool};
use super::tail::Tail;
use crate::body::{POSITION_BYTES, decode_position, encode_position, u64_of};
use crate::frame::{Group, GroupWriter};

const SAVED: u8 = 8;
/// A snapshot may be replaced while it is fetched; then there is a newer one.
const FETCH_TRIES: usize = 3;

/// A snapshot that was saved.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Saved {
    /// The log it is of, as [`super::message::Standing`] has it.
    pub(super) life: u64,
    pub(super) position: Position,
    /// The last message it includes.
    pub(super) sequence: StreamSequence,
    pub(super) name: String,
}

impl Saved {
    fn encode(&self, log: LogId) -> Bytes {
        let body = [
            self.life.to_le_bytes().as_slice(),
            &encode_position(self.position),
            self.name.as_bytes(),
        ]
        .concat();
        let mut group = GroupWriter::new();
        group.push(SAVED, log.0, &body);
        group.into_bytes(log.0, self.sequence)
    }

    fn decode(log: LogId, payload: &Bytes) -> Option<Saved> {
        let group = Group::read(payload, 0, log.0)?;
        let records = group.records()?;
        let [raw] = records.as_slice() else { return None };
        let name_at = 8 + POSITION_BYTES;
        (raw.kind == SAVED && raw.body.len() > name_at).then_some(())?;
        Some(Saved {
            life: u64_of(&raw.body[..8]),
            position: decode_position(&raw.body[8..name_at]),
            sequence: group.sequence,
            name: String::from_utf8(raw.body[name_at..].to_vec()).ok()?,
        })
    }
}

/// What the stream remembers of a log's snapshots, and under which message.
async fn remembered(lane: &Lane) -> Result<(StreamSequence, Option<Saved>)> {
    let Some(StreamMessage { sequence, payload, .. }) = lane.pointed().await? else {
        return Ok((0, None));
    };
    let saved = Saved::decode(lane.log, &payload)
        .ok_or_else(|| StorageError::Corrupt(format!("what is known of snapshots of log {} is damaged", lane.log)))?;
    Ok((sequence, Some(saved)))
}

impl Shared {
    /// Saves a snapshot of a log's view and trims the log behind it. Nothing to do when one is being saved.
    pub(super) async fn save(&self, tail: &Tail) -> Result<()> {
        if tail.is_saving.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let saved = self.save_alone(tail).await;
        tail.is_saving.store(false, Ordering::Release);
        saved
    }

    async fn save_alone(&self, tail: &Tail) -> Result<()> {
        self.check_writable()?;
        let Some((snapshot, saved)) = self.take_snapshot(tail).await? else {
            return Ok(());
        };
        let (previous, before) = remembered(&tail.lane).await?;
        let before = before.filter(|before| before.life == saved.life);
        if before
            .as_ref()
            .is_some_and(|before| before.position.lsn >= saved.position.lsn)
        {
            return Ok(());
        }
        let outdated = match &before {
            Some(before) => Some(before.name.clone()),
            None => seeded_from(&tail.lane).await?,
        };
        let spool = Spool::of_snapshot(&self.spool_dir, snapshot).await?;
        spool.upload(&self.objects, &saved.name).await?;
        match tail.lane.point(previous, saved.encode(tail.id)).await {
            Outcome::Stored(_) => {}
            // Someone else has saved one meanwhile.
            Outcome::Conflict => return self.forget_object(&saved.name).await,
            Outcome::Unknown(why) => return Err(StorageError::Unavailable(why)),
            Outcome::Refused(error) => return Err(error),
        }
        tail.lane.purge_before(saved.sequence).await?;
        match outdated {
            Some(name) => self.forget_object(&name).await,
            None => Ok(()),
        }
    }

    /// The view where the log is known to end, and what to call it.
    async fn take_snapshot(&self, tail: &Tail) -> Result<Option<(Arc<dyn Snapshot>, Saved)>> {
        let mut known = tail.known.lock().await;
        if !known.is_certain {
            tail.catch_up(self, &mut known).await?;
        }
        let Some(standing) = known.standing else {
            return Ok(None);
        };
        let snapshot = self.local.open(tail.id, Role::Follow).await?.snapshot()?;
        if snapshot.position() != standing.position {
            return Err(StorageError::Unavailable(format!("log {} is being caught up", tail.id)));
        }
        known.unsaved_bytes = 0;
        let saved = Saved {
            life: standing.life,
            position: standing.position,
            sequence: known.last,
            name: self.object_name(tail.id),
        };
        Ok(Some((snapshot, saved)))
    }

    /// A name that no other snapshot has.
    pub(super) fn object_name(&self, log: LogId) -> String {
        format!("{log}-{:016x}", super::nonce())
    }

    pub(super) async fn forget_object(&self, name: &str) -> Result<()> {
        let deleted = self.objects.delete(name).await;
        deleted.map_err(|error| cannot("remove an old snapshot", &error))
    }

    /// Forgets every snapshot of a log that was dropped. `begun_from` is the one it began with.
    pub(super) async fn forget_saved(&self, lane: &Lane, begun_from: Option<String>) -> Result<()> {
        let (_, saved) = remembered(lane).await?;
        for name in saved.map(|saved| saved.name).into_iter().chain(begun_from) {
            self.forget_object(&name).await?;
        }
        lane.purge_beside().await
    }

    /// Makes the local copy of a log that this node lacks, as far as a snapshot reaches or empty. Answers the last message
    /// it includes.
    pub(super) async fn rebuild(&self, lane: &Lane, end: &Message) -> Result<StreamSequence> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.rebuild_once(lane, end).await {
                Err(error) if tries >= FETCH_TRIES => return Err(error),
                Err(error) => tracing::warn!(log = %lane.log, %error, "a log cannot be rebuilt yet"),
                done => return done,
            }
        }
    }

    async fn rebuild_once(&self, lane: &Lane, end: &Message) -> Result<StreamSequence> {
        let (_, saved) = remembered(lane).await?;
        if let Some(saved) = saved.filter(|saved| saved.life == end.standing.life) {
            self.install(lane.log, &saved.name, saved.position).await?;
            return Ok(saved.sequence);
        }
        let first = self.beginning(lane, end).await?;
        match &first.change {
            Some(Change::Begun { saved: Some(name) }) => self.install(lane.log, name, first.standing.position).await?,
            Some(Change::Begun { saved: None }) => drop(self.local.open(lane.log, Role::Follow).await?),
            _ => {
                return Err(StorageError::Corrupt(format!(
                    "log {} starts with message {}, and no snapshot holds what came before",
                    lane.log, first.sequence
                )));
            }
        }
        Ok(first.sequence)
    }

    /// The message with which a log's present life begins; those before it are gone, unless a mirror kept them. The first
    /// there is, when none begins it.
    async fn beginning(&self, lane: &Lane, end: &Message) -> Result<Message> {
        let (mut from, mut earliest) = (1, None);
        loop {
            let found = lane.next(from).await?;
            let found = found.ok_or_else(|| StorageError::Unavailable("a log was dropped while it was read".into()))?;
            let begins = matches!(found.change, Some(Change::Begun { .. }));
            if begins && found.standing.life == end.standing.life {
                return Ok(found);
            }
            from = found.sequence + 1;
            let is_last = found.sequence >= end.sequence;
            let earliest = earliest.get_or_insert(found);
            if is_last {
                return Ok(earliest.clone());
            }
        }
    }

    /// Installs a saved snapshot as the local copy of a log.
    async fn install(&self, log: LogId, name: &str, position: Position) -> Result<()> {
        let object = self.objects.get(name).await;
        let mut object = object.map_err(|error| cannot("fetch a snapshot", &error))?;
        // One that was mirrored names the bucket of the region it comes from.
        object.info.bucket = saved_bucket(&self.settings.name);
        let mut seed = self.local.seed(log).await?;
        spool::read(&mut object, seed.as_mut()).await?;
        seed.finish(position).await
    }
}

/// The snapshot a log began with, if it is still needed.
pub(super) async fn seeded_from(lane: &Lane) -> Result<Option<String>> {
    Ok(lane.next(1).await?.and_then(|first| match first.change {
        Some(Change::Begun { saved }) => saved,
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_a_snapshot_is_what_was_written() {
        let saved = Saved {
            life: 4,
            position: Position::default(),
            sequence: 77,
            name: "7-0a".into(),
        };
        let payload = saved.encode(LogId(7));
        assert_eq!(Saved::decode(LogId(7), &payload), Some(saved));
        assert_eq!(Saved::decode(LogId(8), &payload), None);
        assert_eq!(Saved::decode(LogId(7), &payload.slice(1..)), None);
    }
}
