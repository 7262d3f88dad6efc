//! Three regions of one account on a paused clock, with clients everywhere and everything between them going wrong.
//!
//! Clients read in any region and write where writes are taken, several at a time; links slow down, pause and break, the write
//! region changes, regions are taken offline and come back. Everything is recorded, and [`checks`] says afterwards whether
//! the promises of the account's consistency level held. One thread and one seed: one run.

pub mod checks;
pub mod history;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::{LogId, Lsn, PartitionKey, SessionToken, Timestamp, json};
use orrery_node::account::{Account, Secret};
use orrery_node::api::{
    BatchOperation, BatchStep, Consistency, ContainerRef, FeedTarget, ItemBody, ItemOperation, ItemSelector, ItemVerb,
    MetadataOperation, MetadataVerb, Operation, Options, Outcome, Page, Principal, ResourceKind, Selector,
};
use orrery_node::geo::fleet::{Fleet, InMemory, RegionParts};
use orrery_node::geo::link::LinkSettings;
use orrery_node::geo::progress::Bounds;
use orrery_node::{Failure, ManualClock, Node, NodeSettings, Reply, Request};
use orrery_storage::MemoryStore;
use tokio::time::{Instant, sleep, timeout};

use crate::Trace;
use crate::dice::Dice;
use history::{Action, Answer, Call, History, Item, Loss, PairRead, Standing, Tick};

const NAMES: [&str; 3] = ["West US", "North Europe", "Southeast Asia"];
const N_CLIENTS: usize = 4;
const N_CALLS: usize = 30;
const ITEMS: [Item; 4] = [("k", "a"), ("k", "b"), ("l", "a"), ("m", "a")];
/// Written and read together only.
const PAIR: [&str; 2] = ["x", "y"];
const BOUNDS: Bounds = Bounds {
    transactions: 5,
    age: Duration::from_secs(300),
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
            let client = Client {
                world: Arc::clone(&world),
                dice: Dice::new(seed ^ (number as u64 + 1) << 32),
                number,
                session: SessionToken::default(),
                versions: Vec::new(),
            };
            clients.push(tokio::spawn(client.run()));
        }
        let trouble = tokio::spawn(Arc::clone(&world).make_trouble(Dice::new(seed)));
        for client in clients {
            client.await.expect("clients end by themselves");
        }
        trouble.abort();
        let _ = trouble.await;
        world.settle().await;
        let recorded = std::mem::take(&mut *world.recorded());
        (level, recorded.history, recorded.trace)
    })
}

#[derive(Debug, Default)]
struct Recorded {
    history: History,
    trace: Trace,
    tick: Tick,
    /// The last value given to a write.
    value: u64,
}

struct World {
    fleet: Arc<Fleet>,
    level: Consistency,
    started: Instant,
    recorded: Mutex<Recorded>,
}

impl World {
    async fn new(level: Consistency) -> Arc<World> {
        let parts = NAMES.map(|name| RegionParts {
            name: name.to_owned(),
            store: MemoryStore::new(),
            clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
        });
        let fleet = Fleet::start(settings(level), BOUNDS, parts.into(), Arc::new(InMemory::default()))
            .await
            .expect("the account starts");
        let world = Arc::new(World {
            fleet,
            level,
            started: Instant::now(),
            recorded: Mutex::default(),
        });
        create(&world.fleet.writer(), ResourceKind::Database, vec![], r#"{"id":"db"}"#).await;
        let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        create(
            &world.fleet.writer(),
            ResourceKind::Container,
            vec![named("db")],
            container,
        )
        .await;
        for name in NAMES {
            while position(&world.node(name)).is_none() {
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

    fn note(&self, line: String) {
        let at = self.started.elapsed().as_millis();
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

    fn writer(&self) -> &'static str {
        let name = self.fleet.topology().writer().name.clone();
        NAMES
            .into_iter()
            .find(|known| *known == name)
            .expect("the write region is one of them")
    }

    /// Looks at where every region stands.
    fn observe(&self, acknowledged: Option<Lsn>) {
        let at = self.tick();
        let online = self.online();
        for region in NAMES {
            let Some(position) = position(&self.node(region)) else {
                continue;
            };
            let standing = Standing {
                at,
                region,
                position,
                now_ms: self.started.elapsed().as_millis() as u64,
                serves: online.contains(&region),
                acknowledged,
            };
            self.recorded().history.standings.push(standing);
        }
    }

    /// Breaks something every now and then, and mends it.
    async fn make_trouble(self: Arc<World>, mut dice: Dice) {
        self.set_links(&mut dice);
        loop {
            sleep(Duration::from_millis(50 + dice.roll(1_500))).await;
            match dice.roll(10) {
                0..4 => self.set_links(&mut dice),
                4 | 5 => self.break_link(&mut dice),
                6 | 7 => self.change_writer(dice.pick(&NAMES)).await,
                8 => self.take_offline(&mut dice).await,
                _ => self.take_all_online().await,
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

    async fn take_offline(&self, dice: &mut Dice) {
        let online = self.online();
        if online.len() < 2 {
            return;
        }
        let region = dice.pick(&online);
        let Some(before) = position(&self.node(region)) else {
            return;
        };
        match Arc::clone(&self.fleet).take_offline(region).await {
            Ok(loss) => {
                let head = position(&self.node(region)).unwrap_or(before);
                let lost = loss.transactions.iter().find(|(log, _)| **log != LogId::SYSTEM.0);
                let n_lost = lost.map_or(0, |(_, n)| *n);
                self.note(format!("{region} is offline, {n_lost} transactions lost"));
                let at = self.tick();
                self.recorded().history.losses.push(Loss {
                    at,
                    epoch: head.epoch,
                    after: lost.map_or(head.lsn, |(log, _)| loss.kept[log]),
                    head: head.lsn,
                });
            }
            Err(error) => self.note(format!("{region} stays online: {error}")),
        }
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
            while self.online().len() < NAMES.len() {
                self.take_all_online().await;
                sleep(Duration::from_millis(100)).await;
            }
            while NAMES
                .iter()
                .any(|name| position(&self.node(name)) != position(&self.node(self.writer())))
            {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap_or_else(|_| {
            panic!(
                "regions do not end equal: {:?}",
                NAMES.map(|name| position(&self.node(name)))
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

/// One application with a session of its own.
struct Client {
    world: Arc<World>,
    dice: Dice,
    number: usize,
    session: SessionToken,
    /// The version last seen of each item: its value and etag.
    versions: Vec<(Item, u64, String)>,
}

impl Client {
    async fn run(mut self) {
        for _ in 0..N_CALLS {
            sleep(Duration::from_millis(self.dice.roll(400))).await;
            let item = self.dice.pick(&ITEMS);
            match self.dice.roll(12) {
                0..5 => self.read(item).await,
                5..8 => self.write(item, None).await,
                8 => {
                    let seen = self.versions.iter().find(|(known, ..)| *known == item).cloned();
                    self.write(item, seen.map(|(_, value, etag)| (value, etag))).await;
                }
                9 | 10 => self.write_pair().await,
                _ => self.read_pair().await,
            }
        }
    }

    /// What the client tells a region it has seen; only sessions do.
    fn options(&self) -> Options {
        Options {
            session: (self.world.level == Consistency::Session).then(|| self.session.clone()),
            ..Options::default()
        }
    }

    async fn execute(&self, region: &str, operation: Operation) -> Option<Result<Reply, Failure>> {
        let request = Request {
            principal: Principal::Account { read_only: false },
            options: self.options(),
            operation,
        };
        timeout(PATIENCE, self.world.node(region).execute(request)).await.ok()
    }

    async fn read(&mut self, item: Item) {
        let region = self.dice.pick(&self.world.online());
        let verb = ItemVerb::Read {
            item: ItemSelector::Id(item.1.to_owned()),
        };
        let (invoked, token) = (self.world.tick(), self.token());
        let answered = self
            .execute(region, item_operation(item, verb, Precondition::None))
            .await;
        let answer = self.read_answer(item, answered);
        self.record(region, item, Action::Read, (invoked, token), answer);
    }

    fn read_answer(&mut self, item: Item, answered: Option<Result<Reply, Failure>>) -> Answer {
        let (found, facts) = match answered {
            None => return Answer::Unknown,
            Some(Ok(reply)) => (Some(reply.outcome), reply.facts),
            Some(Err(failure)) if failure.error.status().code == 404 && failure.error.status().sub == 0 => {
                (None, *failure.facts)
            }
            Some(Err(failure)) => return refusal(&failure),
        };
        let Some(partition) = facts.partition else {
            return Answer::Refused(404, 0);
        };
        self.session.merge(&partition.session);
        let at = partition
            .session
            .get(partition.partition)
            .map(|seen| (seen.version, seen.lsn));
        let found = found.map(|outcome| {
            let Outcome::Found(resource) = outcome else {
                panic!("a read answers an item: {outcome:?}")
            };
            let value = value_of(&resource.body);
            self.remember(item, value, resource.etag);
            (value, partition.item_lsn.expect("an item has an LSN"))
        });
        Answer::Read {
            found,
            at: at.expect("an answer says where the partition stood"),
        }
    }

    fn remember(&mut self, item: Item, value: u64, etag: String) {
        self.versions.retain(|(known, ..)| *known != item);
        self.versions.push((item, value, etag));
    }

    fn next_value(&self) -> u64 {
        let mut recorded = self.world.recorded();
        recorded.value += 1;
        recorded.value
    }

    async fn write(&mut self, item: Item, over: Option<(u64, String)>) {
        let (region, value) = (self.world.writer(), self.next_value());
        let body = body(item.0, item.1, value);
        let (verb, precondition, expected) = match over {
            None => (ItemVerb::Upsert { body }, Precondition::None, None),
            Some((seen, etag)) => {
                let item = ItemSelector::Id(item.1.to_owned());
                (
                    ItemVerb::Replace { item, body },
                    Precondition::IfMatch(etag),
                    Some(seen),
                )
            }
        };
        let (invoked, token) = (self.world.tick(), self.token());
        let answered = self.execute(region, item_operation(item, verb, precondition)).await;
        let answer = match answered {
            None => Answer::Unknown,
            Some(Err(failure)) => refusal(&failure),
            Some(Ok(reply)) => self.written(item, value, reply),
        };
        self.record(
            region,
            item,
            Action::Write { value, expected },
            (invoked, token),
            answer,
        );
    }

    fn written(&mut self, item: Item, value: u64, reply: Reply) -> Answer {
        let partition = reply.facts.partition.expect("a write reached a partition");
        self.session.merge(&partition.session);
        if let Outcome::Created(resource) | Outcome::Found(resource) = reply.outcome {
            self.remember(item, value, resource.etag);
        }
        let progress = partition
            .session
            .get(partition.partition)
            .expect("the token is about the partition");
        let lsn = partition.item_lsn.expect("a write has an LSN");
        self.world.observe(Some(lsn));
        Answer::Written {
            lsn,
            version: progress.version,
        }
    }

    fn token(&self) -> Option<(i64, Lsn)> {
        let sent = self.options().session?;
        let partitions = self.world.node(self.world.writer()).partitions(None).ok()?;
        let seen = sent.get(partitions.first()?.partition)?;
        Some((seen.version, seen.lsn))
    }

    fn record(
        &self,
        region: &'static str,
        item: Item,
        action: Action,
        (invoked, token): (Tick, Option<(i64, Lsn)>),
        answer: Answer,
    ) {
        let completed = self.world.tick();
        self.world.note(format!(
            "client {} in {region}: {item:?} {action:?} {answer:?}",
            self.number
        ));
        self.world.recorded().history.calls.push(Call {
            client: self.number,
            region,
            item,
            action,
            invoked,
            completed,
            token,
            answer,
        });
    }

    async fn write_pair(&mut self) {
        let value = self.next_value();
        let steps = PAIR.map(|id| BatchStep {
            partition_key: None,
            precondition: Precondition::None,
            verb: ItemVerb::Upsert {
                body: body("pair", id, value),
            },
        });
        let operation = BatchOperation {
            container: container(),
            partition_key: Some(partition_key("pair")),
            partition: None,
            atomic: true,
            continue_on_error: false,
            steps: steps.into(),
        };
        let region = self.world.writer();
        let answered = self.execute(region, Operation::Batch(operation)).await;
        if let Some(Ok(reply)) = answered
            && let Some(partition) = reply.facts.partition
        {
            self.session.merge(&partition.session);
        }
    }

    async fn read_pair(&mut self) {
        let region = self.dice.pick(&self.world.online());
        let operation = Operation::ReadFeed {
            container: container(),
            target: FeedTarget {
                partition_key: Some(partition_key("pair")),
                ..FeedTarget::default()
            },
            page: Page::default(),
        };
        let Some(Ok(Reply {
            outcome: Outcome::Feed(feed),
            ..
        })) = self.execute(region, operation).await
        else {
            return;
        };
        let values: Vec<(String, u64)> = feed
            .entries
            .iter()
            .map(|entry| (text(entry, "id"), value_of(entry)))
            .collect();
        let of = |id: &str| values.iter().find(|(name, _)| name == id).map(|(_, value)| *value);
        let at = self.world.tick();
        self.world.recorded().history.pairs.push(PairRead {
            at,
            region,
            values: (of(PAIR[0]), of(PAIR[1])),
        });
    }
}

/// Only some failures say that nothing happened.
fn refusal(failure: &Failure) -> Answer {
    let status = failure.error.status();
    match status.code {
        408 | 449 => Answer::Unknown,
        code => Answer::Refused(code, status.sub),
    }
}

/// Every item of a region but the pair.
async fn held(node: &Arc<Node>) -> Vec<(Item, u64)> {
    let mut held = Vec::new();
    for item in ITEMS {
        let verb = ItemVerb::Read {
            item: ItemSelector::Id(item.1.to_owned()),
        };
        let request = Request {
            principal: Principal::Account { read_only: false },
            options: Options::default(),
            operation: item_operation(item, verb, Precondition::None),
        };
        match node.execute(request).await {
            Ok(Reply {
                outcome: Outcome::Found(resource),
                ..
            }) => held.push((item, value_of(&resource.body))),
            Err(failure) if failure.error.status().code == 404 => {}
            other => panic!("a region that has settled answers: {other:?}"),
        }
    }
    held
}

/// Where the container's only log stands.
fn position(node: &Arc<Node>) -> Option<orrery_model::Position> {
    node.positions()
        .into_iter()
        .find(|(log, _)| *log != LogId::SYSTEM)
        .map(|(_, position)| position)
}

fn links() -> Vec<(&'static str, &'static str)> {
    let all = NAMES.into_iter().flat_map(|from| NAMES.map(|to| (from, to)));
    all.filter(|(from, to)| from != to).collect()
}

fn settings(level: Consistency) -> NodeSettings {
    NodeSettings {
        account: Account {
            id: "sim".into(),
            consistency: level,
            regions: NAMES.map(str::to_owned).into(),
        },
        primary_key: Secret(vec![1; 64]),
        fresh_secret: || [2; 64],
        partitions: 1,
        enforce_throughput: false,
        cache_bytes: 1 << 20,
        purge_interval: Duration::from_secs(3600),
        query_time_max: Duration::from_secs(30),
    }
}

async fn create(node: &Arc<Node>, kind: ResourceKind, path: Vec<Selector>, body: &str) {
    let body = json::parse_value(body.as_bytes()).expect("the body is JSON");
    let verb = MetadataVerb::Create {
        body,
        upsert: false,
        throughput: None,
        precondition: Precondition::None,
    };
    let request = Request {
        principal: Principal::Account { read_only: false },
        options: Options::default(),
        operation: Operation::Metadata(MetadataOperation { kind, path, verb }),
    };
    node.execute(request).await.expect("nothing is wrong yet");
}

fn item_operation(item: Item, verb: ItemVerb, precondition: Precondition) -> Operation {
    Operation::Item(ItemOperation {
        container: container(),
        partition_key: Some(partition_key(item.0)),
        precondition,
        verb,
    })
}

fn body(key: &str, id: &str, value: u64) -> ItemBody {
    let text = format!(r#"{{"id":"{id}","pk":"{key}","n":{value}}}"#);
    let parsed = json::parse(text.as_bytes()).expect("the item is JSON");
    ItemBody {
        text: Bytes::from(text),
        parsed,
    }
}

fn text(body: &[u8], name: &str) -> String {
    let value = json::parse_value(body).expect("an item is JSON");
    value
        .get(name)
        .and_then(|value| value.as_str())
        .expect("a string")
        .to_owned()
}

fn value_of(body: &[u8]) -> u64 {
    let value = json::parse_value(body).expect("an item is JSON");
    let number = value.get("n").expect("every item has a value").to_text();
    number.parse().expect("a number")
}

fn named(name: &str) -> Selector {
    Selector::Name(name.into())
}

fn container() -> ContainerRef {
    ContainerRef {
        database: named("db"),
        container: named("c"),
    }
}

fn partition_key(key: &str) -> PartitionKey {
    PartitionKey::parse(&format!("[{key:?}]")).expect("a string is a key")
}
