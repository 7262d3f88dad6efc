//! Where this node stands in its cluster, as requests see it: who executes what, and whether this node may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::{Epoch, LogId};
use orrery_node::Node;
use orrery_node::cluster::Reach;
use orrery_node::cluster::placement::Placement;
use tokio::sync::{Notify, watch};

/// Who executes what only an owner may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Here,
    /// The node of that name.
    There(String),
    /// Several nodes, each a part of it.
    Scattered,
    /// Nobody just now.
    Nowhere,
}

/// Who does what, as this node last learned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// Who coordinates and has opened everything for it.
    pub coordinator: Option<String>,
    pub placement: Arc<Placement>,
    /// Nodes that must know of a change of the catalogue before it is acknowledged.
    pub confirming: BTreeSet<String>,
}

/// Shared by whoever decides and everybody who asks.
#[derive(Debug)]
pub struct Station {
    pub node: Arc<Node>,
    me: String,
    started: Instant,
    routes: watch::Sender<Arc<Routes>>,
    /// Until when this node may act as the coordinator, in milliseconds since the start.
    lease_ms: AtomicU64,
    /// Until when it may act as the owner of its logs.
    tenure_ms: AtomicU64,
    /// When the lease was last read.
    heard_ms: AtomicU64,
    /// How long after that what this node knows still counts.
    hearing: Duration,
    leaving: AtomicBool,
    /// The epoch in which this region takes writes; `None` while another one does.
    charge: watch::Sender<Option<Epoch>>,
    /// Whether this node acts for its region.
    steward: AtomicBool,
    /// Logs that are needed at home, by who needs them.
    pins: Mutex<BTreeMap<u64, Scope>>,
    next_pin: AtomicU64,
    /// Pins before this one have been taken into account by whoever places logs.
    settled_pins: AtomicU64,
    /// Told when there is something to do about pins.
    pub pinned: Notify,
}

/// Logs that something is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Logs(BTreeSet<LogId>),
}

/// Keeps logs at home until it is dropped.
#[derive(Debug)]
pub struct Pin {
    station: Arc<Station>,
    id: u64,
    scope: Scope,
}

impl Pin {
    /// Whether all of them are at home, and will be.
    pub fn is_firm(&self) -> bool {
        let is_settled = self.id < self.station.settled_pins.load(Ordering::Acquire);
        is_settled && self.station.is_home(&self.scope)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.station.pins().remove(&self.id);
        self.station.pinned.notify_one();
    }
}

impl Station {
    /// A node in a region that takes writes, unless it is told otherwise.
    pub fn new(node: Arc<Node>, me: &str, hearing: Duration) -> Station {
        Station {
            node,
            me: me.to_owned(),
            started: Instant::now(),
            routes: watch::Sender::default(),
            lease_ms: AtomicU64::new(0),
            tenure_ms: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
            hearing,
            leaving: AtomicBool::new(false),
            charge: watch::Sender::new(Some(Epoch(0))),
            steward: AtomicBool::new(false),
            pins: Mutex::default(),
            next_pin: AtomicU64::new(0),
            settled_pins: AtomicU64::new(0),
            pinned: Notify::new(),
        }
    }

    pub fn me(&self) -> &str {
        &self.me
    }

    /// Time since the start, by which leases are counted.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn watch(&self) -> watch::Receiver<Arc<Routes>> {
        self.routes.subscribe()
    }

    pub fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.borrow())
    }

    pub fn set_routes(&self, routes: Routes) {
        self.routes.send_if_modified(|current| {
            if **current == routes {
                return false;
            }
            if current.coordinator != routes.coordinator {
                tracing::info!(coordinator = ?routes.coordinator, "who coordinates has changed");
            }
            *current = Arc::new(routes);
            true
        });
    }

    /// Wakes whoever waits for a change, also if it is one that only this node can see.
    pub fn stir(&self) {
        self.routes.send_modify(|_| {});
    }

    /// Who executes a request, as far as this node knows.
    pub fn place(&self, reach: &Reach) -> Place {
        let routes = self.routes();
        match reach {
            Reach::Catalogue => self.place_of_home(&routes),
            Reach::Logs { logs, .. } => self.place_of_logs(&routes, logs),
        }
    }

    fn place_of_logs(&self, routes: &Routes, logs: &BTreeSet<LogId>) -> Place {
        let mut places = logs.iter().map(|log| self.place_of_log(routes, *log));
        let Some(first) = places.next() else {
            return Place::Nowhere;
        };
        let mut joint = first;
        for place in places {
            match (&joint, place) {
                (_, Place::Nowhere) => return Place::Nowhere,
                (joint, place) if *joint == place => {}
                _ => joint = Place::Scattered,
            }
        }
        joint
    }

    pub fn place_of_log(&self, routes: &Routes, log: LogId) -> Place {
        let place = match routes.placement.logs.get(&log) {
            None => self.place_of_home(routes),
            Some(spot) if spot.owner != self.me => Place::There(spot.owner.clone()),
            Some(_) if self.holds() => Place::Here,
            Some(_) => Place::Nowhere,
        };
        match place {
            // It is still being opened, or is about to be handed over.
            Place::Here if !self.node.owns(log) => Place::Nowhere,
            place => place,
        }
    }

    /// Whether this node may act as the owner of a log at this moment, if it has opened it as such.
    pub fn may_own(&self, log: LogId) -> bool {
        let routes = self.routes.borrow();
        match routes.placement.logs.get(&log) {
            None => routes.coordinator.as_ref() == Some(&self.me) && self.leads(),
            Some(spot) => spot.owner == self.me && self.holds(),
        }
    }

    /// Who executes what is about the catalogue, or about logs at home.
    fn place_of_home(&self, routes: &Routes) -> Place {
        match &routes.coordinator {
            Some(coordinator) if *coordinator != self.me => Place::There(coordinator.clone()),
            Some(_) if self.leads() => Place::Here,
            _ => Place::Nowhere,
        }
    }

    /// The node may finish what another coordinator left undone until then.
    pub fn extend_lead(&self, until: Duration) {
        self.node.lead_until(self.started + until);
    }

    /// This node may act as the coordinator until then.
    pub fn set_lease(&self, until: Option<Duration>) {
        if let Some(until) = until {
            self.extend_lead(until);
        }
        self.lease_ms.store(millis(until), Ordering::Release);
    }

    /// This node may act as the owner of its logs until then.
    pub fn set_tenure(&self, until: Option<Duration>) {
        self.tenure_ms.store(millis(until), Ordering::Release);
    }

    /// May this node act as the coordinator at this moment?
    pub fn leads(&self) -> bool {
        millis(Some(self.now())) < self.lease_ms.load(Ordering::Acquire)
    }

    /// May this node act as the owner of its logs at this moment?
    pub fn holds(&self) -> bool {
        millis(Some(self.now())) < self.tenure_ms.load(Ordering::Acquire)
    }

    pub fn set_heard(&self) {
        self.heard_ms.store(millis(Some(self.now())), Ordering::Release);
    }

    /// Is this node in touch with the servers, so that its view cannot be older than it seems?
    pub fn is_in_touch(&self) -> bool {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Acquire));
        self.now() < heard + self.hearing
    }

    /// The epoch in which this region takes writes, zero where there is no other region; `None` while another one does.
    pub fn charge(&self) -> Option<Epoch> {
        *self.charge.borrow()
    }

    pub fn set_charge(&self, charge: Option<Epoch>) {
        self.charge
            .send_if_modified(|current| std::mem::replace(current, charge) != charge);
    }

    pub fn watch_charge(&self) -> watch::Receiver<Option<Epoch>> {
        self.charge.subscribe()
    }

    /// The epoch in which this node coordinates the writes of one of several regions.
    pub fn serving_epoch(&self) -> Option<Epoch> {
        self.charge().filter(|epoch| *epoch > Epoch(0) && self.leads())
    }

    /// Does this node act for its region?
    pub fn is_steward(&self) -> bool {
        self.steward.load(Ordering::Acquire)
    }

    pub fn set_steward(&self, steward: bool) {
        self.steward.store(steward, Ordering::Release);
    }

    pub fn set_leaving(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    fn pins(&self) -> MutexGuard<'_, BTreeMap<u64, Scope>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for logs to come home and stay there until the answer is dropped. [`Pin::is_firm`] tells when they have.
    pub fn pin(self: &Arc<Station>, scope: Scope) -> Pin {
        let mut pins = self.pins();
        let id = self.next_pin.fetch_add(1, Ordering::AcqRel);
        pins.insert(id, scope.clone());
        drop(pins);
        self.pinned.notify_one();
        Pin {
            station: Arc::clone(self),
            id,
            scope,
        }
    }

    /// Logs, of those that serve partitions, that are needed at home; and the number to settle once that is seen to.
    pub fn needed_at_home(&self, serving: &BTreeSet<LogId>) -> (BTreeSet<LogId>, u64) {
        let pins = self.pins();
        let mut needed = BTreeSet::new();
        for scope in pins.values() {
            match scope {
                Scope::All => needed.clone_from(serving),
                Scope::Logs(logs) => needed.extend(logs.intersection(serving)),
            }
        }
        (needed, self.next_pin.load(Ordering::Acquire))
    }

    /// Nothing that was decided without knowing of pins before this one can move a log any more.
    pub fn settle_pins(&self, before: u64) {
        self.settled_pins.fetch_max(before, Ordering::AcqRel);
        self.stir();
    }

    /// Whether this node coordinates and owns these logs as such.
    fn is_home(&self, scope: &Scope) -> bool {
        let all;
        let logs = match scope {
            Scope::Logs(logs) => logs,
            Scope::All => {
                all = self.node.serving_logs();
                &all
            }
        };
        let routes = self.routes();
        let is_home = |log: &LogId| !routes.placement.logs.contains_key(log) && self.node.owns(*log);
        self.leads() && logs.iter().all(is_home)
    }
}

fn millis(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| time.as_millis() as u64)
}
