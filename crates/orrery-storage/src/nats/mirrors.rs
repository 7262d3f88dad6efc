//! The streams of a region that follows another: mirrors of that region's streams, in a JetStream domain of its own.
//!
//! A mirror holds the same messages under the same numbers as its origin, with the own store's name in their subjects, so that
//! whoever reads it need not know that it is one, and so that no two regions ever listen to the same subject. Snapshots are
//! mirrored with the logs. Taking over is [`Mirrors::promote`]: the streams stay, and take messages from then on. A stream cannot
//! become a mirror: it is deleted and copied anew, one after the other, so that a region that changes its origin is never
//! without most of its copy.
//!
//! Invariant: nothing here decides who writes. Whoever calls has seen to it that what is deleted is to be had elsewhere.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::{ContextBuilder, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, External, Info, RetentionPolicy, Source, StorageType, SubjectTransform,
};
use orrery_partition::storage::{Result, StorageError};
use tokio::time::Instant;

use super::bus::{self, N_STREAMS, cannot, recorded_streams};
use super::patience::patiently;
use super::settings::NatsSettings;

/// One request to servers of another region.
const FAR_TIMEOUT: Duration = Duration::from_secs(2);
/// How soon to look again whether a mirror has been filled.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A region whose streams are mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Of its store.
    pub name: String,
    /// The JetStream domain its servers are in.
    pub domain: String,
}

impl Origin {
    /// A region's domain has the name of its store.
    pub fn of(name: &str) -> Origin {
        Origin {
            name: name.to_owned(),
            domain: name.to_owned(),
        }
    }

    pub(super) fn api(&self) -> String {
        format!("$JS.{}.API", self.domain)
    }
}

/// What the streams of a store are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There are none, or not all of them.
    Missing,
    /// They take messages.
    Own,
    /// They follow the streams of the store with this name.
    Mirrors(String),
    /// Some follow, and some take messages or follow another: a change was cut off half way.
    Between,
}

/// The streams of one store.
#[derive(Clone, Debug)]
pub struct Mirrors {
    client: Client,
    context: Context,
    settings: NatsSettings,
}

/// One stream of a store: its name, and the subjects it takes messages under when it is not a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    subjects: String,
    /// Does it hold logs? They are trimmed by subject, and by nothing else.
    is_log: bool,
}

impl Mirrors {
    pub fn new(client: Client, settings: &NatsSettings) -> Result<Mirrors> {
        settings.check()?;
        let context = ContextBuilder::new().timeout(FAR_TIMEOUT).build(client.clone());
        Ok(Mirrors {
            client,
            context,
            settings: settings.clone(),
        })
    }

    /// What the streams are now.
    pub async fn standing(&self) -> Result<Standing> {
        let Some(n_streams) = self.n_streams(&self.context, &self.settings.name).await? else {
            return Ok(Standing::Missing);
        };
        let mut found: Option<Standing> = None;
        for part in parts(&self.settings.name, n_streams) {
            let one = match self.info(&self.context, &part.name).await? {
                None => return Ok(Standing::Missing),
                Some(info) => match info.config.mirror {
                    None => Standing::Own,
                    Some(mirror) => Standing::Mirrors(store_of(&mirror.name).to_owned()),
                },
            };
            match &found {
                Some(other) if *other != one => return Ok(Standing::Between),
                _ => found = Some(one),
            }
        }
        Ok(found.unwrap_or(Standing::Missing))
    }

    /// Makes every stream a mirror of the origin's. One that is already stays; any other is deleted first, and filled before the
    /// next is touched.
    pub async fn follow(&self, origin: &Origin) -> Result<()> {
        let far = self.context_of(origin);
        let n_streams = self.n_streams(&far, &origin.name).await?;
        let n_streams = n_streams.ok_or_else(|| unreachable_origin(origin))?;
        for idx in 0..=n_streams as usize {
            self.follow_part(idx, n_streams, origin).await?;
        }
        Ok(())
    }

    async fn follow_part(&self, idx: usize, n_streams: u64, origin: &Origin) -> Result<()> {
        let own = &parts(&self.settings.name, n_streams)[idx];
        let theirs = &parts(&origin.name, n_streams)[idx];
        let existing = self.info(&self.context, &own.name).await?;
        if let Some(info) = &existing {
            if info
                .config
                .mirror
                .as_ref()
                .is_some_and(|mirror| mirror.name == theirs.name)
            {
                return Ok(());
            }
            self.delete(own).await?;
        }
        let config = self.mirror_config(own, theirs, n_streams, origin);
        patiently(self.settings.patience, || self.create(config.clone())).await?;
        match existing {
            // What it had was to be had there.
            Some(_) => self.filled(own, theirs, origin).await,
            None => Ok(()),
        }
    }

    /// Takes what another region has more of one stream: from now on it is that region's mirror, and has everything of it. A stream that
    /// takes messages is left alone: it may hold what is nowhere else.
    pub async fn take_from(&self, idx: usize, other: &Origin) -> Result<()> {
        let n_streams = self.n_streams(&self.context, &self.settings.name).await?;
        let n_streams = n_streams.ok_or_else(|| unreachable_origin(other))?;
        let own = parts(&self.settings.name, n_streams);
        let own = own.get(idx).ok_or_else(|| unreachable_origin(other))?;
        let info = self.info(&self.context, &own.name).await?;
        if info.is_some_and(|info| info.config.mirror.is_none()) {
            return Err(StorageError::Unavailable(format!("{} takes messages", own.name)));
        }
        self.follow_part(idx, n_streams, other).await
    }

    /// Deletes one mirror that has stalled and makes it anew.
    pub async fn renew(&self, idx: usize, origin: &Origin) -> Result<()> {
        let far = self.context_of(origin);
        let n_streams = self.n_streams(&far, &origin.name).await?;
        let n_streams = n_streams.ok_or_else(|| unreachable_origin(origin))?;
        let own = parts(&self.settings.name, n_streams);
        let own = own.get(idx).ok_or_else(|| unreachable_origin(origin))?;
        match self.info(&self.context, &own.name).await? {
            Some(info) if info.config.mirror.is_some() => self.delete(own).await?,
            Some(_) => return Err(StorageError::Unavailable(format!("{} is no mirror", own.name))),
            None => {}
        }
        self.follow_part(idx, n_streams, origin).await
    }

    /// Lets every stream take messages. Those that do already stay as they are.
    pub async fn promote(&self) -> Result<()> {
        let n_streams = self.n_streams(&self.context, &self.settings.name).await?;
        let n_streams = n_streams.ok_or_else(|| StorageError::Unavailable("there is nothing to promote".into()))?;
        let promoted = parts(&self.settings.name, n_streams)
            .into_iter()
            .map(|part| async move {
                let update = || self.promote_part(&part);
                patiently(self.settings.patience, update).await
            });
        futures::future::try_join_all(promoted).await.map(drop)
    }

    async fn promote_part(&self, part: &Part) -> Result<()> {
        let info = self.info(&self.context, &part.name).await?;
        let info = info.ok_or_else(|| StorageError::Corrupt(format!("the stream {} is gone", part.name)))?;
        if info.config.mirror.is_none() {
            return Ok(());
        }
        let config = Config {
            mirror: None,
            subjects: vec![part.subjects.clone()],
            ..info.config
        };
        let updated = self.context.update_stream(config).await;
        updated.map(drop).map_err(|error| cannot("promote a mirror", &error))
    }

    /// Deletes every stream.
    pub async fn remove(&self) -> Result<()> {
        let Some(n_streams) = self.n_streams(&self.context, &self.settings.name).await? else {
            return Ok(());
        };
        // The first one last: it tells how many there are.
        for part in parts(&self.settings.name, n_streams).iter().rev() {
            self.delete(part).await?;
        }
        Ok(())
    }

    /// The numbers of the last messages of all own streams, the snapshots' last.
    pub async fn reached(&self) -> Result<Vec<u64>> {
        self.reached_in(&self.context, &self.settings.name).await
    }

    /// The same of another region.
    pub async fn reached_by(&self, origin: &Origin) -> Result<Vec<u64>> {
        self.reached_in(&self.context_of(origin), &origin.name).await
    }

    async fn reached_in(&self, context: &Context, name: &str) -> Result<Vec<u64>> {
        let n_streams = self.n_streams(context, name).await?;
        let missing = || StorageError::Unavailable(format!("the streams of {name} are missing"));
        let mut reached = Vec::new();
        for part in parts(name, n_streams.ok_or_else(missing)?) {
            let info = self.info(context, &part.name).await?.ok_or_else(missing)?;
            reached.push(info.state.last_sequence);
        }
        Ok(reached)
    }

    /// Waits until a mirror has what its origin has now.
    async fn filled(&self, own: &Part, theirs: &Part, origin: &Origin) -> Result<()> {
        let goal = self.info(&self.context_of(origin), &theirs.name).await?;
        let goal = goal.ok_or_else(|| unreachable_origin(origin))?.state.last_sequence;
        let (mut reached, mut moved) = (0, Instant::now());
        loop {
            let info = self.info(&self.context, &own.name).await?;
            let now = info.map_or(0, |info| info.state.last_sequence);
            if now >= goal {
                return Ok(());
            }
            if now > reached {
                (reached, moved) = (now, Instant::now());
            }
            if moved.elapsed() > self.settings.patience {
                return Err(StorageError::Unavailable(format!(
                    "the mirror {} is not filled",
                    own.name
                )));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn context_of(&self, origin: &Origin) -> Context {
        ContextBuilder::new()
            .timeout(FAR_TIMEOUT)
            .api_prefix(origin.api())
            .build(self.client.clone())
    }

    /// Over how many streams a store is spread; `None` when it has none.
    async fn n_streams(&self, context: &Context, name: &str) -> Result<Option<u64>> {
        let first = self.info(context, &bus::stream_name(name, 0)).await?;
        first.map(|info| recorded_streams(&info.config)).transpose()
    }

    async fn info(&self, context: &Context, name: &str) -> Result<Option<Info>> {
        match context.get_stream(name).await {
            Ok(stream) => Ok(Some(stream.cached_info().clone())),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(error)
                    if error.error_code() == async_nats::jetstream::ErrorCode::STREAM_NOT_FOUND =>
                {
                    Ok(None)
                }
                _ => Err(cannot("find a stream", &error)),
            },
        }
    }

    async fn create(&self, config: Config) -> Result<()> {
        let made = self.context.get_or_create_stream(config).await;
        made.map(drop).map_err(|error| cannot("make a mirror", &error))
    }

    async fn delete(&self, part: &Part) -> Result<()> {
        patiently(self.settings.patience, || async {
            match self.context.delete_stream(&part.name).await {
                Ok(_) => Ok(()),
                Err(error) => match self.info(&self.context, &part.name).await? {
                    None => Ok(()),
                    Some(_) => Err(cannot("delete a stream", &error)),
                },
            }
        })
        .await
    }

    fn mirror_config(&self, own: &Part, theirs: &Part, n_streams: u64, origin: &Origin) -> Config {
        let mirror = Source {
            name: theirs.name.clone(),
            external: Some(External {
                api_prefix: origin.api(),
                delivery_prefix: None,
            }),
            subject_transforms: vec![SubjectTransform {
                source: theirs.subjects.clone(),
                destination: own.subjects.clone(),
            }],
            ..Source::default()
        };
        Config {
            name: own.name.clone(),
            description: Some("a copy of another region's".into()),
            storage: StorageType::File,
            retention: RetentionPolicy::Limits,
            discard: DiscardPolicy::New,
            num_replicas: self.settings.replicas,
            deny_delete: own.is_log,
            allow_rollup: true,
            metadata: HashMap::from([(N_STREAMS.to_owned(), n_streams.to_string())]),
            mirror: Some(mirror),
            ..Config::default()
        }
    }
}

/// All streams of a store: its logs' and, last, its snapshots'.
fn parts(store: &str, n_streams: u64) -> Vec<Part> {
    let logs = (0..n_streams).map(|idx| Part {
        name: bus::stream_name(store, idx),
        subjects: format!("{}.>", bus::subject_prefix(store, idx)),
        is_log: true,
    });
    let bucket = bus::saved_bucket(store);
    let saved = Part {
        name: format!("OBJ_{bucket}"),
        subjects: format!("$O.{bucket}.>"),
        is_log: false,
    };
    logs.chain([saved]).collect()
}

/// The store that a stream belongs to.
fn store_of(stream: &str) -> &str {
    let store = stream.strip_prefix("OBJ_").unwrap_or(stream);
    let store = store.strip_prefix("ORRERY_").unwrap_or(store);
    // Names of stores have no underscore.
    store.split('_').next().unwrap_or(store)
}

fn unreachable_origin(origin: &Origin) -> StorageError {
    StorageError::Unavailable(format!("the streams of {} cannot be found", origin.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_tells_which_store_it_belongs_to() {
        for part in parts("west-us2", 3) {
            assert_eq!(store_of(&part.name), "west-us2", "{part:?}");
        }
        assert_eq!(parts("a", 3).len(), 4);
    }
}
