//! Building the children of a split or merge: a copy of what the parents held, then rounds of what changed since, the last
//! of them while the parents' writers wait.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::id::ChainHash;
use orrery_model::log::{Opened, Operation, Transaction};
use orrery_model::{EpkRange, Epoch, Error, LogId, Lsn, PartitionId, Position, Result, Status};
use orrery_partition::IndexedDefinition;
use orrery_partition::command::Command;
use orrery_partition::decide::unreadable;
use orrery_partition::keys::{self, EpkForm};
use orrery_partition::project::{Projector, version_of_epoch};
use orrery_partition::reshard::{self, ChildView};
use orrery_partition::state::PartitionState;
use orrery_partition::storage::{Hold, Role, Seed, Snapshot};

use super::phases::{Phase, Steps};
use crate::catalogue::{ContainerEntry, ReshardRecord};
use crate::feed::blocking;
use crate::geo::roles::EpochStart;
use crate::node::{Node, append_transaction};
use crate::partition::{Held, Partition};

/// Entries copied between two looks at the world, at most, and the bytes after which no more are taken.
const CHUNK: usize = 2_000;
const CHUNK_BYTES: usize = 4 << 20;
/// Bytes of log read at a time.
const TAIL_BYTES: usize = 4 * 1024 * 1024;
/// Catch up without holding writers until so few transactions are left, or so many rounds were tried.
const TAIL_SMALL: u64 = 64;
const ROUNDS_MAX: usize = 8;

/// A parent while its children are built.
struct Source {
    partition: Arc<Partition>,
    snapshot: Arc<dyn Snapshot>,
    hold: Box<dyn Hold>,
}

/// A child while it is built.
struct Child {
    partition: PartitionId,
    log: LogId,
    range: EpkRange,
    state: PartitionState,
    seed: Box<dyn Seed>,
}

pub fn state_of(partition: &Partition) -> Result<PartitionState> {
    let state = PartitionState::load(&*partition.snapshot()?).map_err(unreadable)?;
    state.ok_or_else(|| Error::new(Status::INTERNAL, "a partition that serves has no state"))
}

pub fn is_sealed(partition: &Partition) -> Result<bool> {
    state_of(partition).map(|state| !state.children.is_empty())
}

/// Seeds and opens the children and seals the parents, whose writers stay held until the answer is dropped. With an `epoch`
/// the children begin in it, above everything that was ever given out.
pub async fn build(
    node: &Arc<Node>,
    entry: &Arc<ContainerEntry>,
    record: &ReshardRecord,
    epoch: Option<Epoch>,
    steps: Option<&Steps>,
) -> Result<Vec<Held>> {
    let mut sources = Vec::new();
    for parent in &record.parents {
        let range = entry
            .range(*parent)
            .ok_or_else(|| Error::new(Status::NOT_FOUND, "The partition is gone."))?;
        let partition = node.partition(range)?;
        let hold = partition.log.hold(partition.log.head().lsn);
        let snapshot = partition.snapshot()?;
        sources.push(Source {
            partition,
            snapshot,
            hold,
        });
    }
    let mut children = begin_children(node, record, &sources).await?;
    for source in &sources {
        for child in &mut children {
            copy(entry, source, child).await?;
        }
    }
    for _ in 0..ROUNDS_MAX {
        let behind: u64 = sources
            .iter()
            .map(|source| source.partition.log.head().lsn.0 - source.snapshot.position().lsn.0)
            .sum();
        if behind <= TAIL_SMALL {
            break;
        }
        catch_up(entry, &mut sources, &mut children).await?;
    }
    super::stop_at(node, steps, Phase::Copied).await?;
    let mut held = Vec::new();
    for source in &sources {
        held.push(source.partition.hold().await?);
    }
    catch_up(entry, &mut sources, &mut children).await?;
    let ids = children.iter().map(|child| child.partition).collect();
    let seals = seal(&sources, &held, ids).await?;
    for child in children {
        open(node, entry, child, &seals, epoch).await?;
    }
    Ok(held)
}

async fn begin_children(node: &Node, record: &ReshardRecord, sources: &[Source]) -> Result<Vec<Child>> {
    let mut parents = Vec::new();
    for source in sources {
        parents.push(state_of(&source.partition)?);
    }
    let mut children = Vec::new();
    for (partition, log, range) in &record.children {
        let state = reshard::child_state(*partition, range.clone(), &parents);
        let seed = node.store.seed(*log).await.map_err(unreadable)?;
        children.push(Child {
            partition: *partition,
            log: *log,
            range: range.clone(),
            state,
            seed,
        });
    }
    Ok(children)
}

/// Copies what belongs to the child, chunk by chunk, off the reactor.
async fn copy(entry: &Arc<ContainerEntry>, source: &Source, child: &mut Child) -> Result<()> {
    let form = EpkForm::of(entry.definition.partition_key());
    let mut from: Option<Bytes> = None;
    loop {
        let (snapshot, range, start) = (Arc::clone(&source.snapshot), child.range.clone(), from.take());
        let mut state = child.state.clone();
        let (state, writes, last) = blocking(move || {
            let bound = start
                .as_ref()
                .map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_ref()));
            let (mut writes, mut last, mut n_bytes) = (Vec::new(), None, 0);
            for one in snapshot.scan(bound, Bound::Unbounded, false).take(CHUNK) {
                let (key, value) = one.map_err(unreadable)?;
                if reshard::belongs(form, &key, &value, &range) {
                    reshard::count(&mut state, &key, &value);
                    n_bytes += key.len() + value.len();
                    writes.push((key.clone(), Some(value)));
                }
                last = Some(key);
                if n_bytes >= CHUNK_BYTES {
                    break;
                }
            }
            Ok((state, writes, last))
        })
        .await?;
        child.state = state;
        child.seed.write(writes).await.map_err(unreadable)?;
        match last {
            Some(key) => from = Some(key),
            None => break,
        }
    }
    let mut writes = reshard::floors(&*source.snapshot, &child.range).map_err(unreadable)?;
    writes.push((keys::state(), Some(child.state.encode())));
    child.seed.write(writes).await.map_err(unreadable)
}

/// Brings the children from each source's snapshot to where the source stands now, which becomes its new snapshot.
async fn catch_up(entry: &Arc<ContainerEntry>, sources: &mut [Source], children: &mut [Child]) -> Result<()> {
    for source in sources {
        let target = source.partition.snapshot()?;
        let mut views: Vec<ChildView<'_>> = children
            .iter()
            .map(|child| ChildView::new(&*source.snapshot, &child.state))
            .collect();
        let definitions: Vec<Projector> = children.iter().map(|_| Projector::default()).collect();
        let mut after = source.snapshot.position().lsn;
        while after < target.position().lsn {
            let read = source
                .partition
                .log
                .read_log(after, TAIL_BYTES)
                .await
                .map_err(unreadable)?;
            let Some(last) = read.last() else { break };
            after = last.lsn;
            let read = read
                .iter()
                .filter(|transaction| transaction.lsn <= target.position().lsn);
            for transaction in read {
                for ((child, view), definitions) in children.iter().zip(&mut views).zip(&definitions) {
                    // As the parent was defined then, not as the container is now: versions are kept or not by it.
                    let definition = definitions.definition_in(view).map_err(unreadable)?;
                    let definition =
                        definition.unwrap_or_else(|| Arc::new(IndexedDefinition::new((*entry.definition).clone())));
                    let writes = reshard::tail(&definition, view, transaction, &child.range).map_err(unreadable)?;
                    view.apply(writes);
                }
            }
        }
        for (child, view) in children.iter_mut().zip(views) {
            child.state = PartitionState::load(&view)
                .map_err(unreadable)?
                .unwrap_or_else(|| child.state.clone());
            child.seed.write(view.into_writes()).await.map_err(unreadable)?;
        }
        source.hold.advance(target.position().lsn);
        source.snapshot = target;
    }
    Ok(())
}

/// The parents' last entries. A parent sealed before a crash stays as it is.
async fn seal(sources: &[Source], held: &[Held], children: Vec<PartitionId>) -> Result<Vec<(PartitionId, Position)>> {
    let mut seals = Vec::new();
    for (source, held) in sources.iter().zip(held) {
        if !is_sealed(&source.partition)? {
            held.command(Command::Seal {
                children: children.clone(),
            })
            .await?;
        }
        seals.push((source.partition.id, source.partition.log.head()));
    }
    Ok(seals)
}

/// Finishes a child's seed at the seals and appends its first own entry right above them.
async fn open(
    node: &Node,
    entry: &ContainerEntry,
    child: Child,
    seals: &[(PartitionId, Position)],
    epoch: Option<Epoch>,
) -> Result<()> {
    let base = after_seals(seals);
    let inherited = child.state.session_version;
    let (epoch, lsn, session_version) = match epoch.filter(|epoch| *epoch > base.epoch) {
        None => (base.epoch, base.lsn.next(), inherited),
        Some(epoch) => {
            let start = EpochStart::Above.lsn(base, epoch);
            (epoch, start, version_of_epoch(start).max(inherited + 1))
        }
    };
    let opened = Opened {
        partition: child.partition,
        range: child.range,
        parents: seals.to_vec(),
        session_version,
        definition_version: entry.definition_version,
        definition: entry.definition.to_stored().into(),
    };
    child.seed.finish(base).await.map_err(unreadable)?;
    let log = node
        .store
        .open(
            child.log,
            Role::Own {
                epoch: epoch.max(Epoch(1)),
            },
        )
        .await
        .map_err(unreadable)?;
    let first = Transaction::at_lsn(base, epoch, lsn, node.now(), vec![Operation::Opened(opened)]);
    append_transaction(&*log, first).await
}

/// Where a child begins: at its parent's seal, or above the highest of several, chained to all of them.
fn after_seals(seals: &[(PartitionId, Position)]) -> Position {
    match seals {
        [(_, only)] => *only,
        several => Position {
            epoch: several.iter().map(|(_, seal)| seal.epoch).max().unwrap_or_default(),
            lsn: several.iter().map(|(_, seal)| seal.lsn).max().unwrap_or(Lsn::ZERO),
            hash: several
                .iter()
                .fold(ChainHash::ZERO, |hash, (_, seal)| hash.chain(&seal.hash.0)),
        },
    }
}
