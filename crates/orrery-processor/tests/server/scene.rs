//! A server process, a monitored container, leases, host processes and the ledger they share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use azure_data_cosmos::models::{ChangeFeedPolicy, ContainerProperties};
use orrery_processor::lease::Lease;
use orrery_processor::store::{ContainerLeases, LeaseStore as _};
use orrery_processor::testkit::Ledger;
use serde_json::json;

pub use crate::process::{KEY, Process, Server, until};
use crate::process::{PATIENCE, beside};

/// Whether the long versions are wanted.
pub fn is_soak() -> bool {
    std::env::var_os("ORRERY_SOAK").is_some()
}

pub struct Scene {
    pub server: Server,
    pub client: CosmosClient,
    pub orders: ContainerClient,
    pub leases: ContainerClient,
    directory: tempfile::TempDir,
    /// Last LSN per item is not told by the SDK, so items carry a version.
    written: Mutex<BTreeMap<String, u64>>,
    /// Names of hosts that were stopped in the middle of their work.
    pub frozen: Mutex<BTreeSet<String>>,
}

impl Scene {
    pub async fn new(n_partitions: usize) -> Scene {
        Scene::on(Server::start(n_partitions)).await
    }

    pub async fn on(server: Server) -> Scene {
        let client = server.client().await;
        client.create_database("shop", None).await.unwrap();
        let database = client.database_client("shop");
        let hour = ChangeFeedPolicy::default().with_retention_duration(Duration::from_secs(3600));
        let orders = ContainerProperties::new("orders", "/pk".into()).with_change_feed_policy(hour);
        database.create_container(orders, None).await.unwrap();
        for (name, key) in [("leases", "/id"), ("letters", "/key")] {
            database
                .create_container(ContainerProperties::new(name, key.into()), None)
                .await
                .unwrap();
        }
        Scene {
            orders: database.container_client("orders", None).await.unwrap(),
            leases: database.container_client("leases", None).await.unwrap(),
            directory: tempfile::tempdir().unwrap(),
            written: Mutex::default(),
            frozen: Mutex::default(),
            client,
            server,
        }
    }

    /// A host process with more settings.
    pub fn host_with(&self, name: &str, settings: &[(&str, &str)]) -> Process {
        let mut command = Command::new(beside().join("examples/host"));
        command
            .env("ENDPOINT", &self.server.endpoint)
            .env("KEY", KEY)
            .envs([
                ("DATABASE", "shop"),
                ("CONTAINER", "orders"),
                ("LEASES", "leases"),
                ("PROCESSOR", "unit"),
            ])
            .env("INSTANCE", name)
            .env("LEDGER", self.ledger_path())
            .envs(settings.iter().copied());
        Process::start(&mut command)
    }

    pub fn host(&self, name: &str) -> Process {
        self.host_with(name, &[])
    }

    /// A host process that has taken its first leases.
    pub async fn started(&self, name: &str) -> Process {
        self.started_with(name, &[]).await
    }

    /// The same, with more settings.
    pub async fn started_with(&self, name: &str, settings: &[(&str, &str)]) -> Process {
        let host = self.host_with(name, settings);
        until("the host is ready", || host.printed("ready")).await;
        host
    }

    pub fn ledger_path(&self) -> PathBuf {
        self.ledger_of("ledger")
    }

    /// Where the ledger of another unit is.
    pub fn ledger_of(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Upserts `n` items with as many keys; each is one transaction.
    pub async fn write(&self, n: usize) {
        let writes = (0..n).map(|number| self.write_one(format!("item{number}")));
        let mut writes = futures::stream::StreamExt::buffer_unordered(futures::stream::iter(writes), 16);
        while futures::stream::StreamExt::next(&mut writes).await.is_some() {}
    }

    pub async fn write_one(&self, id: String) {
        let key = format!("key-{id}");
        let version = {
            let mut written = self.written.lock().unwrap();
            let version = written.entry(id.clone()).or_insert(0);
            *version += 1;
            *version
        };
        let item = json!({"id": id, "pk": key, "version": version});
        self.orders.upsert_item(key, &id, &item, None).await.unwrap();
    }

    /// The last LSN of every item, as the feed itself tells it to a reader that starts from the beginning.
    pub async fn expected(&self) -> BTreeMap<(String, String), u64> {
        let feed = orrery_processor::feed::sdk::SdkFeed::new(&self.client, self.orders.clone());
        let full = orrery_processor::range::EpkRange::full();
        let (start, mode) = (
            orrery_processor::StartFrom::Beginning,
            orrery_processor::lease::FeedMode::LatestVersion,
        );
        let mut puller = orrery_processor::pull::Puller::start(feed, full, start, mode)
            .await
            .unwrap();
        let ledger = Ledger::default();
        while let Some(page) = puller.next().await.unwrap() {
            ledger.note("", "", "/pk", &page.changes);
        }
        ledger.latest()
    }

    /// Waits until the last state of everything written has been delivered, and checks the order of every key.
    pub async fn until_complete(&self) {
        let expected = self.expected().await;
        assert_eq!(
            expected.len(),
            self.written.lock().unwrap().len(),
            "the feed itself is complete"
        );
        until("everything is delivered", || {
            let latest = self.ledger().latest();
            expected
                .iter()
                .all(|(item, lsn)| latest.get(item).is_some_and(|seen| seen >= lsn))
        })
        .await;
        self.assert_in_order();
    }

    /// The leases of the unit by token.
    pub async fn stored(&self) -> BTreeMap<String, Lease> {
        Scene::stored_in(&self.leases).await
    }

    /// Ids of all leases, whichever container they are for.
    pub async fn lease_ids(&self) -> BTreeSet<String> {
        let found = ContainerLeases::new(self.leases.clone()).list("unit").await.unwrap();
        let ids = found.documents.iter().map(|document| document["id"].as_str().unwrap());
        ids.filter(|id| id.contains("..")).map(str::to_owned).collect()
    }

    /// The leases of the unit in any container, by token.
    pub async fn stored_in(container: &ContainerClient) -> BTreeMap<String, Lease> {
        let found = ContainerLeases::new(container.clone()).list("unit").await.unwrap();
        let leases = found
            .documents
            .iter()
            .filter(|document| document["id"].as_str().unwrap().contains(".."));
        leases
            .map(|document| Lease::from_document(document).unwrap())
            .map(|lease| (lease.token.clone(), lease))
            .collect()
    }

    pub async fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for owner in self
            .stored()
            .await
            .values()
            .filter_map(|lease| lease.owner().map(str::to_owned))
        {
            *shares.entry(owner).or_insert(0) += 1;
        }
        shares
    }

    /// How many requests a host needs to look at the leases once. Asked before there are any hosts.
    pub async fn queries_per_look(&self) -> u64 {
        let before = self.requests("query_items");
        self.stored().await;
        self.requests("query_items") - before
    }

    /// Waits until the owners have these shares.
    pub async fn until_shares(&self, expected: &[(&str, usize)]) {
        let expected: BTreeMap<String, usize> = expected
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shares = self.shares().await;
            if shares == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{shares:?} instead of {expected:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
