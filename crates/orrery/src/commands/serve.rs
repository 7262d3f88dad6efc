//! `orrery emulator`: one account, served until it is told to stop.
//!
//! The only place that picks a storage implementation. Sockets are bound before the data is opened, so that a taken port is
//! known at once; they accept when everything is ready, and then one line of JSON on stdout says where.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_gateway::account::{Address, Addresses};
use orrery_gateway::tls::{self, Authority};
use orrery_gateway::{Gateway, Parts, Pipeline, Settings};
use orrery_node::account::Account;
use orrery_node::{Clock, Node, NodeSettings, SystemClock};
use orrery_partition::project::Projector;
use orrery_partition::storage::Store;
use orrery_storage::MemoryStore;
use orrery_storage::embedded::{EmbeddedSettings, EmbeddedStore};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;

use crate::config::{Raw, ServerConfig, ServerFlags};
use crate::runtime::stop_signal;
use crate::{logging, seed};

/// How long requests and writers may take to finish when the server is told to stop.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

pub fn run(flags: &ServerFlags) -> Result<()> {
    logging::start();
    let config = ServerConfig::new(&Raw::gather(flags, std::env::vars())?)?;
    allow_many_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(config, flags.seed.as_deref()))
}

/// Every connection is a file, and the usual limit is meant for other programs. What the system does not allow, it refuses
/// when it comes to it.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

async fn serve(config: ServerConfig, seed_file: Option<&Path>) -> Result<()> {
    let listeners = bind(&config)?;
    let clock = Arc::new(SystemClock::default());
    let store = open_store(&config).await?;
    let node = Node::start(node_settings(&config), store, clock.clone())
        .await
        .context("cannot open the account")?;
    if let Some(path) = seed_file {
        let n_items = seed::load(&node, path).await.context("cannot load the seed")?;
        tracing::info!(n_items, "seed loaded");
    }
    let (acceptor, ca_pem) = transport_security(&config, clock.clone())?;
    let mut parts = Parts::new(Arc::new(Arc::clone(&node)), gateway_settings(&config));
    parts.ca_pem = ca_pem.map(Into::into);
    parts.movable_clock = config.development.then(|| Arc::clone(&clock));
    if let Some(url) = &config.advertise {
        parts.addresses = Addresses([(config.region.clone(), Address::Url(url.clone()))].into());
    }
    let gateway = Gateway::new(Arc::new(Pipeline::new(parts)), Some(acceptor));
    let port = listeners.first().context("no listener")?.local_addr()?.port();
    // Whoever reads the ready line may stop the server right away, and must find it listening for that.
    let stop = stop_signal()?;
    println!("{}", ready_line(&config, port));
    gateway.serve(listeners, stop).await;
    node.stop(STOP_DEADLINE).await.context("cannot close the store")
}

fn bind(config: &ServerConfig) -> Result<Vec<TcpListener>> {
    let bound = match config.listen {
        None => orrery_gateway::bind_loopback(config.port),
        Some(address) => orrery_gateway::bind(SocketAddr::new(address, config.port)).map(|listener| vec![listener]),
    };
    bound.with_context(|| format!("cannot listen on port {}", config.port))
}

async fn open_store(config: &ServerConfig) -> Result<Arc<dyn Store>> {
    let Some(directory) = config.data_dir.clone() else {
        return Ok(MemoryStore::new());
    };
    let opened = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let store = EmbeddedStore::open(&directory, EmbeddedSettings::default(), Arc::new(Projector::default()));
        store.with_context(|| format!("cannot open the data in {}", directory.display()))
    });
    Ok(opened.await??)
}

fn node_settings(config: &ServerConfig) -> NodeSettings {
    NodeSettings {
        account: Account {
            id: config.account.clone(),
            consistency: config.consistency,
            regions: vec![config.region.clone()],
        },
        primary_key: config.key.clone(),
        fresh_secret,
        partitions: config.partitions,
        enforce_throughput: config.enforce_throughput,
        cache_bytes: config.cache_bytes,
        purge_interval: Duration::from_secs(1),
        query_time_max: Duration::from_secs(30),
    }
}

fn fresh_secret() -> [u8; 64] {
    let mut secret = [0; 64];
    SystemRandom::new()
        .fill(&mut secret)
        .expect("the operating system gives random bytes");
    secret
}

fn gateway_settings(config: &ServerConfig) -> Settings {
    Settings {
        shutdown_deadline: STOP_DEADLINE,
        development: config.development,
        plain_http: config.plain_http,
        ..Settings::default()
    }
}

type Secured = (tokio_rustls::TlsAcceptor, Option<String>);

fn transport_security(config: &ServerConfig, clock: Arc<dyn Clock>) -> Result<Secured> {
    if let Some((chain, key)) = &config.tls {
        let acceptor = tls::acceptor_from_files(chain, key).context("cannot use the given certificate")?;
        return Ok((acceptor, None));
    }
    let authority = match &config.data_dir {
        Some(directory) => Authority::in_directory(&directory.join("tls"), clock.now()),
        None => Authority::in_memory(clock.now()),
    };
    let authority = Arc::new(authority.context("cannot make a certificate authority")?);
    let pem = authority.pem().to_owned();
    Ok((
        tls::acceptor(authority, clock).context("cannot use the certificate authority")?,
        Some(pem),
    ))
}

fn ready_line(config: &ServerConfig, port: u16) -> serde_json::Value {
    let scheme = if config.plain_http { "http" } else { "https" };
    let host = config
        .listen
        .filter(|address| !address.is_unspecified())
        .map_or_else(|| "localhost".to_owned(), host_text);
    let endpoint = config
        .advertise
        .clone()
        .unwrap_or_else(|| format!("{scheme}://{host}:{port}/"));
    serde_json::json!({
        "event": "ready",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "accounts": [{
            "id": config.account,
            "key": STANDARD.encode(&config.key.0),
            "endpoint": endpoint,
            "regions": [{ "name": config.region, "endpoint": endpoint, "role": "write" }],
        }],
    })
}

fn host_text(address: std::net::IpAddr) -> String {
    match address {
        std::net::IpAddr::V4(address) => address.to_string(),
        std::net::IpAddr::V6(address) => format!("[{address}]"),
    }
}
