//! Two accounts as server processes, and the services of their regions within the test.

use std::io::BufRead as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use orrery_nats_server::{Cluster, Nodes};
use orrery_platform::limit::Rate;
use orrery_platform::token::DevelopmentTokens;
use orrery_platform::{Extension, ExtensionAnswer, Platform, PlatformSettings, RegionUrl};
use orrery_publishing::account::Scope;
use orrery_publishing::fanout::FanoutSettings;
use orrery_publishing::processor::{InstanceName, LeaseTiming, Poll};
use orrery_publishing::topology::{AccountEntry, AccountKey, AccountTable};
use orrery_publishing::{AccountSettings, ContentPublishDatabase};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const REGIONS: [&str; 2] = ["West US", "North Europe"];
const PATIENCE: Duration = Duration::from_secs(40);

/// Holds a server, which ends with the test, and says where it is.
struct Server(Running, String);

enum Running {
    Emulator(Child),
    Cluster(#[expect(dead_code, reason = "it is held")] Nodes),
}

impl Server {
    /// An account in these regions; where a cluster is wanted, it is one in the first of them.
    fn start(ground: Option<&Arc<Cluster>>, regions: [&str; 2]) -> Server {
        let (running, line) = match ground {
            Some(servers) => {
                let nodes = Nodes::start(servers, orrery(), &["--region", regions[0]]).unwrap();
                let line = nodes.ready_line().to_owned();
                (Running::Cluster(nodes), line)
            }
            None => Server::emulator(&regions.join(",")),
        };
        let ready: Value = serde_json::from_str(&line).unwrap();
        let endpoint = ready["accounts"][0]["endpoint"].as_str().unwrap();
        Server(running, endpoint.to_owned())
    }

    fn emulator(regions: &str) -> (Running, String) {
        let mut child = Command::new(orrery())
            .args(["emulator", "--memory", "--port", "0", "--regions", regions])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        (Running::Emulator(child), line)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Running::Emulator(child) = &mut self.0 {
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

pub struct World {
    /// Of the services, in the order of the regions.
    pub ports: [u16; 2],
    pub platforms: Vec<Arc<Platform>>,
    databases: Vec<ContentPublishDatabase>,
    _servers: Vec<Server>,
    _stop: DropGuard,
}

impl World {
    pub async fn new() -> World {
        World::with(|settings| settings).await
    }

    /// For tests that send more than one user would.
    pub async fn without_limits() -> World {
        World::with(|settings| PlatformSettings {
            rate: Rate {
                per_second: 1e6,
                burst: 1e6,
            },
            ..settings
        })
        .await
    }

    /// Documents of content over all accounts.
    pub async fn n_documents(&self) -> usize {
        let mut n_documents = 0;
        for database in &self.databases {
            let ids = database
                .local()
                .query::<String>("SELECT VALUE c.id FROM c", &[], Scope::Everything);
            n_documents += ids.await.unwrap().value.len();
        }
        n_documents
    }

    pub async fn with(change: impl Fn(PlatformSettings) -> PlatformSettings) -> World {
        let ground = Nodes::wanted().then(|| Nodes::ground().unwrap());
        let servers = vec![
            Server::start(ground.as_ref(), REGIONS),
            Server::start(ground.as_ref(), [REGIONS[1], REGIONS[0]]),
        ];
        let entry = |index: usize| AccountEntry {
            name: format!("account-{index}"),
            tag: ["usa", "europe"][index].to_owned(),
            endpoint: servers[index].1.clone(),
            key: AccountKey(KEY.to_owned()),
            write_region: REGIONS[index].to_owned(),
            read_regions: vec![REGIONS[1 - index].to_owned()],
        };
        let table = AccountTable::new(vec![entry(0), entry(1)]).unwrap();
        let mut listeners = Vec::new();
        for _ in REGIONS {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let ports = [0, 1].map(|index: usize| listeners[index].local_addr().unwrap().port());
        let (stop, mut databases, mut platforms) = (CancellationToken::new(), Vec::new(), Vec::new());
        for (region, listener) in REGIONS.into_iter().zip(listeners) {
            let settings = AccountSettings {
                read_deadline: Duration::from_secs(3),
                ..AccountSettings::default()
            };
            let database = ContentPublishDatabase::new(table.clone(), region, &settings).unwrap();
            database.prepare().await.unwrap();
            databases.push(database.clone());
            let platform = Platform::start(
                database,
                change(settings_of(&ports)),
                roles(),
                Arc::new(DevelopmentTokens::new(b"shared by all regions")),
            );
            let platform = Arc::new(platform.with_extension(Arc::new(Lever)));
            platforms.push(Arc::clone(&platform));
            tokio::spawn(platform.serve(vec![listener], stop.clone().cancelled_owned()));
        }
        let world = World {
            ports,
            platforms,
            databases,
            _servers: servers,
            _stop: stop.drop_guard(),
        };
        for port in world.ports {
            until("the service is ready", async || {
                crate::client::Client::stranger(port)
                    .get("/readyz")
                    .await
                    .status
                    .is_success()
            })
            .await;
        }
        world
    }
}

/// An extension that anybody on this machine can use without a token.
struct Lever;

impl Extension for Lever {
    fn owns(&self, path: &str) -> bool {
        path == "/v1/lever"
    }

    fn answer<'a>(&'a self, _: &'a Parts, _: Bytes, _: IpAddr) -> BoxFuture<'a, ExtensionAnswer> {
        Box::pin(async { ExtensionAnswer::Json(http::StatusCode::OK, serde_json::json!({"pulled": true})) })
    }
}

fn settings_of(ports: &[u16; 2]) -> PlatformSettings {
    let url = |(region, port): (&str, &u16)| RegionUrl {
        region: region.to_owned(),
        url: format!("http://localhost:{port}/"),
    };
    PlatformSettings {
        regions: REGIONS.into_iter().zip(ports).map(url).collect(),
        development: true,
        ..PlatformSettings::default()
    }
}

fn roles() -> FanoutSettings {
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
