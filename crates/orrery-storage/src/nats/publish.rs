//! One conditional write to a stream, tried until its outcome is known.
//!
//! A write says which message must be the last of a log for it to be stored. On silence the same bytes are sent again with
//! the same condition: at most one of them can be stored. When the condition does not hold, the message that came instead is
//! fetched through the leader; if it is ours, an earlier try was stored and only its answer was lost. Duplicate detection of
//! the servers plays no part: its window ends, and it is not promised to survive a change of leader.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use orrery_partition::storage::StorageError;
use tokio::time::Instant;

use super::lane::Lane;
use super::message::StreamSequence;

/// Pauses between tries grow from the first to the second. The first is short, because a leader acknowledges a message a
/// moment before it takes the next of the same log.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Stored(StreamSequence),
    /// Another message came first. Nothing was stored, now or later.
    Conflict,
    /// It may have been stored, or may yet be.
    Unknown(String),
    /// Nothing was stored.
    Refused(StorageError),
}

/// A write and its condition.
#[derive(Debug)]
pub(super) struct Publication<'a> {
    pub(super) subject: &'a str,
    /// The subject whose last message must be `previous`.
    pub(super) checked: &'a str,
    pub(super) previous: StreamSequence,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

/// How one try ended.
enum Tried {
    Stored(StreamSequence),
    /// The condition did not hold.
    Unexpected,
    /// Surely not stored, but a later try may be.
    NotYet(String),
    Silent(String),
    Refused(StorageError),
}

pub(super) async fn publish(lane: &Lane, context: &Context, write: Publication<'_>, patience: Duration) -> Outcome {
    let deadline = Instant::now() + patience;
    let mut pause = PAUSE_MIN;
    // Whether a try went out that was never answered for sure.
    let mut in_doubt = false;
    loop {
        let trouble = match attempt(context, &write).await {
            Tried::Stored(sequence) => return Outcome::Stored(sequence),
            Tried::Refused(error) if in_doubt => return Outcome::Unknown(error.to_string()),
            Tried::Refused(error) => return Outcome::Refused(error),
            Tried::NotYet(why) => why,
            Tried::Silent(why) => {
                in_doubt = true;
                why
            }
            Tried::Unexpected => match lane.raw_next(write.checked, write.previous + 1).await {
                Ok(Some(found)) if write.subject == write.checked && found.payload == write.payload => {
                    return Outcome::Stored(found.sequence);
                }
                Ok(Some(_)) => return Outcome::Conflict,
                Ok(None) => "the log ends elsewhere".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        if Instant::now() + pause >= deadline {
            return match in_doubt {
                true => Outcome::Unknown(trouble),
                false => Outcome::Refused(StorageError::Unavailable(trouble)),
            };
        }
        tokio::time::sleep(pause).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

async fn attempt(context: &Context, write: &Publication<'_>) -> Tried {
    let sent = context
        .publish_with_headers(write.subject.to_owned(), write.headers.clone(), write.payload.clone())
        .await;
    let acknowledged = match sent {
        Ok(sent) => sent.await,
        Err(error) => Err(error),
    };
    match acknowledged {
        Ok(stored) => Tried::Stored(stored.sequence),
        Err(error) => read_error(&error),
    }
}

fn read_error(error: &PublishError) -> Tried {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => Tried::Unexpected,
        // Nobody listened: the stream has no leader now.
        PublishErrorKind::StreamNotFound => Tried::NotYet("no server leads the stream".into()),
        PublishErrorKind::MaxAckPending => Tried::NotYet("too many writes are under way".into()),
        PublishErrorKind::MaxPayloadExceeded => Tried::Refused(StorageError::Unavailable(error.to_string())),
        _ => match jetstream_error(error) {
            Some(answer) => read_answer(answer),
            None => Tried::Silent(error.to_string()),
        },
    }
}

/// An answer of a server that is none of the usual ones.
fn read_answer(answer: &jetstream::Error) -> Tried {
    match answer.error_code() {
        // A write to the log is under way, perhaps our own earlier try; whether the condition holds is not known before it ends.
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => Tried::NotYet("another write is under way".into()),
        ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED => Tried::Refused(StorageError::Full),
        // A stream at its limit says so before it stores anything.
        ErrorCode::STREAM_STORE_FAILED if answer.to_string().contains("maximum") => Tried::Refused(StorageError::Full),
        // The server may have failed half way.
        _ => Tried::Silent(answer.to_string()),
    }
}

fn jetstream_error(error: &PublishError) -> Option<&jetstream::Error> {
    std::error::Error::source(error)?.downcast_ref()
}
