//! What the nodes of a cluster tell each other: small records in a key-value bucket beside the logs.
//!
//! Records are bytes here; what they mean is decided above. A record is replaced only in the place of the version its writer
//! knows, and read through the leader, so nobody acts on what a lagging server remembers.

use std::time::Duration;

use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::kv;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;
use futures::StreamExt as _;
use orrery_partition::storage::Result;

use super::bus::cannot;
use super::mirrors::Origin;
use super::patience::patiently;
use super::settings::NatsSettings;

/// Records kept of each key.
const HISTORY: i64 = 1;

/// The records of one store's nodes.
#[derive(Clone, Debug)]
pub struct Roster {
    bucket: kv::Store,
    timeout: Duration,
}

/// What came of writing a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// As this version.
    Stored(u64),
    /// Someone else has written meanwhile.
    Refused,
    /// Nobody knows.
    Unsure,
}

/// A record as it was found.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub value: Bytes,
    pub revision: u64,
    /// When it was written by the servers' clock, in milliseconds since 1970.
    pub at_ms: i128,
}

/// What the servers or a tool leave where a record was removed.
fn is_marker(found: &StreamMessage) -> bool {
    found.payload.is_empty()
}

fn bucket_name(store: &str) -> String {
    format!("ORRERY_{store}_cluster")
}

impl Roster {
    /// Finds the bucket of a store's nodes, or makes it. One try of a request takes at most `timeout`.
    pub async fn open(client: async_nats::Client, settings: &NatsSettings, timeout: Duration) -> Result<Roster> {
        settings.check()?;
        let context = ContextBuilder::new().timeout(timeout).build(client);
        let name = bucket_name(&settings.name);
        let bucket = patiently(settings.patience, || async {
            if let Ok(found) = context.get_key_value(&name).await {
                return Ok(found);
            }
            let config = kv::Config {
                bucket: name.clone(),
                description: "nodes of an Orrery store".into(),
                history: HISTORY,
                num_replicas: settings.replicas,
                ..kv::Config::default()
            };
            let made = context.create_key_value(config).await;
            made.map_err(|error| cannot("make the bucket of nodes", &error))
        });
        Ok(Roster {
            bucket: bucket.await?,
            timeout,
        })
    }

    /// Finds the bucket of the nodes of another region's store, through the servers of the own region.
    pub async fn find(client: async_nats::Client, origin: &Origin, timeout: Duration) -> Result<Roster> {
        let context = ContextBuilder::new()
            .timeout(timeout)
            .api_prefix(origin.api())
            .build(client);
        let found = tokio::time::timeout(timeout, context.get_key_value(bucket_name(&origin.name))).await;
        let found = found.map_err(|_| cannot("find another region's bucket", &"no answer"))?;
        Ok(Roster {
            bucket: found.map_err(|error| cannot("find another region's bucket", &error))?,
            timeout,
        })
    }

    /// A record as the leader of the bucket has it.
    pub async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let found = self.last(key).await?;
        Ok(found.filter(|found| !is_marker(found)).map(|found| Entry {
            key: key.to_owned(),
            revision: found.sequence,
            at_ms: found.time.unix_timestamp_nanos() / 1_000_000,
            value: found.payload,
        }))
    }

    /// The last message of a record, be it only a sign that it was removed.
    async fn last(&self, key: &str) -> Result<Option<StreamMessage>> {
        let subject = self.subject(key);
        let asked = self.bucket.stream.get_last_raw_message_by_subject(&subject);
        match tokio::time::timeout(self.timeout, asked).await {
            Err(_) => Err(cannot("read what nodes tell", &"the servers do not answer")),
            Ok(Err(error)) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Ok(found) => found.map(Some).map_err(|error| cannot("read what nodes tell", &error)),
        }
    }

    fn subject(&self, key: &str) -> String {
        format!("{}{key}", self.bucket.prefix)
    }

    /// Writes a record in the place of the version `over`; `None`: there is none.
    pub async fn write(&self, key: &str, value: Bytes, over: Option<u64>) -> Written {
        if over.is_some() {
            return self.update(key, value, over).await;
        }
        match self.update(key, value.clone(), None).await {
            // A removed record may have left a sign behind, which is a version to the servers.
            Written::Refused => match self.last(key).await {
                Ok(Some(found)) if is_marker(&found) => self.update(key, value, Some(found.sequence)).await,
                Ok(_) | Err(_) => Written::Refused,
            },
            written => written,
        }
    }

    async fn update(&self, key: &str, value: Bytes, over: Option<u64>) -> Written {
        let written = self.bucket.update(key, value, over.unwrap_or(0));
        match tokio::time::timeout(self.timeout, written).await {
            Ok(Ok(revision)) => Written::Stored(revision),
            Ok(Err(error)) if error.kind() == kv::UpdateErrorKind::WrongLastRevision => Written::Refused,
            Ok(Err(_)) | Err(_) => Written::Unsure,
        }
    }

    /// Writes a record that has one writer.
    pub async fn put(&self, key: &str, value: Bytes) -> Result<()> {
        let put = self.bucket.put(key, value).await;
        put.map(drop).map_err(|error| cannot("tell the other nodes", &error))
    }

    /// Removes a record without a trace: what is listed must not grow with the nodes that ever were.
    pub async fn remove(&self, key: &str) -> Result<()> {
        let purged = self.bucket.stream.purge().filter(self.subject(key)).await;
        purged.map(drop).map_err(|error| cannot("tell the other nodes", &error))
    }

    /// All records whose key begins with `prefix` and a dot.
    pub async fn below(&self, prefix: &str) -> Result<Vec<Entry>> {
        let filter = format!("{}{prefix}.*", self.bucket.prefix);
        let info = self.bucket.stream.info_builder().subjects(filter).fetch().await;
        let mut subjects = info.map_err(|error| cannot("list the nodes", &error))?;
        let mut found = Vec::new();
        while let Some(subject) = subjects.next().await {
            let (subject, _) = subject.map_err(|error| cannot("list the nodes", &error))?;
            let key = subject.strip_prefix(&self.bucket.prefix).unwrap_or_default();
            found.extend(self.get(key).await?);
        }
        found.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(found)
    }

    /// Removes a version of a record without a trace. A later one stays: `false`.
    pub async fn remove_version(&self, key: &str, revision: u64) -> Result<bool> {
        let purge = self.bucket.stream.purge().filter(self.subject(key));
        let purged = purge.sequence(revision + 1).await;
        purged
            .map(|purged| purged.purged > 0)
            .map_err(|error| cannot("tell the other nodes", &error))
    }

    /// Something for every change of these records from now on. It may end or fall silent: whoever listens looks by itself now
    /// and then.
    pub async fn changes(&self, keys: &[&str]) -> Result<impl futures::Stream<Item = ()> + Send + Unpin + use<>> {
        let watch = self.bucket.watch_many(keys.iter().copied()).await;
        let watch = watch.map_err(|error| cannot("watch what nodes tell", &error))?;
        Ok(watch.map(drop))
    }
}
