//! A server under test, and the script behind it.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use orrery_gateway::handler::{Answer, BoxFuture, Command, Handler};
use orrery_gateway::names::Directory;
use orrery_gateway::{Gateway, Parts, Pipeline, Settings, bind};
use orrery_model::limits::LOGICAL_PARTITION_BYTES_MAX;
use orrery_model::{Charge, Error, Status};
use orrery_node::account::{Account, AccountKeys, Secret};
use orrery_node::api::{Consistency, Facts, Failure, Outcome, Reply, Request, Resource};
use orrery_node::events::Events;
use orrery_node::geo::bounds::Staleness;
use orrery_node::meters::Measure;
use orrery_node::{Clock, ConflictLimits, Node, NodeSettings, SystemClock};
use orrery_storage::MemoryStore;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

type Execute = dyn Fn(Request) -> BoxFuture<'static, Result<Reply, Failure>> + Send + Sync;

/// A handler that does what a test says.
pub struct Script {
    account: Account,
    keys: Arc<AccountKeys>,
    events: Events,
    execute: Box<Execute>,
    pub commands: Mutex<Vec<Command>>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

impl Script {
    pub fn new<F>(execute: impl Fn(Request) -> F + Send + Sync + 'static) -> Script
    where
        F: Future<Output = Result<Reply, Failure>> + Send + 'static,
    {
        let secret = |byte| Secret(vec![byte; 64]);
        let keys = AccountKeys {
            primary: Secret(STANDARD.decode(KEY).unwrap()),
            secondary: secret(2),
            primary_read_only: secret(3),
            secondary_read_only: secret(4),
            internal: secret(5),
        };
        Script {
            account: account(),
            keys: Arc::new(keys),
            events: Events::new(Arc::new(SystemClock::default())),
            execute: Box::new(move |request| Box::pin(execute(request))),
            commands: Mutex::default(),
        }
    }

    /// Every operation finds this body.
    pub fn finds(body: &'static str) -> Script {
        Script::new(move |_| async move { Ok(found(body)) })
    }
}

/// A secret nobody else has.
fn fresh_secret() -> [u8; 64] {
    static N: AtomicU8 = AtomicU8::new(0);
    [N.fetch_add(1, Ordering::Relaxed); 64]
}

fn account() -> Account {
    Account {
        id: "orrery".to_owned(),
        consistency: Consistency::Session,
        staleness: Staleness::default(),
        regions: vec!["West US".to_owned()],
    }
}

pub fn found(body: impl Into<Bytes>) -> Reply {
    let resource = Resource {
        body: body.into(),
        etag: "\"1\"".to_owned(),
    };
    let facts = Facts {
        charge: Charge::hundredths(100),
        ..Facts::default()
    };
    Reply {
        outcome: Outcome::Found(resource),
        facts,
    }
}

impl Handler for Script {
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Reply, Failure>> {
        (self.execute)(request)
    }

    fn administer(&self, command: Command) -> BoxFuture<'_, Result<Answer, Error>> {
        self.commands.lock().unwrap().push(command.clone());
        Box::pin(async move {
            match command {
                Command::Partitions { .. } => Ok(Answer::Partitions(Vec::new())),
                Command::RestoreSnapshot { .. } => Err(Error::new(Status::NOT_FOUND, "There is no such snapshot.")),
                Command::RotateKey(_) => Ok(Answer::Key(vec![9; 64])),
                _ => Ok(Answer::Done),
            }
        })
    }

    fn account(&self) -> Arc<Account> {
        Arc::new(self.account.clone())
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }

    fn keys(&self) -> Arc<AccountKeys> {
        Arc::clone(&self.keys)
    }
}

/// A server that runs until it is stopped or dropped.
pub struct Server {
    pub address: SocketAddr,
    pub pipeline: Arc<Pipeline>,
    handler: Arc<dyn Handler>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    pub fn start(script: Script, settings: Settings) -> Server {
        Server::assemble(Parts::new(Arc::new(script), settings), None)
    }

    /// A server with a real node behind it, over storage in memory.
    pub async fn with_node() -> Server {
        Server::with_node_at(Arc::new(SystemClock::default()), Duration::from_secs(3600)).await
    }

    /// A server whose node lives by this clock and looks for what has expired this often.
    pub async fn with_node_at(clock: Arc<dyn Clock>, purge_interval: Duration) -> Server {
        let settings = NodeSettings {
            account: account(),
            primary_key: Secret(STANDARD.decode(KEY).unwrap()),
            fresh_secret,
            partitions: 1,
            enforce_throughput: false,
            logical_partition_bytes_max: LOGICAL_PARTITION_BYTES_MAX,
            cache_bytes: 1 << 20,
            purge_interval,
            query_time_max: Duration::from_secs(1),
            conflicts: ConflictLimits::default(),
            feed_entries_max: NodeSettings::FEED_ENTRIES_MAX,
        };
        let node = Node::start(settings, MemoryStore::new(), clock).await.unwrap();
        Server::assemble(Parts::new(Arc::new(node), Settings::default()), None)
    }

    pub fn keys(&self) -> Arc<AccountKeys> {
        self.handler.keys()
    }

    pub fn assemble(parts: Parts, tls: Option<TlsAcceptor>) -> Server {
        Server::assemble_named(parts, tls, None)
    }

    pub fn assemble_named(parts: Parts, tls: Option<TlsAcceptor>, names: Option<Arc<Directory>>) -> Server {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let handler = Arc::clone(&parts.handler);
        let pipeline = Arc::new(Pipeline::new(parts));
        let gateway = Gateway::new(Arc::clone(&pipeline), tls).with_names(names);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            gateway.serve(vec![listener], shutdown).await;
        });
        Server {
            address,
            pipeline,
            handler,
            stop: Some(stop),
            task,
        }
    }

    /// Tells the server to stop without waiting for it.
    pub fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until everything has ended.
    pub async fn stopped(mut self) {
        self.begin_stop();
        self.task.await.expect("the server ends without a panic");
    }
}
