//! Three regions of one account on a paused clock, with clients everywhere and everything between them going wrong.
//!
//! Clients read in any region and write where writes are taken, several at a time; links slow down, pause and break, the write
//! region changes, regions are taken offline and come back; with every second seed partitions are split and merged, with every third
//! one regions are killed and live again.
//! Everything is recorded, and [`checks`] says afterwards whether the promises of the account's consistency level held. One
//! thread and one seed: one run.

pub mod checks;
mod client;
mod disks;
pub mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orrery_model::etag::Precondition;
use orrery_model::{LogId, Lsn, Position};
use orrery_node::admin::PartitionInfo;
use orrery_node::api::{Consistency, ItemSelector, ItemVerb, Options, Outcome};
use orrery_node::geo::bounds::{Bounds, Staleness};
use orrery_node::geo::fleet::{self, Fleet, InMemory, Outage};
use orrery_node::geo::link::LinkSettings;
use orrery_node::geo::topology::RegionState;
use orrery_node::{Failure, Node, Reply};
use tokio::time::{Instant, sleep, timeout};

use crate::Trace;
use crate::dice::Dice;
use crate::requests::{create_container, epk, item_operation, request, settings, value_of};
use client::Client;
use disks::Disks;
use history::{History, Item, Loss, Standing, Tick};

const NAMES: [&str; 3] = ["West US", "North Europe", "Southeast Asia"];
const N_CLIENTS: usize = 4;
const ITEMS: [Item; 4] = [("k", "a"), ("k", "b"), ("l", "a"), ("m", "a")];
/// Both of them are reached by links that break for a while.
const BOUNDS: Bounds = Bounds {
    transactions: 5,
    age: Duration::from_secs(2),
};
/// Longer than anything a region waits for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs one seed; panics when a promise of its consistency level is broken.
pub fn run(seed: u64) -> Trace {
    let (level, history, trace) = record(seed);
    if let Err(broken) = checks::check(&history, level, BOUNDS) {
        for line in &trace.lines {
            println!("{line}");
        }
        panic!("seed {seed}, {level:?}: {broken}");
    }
    trace
}

/// Runs one seed and tells what happened.
pub fn record(seed: u64) -> (Consistency, History, Trace) {
    let levels = [
        Consistency::Strong,
        Consistency::BoundedStaleness,
        Consistency::Session,
        Consistency::ConsistentPrefix,
        Consistency::Eventual,
    ];
    let level = levels[(seed % 5) as usize];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async move {
        let world = World::new(level).await;
        let mut clients = Vec::new();
        for number in 0..N_CLIENTS {
            let dice = Dice::new(seed ^ (number as u64 + 1) << 32);
            clients.push(tokio::spawn(Client::new(&world, number, dice).run()));
        }
        let trouble = tokio::spawn(Arc::clone(&world).make_trouble(Dice::new(seed), is_killing(seed)));
        let reshards = is_resharding(seed);
        let reshards = reshards.then(|| tokio::spawn(Arc::clone(&world).reshard(Dice::new(!seed))));
        for client in clients {
            client.await.expect("clients end by themselves");
        }
        for task in reshards.into_iter().chain([trouble]) {
            task.abort();
            let _ = task.await;
        }
        world.settle().await;
        let recorded = std::mem::take(&mut *world.recorded());
        (level, recorded.history, recorded.trace)
    })
}

/// Partitions are split and merged with every second seed, so that each level is run both ways.
fn is_resharding(seed: u64) -> bool {
    seed % 2 == 1
}

/// Regions are killed with every third seed.
fn is_killing(seed: u64) -> bool {
    seed % 3 == 1
}

#[derive(Debug, Default)]
struct Recorded {
    history: History,
    trace: Trace,
    tick: Tick,
    /// The last value given to a write.
    value: u64,
    /// Regions that were on their way back when somebody last looked.
    coming: BTreeSet<&'static str>,
}

struct World {
    fleet: Arc<Fleet>,
    level: Consistency,
    started: Instant,
    recorded: Mutex<Recorded>,
}

impl World {
    async fn new(level: Consistency) -> Arc<World> {
        let disks = Disks::new(NAMES.len());
        let parts = NAMES.iter().enumerate();
        let parts = parts.map(|(index, name)| disks.parts(index, name)).collect();
        let mut settings = settings(level, NAMES.map(str::to_owned).into());
        settings.account.staleness = Staleness {
            chosen: Some(BOUNDS),
            may_be_tight: true,
        };
        let fleet = Fleet::start(settings, parts, Arc::new(InMemory::default()))
            .await
            .expect("the account starts");
        fleet.settle(Arc::new(disks));
        let world = Arc::new(World {
            fleet,
            level,
            started: Instant::now(),
            recorded: Mutex::default(),
        });
        create_container(&world.fleet.writer()).await;
        for name in NAMES {
            while world.partition_of(name, ITEMS[0].0).is_none() {
                sleep(Duration::from_millis(1)).await;
            }
        }
        world
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) -> Tick {
        let mut recorded = self.recorded();
        recorded.tick += 1;
        recorded.tick
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn note(&self, line: String) {
        let at = self.now_ms();
        self.recorded().trace.push(format!("{at} ms: {line}"));
    }

    fn node(&self, region: &str) -> Arc<Node> {
        let topology = self.fleet.topology();
        let id = topology.named(region).expect("a region of the account").id;
        self.fleet.node(id)
    }

    fn online(&self) -> Vec<&'static str> {
        let topology = self.fleet.topology();
        NAMES
            .into_iter()
            .filter(|name| topology.named(name).is_ok_and(|region| topology.is_online(region.id)))
            .collect()
    }

    /// Regions that clients can reach.
    fn alive(&self) -> Vec<&'static str> {
        let dead = self.dead();
        self.online().into_iter().filter(|name| !dead.contains(name)).collect()
    }

    fn dead(&self) -> Vec<&'static str> {
        let regions = self.fleet.regions();
        let is_dead = |name: &&str| {
            let mut killed = regions.iter().filter(|region| region.outage == Some(Outage::Killed));
            killed.any(|region| region.name == *name)
        };
        NAMES.into_iter().filter(is_dead).collect()
    }

    fn writer(&self) -> &'static str {
        let name = self.fleet.topology().writer().name.clone();
        NAMES
            .into_iter()
            .find(|known| *known == name)
            .expect("the write region is one of them")
    }

    /// The partition that serves a key in a region.
    fn partition_of(&self, region: &str, key: &str) -> Option<PartitionInfo> {
        let epk = epk(key);
        let partitions = self.node(region).partitions(None).ok()?;
        partitions.into_iter().find(|partition| partition.range.contains(&epk))
    }

    /// Looks at where every region stands.
    fn observe(&self, acknowledged: Option<(Item, Lsn)>) {
        let at = self.tick();
        let alive = self.alive();
        self.note_returns(at);
        for region in NAMES {
            let serving = acknowledged.and_then(|(item, _)| self.partition_of(region, item.0));
            for (log, position) in logs(&self.node(region)) {
                let is_asked = serving.as_ref().is_some_and(|serving| serving.log == log);
                let standing = Standing {
                    at,
                    region,
                    log,
                    position,
                    now_ms: self.now_ms(),
                    serves: alive.contains(&region),
                    acknowledged: acknowledged.filter(|_| is_asked).map(|(_, lsn)| lsn),
                };
                self.recorded().history.standings.push(standing);
            }
        }
    }

    /// A region that is on its way back, or was when somebody last looked, may have begun anew.
    fn note_returns(&self, at: Tick) {
        let topology = self.fleet.topology();
        let is_coming = |name: &&str| {
            topology
                .named(name)
                .is_ok_and(|region| region.state == RegionState::Seeding)
        };
        let coming: BTreeSet<&'static str> = NAMES.into_iter().filter(|name| is_coming(name)).collect();
        let mut recorded = self.recorded();
        let before = std::mem::replace(&mut recorded.coming, coming.clone());
        let begun = before.union(&coming).map(|region| (at, *region));
        recorded.history.returns.extend(begun);
    }

    /// Splits and merges partitions wherever writes are taken.
    async fn reshard(self: Arc<World>, mut dice: Dice) {
        loop {
            sleep(Duration::from_millis(200 + dice.roll(2_000))).await;
            let node = self.node(self.writer());
            let Ok(partitions) = node.partitions(None) else {
                continue;
            };
            let is_split = partitions.len() < 2 || (partitions.len() < 5 && dice.percent(50));
            let index = dice.roll(partitions.len() as u64 - u64::from(!is_split)) as usize;
            let id = |index: usize| partitions[index].partition.0;
            let (what, done) = if is_split {
                ("split", node.split("db", "c", id(index)).await)
            } else {
                ("merge", node.merge("db", "c", (id(index), id(index + 1))).await)
            };
            self.note(format!("{what} of {}: {}", id(index), done.is_ok()));
        }
    }

    /// Breaks something every now and then, and mends it.
    async fn make_trouble(self: Arc<World>, mut dice: Dice, kills: bool) {
        self.set_links(&mut dice);
        loop {
            sleep(Duration::from_millis(50 + dice.roll(1_500))).await;
            match dice.roll(if kills { 13 } else { 10 }) {
                0..4 => self.set_links(&mut dice),
                4 | 5 => self.break_link(&mut dice),
                6 | 7 => self.change_writer(dice.pick(&NAMES)).await,
                8 => self.take_offline(&mut dice).await,
                9 => self.take_all_online().await,
                10 => self.kill(dice.pick(&NAMES)).await,
                _ => self.revive_all().await,
            }
            self.observe(None);
        }
    }

    fn set_links(&self, dice: &mut Dice) {
        let latency = Duration::from_millis(dice.roll(200));
        for (from, to) in links() {
            let settings = LinkSettings {
                latency,
                jitter: Duration::from_millis(dice.roll(50)),
                loss: dice.pick(&[0.0, 0.0, 0.1]),
                ..LinkSettings::default()
            };
            self.fleet.set_link(from, to, settings).expect("the link is there");
        }
        self.note(format!("links take {latency:?}"));
    }

    fn break_link(&self, dice: &mut Dice) {
        let (from, to) = dice.pick(&links());
        let paused = dice.percent(50);
        let settings = LinkSettings {
            cut: !paused,
            paused,
            ..LinkSettings::default()
        };
        self.fleet.set_link(from, to, settings).expect("the link is there");
        self.note(format!("{from} -> {to} is {}", if paused { "paused" } else { "cut" }));
    }

    async fn change_writer(&self, to: &'static str) {
        let changed = Arc::clone(&self.fleet).change_writer(to).await;
        let outcome = match &changed {
            Ok(()) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        self.note(format!("planned change to {to}: {outcome}"));
    }

    async fn kill(&self, region: &'static str) {
        let killed = Arc::clone(&self.fleet).kill(region).await;
        self.note(format!("{region} is killed: {}", killed.is_ok()));
    }

    async fn revive_all(&self) {
        for region in self.dead() {
            let revived = Arc::clone(&self.fleet).start_again(region).await;
            self.note(format!("{region} lives again: {}", revived.is_ok()));
        }
    }

    async fn take_offline(&self, dice: &mut Dice) {
        let online = self.online();
        if online.len() < 2 {
            return;
        }
        let region = dice.pick(&online);
        let heads = |region: &'static str| ITEMS.map(|item| self.partition_of(region, item.0));
        let before: Vec<_> = online.iter().map(|online| (*online, heads(online))).collect();
        match Arc::clone(&self.fleet).take_offline(region).await {
            Ok(loss) => {
                let n_lost: u64 = loss.transactions.values().sum();
                self.note(format!("{region} is offline, {n_lost} transactions lost"));
                let (at, heir) = (self.tick(), self.writer());
                let heir = before.iter().find(|(known, _)| *known == heir).map(|(_, heads)| heads);
                for (index, item) in ITEMS.into_iter().enumerate() {
                    let own = heir.and_then(|heads| heads[index].as_ref());
                    let lost = self.partition_of(region, item.0);
                    self.note_loss(at, item, &loss, (lost, own));
                }
            }
            Err(error) => self.note(format!("{region} stays online: {error}")),
        }
    }

    /// What was lost of one item's history: the end of its partition that the heir had not, or, when the two had not even the
    /// same partitions, everything after the heir's.
    fn note_loss(
        &self,
        at: Tick,
        item: Item,
        loss: &fleet::Loss,
        (lost, own): (Option<PartitionInfo>, Option<&PartitionInfo>),
    ) {
        let (Some(lost), Some(own)) = (lost, own) else {
            return;
        };
        let is_exact = lost.log == own.log;
        let after = match loss.kept.get(&lost.log.0) {
            Some(kept) if is_exact => *kept,
            None if is_exact => return,
            _ => own.lsn,
        };
        self.recorded().history.losses.push(Loss {
            at,
            item,
            after,
            head: lost.lsn,
            is_exact,
        });
    }

    async fn take_all_online(&self) {
        let online = self.online();
        for region in NAMES.into_iter().filter(|name| !online.contains(name)) {
            let back = Arc::clone(&self.fleet).take_online(region).await;
            self.note(format!("{region} comes back: {}", back.is_ok()));
            let at = self.tick();
            self.recorded().history.returns.push((at, region));
        }
    }

    /// Mends everything, waits until nothing happens any more, and looks at what each region holds.
    async fn settle(&self) {
        for (from, to) in links() {
            self.fleet
                .set_link(from, to, LinkSettings::default())
                .expect("the link is there");
        }
        timeout(PATIENCE, async {
            while self.alive().len() < NAMES.len() {
                self.revive_all().await;
                self.take_all_online().await;
                sleep(Duration::from_millis(100)).await;
            }
            while NAMES
                .iter()
                .any(|name| logs(&self.node(name)) != logs(&self.node(self.writer())))
            {
                sleep(Duration::from_millis(10)).await;
            }
            // One that was too slow for strong writes is taken back a moment after it has caught up.
            while self.fleet.regions().iter().any(|region| region.left_out) {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap_or_else(|_| {
            panic!(
                "regions do not end equal: {:?}",
                NAMES.map(|name| logs(&self.node(name)))
            )
        });
        self.observe(None);
        for region in NAMES {
            let held = held(&self.node(region)).await;
            self.note(format!("{region} holds {held:?}"));
            self.recorded().history.finals.push((region, held));
        }
        self.fleet.stop(Duration::from_secs(5)).await.expect("regions stop");
    }
}

/// Every item of a region but the pair. A change of roles that was still under way refuses a read, but not for long.
async fn held(node: &Arc<Node>) -> Vec<(Item, u64)> {
    let mut held = Vec::new();
    for item in ITEMS {
        let found = timeout(PATIENCE, async {
            loop {
                match found(node, item).await {
                    Err(failure) if failure.error.status().code == 503 => sleep(Duration::from_millis(100)).await,
                    answered => return answered,
                }
            }
        });
        match found.await.expect("a region that has settled answers") {
            Ok(value) => held.extend(value.map(|value| (item, value))),
            Err(failure) => panic!("a region that has settled answers: {failure:?}"),
        }
    }
    held
}

/// The value of an item, if it is there.
async fn found(node: &Arc<Node>, item: Item) -> Result<Option<u64>, Failure> {
    let verb = ItemVerb::Read {
        item: ItemSelector::Id(item.1.to_owned()),
    };
    let operation = item_operation(item.0, verb, Precondition::None);
    match node.execute(request(operation, Options::default())).await {
        Ok(Reply {
            outcome: Outcome::Found(resource),
            ..
        }) => Ok(Some(value_of(&resource.body))),
        Ok(other) => panic!("a read answers with what it has found: {other:?}"),
        Err(failure) if failure.error.status().code == 404 => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Where the logs of the container's partitions stand.
fn logs(node: &Arc<Node>) -> BTreeMap<LogId, Position> {
    let mut logs = node.positions();
    logs.remove(&LogId::SYSTEM);
    logs
}

fn links() -> Vec<(&'static str, &'static str)> {
    let all = NAMES.into_iter().flat_map(|from| NAMES.map(|to| (from, to)));
    all.filter(|(from, to)| from != to).collect()
}
