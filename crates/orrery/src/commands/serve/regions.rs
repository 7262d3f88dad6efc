//! An account with several regions in one process: a store, a node and an endpoint for each, and a global endpoint that is
//! none of them.
//!
//! The first region's data lies where an account of one region keeps it, so that an account can grow; the others' lie below
//! `regions/`. Which region is which is kept in `topology.json`.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use orrery_gateway::account::{Address, Addresses};
use orrery_gateway::regions::RegionHandler;
use orrery_gateway::{Gateway, Parts, Pipeline};
use orrery_model::{Error, Status};
use orrery_node::SystemClock;
use orrery_node::geo::fleet::{Fleet, InMemory, RegionParts, TopologyKeeper};
use orrery_node::geo::progress::Bounds;
use orrery_node::geo::topology::{RegionId, Topology};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{
    STOP_DEADLINE, bind, endpoint, gateway_settings, load_seed, node_settings, open_store, ready_line, stop_signal,
    transport_security,
};
use crate::config::ServerConfig;

/// The least the service allows for accounts with several regions.
const BOUNDS: Bounds = Bounds {
    transactions: 100_000,
    age: Duration::from_secs(300),
};
const TOPOLOGY_FILE: &str = "topology.json";

pub async fn serve(config: &ServerConfig, seed_file: Option<&Path>) -> Result<()> {
    ensure!(
        config.advertise.is_none(),
        "advertise names one URL, and an account with several regions has one for each: leave it out"
    );
    let endpoints = Endpoints::bind(config)?;
    let clock = Arc::new(SystemClock::default());
    let keeper: Arc<dyn TopologyKeeper> = match &config.data_dir {
        Some(directory) => Arc::new(InFile::new(directory)?),
        None => Arc::new(InMemory::default()),
    };
    let topology = match keeper.load()? {
        Some(kept) => kept.grown_to(&config.regions)?,
        None => Topology::new(&config.regions)?,
    };
    let mut parts = Vec::new();
    for name in &config.regions {
        let region = topology.named(name)?.id;
        parts.push(RegionParts {
            name: name.clone(),
            store: open_store(config.data_dir.as_deref().map(|root| directory_of(root, region))).await?,
            clock: clock.clone(),
        });
    }
    let fleet = Fleet::start(node_settings(config), BOUNDS, parts, keeper)
        .await
        .context("cannot open the account")?;
    load_seed(&fleet.writer(), seed_file).await?;
    let (acceptor, ca_pem) = transport_security(config, clock.clone())?;
    let gateway = |handler: RegionHandler| {
        let mut parts = Parts::new(Arc::new(handler), gateway_settings(config));
        parts.ca_pem = ca_pem.clone().map(Into::into);
        parts.movable_clock = config.development.then(|| Arc::clone(&clock));
        parts.addresses = endpoints.addresses();
        Gateway::new(Arc::new(Pipeline::new(parts)), Some(acceptor.clone()))
    };
    let mut doors = vec![gateway(RegionHandler::global(Arc::clone(&fleet)))];
    for name in &config.regions {
        let region = fleet.topology().named(name)?.id;
        doors.push(gateway(RegionHandler::of(Arc::clone(&fleet), region)));
    }
    let stop = stop_signal()?;
    println!("{}", endpoints.ready_line(config, &fleet));
    serve_all(doors, endpoints.listeners, stop).await;
    fleet.stop(STOP_DEADLINE).await.context("cannot close the stores")
}

/// Serves every endpoint until `stop`.
async fn serve_all(doors: Vec<Gateway>, listeners: Vec<Vec<TcpListener>>, stop: impl Future<Output = ()>) {
    let (stopping, _) = watch::channel(false);
    let mut serving = tokio::task::JoinSet::new();
    for (door, listeners) in doors.into_iter().zip(listeners) {
        let mut stopped = stopping.subscribe();
        serving.spawn(async move {
            let stop = async move {
                // An error means that the sender is gone, which is the end as well.
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            door.serve(listeners, stop).await;
        });
    }
    stop.await;
    stopping.send_replace(true);
    while serving.join_next().await.is_some() {}
}

/// A single region must not be served from the data of an account that has several: the others would be forgotten.
pub fn refuse_several(config: &ServerConfig) -> Result<()> {
    let Some(directory) = &config.data_dir else {
        return Ok(());
    };
    let Some(topology) = InFile(directory.join(TOPOLOGY_FILE)).load()? else {
        return Ok(());
    };
    let names: Vec<&str> = topology.regions.iter().map(|region| region.name.as_str()).collect();
    ensure!(
        names.len() == 1,
        "the data in {} is of an account with several regions: give --regions \"{}\"",
        directory.display(),
        names.join(",")
    );
    Ok(())
}

fn directory_of(root: &Path, region: RegionId) -> PathBuf {
    match region {
        RegionId(0) => root.to_owned(),
        RegionId(number) => root.join("regions").join(number.to_string()),
    }
}

/// The global endpoint first, then one per region in the order in which they were named.
struct Endpoints {
    ports: Vec<u16>,
    regions: Vec<String>,
    listeners: Vec<Vec<TcpListener>>,
}

impl Endpoints {
    /// On the given port and those after it; 0 takes any free ones.
    fn bind(config: &ServerConfig) -> Result<Endpoints> {
        let mut endpoints = Endpoints {
            ports: Vec::new(),
            regions: config.regions.clone(),
            listeners: Vec::new(),
        };
        for offset in 0..=config.regions.len() {
            let port = match config.port {
                0 => 0,
                first => u16::try_from(usize::from(first) + offset).context("there are not so many ports")?,
            };
            let listeners = bind(config, port)?;
            let bound = listeners.first().context("no listener")?.local_addr()?;
            endpoints.ports.push(bound.port());
            endpoints.listeners.push(listeners);
        }
        Ok(endpoints)
    }

    fn addresses(&self) -> Addresses {
        let regions = self.regions.iter().cloned();
        let ports = self.ports.iter().skip(1).map(|port| Address::Port(*port));
        Addresses(regions.zip(ports).collect())
    }

    fn ready_line(&self, config: &ServerConfig, fleet: &Fleet) -> serde_json::Value {
        let urls: Vec<String> = self.ports.iter().map(|port| endpoint(config, *port)).collect();
        let topology = fleet.topology();
        let regions: Vec<(&str, &str, bool)> = self
            .regions
            .iter()
            .zip(&urls[1..])
            .map(|(name, url)| {
                let writes = topology
                    .find(name)
                    .is_some_and(|region| region.id == topology.writer().id);
                (name.as_str(), url.as_str(), writes)
            })
            .collect();
        ready_line(config, &urls[0], &regions)
    }
}

/// Keeps a topology in a file, replaced as a whole.
#[derive(Debug)]
struct InFile(PathBuf);

impl InFile {
    fn new(directory: &Path) -> Result<InFile> {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(InFile(directory.join(TOPOLOGY_FILE)))
    }
}

impl TopologyKeeper for InFile {
    fn load(&self) -> Result<Option<Topology>, Error> {
        match fs::read(&self.0) {
            Ok(text) => Topology::from_text(&text).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("The topology cannot be read.", error)),
        }
    }

    fn save(&self, topology: &Topology) -> Result<(), Error> {
        let write = || -> std::io::Result<()> {
            let fresh = self.0.with_extension("new");
            let mut file = File::create(&fresh)?;
            file.write_all(&topology.to_text())?;
            file.sync_all()?;
            fs::rename(&fresh, &self.0)?;
            // The name is durable when its directory is.
            match self.0.parent() {
                Some(directory) => File::open(directory)?.sync_all(),
                None => Ok(()),
            }
        };
        write().map_err(|error| failed("The topology cannot be kept.", error))
    }
}

fn failed(message: &str, error: std::io::Error) -> Error {
    Error::new(Status::UNAVAILABLE, message).with_source(error)
}
