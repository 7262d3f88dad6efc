//! Saying what a processor is, and finding what is wrong with it before anything is sent.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Processor;
use super::settings::{Checkpoint, Concurrency, GiveUp, KeyOrder, LeaseTiming, Poll, Settings, WindowPolicy};
use crate::balance::BalanceSettings;
use crate::dead_letters::DeadLetterStore;
use crate::delegate::{Batch, BatchContext, Delegate, Outcome, RawBatch, RawDelegate, TypedDelegate};
use crate::error::{BuildError, Cause};
use crate::events::{Callback, Event, Events};
use crate::feed::FeedSource;
use crate::feed::sdk::SdkFeed;
use crate::lease::FeedMode;
use crate::metrics::{Guarded, Metrics, NoMetrics};
use crate::names::{InstanceName, check_processor_name};
use crate::pull::Cursor;
use crate::retry::RetryPolicy;
use crate::start::StartFrom;
use crate::store::{ContainerLeases, LeaseStore};

/// A processor in the making.
#[must_use = "a builder does nothing until it is built"]
pub struct ProcessorBuilder {
    name: String,
    instance: Option<InstanceName>,
    source: Option<Arc<dyn FeedSource>>,
    store: Option<Arc<dyn LeaseStore>>,
    dead_letters: Option<Arc<dyn DeadLetterStore>>,
    settings: Settings,
    callback: Option<Arc<Callback>>,
    metrics: Arc<dyn Metrics>,
}

impl std::fmt::Debug for ProcessorBuilder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ProcessorBuilder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ProcessorBuilder {
    pub(super) fn new(name: String) -> ProcessorBuilder {
        ProcessorBuilder {
            name,
            instance: None,
            source: None,
            store: None,
            dead_letters: None,
            settings: Settings::default(),
            callback: None,
            metrics: Arc::new(NoMetrics),
        }
    }

    /// The container whose changes are processed.
    pub fn monitored(self, client: &CosmosClient, container: ContainerClient) -> ProcessorBuilder {
        self.source(SdkFeed::new(client, container))
    }

    /// Changes from elsewhere than a container of the official SDK.
    pub fn source(mut self, source: impl FeedSource) -> ProcessorBuilder {
        self.source = Some(Arc::new(source));
        self
    }

    /// The container that keeps the unit's leases, keyed by `/id` or `/partitionKey`.
    pub fn lease_container(self, container: ContainerClient) -> ProcessorBuilder {
        self.leases(ContainerLeases::new(container))
    }

    /// Leases kept elsewhere: in memory, in a file, in a store of your own.
    pub fn leases(mut self, store: impl LeaseStore) -> ProcessorBuilder {
        self.store = Some(Arc::new(store));
        self
    }

    /// This host's name in the unit. A name that is the same after a restart lets it go on at once.
    pub fn instance(mut self, name: InstanceName) -> ProcessorBuilder {
        self.instance = Some(name);
        self
    }

    pub fn mode(mut self, mode: FeedMode) -> ProcessorBuilder {
        self.settings.mode = mode;
        self
    }

    /// Where the unit begins when it has no leases yet.
    pub fn start_from(mut self, start: StartFrom) -> ProcessorBuilder {
        self.settings.start = start;
        self
    }

    /// Lets the unit begin where a reader or another unit stands, when it has no leases yet.
    pub fn start_at(mut self, cursor: Cursor) -> ProcessorBuilder {
        self.settings.start_at = Some(cursor);
        self
    }

    /// How many changes a batch should hold. A hint: transactions are never cut.
    pub fn max_items(mut self, items: u32) -> ProcessorBuilder {
        self.settings.items_max = Some(items);
        self
    }

    pub fn poll(mut self, poll: Poll) -> ProcessorBuilder {
        self.settings.poll = poll;
        self
    }

    pub fn poll_interval(self, interval: Duration) -> ProcessorBuilder {
        self.poll(Poll::every(interval))
    }

    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> ProcessorBuilder {
        self.settings.checkpoint = checkpoint;
        self
    }

    /// Several calls of the delegate at the same time for one lease, each with keys of its own.
    pub fn concurrency(mut self, concurrency: Concurrency) -> ProcessorBuilder {
        self.settings.concurrency = concurrency;
        self
    }

    pub fn lease_timing(mut self, timing: LeaseTiming) -> ProcessorBuilder {
        self.settings.timing = timing;
        self
    }

    /// How often a host looks at the leases while it holds all of its unit and nobody asks for any. What others do to them it
    /// notices when it renews; that the unit is paused, or lacks a lease, takes up to this long. One that joins is not given its
    /// share in time, and takes it: meant for units that have one host.
    pub fn look_when_alone(mut self, every: Duration) -> ProcessorBuilder {
        self.settings.look_when_alone = Some(every);
        self
    }

    /// Renews at moments that are counted from `since`, the same ones for all units of a process that are told so: together they
    /// cost less than one by one. For that a lease is renewed early once, when it was taken.
    pub fn renew_in_step(mut self, since: Instant) -> ProcessorBuilder {
        self.settings.in_step_since = Some(since);
        self
    }

    /// Limits and manners of sharing leases. The intervals in it are those of the lease timing.
    pub fn balance(mut self, balance: BalanceSettings) -> ProcessorBuilder {
        self.settings.balance = balance;
        self
    }

    /// More leases than partitions, so that more hosts can work.
    pub fn leases_per_partition(mut self, leases: usize) -> ProcessorBuilder {
        self.settings.leases_per_partition = leases;
        self
    }

    pub fn retry(mut self, retry: RetryPolicy) -> ProcessorBuilder {
        self.settings.retry = retry;
        self
    }

    /// Where changes go that cannot be handled.
    pub fn dead_letters(mut self, store: impl DeadLetterStore) -> ProcessorBuilder {
        self.dead_letters = Some(Arc::new(store));
        self
    }

    pub fn give_up(mut self, give_up: GiveUp) -> ProcessorBuilder {
        self.settings.give_up = give_up;
        self
    }

    pub fn key_order(mut self, order: KeyOrder) -> ProcessorBuilder {
        self.settings.key_order = order;
        self
    }

    pub fn window(mut self, policy: WindowPolicy) -> ProcessorBuilder {
        self.settings.window = policy;
        self
    }

    /// A delegate that runs longer than this is reported as stuck.
    pub fn stuck_after(mut self, limit: Duration) -> ProcessorBuilder {
        self.settings.stuck_after = limit;
        self
    }

    /// Called with every event, from the host's tasks.
    pub fn on_event(mut self, callback: impl Fn(&Event) + Send + Sync + 'static) -> ProcessorBuilder {
        self.callback = Some(Arc::new(callback));
        self
    }

    pub fn metrics(mut self, metrics: impl Metrics) -> ProcessorBuilder {
        self.metrics = Arc::new(metrics);
        self
    }

    /// A processor whose delegate is given items of a type.
    pub fn build<T, F, R, O, E>(self, delegate: F) -> Result<Processor, BuildError>
    where
        F: Fn(Batch<T>, BatchContext) -> R + Send + Sync + 'static,
        T: DeserializeOwned + Send + 'static,
        R: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome>,
        E: Into<Cause>,
    {
        self.finish(Arc::new(TypedDelegate(delegate, PhantomData)))
    }

    /// A processor whose delegate is given changes as they came.
    pub fn build_raw<F, R, O, E>(self, delegate: F) -> Result<Processor, BuildError>
    where
        F: Fn(RawBatch, BatchContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, E>> + Send + 'static,
        O: Into<Outcome>,
        E: Into<Cause>,
    {
        self.finish(Arc::new(RawDelegate(delegate)))
    }

    fn finish(self, delegate: Arc<dyn Delegate>) -> Result<Processor, BuildError> {
        check_processor_name(&self.name)?;
        Ok(Processor {
            instance: self.instance.ok_or(BuildError::Missing("an instance name"))?,
            source: self.source.ok_or(BuildError::Missing("a monitored container"))?,
            store: self.store.ok_or(BuildError::Missing("a place for its leases"))?,
            name: self.name,
            delegate,
            dead_letters: self.dead_letters,
            settings: self.settings.checked()?,
            events: Events::new(self.callback),
            metrics: Arc::new(Guarded(self.metrics)),
        })
    }
}
