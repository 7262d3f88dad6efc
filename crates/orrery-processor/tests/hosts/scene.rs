//! A unit in a test: one feed, one lease store, one ledger, any number of hosts.

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_processor::error::StartError;
use orrery_processor::lease::{FeedMode, Lease};
use orrery_processor::store::MemoryLeases;
use orrery_processor::testkit::{Ledger, ScriptedFeed};
use orrery_processor::{
    BatchContext, Event, InstanceName, LeaseTiming, Poll, Processor, ProcessorBuilder, RawBatch, Running, StartFrom,
};
use serde_json::Value;
use tokio::sync::broadcast;

pub const TIMING: LeaseTiming = LeaseTiming {
    acquire: Duration::from_secs(13),
    renew: Duration::from_secs(17),
    expiry: Duration::from_secs(60),
    lock: Duration::from_secs(30),
};

#[derive(Clone)]
pub struct Scene {
    pub feed: ScriptedFeed,
    pub leases: MemoryLeases,
    pub ledger: Ledger,
}

impl Scene {
    pub fn new(n_partitions: usize) -> Scene {
        Scene {
            feed: ScriptedFeed::new(n_partitions),
            leases: MemoryLeases::new(),
            ledger: Ledger::default(),
        }
    }

    /// A host that is not built yet.
    pub fn host(&self, name: &str) -> ProcessorBuilder {
        Processor::builder("unit")
            .source(self.feed.clone())
            .leases(self.leases.clone())
            .instance(InstanceName::new(name).unwrap())
            .start_from(StartFrom::Beginning)
            .poll(Poll::every(Duration::from_secs(1)))
            .lease_timing(TIMING)
    }

    /// A delegate that writes into the ledger and succeeds.
    pub fn noting(
        &self,
        name: &str,
    ) -> impl Fn(RawBatch, BatchContext) -> std::future::Ready<Result<(), String>> + Clone + Send + Sync + 'static {
        let (ledger, name) = (self.ledger.clone(), name.to_owned());
        move |batch, context| {
            ledger.note(&name, &context.lease, "/key", &batch);
            std::future::ready(Ok(()))
        }
    }

    /// A started host that notes everything.
    pub async fn start(&self, name: &str) -> Running {
        self.try_start(self.host(name), name).await.unwrap()
    }

    /// The same, of all versions.
    pub async fn start_of_all_versions(&self, name: &str) -> Running {
        let host = self.host(name).mode(FeedMode::AllVersionsAndDeletes);
        self.try_start(host.start_from(StartFrom::Now), name).await.unwrap()
    }

    pub async fn try_start(&self, host: ProcessorBuilder, name: &str) -> Result<Running, StartError> {
        host.build_raw(self.noting(name)).unwrap().start().await
    }

    /// Writes `n` items over as many keys.
    pub fn write(&self, n: usize) {
        for number in 0..n {
            self.feed.put(&format!("key{number}"), "item", Value::from(number));
        }
    }

    /// Waits until every item's last version has been delivered.
    pub async fn until_complete(&self) {
        self.until("everything is delivered", || self.ledger.latest() == self.feed.latest())
            .await;
    }

    /// Waits for a condition, in virtual time.
    pub async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        for _ in 0..20_000 {
            if is_so() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("not within the time: {what}");
    }

    /// The leases by token.
    pub fn stored(&self) -> BTreeMap<String, Lease> {
        let documents = self.leases.documents();
        let leases = documents
            .iter()
            .filter(|document| document["id"].as_str().unwrap().contains(".."));
        leases
            .map(|document| Lease::from_document(document).unwrap())
            .map(|lease| (lease.token.clone(), lease))
            .collect()
    }

    /// How many leases each owner has.
    pub fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for owner in self
            .stored()
            .values()
            .filter_map(|lease| lease.owner().map(str::to_owned))
        {
            *shares.entry(owner).or_insert(0) += 1;
        }
        shares
    }

    /// Everything was delivered, every key in order.
    pub fn assert_complete(&self) {
        assert_eq!(self.ledger.latest(), self.feed.latest());
        assert_eq!(self.ledger.out_of_order(), None);
    }
}

/// Waits for an event.
pub async fn next<T>(events: &mut broadcast::Receiver<Event>, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    let waiting = async {
        loop {
            match events.recv().await {
                Ok(event) => {
                    if let Some(found) = wanted(event) {
                        return found;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(error) => panic!("no such event: {error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(3600), waiting)
        .await
        .expect("an event within an hour")
}
