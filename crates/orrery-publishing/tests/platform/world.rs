//! Three accounts in three regions: `usa`, `europe` and `asia`, each a process, 80 ms apart.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use orrery_nats_server::{Cluster, Nodes};
use orrery_processor::{InstanceName, LeaseTiming, Poll};
use orrery_publishing::database::PageRequest;
use orrery_publishing::entity::{Draft, Notification};
use orrery_publishing::fanout::{Fanout, FanoutSettings, RunningFanout};
use orrery_publishing::topology::{AccountEntry, AccountKey, AccountTable};
use orrery_publishing::{AccountSettings, ContentPublishDatabase};
use serde_json::Value;

pub const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
pub const REGIONS: [&str; 3] = ["West US", "North Europe", "Southeast Asia"];
const TAGS: [&str; 3] = ["usa", "europe", "asia"];
pub const LATENCY_MS: u64 = 80;
const PATIENCE: Duration = Duration::from_secs(40);

/// A server with one account, which ends with the test.
pub struct Server {
    running: Running,
    pub port: u16,
    /// Of its regions, the one that takes writes first.
    pub region_ports: Vec<u16>,
    /// Their names, in the same order.
    pub region_names: Vec<String>,
    pub endpoint: String,
}

enum Running {
    Emulator(Child),
    Cluster(Nodes),
}

impl Server {
    /// An emulator with these regions.
    fn start(regions: &[&str], partitions: usize) -> Server {
        let mut child = Command::new(orrery())
            .args(["emulator", "--memory", "--port", "0", "--regions", &regions.join(",")])
            .args(["--partitions", &partitions.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Server::at(&line, Running::Emulator(child))
    }

    /// A cluster in one region.
    fn start_cluster(servers: &Arc<Cluster>, region: &str, partitions: usize) -> Server {
        let flags = ["--region", region, "--partitions", &partitions.to_string()];
        let nodes = Nodes::start(servers, orrery(), &flags).unwrap();
        let line = nodes.ready_line().to_owned();
        Server::at(&line, Running::Cluster(nodes))
    }

    fn at(ready_line: &str, running: Running) -> Server {
        let ready: Value = serde_json::from_str(ready_line).unwrap();
        let account = &ready["accounts"][0];
        let port = |endpoint: &Value| {
            let text = endpoint.as_str().unwrap().trim_end_matches('/');
            text.rsplit(':').next().unwrap().parse().unwrap()
        };
        let regions = account["regions"].as_array().unwrap();
        Server {
            running,
            port: port(&account["endpoint"]),
            region_ports: regions.iter().map(|region| port(&region["endpoint"])).collect(),
            region_names: regions
                .iter()
                .map(|region| region["name"].as_str().unwrap().to_owned())
                .collect(),
            endpoint: account["endpoint"].as_str().unwrap().to_owned(),
        }
    }

    /// Stops the process without ending it: it takes connections and answers nothing.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let ids: Vec<u32> = match &self.running {
            Running::Emulator(child) => vec![child.id()],
            Running::Cluster(nodes) => nodes.process_ids().collect(),
        };
        let mut command = Command::new("kill");
        command.arg(format!("-{name}")).args(ids.iter().map(u32::to_string));
        assert!(command.status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Running::Emulator(child) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The server's binary: given, built beside this test, or built now.
fn orrery() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        if let Some(given) = std::env::var_os("ORRERY_BIN") {
            return given.into();
        }
        let deps = std::env::current_exe().unwrap();
        let beside = deps.parent().unwrap().parent().unwrap().join("orrery");
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

/// The order of each account's regions, as in the table of three regions: nearest first.
fn region_orders() -> [[&'static str; 3]; 3] {
    [[0, 1, 2], [1, 0, 2], [2, 1, 0]].map(|order| order.map(|index| REGIONS[index]))
}

/// The three accounts as their clients know them.
pub fn table(endpoints: &[&str]) -> AccountTable {
    let accounts = endpoints.iter().zip(region_orders()).zip(TAGS);
    let entries = accounts.map(|((endpoint, regions), tag)| AccountEntry {
        name: format!("contentpubdatabase-{tag}"),
        tag: tag.to_owned(),
        endpoint: (*endpoint).to_owned(),
        key: AccountKey(KEY.to_owned()),
        write_region: regions[0].to_owned(),
        read_regions: regions[1..].iter().map(|region| (*region).to_owned()).collect(),
    });
    AccountTable::new(entries.collect()).unwrap()
}

pub struct World {
    pub servers: Vec<Server>,
    table: AccountTable,
    /// Connected to every account.
    databases: Vec<ContentPublishDatabase>,
}

impl World {
    /// Three accounts with their containers, seen by every region.
    pub async fn new() -> World {
        World::with(1, LATENCY_MS).await
    }

    /// Where a cluster is wanted, each account is one, in its first region only.
    pub async fn with(partitions: usize, latency_ms: u64) -> World {
        if !Nodes::wanted() {
            return World::of_regions(partitions, latency_ms).await;
        }
        let ground = Nodes::ground().unwrap();
        let start = |region: &&str| Server::start_cluster(&ground, region, partitions);
        World::over(REGIONS.iter().map(start).collect()).await
    }

    /// Three accounts in all regions, for tests of what happens between regions.
    pub async fn of_regions(partitions: usize, latency_ms: u64) -> World {
        let start = |regions: [&str; 3]| Server::start(&regions, partitions);
        let servers: Vec<Server> = region_orders().into_iter().map(start).collect();
        servers.iter().for_each(|server| server.slow_links(latency_ms));
        World::over(servers).await
    }

    async fn over(servers: Vec<Server>) -> World {
        let endpoints: Vec<&str> = servers.iter().map(|server| server.endpoint.as_str()).collect();
        let table = table(&endpoints);
        let mut world = World {
            servers,
            table,
            databases: Vec::new(),
        };
        world.databases = REGIONS.iter().map(|region| world.database(region)).collect();
        for database in &world.databases {
            database.prepare().await.unwrap();
        }
        for database in &world.databases {
            until("every account answers", async || {
                let page = database.read_reviews("usa.none", &PageRequest::default()).await;
                page.is_ok_and(|page| page.missing.is_empty())
            })
            .await;
        }
        world
    }

    /// One account for all regions, which takes writes in the first.
    pub async fn shared() -> World {
        let servers = vec![Server::start(&REGIONS, 1)];
        let entry = AccountEntry {
            name: "contentpubdatabase-world".to_owned(),
            tag: "world".to_owned(),
            endpoint: servers[0].endpoint.clone(),
            key: AccountKey(KEY.to_owned()),
            write_region: REGIONS[0].to_owned(),
            read_regions: REGIONS[1..].iter().map(|region| (*region).to_owned()).collect(),
        };
        let mut world = World {
            servers,
            table: AccountTable::new(vec![entry]).unwrap(),
            databases: Vec::new(),
        };
        world.databases = REGIONS.iter().map(|region| world.database(region)).collect();
        for database in &world.databases {
            database.prepare().await.unwrap();
        }
        world
    }

    /// The data access layers of the three regions.
    pub fn databases(&self) -> [ContentPublishDatabase; 3] {
        [0, 1, 2].map(|index: usize| self.databases[index].clone())
    }

    /// One that has not connected to anything yet.
    pub fn database(&self, region: &str) -> ContentPublishDatabase {
        self.database_with(region, &patient())
    }

    pub fn database_with(&self, region: &str, settings: &AccountSettings) -> ContentPublishDatabase {
        ContentPublishDatabase::new(self.table.clone(), region, settings).unwrap()
    }

    /// The fan-out of every region.
    pub fn start_roles(&self) -> Vec<RunningFanout> {
        self.databases()
            .into_iter()
            .map(|database| Fanout::new(&database, fast()).start())
            .collect()
    }
}

/// So patient that a busy machine does not pass for a region that is gone.
pub fn patient() -> AccountSettings {
    AccountSettings {
        read_deadline: Duration::from_secs(4),
        write_deadline: Duration::from_secs(5),
        rest: Duration::from_secs(1),
        hedge_after: Some(Duration::from_secs(2)),
        ..AccountSettings::default()
    }
}

/// Leases that are judged in seconds, and no pause longer than a test has patience for.
pub fn fast() -> FanoutSettings {
    FanoutSettings {
        place_every: Duration::from_millis(500),
        poll: Poll::every(Duration::from_millis(200)).with_long_poll(Duration::from_secs(2)),
        lease_timing: LeaseTiming {
            acquire: Duration::from_millis(500),
            renew: Duration::from_millis(700),
            expiry: Duration::from_millis(2500),
            lock: Duration::from_secs(5),
        },
        ..FanoutSettings::new(InstanceName::new("test").unwrap())
    }
}

/// Waits until something is so.
pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn draft(category: &str, title: &str) -> Draft {
    Draft {
        category: category.to_owned(),
        tags: vec!["news".to_owned()],
        title: title.to_owned(),
        body: format!("All about {title}."),
    }
}

pub async fn feed(database: &ContentPublishDatabase, user: &str) -> Vec<Notification> {
    let request = PageRequest {
        size: 100,
        ..PageRequest::default()
    };
    database.read_notification_feed(user, &request).await.unwrap().items
}

pub fn titles(items: &[Notification]) -> Vec<&str> {
    items.iter().map(|item| item.title.as_str()).collect()
}

/// Waits until a user's feed has these titles, newest first.
pub async fn until_titles(database: &ContentPublishDatabase, user: &str, expected: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let items = feed(database, user).await;
        if titles(&items) == expected {
            return;
        }
        let shown = titles(&items);
        assert!(
            Instant::now() < deadline,
            "{user} in {}: {shown:?} instead of {expected:?}",
            database.region()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
