//! The streams a store is spread over: their names, their making, and which of them a log's messages are in.
//!
//! Logs are packed: a stream holds many, each under a subject of its own. `docs/adr/007-logs-packed-into-streams.md` says why.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::object_store::{self, ObjectStore};
use async_nats::jetstream::stream::{Config, DiscardPolicy, PeerInfo, RetentionPolicy, StorageType, Stream};
use bytes::Bytes;
use futures::StreamExt as _;
use orrery_model::LogId;
use orrery_partition::storage::{Result, StorageError};

use super::following::Line;
use super::lane::Lane;
use super::message::StreamSequence;
use super::patience::patiently;
use super::settings::NatsSettings;
use super::streams::{ReplicaReport, StreamReport};

/// One try of a request; a lost one is tried again well within the patience of a store.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Room for headers in a message.
const HEADROOM_BYTES: usize = 64 << 10;
/// Where a stream remembers over how many its store is spread.
pub(super) const N_STREAMS: &str = "orrery-streams";

/// The streams of one store.
#[derive(Clone, Debug)]
pub(super) struct Bus {
    context: Context,
    name: String,
    n_streams: u64,
    patience: Duration,
    /// Bytes one message may carry.
    pub(super) message_bytes_max: usize,
}

impl Bus {
    /// Finds the streams of a store, or makes them.
    pub(super) async fn open(client: async_nats::Client, settings: &NatsSettings) -> Result<Bus> {
        let message_bytes_max = client.server_info().max_payload.saturating_sub(HEADROOM_BYTES);
        let context = ContextBuilder::new().timeout(ATTEMPT).build(client);
        let mut bus = Bus {
            context,
            name: settings.name.clone(),
            n_streams: u64::from(settings.n_streams),
            patience: settings.patience,
            message_bytes_max,
        };
        bus.n_streams = patiently(bus.patience, || bus.make_stream(settings, 0)).await?;
        for idx in 1..bus.n_streams {
            patiently(bus.patience, || bus.make_stream(settings, idx)).await?;
        }
        Ok(bus)
    }

    /// Finds the streams of a store, without making any.
    pub(super) async fn find(client: async_nats::Client, settings: &NatsSettings) -> Result<Bus> {
        let message_bytes_max = client.server_info().max_payload.saturating_sub(HEADROOM_BYTES);
        let mut bus = Bus {
            context: ContextBuilder::new().timeout(ATTEMPT).build(client),
            name: settings.name.clone(),
            n_streams: 1,
            patience: settings.patience,
            message_bytes_max,
        };
        let first = bus.context.get_stream(bus.stream_name(0)).await;
        let first = first.map_err(|error| cannot("find the streams of the store", &error))?;
        bus.n_streams = recorded_streams(&first.cached_info().config)?;
        Ok(bus)
    }

    /// What the servers say of one stream.
    pub(super) async fn describe(&self, idx: u64) -> Result<StreamReport> {
        let stream = self.stream(idx).await?;
        let info = stream.get_info().await;
        let info = info.map_err(|error| cannot("describe a stream", &error))?;
        let cluster = info.cluster.unwrap_or_default();
        let replica = |peer: PeerInfo| ReplicaReport {
            server: peer.name,
            is_current: peer.current,
            is_offline: peer.offline,
            n_behind: peer.lag.unwrap_or(0),
        };
        Ok(StreamReport {
            name: info.config.name,
            leader: cluster.leader,
            replicas: cluster.replicas.into_iter().map(replica).collect(),
            n_messages: info.state.messages,
            n_bytes: info.state.bytes,
            n_logs: self.list(idx).await?.len(),
        })
    }

    /// Finds or makes one stream; answers how many there are to be. A stream that exists is taken as it is.
    async fn make_stream(&self, settings: &NatsSettings, idx: u64) -> Result<u64> {
        let n_streams = self.n_streams.to_string();
        let config = Config {
            name: self.stream_name(idx),
            subjects: vec![format!("{}.>", self.subject_prefix(idx))],
            description: Some("logs of an Orrery store".into()),
            storage: StorageType::File,
            retention: RetentionPolicy::Limits,
            discard: DiscardPolicy::New,
            num_replicas: settings.replicas,
            // A log is trimmed by subject, and by nothing else.
            deny_delete: true,
            allow_rollup: true,
            metadata: HashMap::from([(N_STREAMS.to_owned(), n_streams)]),
            ..Config::default()
        };
        let found = self.context.get_or_create_stream(config).await;
        let stream = found.map_err(|error| cannot("make a stream", &error))?;
        recorded_streams(&stream.cached_info().config)
    }

    fn stream_name(&self, idx: u64) -> String {
        stream_name(&self.name, idx)
    }

    fn subject_prefix(&self, idx: u64) -> String {
        subject_prefix(&self.name, idx)
    }

    fn log_prefix(&self, idx: u64) -> String {
        format!("{}.log.", self.subject_prefix(idx))
    }

    /// The messages of one log.
    pub(super) async fn lane(&self, log: LogId) -> Result<Lane> {
        let idx = self.stream_of(log);
        Ok(Lane::new(
            log,
            self.context.clone(),
            self.stream(idx).await?,
            &self.subject_prefix(idx),
            self.patience,
        ))
    }

    pub(super) fn n_streams(&self) -> u64 {
        self.n_streams
    }

    /// The stream a log is in.
    pub(super) fn stream_of(&self, log: LogId) -> u64 {
        log.0 % self.n_streams
    }

    async fn stream(&self, idx: u64) -> Result<Stream<()>> {
        let stream = self.context.get_stream_no_info(self.stream_name(idx)).await;
        stream.map_err(|error| cannot("find a stream", &error))
    }

    /// The logs that have messages in a stream, dropped ones included.
    pub(super) async fn logs(&self, idx: u64) -> Result<Vec<LogId>> {
        patiently(self.patience, || self.list(idx)).await
    }

    async fn list(&self, idx: u64) -> Result<Vec<LogId>> {
        let prefix = self.log_prefix(idx);
        let stream = self.stream(idx).await?;
        let info = stream.info_builder().subjects(format!("{prefix}*")).fetch().await;
        let mut info = info.map_err(|error| cannot("list the logs of a stream", &error))?;
        let mut logs = Vec::new();
        while let Some(subject) = info.next().await {
            let (subject, _) = subject.map_err(|error| cannot("list the logs of a stream", &error))?;
            logs.extend(log_of(&prefix, &subject));
        }
        Ok(logs)
    }

    /// The sequence of the last message that a stream has had.
    pub(super) async fn last_sequence(&self, idx: u64) -> Result<StreamSequence> {
        let info = self.stream(idx).await?.get_info().await;
        info.map(|info| info.state.last_sequence)
            .map_err(|error| cannot("describe a stream", &error))
    }

    /// Messages of a stream from one on, of all its logs or of some: log, sequence and payload.
    pub(super) async fn consume(
        &self,
        idx: u64,
        line: &Line,
        from: StreamSequence,
    ) -> Result<impl futures::Stream<Item = Result<(LogId, StreamSequence, Bytes)>> + Send + Unpin + use<>> {
        let prefix = self.log_prefix(idx);
        let filter_subjects = match line {
            Line::Whole => vec![format!("{prefix}*")],
            Line::Logs(logs) => logs.iter().map(|log| format!("{prefix}{log}")).collect(),
        };
        let config = pull::OrderedConfig {
            filter_subjects,
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from },
            ..pull::OrderedConfig::default()
        };
        let consumer = self.stream(idx).await?.create_consumer(config).await;
        let consumer = consumer.map_err(|error| cannot("follow a stream", &error))?;
        let messages = consumer.messages().await;
        let messages = messages.map_err(|error| cannot("follow a stream", &error))?;
        Ok(messages.map(move |message| {
            let message = message.map_err(|error| cannot("follow a stream", &error))?;
            let info = message.info().map_err(|error| cannot("follow a stream", &error))?;
            let log = log_of(&prefix, &message.subject);
            let log = log.ok_or_else(|| StorageError::Corrupt(format!("{} names no log", message.subject)))?;
            Ok((log, info.stream_sequence, message.payload.clone()))
        }))
    }

    /// Where snapshots of views are saved.
    pub(super) async fn saved(&self, replicas: usize) -> Result<ObjectStore> {
        patiently(self.patience, || self.make_saved(replicas)).await
    }

    /// The same, without making it.
    pub(super) async fn find_saved(&self) -> Result<ObjectStore> {
        let found = self.context.get_object_store(&saved_bucket(&self.name)).await;
        found.map_err(|error| cannot("find the store of snapshots", &error))
    }

    async fn make_saved(&self, replicas: usize) -> Result<ObjectStore> {
        let bucket = saved_bucket(&self.name);
        if let Ok(found) = self.context.get_object_store(&bucket).await {
            return Ok(found);
        }
        let config = object_store::Config {
            bucket,
            description: Some("snapshots of an Orrery store".into()),
            num_replicas: replicas,
            ..object_store::Config::default()
        };
        let made = self.context.create_object_store(config).await;
        made.map_err(|error| cannot("make the store of snapshots", &error))
    }
}

/// What a stream of a store is called.
pub(super) fn stream_name(store: &str, idx: u64) -> String {
    format!("ORRERY_{store}_{idx}")
}

/// What the subjects of a stream begin with.
pub(super) fn subject_prefix(store: &str, idx: u64) -> String {
    format!("orrery.{store}.{idx}")
}

/// What the object store of a store's snapshots is called.
pub(super) fn saved_bucket(store: &str) -> String {
    format!("ORRERY_{store}")
}

/// Over how many streams the store of this one is spread.
pub(super) fn recorded_streams(config: &Config) -> Result<u64> {
    let recorded = config.metadata.get(N_STREAMS).and_then(|text| text.parse().ok());
    recorded.filter(|n| *n > 0).ok_or_else(|| {
        StorageError::Corrupt(format!(
            "stream {} was not made by Orrery: it does not say how many there are",
            config.name
        ))
    })
}

fn log_of(prefix: &str, subject: &str) -> Option<LogId> {
    subject.strip_prefix(prefix)?.parse().ok().map(LogId)
}

/// An error of the servers, or of the way to them.
pub(super) fn cannot(what: &str, error: &dyn std::fmt::Display) -> StorageError {
    StorageError::Unavailable(format!("cannot {what}: {error}"))
}
