//! The messages of one log in the stream it shares with others.
//!
//! Reads that decide something go through the stream's leader, never to a follower that may lag. A lane keeps no state.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_ROLLUP};
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use futures::StreamExt as _;
use orrery_model::{LogId, Lsn};
use orrery_partition::storage::{Result, StorageError};

use super::bus::cannot;
use super::message::{Message, StreamSequence};
use super::patience::patiently;
use super::publish::{Outcome, Publication, publish};

/// Messages read one by one before a consumer is made for the rest. Making one costs the servers more than a few dozen reads.
const READ_SINGLY: usize = 64;
/// Names the subject an expectation is about when it is not the message's own.
const EXPECTED_SUBJECT_HEADER: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
/// For people who look into a stream: the LSN the log has reached with a message.
const LSN_HEADER: &str = "Orrery-Lsn";

#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) log: LogId,
    context: Context,
    stream: Stream<()>,
    subject: String,
    barrier_subject: String,
    saved_subject: String,
    patience: Duration,
}

impl Lane {
    pub(super) fn new(log: LogId, context: Context, stream: Stream<()>, prefix: &str, patience: Duration) -> Lane {
        Lane {
            log,
            context,
            stream,
            subject: format!("{prefix}.log.{log}"),
            barrier_subject: format!("{prefix}.barrier.{log}"),
            saved_subject: format!("{prefix}.saved.{log}"),
            patience,
        }
    }

    /// Adds a message if the log's last one is still `previous`.
    pub(super) async fn append(&self, previous: StreamSequence, lsn: Lsn, payload: Bytes) -> Outcome {
        let mut headers = expecting(previous);
        headers.insert(LSN_HEADER, lsn.to_string());
        self.publish(&self.subject, previous, headers, payload).await
    }

    /// Puts one message in the place of all that the log has, if its last one is still `previous`.
    pub(super) async fn replace(&self, previous: StreamSequence, payload: Bytes) -> Outcome {
        let mut headers = expecting(previous);
        headers.insert(NATS_ROLLUP, "sub");
        self.publish(&self.subject, previous, headers, payload).await
    }

    /// Proves by a write that the log's last message is still `previous`: a leader that was deposed cannot store it.
    pub(super) async fn prove(&self, previous: StreamSequence) -> Outcome {
        let mut headers = expecting(previous);
        headers.insert(EXPECTED_SUBJECT_HEADER, self.subject.as_str());
        // One is enough to keep.
        headers.insert(NATS_ROLLUP, "sub");
        self.publish(&self.barrier_subject, previous, headers, Bytes::new())
            .await
    }

    /// Remembers where a snapshot was saved, if the last that was remembered is still `previous`.
    pub(super) async fn point(&self, previous: StreamSequence, payload: Bytes) -> Outcome {
        let mut headers = expecting(previous);
        headers.insert(NATS_ROLLUP, "sub");
        let publication = Publication {
            subject: &self.saved_subject,
            checked: &self.saved_subject,
            previous,
            headers,
            payload,
        };
        publish(self, &self.context, publication, self.patience).await
    }

    async fn publish(&self, subject: &str, previous: StreamSequence, headers: HeaderMap, payload: Bytes) -> Outcome {
        let publication = Publication {
            subject,
            checked: &self.subject,
            previous,
            headers,
            payload,
        };
        publish(self, &self.context, publication, self.patience).await
    }

    /// The last message of the log.
    pub(super) async fn last(&self) -> Result<Option<Message>> {
        let found = self.raw_last(&self.subject).await?;
        found.map(|raw| self.decode(&raw)).transpose()
    }

    /// The first message of the log at or after `from`.
    pub(super) async fn next(&self, from: StreamSequence) -> Result<Option<Message>> {
        let found = patiently(self.patience, || self.raw_next(&self.subject, from)).await?;
        found.map(|raw| self.decode(&raw)).transpose()
    }

    /// What was last remembered about saved snapshots.
    pub(super) async fn pointed(&self) -> Result<Option<StreamMessage>> {
        self.raw_last(&self.saved_subject).await
    }

    /// The first message under a subject at or after `from`, asked for once.
    pub(super) async fn raw_next(&self, subject: &str, from: StreamSequence) -> Result<Option<StreamMessage>> {
        match self.stream.get_first_raw_message_by_subject(subject, from.max(1)).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(cannot("read a stream", &error)),
        }
    }

    async fn raw_last(&self, subject: &str) -> Result<Option<StreamMessage>> {
        patiently(self.patience, || async {
            match self.stream.get_last_raw_message_by_subject(subject).await {
                Ok(found) => Ok(Some(found)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(cannot("read a stream", &error)),
            }
        })
        .await
    }

    /// The messages after `after` up to `end`, which exists.
    pub(super) fn read(&self, after: StreamSequence, end: StreamSequence) -> Reading<'_> {
        Reading {
            lane: self,
            after,
            end,
            n_singly: 0,
            messages: None,
        }
    }

    /// Messages of the log from `first` on, and those yet to come.
    async fn consumer(&self, first: StreamSequence) -> Result<pull::Ordered> {
        let config = pull::OrderedConfig {
            filter_subject: self.subject.clone(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: first },
            ..pull::OrderedConfig::default()
        };
        let consumer = self.stream.create_consumer(config).await;
        let consumer = consumer.map_err(|error| cannot("read a stream", &error))?;
        consumer
            .messages()
            .await
            .map_err(|error| cannot("read a stream", &error))
    }

    /// Forgets what is remembered beside the log: barriers, and where snapshots are.
    pub(super) async fn purge_beside(&self) -> Result<()> {
        for subject in [&self.barrier_subject, &self.saved_subject] {
            let purged = self.stream.purge().filter(subject).await;
            purged.map_err(|error| cannot("trim a stream", &error))?;
        }
        Ok(())
    }

    /// Forgets the messages of the log before `first`.
    pub(super) async fn purge_before(&self, first: StreamSequence) -> Result<()> {
        let purged = self.stream.purge().filter(&self.subject).sequence(first).await;
        purged.map(|_| ()).map_err(|error| cannot("trim a stream", &error))
    }

    fn decode(&self, raw: &StreamMessage) -> Result<Message> {
        Message::decode(self.log, raw.sequence, &raw.payload)
    }
}

/// Messages of a log being read in order: the first few one by one, a long rest through a consumer.
pub(super) struct Reading<'a> {
    lane: &'a Lane,
    after: StreamSequence,
    end: StreamSequence,
    n_singly: usize,
    messages: Option<Box<pull::Ordered>>,
}

impl Reading<'_> {
    /// The next message, or `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Message>> {
        if self.after >= self.end {
            return Ok(None);
        }
        let message = if self.n_singly < READ_SINGLY {
            self.n_singly += 1;
            self.lane.next(self.after + 1).await?.ok_or_else(|| self.vanished())?
        } else {
            self.consume().await?
        };
        self.after = message.sequence;
        Ok(Some(message))
    }

    async fn consume(&mut self) -> Result<Message> {
        if self.messages.is_none() {
            self.messages = Some(Box::new(self.lane.consumer(self.after + 1).await?));
        }
        let messages = self.messages.as_mut().expect("it was made just now");
        loop {
            let next = tokio::time::timeout(self.lane.patience, messages.next()).await;
            let next = next.map_err(|_| StorageError::Unavailable("a stream stopped while it was read".into()))?;
            let Some(next) = next else {
                return Err(self.vanished());
            };
            let next = next.map_err(|error| cannot("read a stream", &error))?;
            let info = next.info().map_err(|error| cannot("read a stream", &error))?;
            // A consumer that is made anew before it gave anything begins with the log's first message.
            if info.stream_sequence > self.after {
                return Message::decode(self.lane.log, info.stream_sequence, &next.payload);
            }
        }
    }

    fn vanished(&self) -> StorageError {
        StorageError::Unavailable(format!("log {} no longer reaches message {}", self.lane.log, self.end))
    }
}

fn expecting(previous: StreamSequence) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, previous.to_string());
    headers
}
