//! The endpoints of one account: a global one, and one per region as soon as there are several.
//!
//! The global endpoint listens on the account's port, the first region on the next one, and so on in the order in which
//! regions were added, for life. With a port of 0 the system chooses all of them. An account of one region has one endpoint,
//! which is both; a second region makes it global, and gives each its own.
//!
//! Where endpoints have names as well ([`orrery_gateway::names`]), each of these ports answers to all of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use orrery_gateway::account::{Address, Addresses};
use orrery_gateway::faults::Faults;
use orrery_gateway::names::Directory;
use orrery_gateway::regions::RegionHandler;
use orrery_gateway::{Gateway, Parts, Pipeline, Settings};
use orrery_node::SystemClock;
use orrery_node::geo::fleet::Fleet;
use orrery_node::geo::topology::{Region, RegionId, Topology};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{AccountConfig, ServerConfig};

/// What the endpoints of all accounts have in common.
pub struct Frame {
    pub settings: Settings,
    pub acceptor: TlsAcceptor,
    pub ca_pem: Option<Bytes>,
    /// Of all accounts and regions, where they have names.
    pub names: Option<Arc<Directory>>,
    pub clock: Arc<SystemClock>,
    /// One task per endpoint.
    pub serving: TaskTracker,
    pub stopping: CancellationToken,
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame").finish_non_exhaustive()
    }
}

/// One endpoint of a server that has no other.
#[derive(Debug)]
pub struct Door {
    reach: Reach,
    port: u16,
    /// Bound and not yet accepting.
    listeners: Vec<TcpListener>,
}

impl Door {
    pub fn bind(config: &ServerConfig, port: u16) -> Result<Door> {
        let reach = Reach::new(config, port);
        let (port, listeners) = reach.bind(0)?;
        Ok(Door { reach, port, listeners })
    }

    pub fn url(&self) -> String {
        self.reach.url(self.port)
    }
}

/// Lets an endpoint accept.
pub fn serve_door(frame: &Frame, door: &mut Door, gateway: Gateway) {
    let (listeners, stop) = (std::mem::take(&mut door.listeners), frame.stopping.child_token());
    frame
        .serving
        .spawn(async move { gateway.serve(listeners, stop.cancelled()).await });
}

/// Where and how an account is reached.
#[derive(Clone, Debug)]
struct Reach {
    listen: Option<IpAddr>,
    scheme: &'static str,
    /// Of the global endpoint as it was asked for.
    first_port: u16,
}

/// The endpoints of one account.
#[derive(Debug)]
pub struct Doors {
    account: String,
    reach: Reach,
    advertise: Option<String>,
    addresses: Addresses,
    faults: Arc<Faults>,
    global_port: u16,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    region_ports: BTreeMap<RegionId, u16>,
    #[cfg_attr(
        not(feature = "platform"),
        expect(dead_code, reason = "only the platform shows what they count")
    )]
    pipelines: BTreeMap<RegionId, Arc<Pipeline>>,
    /// Bound and not yet accepting.
    closed: Vec<(Option<Region>, Vec<TcpListener>)>,
    /// Each closes one region's endpoint.
    open: BTreeMap<RegionId, CancellationToken>,
}

impl Doors {
    pub fn bind(config: &ServerConfig, account: &AccountConfig, topology: &Topology) -> Result<Doors> {
        let reach = Reach::new(config, account.port);
        let (global_port, listeners) = reach.bind(0)?;
        let doors = Doors {
            account: account.id.clone(),
            reach,
            advertise: account.advertise.clone(),
            addresses: Addresses::with_names(config.host_suffix.clone()),
            faults: Arc::default(),
            global_port,
            state: Mutex::new(State {
                closed: vec![(None, listeners)],
                ..State::default()
            }),
        };
        if let (Some(url), Some(only)) = (&account.advertise, topology.present().next()) {
            doors.addresses.set(&only.name, Address::Url(url.clone()));
        }
        if topology.present().count() > 1 {
            doors.bind_regions(topology.present())?;
        }
        Ok(doors)
    }

    /// Binds an endpoint for each region that has none.
    pub fn bind_regions<'a>(&self, regions: impl Iterator<Item = &'a Region>) -> Result<()> {
        // In the order of their numbers, so that free ports are given out in it too.
        let mut regions: Vec<&Region> = regions.collect();
        regions.sort_by_key(|region| region.id);
        let mut state = self.state();
        for region in regions {
            if state.region_ports.contains_key(&region.id) {
                continue;
            }
            let (port, listeners) = self.reach.bind(region.id.0 + 1)?;
            state.region_ports.insert(region.id, port);
            self.addresses.set(&region.name, Address::Port(port));
            state.closed.push((Some(region.clone()), listeners));
        }
        Ok(())
    }

    /// Closes a region's endpoint.
    pub fn close(&self, frame: &Frame, region: &Region) {
        let mut state = self.state();
        state.region_ports.remove(&region.id);
        let is_it = |bound: &Option<Region>| bound.as_ref().is_some_and(|bound| bound.id == region.id);
        state.closed.retain(|(bound, _)| !is_it(bound));
        if let Some(open) = state.open.remove(&region.id) {
            open.cancel();
        }
        if let Some(names) = &frame.names {
            names.remove_region(&self.account, &region.name);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets every endpoint that is bound accept.
    pub fn open(&self, frame: &Frame, fleet: &Arc<Fleet>) {
        let mut state = self.state();
        let closed = std::mem::take(&mut state.closed);
        for (region, listeners) in closed {
            let handler = match &region {
                None => RegionHandler::global(Arc::clone(fleet)),
                Some(region) => RegionHandler::of(Arc::clone(fleet), region.id),
            };
            let mut parts = Parts::new(Arc::new(handler), frame.settings.clone());
            parts.ca_pem = frame.ca_pem.clone();
            parts.movable_clock = frame.settings.development.then(|| Arc::clone(&frame.clock));
            parts.addresses = self.addresses.clone();
            parts.faults = Arc::clone(&self.faults);
            let pipeline = Arc::new(Pipeline::new(parts));
            // Without one of its own, a region is reached at the global endpoint.
            let alone = || state.region_ports.is_empty().then(|| fleet.topology().writer().clone());
            let reached = region.clone().or_else(alone);
            if let Some(names) = &frame.names {
                if region.is_none() {
                    names.set_account(&self.account, Arc::clone(&pipeline));
                }
                if let Some(reached) = &reached {
                    names.set_region(&self.account, &reached.name, Arc::clone(&pipeline));
                }
            }
            if let Some(reached) = reached {
                state.pipelines.insert(reached.id, Arc::clone(&pipeline));
            }
            let gateway = Gateway::new(pipeline, Some(frame.acceptor.clone())).with_names(frame.names.clone());
            let stop = frame.stopping.child_token();
            if let Some(region) = region {
                state.open.insert(region.id, stop.clone());
            }
            frame
                .serving
                .spawn(async move { gateway.serve(listeners, stop.cancelled()).await });
        }
    }

    /// What answers in a region.
    #[cfg(feature = "platform")]
    pub fn pipeline(&self, region: RegionId) -> Option<Arc<Pipeline>> {
        self.state().pipelines.get(&region).cloned()
    }

    pub fn global_url(&self) -> String {
        match &self.advertise {
            Some(url) => url.clone(),
            None => self.reach.url(self.global_port),
        }
    }

    /// Where a region is reached: at its own endpoint, or at the global one when there is no other.
    pub fn region_url(&self, region: RegionId) -> String {
        match self.state().region_ports.get(&region) {
            Some(port) => self.reach.url(*port),
            None => self.global_url(),
        }
    }
}

impl Reach {
    fn new(config: &ServerConfig, first_port: u16) -> Reach {
        Reach {
            listen: config.listen,
            scheme: if config.plain_http { "http" } else { "https" },
            first_port,
        }
    }

    /// Binds the endpoint that is `offset` ports after the global one.
    fn bind(&self, offset: u32) -> Result<(u16, Vec<TcpListener>)> {
        let port = match self.first_port {
            0 => 0,
            first => u16::try_from(u32::from(first) + offset).context("there are not so many ports")?,
        };
        let bound = match self.listen {
            None => orrery_gateway::bind_loopback(port),
            Some(address) => orrery_gateway::bind(SocketAddr::new(address, port)).map(|listener| vec![listener]),
        };
        let listeners = bound.with_context(|| format!("cannot listen on port {port}"))?;
        let port = listeners.first().context("no listener")?.local_addr()?.port();
        Ok((port, listeners))
    }

    fn url(&self, port: u16) -> String {
        let host = match self.listen.filter(|address| !address.is_unspecified()) {
            None => "localhost".to_owned(),
            Some(IpAddr::V4(address)) => address.to_string(),
            Some(IpAddr::V6(address)) => format!("[{address}]"),
        };
        format!("{}://{host}:{port}/", self.scheme)
    }
}
