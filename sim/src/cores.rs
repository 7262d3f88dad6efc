//! Partition cores over the embedded store on a simulated disk.
//!
//! The log's files are simulated; the view's are real, because the tree syncs what it flushes and a store that is given up
//! leaves just that. What the seed decides: which commands come, how they are grouped, when time passes, what the disk does.

use std::sync::Arc;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::log::{Opened, Operation, Transaction};
use orrery_model::{
    ContainerDefinition, Epk, EpkRange, Epoch, IndexingDirective, LogId, PartitionId, PartitionKey, Position,
    ResourceId, Timestamp, json,
};
use orrery_partition::IndexedDefinition;
use orrery_partition::command::{Action, Command, Step, Target};
use orrery_partition::decide::{Context, decide};
use orrery_partition::draft::{Identity, ItemDraft};
use orrery_partition::overlay::Overlay;
use orrery_partition::project::{Projector, project};
use orrery_partition::quota::FullKeys;
use orrery_partition::storage::{Log, Role, Snapshot, Staged, StorageError, Store};
use orrery_storage::{EmbeddedSettings, EmbeddedStore};

use crate::Trace;
use crate::dice::Dice;
use crate::disk::{Disk, Unsynced};

mod model;

use model::Model;

const N_PARTITIONS: u64 = 3;
const N_STEPS: usize = 120;

/// Runs one seed; panics when anything that was promised does not hold.
pub fn run(seed: u64) -> Trace {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(World::new(seed).play())
}

struct World {
    dice: Dice,
    trace: Trace,
    dir: tempfile::TempDir,
    disk: Disk,
    store: Option<Arc<EmbeddedStore>>,
    cores: Vec<Core>,
    now: Timestamp,
    /// The power will go during this life of the store. Flushing the view tidies up in the background, which would make the
    /// moment of the cut a matter of threads: a life has one or the other.
    cut_is_set: bool,
}

/// One partition: its log, its rules, and what its log must hold.
struct Core {
    id: LogId,
    definition: ContainerDefinition,
    log: Arc<dyn Log>,
    model: Model,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            dice: Dice::new(seed),
            trace: Trace::default(),
            dir: tempfile::tempdir().expect("a directory can be made"),
            disk: Disk::default(),
            store: None,
            cores: Vec::new(),
            now: Timestamp(1_700_000_000_000),
            cut_is_set: false,
        }
    }

    async fn play(mut self) -> Trace {
        self.open_store();
        for n in 1..=N_PARTITIONS {
            self.create_core(LogId(n)).await;
        }
        for _ in 0..N_STEPS {
            match self.dice.roll(100) {
                0..70 => self.write().await,
                70..80 => self.now.0 += self.dice.roll(8_000),
                80..88 => self.trouble(),
                88..92 => self.checkpoint().await,
                92..95 => self.check_all().await,
                _ => self.crash().await,
            }
        }
        self.crash().await;
        self.trace
    }

    fn store(&self) -> &Arc<EmbeddedStore> {
        self.store.as_ref().expect("the store is open")
    }

    fn open_store(&mut self) {
        let settings = EmbeddedSettings {
            segment_bytes: 4 << 10,
            log_keep_bytes: u64::MAX,
            free_reserve_bytes: 1000,
            ..EmbeddedSettings::default()
        };
        let files = Arc::new(self.disk.clone());
        let store = EmbeddedStore::open_with(self.dir.path(), settings, Arc::new(Projector::default()), files);
        self.store = Some(store.expect("what a crash leaves can be opened"));
        self.cut_is_set = false;
    }

    async fn own(&self, id: LogId) -> Arc<dyn Log> {
        let role = Role::Own { epoch: Epoch(1) };
        self.store()
            .open(id, role)
            .await
            .expect("a log can be owned by whoever owned it before")
    }

    async fn create_core(&mut self, id: LogId) {
        let definition = definition(Some(10));
        let log = self.own(id).await;
        let mut core = Core {
            id,
            definition,
            log,
            model: Model::default(),
        };
        let opened = Operation::Opened(Opened {
            partition: PartitionId(id.0 as u32),
            range: EpkRange::full(),
            parents: Vec::new(),
            session_version: 0,
            definition_version: 1,
            definition: core.definition.to_stored().into(),
        });
        let transaction = Arc::new(Transaction::following(Position::default(), self.now, vec![opened]));
        let snapshot = core.log.snapshot().expect("a new log can be read");
        let writes = project(None, &*snapshot, &transaction).expect("the first entry opens the partition");
        let result = core
            .log
            .append(
                Position::default(),
                vec![Staged {
                    transaction: Arc::clone(&transaction),
                    writes,
                }],
            )
            .await;
        core.model.appended(&[transaction], &result);
        result.expect("nothing is wrong yet");
        self.cores.push(core);
    }

    /// A group of commands to one partition, decided one on the other and appended at once, as a writer does.
    async fn write(&mut self) {
        let index = self.dice.roll(self.cores.len() as u64) as usize;
        let commands: Vec<Command> = (0..=self.dice.roll(4)).map(|_| self.command(index)).collect();
        let core = &mut self.cores[index];
        let snapshot = core
            .log
            .snapshot()
            .expect("a view can be read whatever happens to the disk");
        let (staged, refused) = core.decide_all(&*snapshot, &commands, self.now);
        if staged.is_empty() {
            self.trace.push(format!("{index}: {refused} refused"));
            return;
        }
        let transactions: Vec<Arc<Transaction>> = staged.iter().map(|staged| Arc::clone(&staged.transaction)).collect();
        let result = core.log.append(snapshot.position(), staged).await;
        core.model.appended(&transactions, &result);
        self.trace.push(format!(
            "{index}: {} of {} appended: {}",
            transactions.len(),
            commands.len(),
            kind(&result)
        ));
        match result {
            Err(StorageError::Unknown(_)) => self.reopen_or_crash().await,
            Err(StorageError::Full) => self.disk.set_free_bytes(u64::MAX),
            Err(StorageError::Unavailable(_)) => self.crash().await,
            Err(error) => panic!("{error}"),
            Ok(()) => {}
        }
    }

    /// The outcome of a write is not known: the store says what it was after it has been reopened, here or by a new process.
    async fn reopen_or_crash(&mut self) {
        if self.cut_is_set || self.dice.percent(50) {
            return self.crash().await;
        }
        let reopened = self.store().reopen().await;
        self.trace.push(format!("reopened: {}", kind(&reopened)));
        match reopened {
            Ok(()) => self.check_all().await,
            Err(_) => self.crash().await,
        }
    }

    /// Something the disk will do.
    fn trouble(&mut self) {
        let trouble = self.dice.roll(4);
        match trouble {
            0 => self.disk.fail_next_sync(),
            1 => self.disk.fill_during_next_write(self.dice.roll(400) as usize),
            2 => self.disk.set_free_bytes(self.dice.roll(2) * 10_000),
            _ => {
                self.disk.cut_power_after(self.dice.roll(12) as usize);
                self.cut_is_set = true;
            }
        }
        self.trace.push(format!("trouble {trouble}"));
    }

    async fn checkpoint(&mut self) {
        if !self.cut_is_set {
            // With a disk that fails it may fail as well; the next write finds out.
            let done = self.store().checkpoint().await;
            self.trace.push(format!("checkpoint: {}", kind(&done)));
        }
    }

    /// The process dies, and perhaps the power goes with it.
    async fn crash(&mut self) {
        let unsynced = self
            .dice
            .pick(&[Unsynced::Lost, Unsynced::Torn, Unsynced::Kept, Unsynced::Holed]);
        self.trace.push(format!("crash, unsynced {unsynced:?}"));
        let cores: Vec<(LogId, ContainerDefinition, Model)> = self
            .cores
            .drain(..)
            .map(|core| (core.id, core.definition, core.model))
            .collect();
        let store = self.store.take().expect("the store is open");
        // The disk first: whatever the store still does while it ends is lost.
        let disk = self.disk.after_power_cut(unsynced);
        drop(store);
        self.disk = disk;
        self.open_store();
        for (id, definition, model) in cores {
            let log = self.own(id).await;
            self.cores.push(Core {
                id,
                definition,
                log,
                model,
            });
        }
        self.check_all().await;
    }

    async fn check_all(&mut self) {
        for core in &mut self.cores {
            let log = Arc::clone(&core.log);
            core.model.check(&*log).await;
            core.definition = core.model.definition();
            self.trace.push(format!("log {} at {}", core.id, log.head().lsn));
        }
    }

    fn command(&mut self, core: usize) -> Command {
        let dice = &mut self.dice;
        let key = dice.pick(&["p", "q", "r"]);
        match dice.roll(20) {
            0..12 => Command::Item(self.step(core, key)),
            12..16 => Command::Batch((0..=self.dice.roll(3)).map(|_| self.step(core, key)).collect()),
            16 => Command::DeleteKey {
                epk: self.epk(core, key),
                limit: 2,
            },
            17 | 18 => Command::Purge {
                candidates: self.cores[core].model.items(),
            },
            _ => {
                let ttl = dice.pick(&[None, Some(-1), Some(5), Some(20)]);
                let version = self.cores[core].model.next_definition_version();
                Command::Define {
                    version,
                    definition: definition(ttl).to_stored().into(),
                }
            }
        }
    }

    fn epk(&self, core: usize, key: &str) -> Epk {
        Epk::of(self.cores[core].definition.partition_key(), &partition_key(key))
    }

    fn step(&mut self, core: usize, key: &str) -> Step {
        let (dice, definition) = (&mut self.dice, &self.cores[core].definition);
        let id = dice.pick(&["a", "b", "c", "d", "e", "f"]);
        let ttl = dice.pick(&["", "", r#","ttl":3"#, r#","ttl":-1"#]);
        let padding = "x".repeat(dice.roll(200) as usize);
        let email = dice.roll(8);
        let text = format!(r#"{{"id":"{id}","pk":"{key}","email":{email},"padding":"{padding}"{ttl}}}"#);
        let parsed = json::parse(text.as_bytes()).expect("the item is JSON");
        let draft = ItemDraft::new(definition, &Bytes::from(text), parsed).expect("the item is valid");
        let target = Target::Id(id.to_owned());
        let action = match dice.roll(5) {
            0 => Action::Create(draft),
            1 => Action::Upsert(draft),
            2 => Action::Replace(target, draft),
            3 => Action::Delete(target),
            _ => Action::Read(target),
        };
        let precondition = if dice.percent(10) {
            Precondition::IfMatch("stale".into())
        } else {
            Precondition::None
        };
        Step {
            epk: Epk::of(definition.partition_key(), &partition_key(key)),
            key: partition_key(key),
            precondition,
            directive: IndexingDirective::of_code(dice.roll(3) as u8).unwrap_or_default(),
            action,
        }
    }
}

impl Core {
    fn decide_all(&mut self, snapshot: &dyn Snapshot, commands: &[Command], now: Timestamp) -> (Vec<Staged>, usize) {
        let identity = Identity::new(ResourceId::container(&ResourceId::database(1), 1));
        let mut overlay = Overlay::new(snapshot);
        let (mut position, mut staged, mut refused) = (snapshot.position(), Vec::new(), 0);
        let mut definition = IndexedDefinition::new(self.definition.clone());
        for command in commands {
            let context = Context {
                now,
                lsn: position.lsn.next(),
                partition: PartitionId(self.id.0 as u32),
                identity: &identity,
                definition: &definition,
                full: &FullKeys::default(),
            };
            let operations = match decide(&overlay, command, &context) {
                Ok(decision) if !decision.operations.is_empty() => decision.operations,
                _ => {
                    refused += 1;
                    continue;
                }
            };
            let transaction = Arc::new(Transaction::following(position, now, operations));
            let writes = project(Some(&definition), &overlay, &transaction).expect("what was decided can be projected");
            overlay.apply(writes.iter().cloned());
            position = transaction.position();
            if let Command::Define { definition: stored, .. } = command {
                definition = IndexedDefinition::from_stored(stored).expect("a definition that was made here");
            }
            staged.push(Staged { transaction, writes });
        }
        (staged, refused)
    }
}

fn definition(ttl: Option<i32>) -> ContainerDefinition {
    let ttl = ttl.map(|ttl| format!(r#","defaultTtl":{ttl}"#)).unwrap_or_default();
    let text = format!(
        r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},"uniqueKeyPolicy":{{"uniqueKeys":[{{"paths":["/email"]}}]}}{ttl}}}"#
    );
    let body = json::parse_value(text.as_bytes()).expect("the definition is JSON");
    ContainerDefinition::create(&body).expect("the definition is valid")
}

fn partition_key(key: &str) -> PartitionKey {
    PartitionKey::parse(&format!("[{key:?}]")).expect("a string is a key")
}

fn kind<T>(result: &Result<T, StorageError>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(StorageError::Unknown(_)) => "unknown",
        Err(StorageError::Full) => "full",
        Err(StorageError::Unavailable(_)) => "unavailable",
        Err(StorageError::Fenced { .. }) => "fenced",
        Err(StorageError::Trimmed { .. }) => "trimmed",
        Err(StorageError::Corrupt(_)) => "corrupt",
    }
}
