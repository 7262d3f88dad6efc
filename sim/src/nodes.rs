//! A whole node over storage in memory that is cut off, again and again, in the middle of what it does.
//!
//! One request at a time on a paused clock. After every cut a new node starts on what is left and must find everything that
//! was acknowledged, once, wherever splits and merges have put it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::etag::Precondition;
use orrery_model::{IndexingDirective, Lsn, Timestamp, json};
use orrery_node::api::{
    BatchOperation, BatchStep, Consistency, FeedTarget, ItemOperation, ItemSelector, ItemVerb, Operation, Options,
    Outcome, Page,
};
use orrery_node::{Failure, ManualClock, Node, Reply};
use orrery_partition::storage::Store;
use orrery_storage::MemoryStore;

use crate::Trace;
use crate::dice::Dice;
use crate::failing::{Cut, FailingStore};
use crate::requests::{body, container, create_container, partition_key, request, settings};

const N_STEPS: usize = 80;

/// Runs one seed; panics when anything that was promised does not hold.
pub fn run(seed: u64) -> Trace {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async move {
        let mut world = World::new(seed).await;
        for _ in 0..N_STEPS {
            world.step().await;
            world.let_background_work_end().await;
        }
        world.restart().await;
        world.trace
    })
}

/// The version of an item, and the LSN it was acknowledged with.
type Version = (u64, Option<Lsn>);
type Items = BTreeMap<(String, String), Version>;
/// New versions of items; `None` deletes.
type Writes = Vec<((String, String), Option<u64>)>;

struct World {
    dice: Dice,
    trace: Trace,
    store: Arc<FailingStore>,
    node: Arc<Node>,
    clock: Arc<ManualClock>,
    acknowledged: Items,
    /// The request that was cut off.
    unknown: Writes,
    n: u64,
}

impl World {
    async fn new(seed: u64) -> World {
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let store = FailingStore::new(MemoryStore::new());
        let node = start(store.clone(), &clock).await;
        let world = World {
            dice: Dice::new(seed),
            trace: Trace::default(),
            store,
            node,
            clock,
            acknowledged: Items::new(),
            unknown: Writes::new(),
            n: 0,
        };
        create_container(&world.node).await;
        world
    }

    async fn execute(&self, operation: Operation) -> Result<Reply, Failure> {
        self.node.execute(request(operation, Options::default())).await
    }

    async fn step(&mut self) {
        self.clock.advance_ms(self.dice.roll(5_000));
        match self.dice.roll(100) {
            0..75 => self.write().await,
            75..82 => self.reshard().await,
            82..94 => {
                let (n, cut) = (self.dice.roll(25) as i64, self.dice.pick(&[Cut::Before, Cut::After]));
                self.trace.push(format!("cut {cut:?} {n} changes from now"));
                self.store.fail_after(n, cut);
            }
            _ => self.restart().await,
        }
    }

    /// Logs of retired partitions are dropped after the answer; the next step must not meet that halfway.
    async fn let_background_work_end(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    async fn write(&mut self) {
        self.n += 1;
        let key = self.dice.pick(&["p", "q", "r", "s", "t"]).to_owned();
        let (operation, writes) = if self.dice.percent(25) {
            self.batch(&key)
        } else {
            self.single(&key)
        };
        let answer = self.execute(operation).await;
        self.settle_write(writes, answer).await;
    }

    async fn settle_write(&mut self, writes: Writes, answer: Result<Reply, Failure>) {
        match answer {
            Ok(reply) => {
                let lsn = reply.facts.partition.as_ref().and_then(|facts| facts.item_lsn);
                let refused =
                    matches!(&reply.outcome, Outcome::Batch(steps) if steps.iter().any(|step| step.status >= 400));
                self.trace.push(format!(
                    "{writes:?} at {lsn:?}{}",
                    if refused { " refused" } else { "" }
                ));
                if !refused {
                    apply(&mut self.acknowledged, &writes, lsn);
                }
            }
            Err(failure) => {
                let code = failure.error.status().code;
                self.trace.push(format!("{writes:?}: {code}"));
                match code {
                    404 | 409 | 412 => {}
                    408 => {
                        self.unknown = writes;
                        self.restart().await;
                    }
                    // Nothing happened, and nothing will until the node is started again.
                    503 | 410 => self.restart().await,
                    other => panic!("{other}: {failure:?}"),
                }
            }
        }
    }

    fn single(&mut self, key: &str) -> (Operation, Writes) {
        let id = self.dice.pick(&["a", "b", "c", "d", "e", "f", "g"]).to_owned();
        let (verb, write) = self.verb(key, &id);
        let partition_key = Some(partition_key(key));
        let operation = ItemOperation {
            container: container(),
            partition_key,
            precondition: Precondition::None,
            directive: IndexingDirective::Default,
            verb,
        };
        (Operation::Item(operation), vec![write])
    }

    fn batch(&mut self, key: &str) -> (Operation, Writes) {
        let (mut steps, mut writes) = (Vec::new(), Writes::new());
        for _ in 0..=self.dice.roll(3) {
            let id = self.dice.pick(&["a", "b", "c", "d", "e", "f", "g"]).to_owned();
            let (verb, write) = self.verb(key, &id);
            steps.push(BatchStep {
                partition_key: None,
                precondition: Precondition::None,
                directive: IndexingDirective::Default,
                verb,
            });
            writes.push(write);
        }
        let operation = BatchOperation {
            container: container(),
            partition_key: Some(partition_key(key)),
            partition: None,
            atomic: true,
            continue_on_error: false,
            steps,
        };
        (Operation::Batch(operation), writes)
    }

    fn verb(&mut self, key: &str, id: &str) -> (ItemVerb, ((String, String), Option<u64>)) {
        let body = body(key, id, self.n);
        let item = ItemSelector::Id(id.to_owned());
        let name = (key.to_owned(), id.to_owned());
        match self.dice.roll(8) {
            0..3 => (ItemVerb::Upsert { body }, (name, Some(self.n))),
            3 | 4 => (ItemVerb::Create { body }, (name, Some(self.n))),
            5 | 6 => (ItemVerb::Replace { item, body }, (name, Some(self.n))),
            _ => (ItemVerb::Delete { item }, (name, None)),
        }
    }

    async fn reshard(&mut self) {
        let partitions = self.node.partitions(None).expect("partitions can be listed");
        let split = partitions.len() < 2 || (partitions.len() < 6 && self.dice.percent(50));
        let index = self.dice.roll(partitions.len() as u64 - u64::from(!split)) as usize;
        let (node, store) = (Arc::clone(&self.node), Arc::clone(&self.store));
        let id = |index: usize| partitions[index].partition.0;
        let work = async {
            if split {
                node.split("db", "c", id(index)).await.map(drop)
            } else {
                node.merge("db", "c", (id(index), id(index + 1))).await.map(drop)
            }
        };
        let finished = tokio::select! {
            biased;
            done = work => done.is_ok(),
            () = store.failed() => false,
        };
        self.trace.push(format!(
            "{} of {index}: {finished}",
            if split { "split" } else { "merge" }
        ));
        if !finished {
            self.restart().await;
        }
    }

    /// The process dies; a new one starts on what is left and must hold what it should.
    async fn restart(&mut self) {
        let left = self.store.cut_off();
        // Tasks of the old node end; none of them can reach the store any more.
        self.node
            .stop(Duration::from_secs(5))
            .await
            .expect("a store that is cut off closes");
        self.store = FailingStore::new(left);
        self.node = start(self.store.clone(), &self.clock).await;
        let found = self.read_all().await;
        let versions = |items: &Items| {
            items
                .iter()
                .map(|(name, (n, _))| (name.clone(), *n))
                .collect::<BTreeMap<_, _>>()
        };
        let mut with_unknown = self.acknowledged.clone();
        apply(&mut with_unknown, &std::mem::take(&mut self.unknown), None);
        if versions(&found) != versions(&self.acknowledged) {
            assert_eq!(
                versions(&found),
                versions(&with_unknown),
                "acknowledged is there, unknown whole or not at all"
            );
        }
        for (name, (_, lsn)) in &self.acknowledged {
            if let (Some(lsn), Some((_, Some(found)))) = (lsn, found.get(name)) {
                assert!(found >= lsn, "{name:?}: an item's LSN went back");
            }
        }
        self.acknowledged = found;
        self.trace
            .push(format!("restarted with {} items", self.acknowledged.len()));
    }

    /// Everything there is, by the feed and one by one, which must agree.
    async fn read_all(&self) -> Items {
        let page = Page {
            n_items_max: Some(1000),
            ..Page::default()
        };
        let feed = Operation::ReadFeed {
            container: container(),
            target: FeedTarget::default(),
            page,
        };
        let Ok(Reply {
            outcome: Outcome::Feed(feed),
            ..
        }) = self.execute(feed).await
        else {
            panic!("no feed")
        };
        let mut found = Items::new();
        for entry in feed.entries {
            let value = json::parse_value(&entry).expect("an item is JSON");
            let text = |name: &str| {
                value
                    .get(name)
                    .and_then(|value| value.as_str())
                    .expect("a string")
                    .to_owned()
            };
            let n: u64 = value.get("n").expect("a version").to_text().parse().expect("a number");
            let (key, id) = (text("pk"), text("id"));
            let read = ItemOperation {
                container: container(),
                partition_key: Some(partition_key(&key)),
                precondition: Precondition::None,
                directive: IndexingDirective::Default,
                verb: ItemVerb::Read {
                    item: ItemSelector::Id(id.clone()),
                },
            };
            let reply = self
                .execute(Operation::Item(read))
                .await
                .expect("an item of the feed can be read");
            let Outcome::Found(resource) = &reply.outcome else {
                panic!("{reply:?}")
            };
            assert_eq!(resource.body, entry, "the feed and a read agree");
            let lsn = reply.facts.partition.and_then(|facts| facts.item_lsn);
            assert_eq!(found.insert((key, id), (n, lsn)), None, "an item is there twice");
        }
        let partitions = self.node.partitions(None).expect("partitions can be listed");
        let n_items: u64 = partitions.iter().map(|partition| partition.n_items).sum();
        assert_eq!(n_items, found.len() as u64, "partitions count what they hold");
        found
    }
}

fn apply(items: &mut Items, writes: &Writes, lsn: Option<Lsn>) {
    for (name, n) in writes {
        match n {
            Some(n) => drop(items.insert(name.clone(), (*n, lsn))),
            None => drop(items.remove(name)),
        }
    }
}

async fn start(store: Arc<FailingStore>, clock: &Arc<ManualClock>) -> Arc<Node> {
    let settings = settings(Consistency::Session, vec!["Here".into()]);
    let store: Arc<dyn Store> = store;
    let clock: Arc<ManualClock> = Arc::clone(clock);
    Node::start(settings, store, clock)
        .await
        .expect("a node starts on what a crash leaves")
}
