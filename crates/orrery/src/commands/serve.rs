//! `orrery emulator`: one account, served until it is told to stop. One region here, several in [`regions`].
//!
//! The only place that picks a storage implementation. Sockets are bound before the data is opened, so that a taken port is
//! known at once; they accept when everything is ready, and then one line of JSON on stdout says where.

mod regions;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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
    runtime.block_on(async {
        match config.regions.as_slice() {
            [region] => serve(&config, region, flags.seed.as_deref()).await,
            _ => regions::serve(&config, flags.seed.as_deref()).await,
        }
    })
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

async fn serve(config: &ServerConfig, region: &str, seed_file: Option<&Path>) -> Result<()> {
    let listeners = bind(config, config.port)?;
    let clock = Arc::new(SystemClock::default());
    regions::refuse_several(config)?;
    let store = open_store(config.data_dir.clone()).await?;
    let node = Node::start(node_settings(config), store, clock.clone())
        .await
        .context("cannot open the account")?;
    load_seed(&node, seed_file).await?;
    let (acceptor, ca_pem) = transport_security(config, clock.clone())?;
    let mut parts = Parts::new(Arc::new(Arc::clone(&node)), gateway_settings(config));
    parts.ca_pem = ca_pem.map(Into::into);
    parts.movable_clock = config.development.then(|| Arc::clone(&clock));
    if let Some(url) = &config.advertise {
        parts.addresses = Addresses([(region.to_owned(), Address::Url(url.clone()))].into());
    }
    let gateway = Gateway::new(Arc::new(Pipeline::new(parts)), Some(acceptor));
    let port = listeners.first().context("no listener")?.local_addr()?.port();
    // Whoever reads the ready line may stop the server right away, and must find it listening for that.
    let stop = stop_signal()?;
    let endpoint = config.advertise.clone().unwrap_or_else(|| endpoint(config, port));
    let served = [(region, endpoint.as_str(), true)];
    println!("{}", ready_line(config, &endpoint, &served));
    gateway.serve(listeners, stop).await;
    node.stop(STOP_DEADLINE).await.context("cannot close the store")
}

async fn load_seed(node: &Arc<Node>, file: Option<&Path>) -> Result<()> {
    if let Some(path) = file {
        let n_items = seed::load(node, path).await.context("cannot load the seed")?;
        tracing::info!(n_items, "seed loaded");
    }
    Ok(())
}

fn bind(config: &ServerConfig, port: u16) -> Result<Vec<TcpListener>> {
    let bound = match config.listen {
        None => orrery_gateway::bind_loopback(port),
        Some(address) => orrery_gateway::bind(SocketAddr::new(address, port)).map(|listener| vec![listener]),
    };
    bound.with_context(|| format!("cannot listen on port {port}"))
}

/// A store in a directory, or in memory without one.
async fn open_store(directory: Option<PathBuf>) -> Result<Arc<dyn Store>> {
    let Some(directory) = directory else {
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
            regions: config.regions.clone(),
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

/// Where a port of this server is reached.
fn endpoint(config: &ServerConfig, port: u16) -> String {
    let scheme = if config.plain_http { "http" } else { "https" };
    let host = config
        .listen
        .filter(|address| !address.is_unspecified())
        .map_or_else(|| "localhost".to_owned(), host_text);
    format!("{scheme}://{host}:{port}/")
}

/// `regions`: name, endpoint, and whether it takes writes.
fn ready_line(config: &ServerConfig, endpoint: &str, regions: &[(&str, &str, bool)]) -> serde_json::Value {
    let region = |(name, endpoint, writes): &(&str, &str, bool)| serde_json::json!({ "name": name, "endpoint": endpoint, "role": if *writes { "write" } else { "read" } });
    serde_json::json!({
        "event": "ready",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "accounts": [{
            "id": config.account,
            "key": STANDARD.encode(&config.key.0),
            "endpoint": endpoint,
            "regions": regions.iter().map(region).collect::<Vec<_>>(),
        }],
    })
}

fn host_text(address: std::net::IpAddr) -> String {
    match address {
        std::net::IpAddr::V4(address) => address.to_string(),
        std::net::IpAddr::V6(address) => format!("[{address}]"),
    }
}
