//! How far a unit is behind: read-only, from anywhere, with nothing but its name, its leases and its feed.
//!
//! For every lease the first change after its position is asked for, without its item where the server can leave it out; the
//! partition's newest LSN then says how many transactions wait, and the change's age since when. What cannot be known is said to be unknown, never zero: a lag that is silently zero has
//! hidden more outages than any other number. Leases that share a partition share its LSNs, so their sum counts what lies
//! between them more than once; a trend is worth more than a value.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{MissedTickBehavior, interval};

use crate::error::{FeedError, StartError};
use crate::feed::{FeedPage, FeedRead, FeedSource};
use crate::lease::{FeedMode, Lease};
use crate::metrics::{Labels, Metrics, NoMetrics};
use crate::names::{UnitNames, check_processor_name};
use crate::processor::list_unit;
use crate::range::EpkRange;
use crate::start::Position;
use crate::store::LeaseStore;
use crate::token::epoch;

/// Leases asked about at the same time.
const CONCURRENCY: usize = 16;
/// Pages looked through for a lease's first change; each is a great many changes that are not for it.
const PAGES_MAX: u32 = 16;

/// Why a lag is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The lease has no position yet.
    NoPosition,
    /// Its range is no longer one partition; the unit has to cut the lease first.
    RangeGone,
    /// The position is older than what the container keeps.
    WindowExceeded,
    /// A region took over by force between the position and the newest change: LSNs do not count transactions there.
    Uncountable,
    /// The feed could not be read, or did not say where it stands.
    Unreadable,
}

/// How far one lease is behind.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseLag {
    pub token: String,
    pub owner: Option<String>,
    pub position: Option<String>,
    /// Transactions after the position, superseded ones included.
    pub transactions: Result<u64, Unknown>,
    /// Since when the oldest undelivered change has been waiting; zero when there is none, absent when not known.
    pub waiting: Option<Duration>,
}

impl LeaseLag {
    /// For controllers that scale from zero: what is not known counts as work to do.
    pub fn signal(&self) -> u64 {
        self.transactions.unwrap_or(1)
    }
}

/// How far a unit is behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitLag {
    pub leases: Vec<LeaseLag>,
    /// Request units the question cost.
    pub charge: f64,
}

impl UnitLag {
    /// Every lease's lag is known, and there are leases.
    pub fn is_known(&self) -> bool {
        !self.leases.is_empty() && self.leases.iter().all(|lease| lease.transactions.is_ok())
    }

    /// The sum over the leases, if all are known.
    pub fn transactions(&self) -> Option<u64> {
        self.is_known().then(|| self.signal())
    }

    /// The longest wait of any lease, if all are known.
    pub fn waiting(&self) -> Option<Duration> {
        self.leases
            .iter()
            .map(|lease| lease.waiting)
            .try_fold(Duration::ZERO, |most, wait| Some(most.max(wait?)))
    }

    /// The sum with a one for everything that is not known, and a one for a unit without leases.
    pub fn signal(&self) -> u64 {
        if self.leases.is_empty() {
            return 1;
        }
        self.leases.iter().map(LeaseLag::signal).sum()
    }
}

/// Asks how far a unit is behind, whether its hosts are of this library, .NET or Java. One per unit is enough.
///
/// ```
/// use orrery_processor::estimator::Estimator;
/// use orrery_processor::store::MemoryLeases;
/// use orrery_processor::testkit::ScriptedFeed;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let estimator = Estimator::new("order-printer", ScriptedFeed::new(1), MemoryLeases::new())?;
/// let lag = estimator.snapshot().await?;
/// // Nobody has made leases yet: nothing is known, which is not the same as nothing to do.
/// assert_eq!((lag.transactions(), lag.signal()), (None, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Estimator {
    processor: String,
    source: Arc<dyn FeedSource>,
    store: Arc<dyn LeaseStore>,
    metrics: Arc<dyn Metrics>,
}

impl std::fmt::Debug for Estimator {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Estimator")
            .field("processor", &self.processor)
            .finish_non_exhaustive()
    }
}

impl Estimator {
    /// The same name, container and lease store as the unit's hosts.
    pub fn new(
        processor: impl Into<String>,
        source: impl FeedSource,
        store: impl LeaseStore,
    ) -> Result<Estimator, crate::error::BuildError> {
        let processor = processor.into();
        check_processor_name(&processor)?;
        Ok(Estimator {
            processor,
            source: Arc::new(source),
            store: Arc::new(store),
            metrics: Arc::new(NoMetrics),
        })
    }

    pub(crate) fn of(processor: &str, source: Arc<dyn FeedSource>, store: Arc<dyn LeaseStore>) -> Estimator {
        Estimator {
            processor: processor.to_owned(),
            source,
            store,
            metrics: Arc::new(NoMetrics),
        }
    }

    /// Reports the lag of every lease with every snapshot, and what it cost.
    #[must_use]
    pub fn with_metrics(mut self, metrics: impl Metrics) -> Estimator {
        self.metrics = Arc::new(metrics);
        self
    }

    fn measure(&self, lag: &LeaseLag, charge: f64) {
        let labels = Labels {
            unit: &self.processor,
            instance: lag.owner.as_deref().unwrap_or_default(),
            lease: Some(&lag.token),
        };
        self.metrics.lag(labels, lag.transactions.ok());
        self.metrics.waiting(labels, lag.waiting);
        self.metrics.feed_charge(labels, charge);
    }

    /// Every lease now.
    pub async fn snapshot(&self) -> Result<UnitLag, StartError> {
        let (leases, charge) = self.ask(|_| true).await?;
        Ok(UnitLag { leases, charge })
    }

    /// Only the leases whose tokens are asked for.
    pub(crate) async fn snapshot_of(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<LeaseLag>, StartError> {
        Ok(self.ask(wanted).await?.0)
    }

    async fn ask(&self, wanted: impl Fn(&str) -> bool) -> Result<(Vec<LeaseLag>, f64), StartError> {
        let description = self.source.describe().await?;
        let names = UnitNames::new(&self.processor, &description.identity);
        let listed = list_unit(self.store.as_ref(), &names).await?;
        let (charge, listing) = (listed.charge, listed.with_foreign());
        let now_ms = listing.server_now_ms;
        let leases = listing.leases.into_iter().filter(|lease| wanted(&lease.token));
        let asked: Vec<_> = leases.map(|lease| self.lag_of(lease, now_ms)).collect();
        let answers: Vec<(LeaseLag, f64)> = futures::stream::iter(asked).buffered(CONCURRENCY).collect().await;
        answers.iter().for_each(|(lag, charge)| self.measure(lag, *charge));
        let charge = charge + answers.iter().map(|(_, charge)| charge).sum::<f64>();
        Ok((answers.into_iter().map(|(lag, _)| lag).collect(), charge))
    }

    /// Calls back with every snapshot, or why there was none, until the callback says that it has had enough.
    pub async fn watch(&self, every: Duration, mut callback: impl FnMut(Result<UnitLag, StartError>) -> bool) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !callback(self.snapshot().await) {
                return;
            }
        }
    }

    async fn lag_of(&self, lease: Lease, now_ms: Option<u64>) -> (LeaseLag, f64) {
        let mut lag = LeaseLag {
            token: lease.token.clone(),
            owner: lease.owner().map(str::to_owned),
            position: lease.continuation.as_ref().map(ToString::to_string),
            transactions: Err(Unknown::NoPosition),
            waiting: None,
        };
        let Some(position) = lease.position().filter(|position| position.token().is_some()) else {
            return (lag, 0.0);
        };
        let range = match &lease.range {
            Some(range) => Ok(Some(range.clone())),
            None => self.source.partition_of(&lease.token).await,
        };
        let Ok(Some(range)) = range else {
            lag.transactions = Err(Unknown::RangeGone);
            return (lag, 0.0);
        };
        match self.first_after(&range, position, lease.feed_mode()).await {
            Ok((page, charge)) => {
                lag.transactions = transactions(&page);
                lag.waiting = match page.changes.first() {
                    None if page.is_last => Some(Duration::ZERO),
                    first => first.and_then(|first| age(first.metadata.committed_at_s, now_ms)),
                };
                (lag, charge)
            }
            Err(error) => {
                lag.transactions = Err(match error {
                    FeedError::Gone => Unknown::RangeGone,
                    FeedError::WindowExceeded(_) => Unknown::WindowExceeded,
                    _ => Unknown::Unreadable,
                });
                (lag, 0.0)
            }
        }
    }

    /// The first change after a position, without its item where the server can leave it out, and what that cost.
    async fn first_after(
        &self,
        range: &EpkRange,
        mut from: Position,
        mode: FeedMode,
    ) -> Result<(FeedPage, f64), FeedError> {
        let mut charge = 0.0;
        for _ in 1..PAGES_MAX {
            let page = self.probe(range, &from, mode).await?;
            charge += page.charge;
            let next = from.moved_to(page.token.clone());
            if page.is_last || !page.changes.is_empty() || next == from {
                return Ok((page, charge));
            }
            from = next;
        }
        let page = self.probe(range, &from, mode).await?;
        charge += page.charge;
        Ok((page, charge))
    }

    async fn probe(&self, range: &EpkRange, from: &Position, mode: FeedMode) -> Result<FeedPage, FeedError> {
        let read = FeedRead {
            items_max: Some(1),
            facts_only: true,
            ..FeedRead::new(range, from, mode)
        };
        self.source.read(read).await
    }
}

/// How many transactions wait, by the first one and the newest.
fn transactions(page: &FeedPage) -> Result<u64, Unknown> {
    let first = match page.changes.first() {
        None if page.is_last => return Ok(0),
        None => page.token.lsn().map(|lsn| lsn + 1),
        Some(first) => first.metadata.lsn,
    };
    let (first, head) = first.zip(page.head_lsn).ok_or(Unknown::Unreadable)?;
    if epoch(first) < epoch(head) {
        return Err(Unknown::Uncountable);
    }
    Ok((head + 1).saturating_sub(first))
}

/// By the server's clock on both ends.
fn age(committed_at_s: Option<u64>, now_ms: Option<u64>) -> Option<Duration> {
    let committed = Duration::from_secs(committed_at_s?);
    Some(Duration::from_millis(now_ms?).saturating_sub(committed))
}
