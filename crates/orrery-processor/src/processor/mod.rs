//! A processor: built from a container, a name and a delegate; started; stopped.

mod builder;
mod calls;
mod caught_up;
mod coverage;
mod deliver;
mod failures;
mod health;
mod held;
mod host;
mod init;
mod lanes;
mod letters;
mod parking;
mod reading;
mod replaying;
mod resharding;
mod settings;
mod unit;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{Notify, broadcast, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use builder::ProcessorBuilder;
pub(crate) use coverage::Coverage;
pub use health::LeaseHealth;
pub use host::Stopped;
pub use settings::{Checkpoint, Concurrency, GiveUp, KeyOrder, LeaseTiming, Poll, Settings, WindowPolicy};
pub(crate) use unit::list as list_unit;

use crate::clock::{self, Clock};
use crate::dead_letters::DeadLetterStore;
use crate::delegate::Delegate;
use crate::error::{FeedError, StartError, StoreError};
use crate::events::{Event, Events};
use crate::feed::FeedSource;
use crate::lease::{HostMark, Incarnation};
use crate::metrics::Metrics;
use crate::names::{InstanceName, UnitNames};
use crate::operations::cursor_of;
use crate::pull::{Cursor, PullError};
use crate::store::{CheckError, Created, LeaseStore};
use host::{Controls, Host};
use unit::Unit;

/// Longer than any process runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A processor that can be started, any number of times, one after the other.
#[derive(Clone)]
pub struct Processor {
    name: String,
    instance: InstanceName,
    source: Arc<dyn FeedSource>,
    store: Arc<dyn LeaseStore>,
    delegate: Arc<dyn Delegate>,
    dead_letters: Option<Arc<dyn DeadLetterStore>>,
    settings: Settings,
    events: Events,
    metrics: Arc<dyn Metrics>,
}

impl std::fmt::Debug for Processor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Processor")
            .field("name", &self.name)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl Processor {
    /// Begins a processor. All hosts of a unit give the same name.
    pub fn builder(name: impl Into<String>) -> ProcessorBuilder {
        ProcessorBuilder::new(name.into())
    }

    /// Events of this processor, before and after it is started.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Makes sure that the unit's leases exist, and begins to take them. Returns when the first leases are taken; changes
    /// made from then on are delivered by this unit.
    pub async fn start(&self) -> Result<Running, StartError> {
        let unit = Arc::new(self.unit().await?);
        let leases = init::initialise(&unit).await?;
        let instance = unit.me.name.clone();
        unit.events.emit(Event::Started { instance, leases });
        let stopping = CancellationToken::new();
        let (stop_by, told_to_stop_by) = watch::channel(None);
        let controls = Controls {
            stopping: stopping.clone(),
            stop_by: told_to_stop_by,
        };
        let (first, is_first_over) = oneshot::channel();
        let host = tokio::spawn(Host::new(Arc::clone(&unit), controls).run(first));
        // The host answers after its first cycle, or ended before; both mean that there is nothing to wait for.
        let _ = is_first_over.await;
        Ok(Running {
            unit,
            stop_by,
            host: Some(host),
            stop_at_drop: stopping.clone().drop_guard(),
            stopping,
        })
    }

    async fn unit(&self) -> Result<Unit, StartError> {
        self.store.check().await.map_err(|error| match error {
            CheckError::KeyPath(path) => StartError::LeaseKeyPath(path),
            CheckError::Store(error) => StartError::Store(error),
        })?;
        let description = self.source.describe().await?;
        Ok(Unit {
            processor: self.name.clone(),
            names: UnitNames::new(&self.name, &description.identity),
            me: HostMark {
                name: self.instance.as_str().to_owned(),
                incarnation: Incarnation {
                    started_ms: clock::since_1970().as_millis() as u64,
                    chance: clock::chance(),
                },
            },
            source: Arc::clone(&self.source),
            description,
            store: Arc::clone(&self.store),
            delegate: Arc::clone(&self.delegate),
            dead_letters: self.dead_letters.clone(),
            settings: self.settings.clone(),
            events: self.events.clone(),
            metrics: Arc::clone(&self.metrics),
            health: health::Health::default(),
            parked: parking::Parked::default(),
            paused: AtomicBool::new(false),
            reshaped: Notify::new(),
            clock: Clock::start(),
        })
    }
}

/// A started processor. Dropping it stops it, without waiting.
pub struct Running {
    unit: Arc<Unit>,
    stop_by: watch::Sender<Option<Instant>>,
    host: Option<JoinHandle<Stopped>>,
    stopping: CancellationToken,
    stop_at_drop: DropGuard,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Running")
            .field("instance", &self.unit.me.name)
            .finish_non_exhaustive()
    }
}

impl Running {
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.unit.events.subscribe()
    }

    /// The leases this host reads, by token.
    pub fn health(&self) -> BTreeMap<String, LeaseHealth> {
        self.unit.health()
    }

    /// Whether the host works and none of its leases is stuck.
    pub fn is_healthy(&self) -> bool {
        self.is_running() && self.health().values().all(|lease| !lease.is_stuck)
    }

    /// Whether the host still works. It also ends by itself: when its container is gone or its name is taken.
    pub fn is_running(&self) -> bool {
        self.host.as_ref().is_some_and(|host| !host.is_finished()) && !self.stopping.is_cancelled()
    }

    /// Waits until the host ends by itself.
    pub async fn ended(&self) {
        self.stopping.cancelled().await;
    }

    /// Where the whole unit stands: to be kept, to go on from as a reader, to start another unit at, to come back to.
    pub async fn cursor(&self) -> Result<Cursor, PullError> {
        let listed = self.unit.list().await.map_err(FeedError::from)?;
        let rid = self.unit.description.identity.container_rid.clone();
        Ok(cursor_of(rid, &listed.listing)?)
    }

    /// Lets every host of the unit finish its batches and wait, within one cycle.
    pub async fn pause(&self) -> Result<(), StoreError> {
        set_paused(self.unit.store.as_ref(), &self.unit.names, true).await
    }

    pub async fn resume(&self) -> Result<(), StoreError> {
        set_paused(self.unit.store.as_ref(), &self.unit.names, false).await
    }

    /// Stops: no new reads, delegates are told, batches that finish are saved, leases are released. Delegates that are not
    /// done after `grace` are dropped, and their batches come again elsewhere. Releasing their leases may take up to five
    /// seconds more, if the lease store does not answer.
    pub async fn stop(mut self, grace: Duration) -> Stopped {
        let now = Instant::now();
        self.stop_by
            .send_replace(Some(now.checked_add(grace).unwrap_or(now + FOREVER)));
        self.stopping.cancel();
        match self.host.take() {
            Some(host) => host.await.unwrap_or_default(),
            None => Stopped::default(),
        }
    }

    /// Does not stop the host when this is dropped; it runs as long as the process.
    pub fn detach(self) {
        let _ = self.stop_at_drop.disarm();
    }
}

/// Writes the document all hosts look at.
pub(crate) async fn set_paused(store: &dyn LeaseStore, names: &UnitNames, paused: bool) -> Result<(), StoreError> {
    let document = json!({"id": names.control(), "paused": paused});
    loop {
        if let Created::New(_) = store.create(&document).await? {
            return Ok(());
        }
        let Some(stored) = store.read(&document).await? else {
            continue;
        };
        let Some(etag) = crate::store::text_of(&stored, "_etag") else {
            return Err(StoreError::Refused("the control document has no entity tag".into()));
        };
        match store.replace(&document, etag).await {
            Ok(_) => return Ok(()),
            // Somebody pauses or resumes at the same time; the last one wins.
            Err(StoreError::Changed | StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
}
