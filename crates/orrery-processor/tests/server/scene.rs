//! A server process, a monitored container, leases, host processes and the ledger they share.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use azure_data_cosmos::models::{ChangeFeedPolicy, ContainerProperties};
use azure_data_cosmos::options::Region;
use azure_data_cosmos::{AccountReference, RoutingStrategy};
use orrery_processor::lease::Lease;
use orrery_processor::store::{ContainerLeases, LeaseStore as _};
use orrery_processor::testkit::{Delivery, Ledger};
use serde_json::{Value, json};

pub const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that ends with the test.
pub struct Process {
    child: Child,
    /// What it printed, line by line.
    pub output: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn start(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let (lines, stdout) = (Arc::clone(&output), child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in std::io::BufReader::new(stdout).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Process { child, output }
    }

    pub fn printed(&self, text: &str) -> bool {
        self.output.lock().unwrap().iter().any(|line| line.contains(text))
    }

    pub fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(done.success());
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Server {
    pub port: u16,
    pub endpoint: String,
    _process: Process,
}

impl Server {
    pub async fn start(n_partitions: usize) -> Server {
        let mut command = Command::new(orrery());
        command.args([
            "emulator",
            "--memory",
            "--port",
            "0",
            "--partitions",
            &n_partitions.to_string(),
        ]);
        let process = Process::start(command.stderr(Stdio::null()));
        until("the server is ready", || process.printed("\"ready\"")).await;
        let ready: Value = serde_json::from_str(&process.output.lock().unwrap()[0]).unwrap();
        let endpoint = ready["accounts"][0]["endpoint"].as_str().unwrap().to_owned();
        let port = endpoint
            .trim_end_matches('/')
            .rsplit(':')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        Server {
            port,
            endpoint,
            _process: process,
        }
    }

    pub async fn client(&self) -> CosmosClient {
        let account = AccountReference::with_authentication_key(self.endpoint.parse().unwrap(), KEY.to_owned());
        let routing = RoutingStrategy::ProximityTo(Region::from("West US"));
        CosmosClient::builder().build(account, routing).await.unwrap()
    }
}

/// The server's binary: given, built beside this test, or built now.
fn orrery() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        if let Some(given) = std::env::var_os("ORRERY_BIN") {
            return given.into();
        }
        let beside = beside().join("orrery");
        if !beside.exists() {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let built = Command::new(cargo)
                .args(["build", "--quiet", "--package", "orrerydb"])
                .status()
                .unwrap();
            assert!(built.success());
        }
        beside
    })
}

/// The folder that holds the binaries of this build.
fn beside() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned()
}

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub struct Scene {
    pub server: Server,
    pub client: CosmosClient,
    pub orders: ContainerClient,
    pub leases: ContainerClient,
    directory: tempfile::TempDir,
    /// Last LSN per item is not told by the SDK, so items carry a version.
    written: Mutex<BTreeMap<String, u64>>,
}

impl Scene {
    pub async fn new(n_partitions: usize) -> Scene {
        let server = Server::start(n_partitions).await;
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
            .envs(settings.iter().copied())
            .stderr(Stdio::null());
        Process::start(&mut command)
    }

    pub fn host(&self, name: &str) -> Process {
        self.host_with(name, &[])
    }

    /// A host process that has taken its first leases.
    pub async fn started(&self, name: &str) -> Process {
        let host = self.host(name);
        until("the host is ready", || host.printed("ready")).await;
        host
    }

    fn ledger_path(&self) -> PathBuf {
        self.directory.path().join("ledger")
    }

    pub fn ledger(&self) -> Ledger {
        let text = std::fs::read_to_string(self.ledger_path()).unwrap_or_default();
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            Some(Delivery {
                key: line["key"].as_str()?.to_owned(),
                id: line["id"].as_str()?.to_owned(),
                lsn: line["lsn"].as_u64()?,
                host: line["host"].as_str()?.to_owned(),
                lease: line["lease"].as_str()?.to_owned(),
            })
        };
        let ledger = Ledger::default();
        ledger.extend(text.lines().filter_map(line));
        ledger
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
        assert_eq!(self.ledger().out_of_order(), None);
    }

    /// The leases of the unit by token.
    pub async fn stored(&self) -> BTreeMap<String, Lease> {
        let found = ContainerLeases::new(self.leases.clone()).list("unit").await.unwrap();
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
