//! The one thread that writes: it takes everything waiting, makes it durable with one sync, shows it, and answers.
//!
//! Invariant: durable in the log, then visible in the view, then `head`, then the answer. A group holds at most one record
//! per log, so every record is checked against where its log really stands.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use orrery_model::{LogId, Position};
use orrery_partition::storage::{Health, Project, Result, Role, StorageError};

use super::Shared;
use super::catalog::{Location, LogState};
use super::effect::Effect;
use super::keeper::Ticket;
use super::layers::{BENEATH_MAX, Layers};
use super::queue::{Answer, Append, Command};
use super::record::{Record, ViewId};
use super::segments::{Segments, WriteError, Written};
use super::view::{Batch, LogMeta};
use crate::fence::Claim;
use crate::frame::{GroupWriter, Sequence};

/// A group is closed when it has grown to this.
const GROUP_BYTES_MAX: usize = 4 << 20;

pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) segments: Segments,
    pub(super) project: Arc<dyn Project>,
    /// The last group that is in the view.
    pub(super) applied: Sequence,
    pub(super) next_view: ViewId,
    pub(super) seeding: BTreeSet<LogId>,
    /// Dropped views that still have entries, with how far they have been swept.
    pub(super) sweeps: VecDeque<(ViewId, Option<Bytes>)>,
    /// Log written since the view was last sealed.
    pub(super) unsealed_log_bytes: u64,
    pub(super) group: PendingGroup,
    /// Held as long as the files are ours.
    pub(super) lock_file: File,
}

/// Records gathered for the next write.
#[derive(Default)]
pub(super) struct PendingGroup {
    writer: Option<GroupWriter>,
    writes: Batch,
    effects: BTreeMap<LogId, (Effect, Reply)>,
}

/// Who waits for a record.
enum Reply {
    Nobody,
    Done(Answer<()>),
    Branched(Answer<bool>),
    Opened(Claim, Answer<(Arc<LogState>, Claim)>),
}

impl Reply {
    fn send(self, effect: &Effect, result: Result<()>) {
        // Whoever asked may have gone away; the work is done all the same.
        match self {
            Reply::Nobody => {}
            Reply::Done(answer) => drop(answer.send(result)),
            Reply::Branched(answer) => drop(answer.send(result.map(|()| true))),
            Reply::Opened(claim, answer) => {
                let (Effect::Began { state } | Effect::Owned { state, .. }) = effect else {
                    return;
                };
                drop(answer.send(result.map(|()| (state.clone(), claim))));
            }
        }
    }
}

impl Committer {
    /// Works until the store is closed or given up.
    pub(super) fn run(mut self) {
        loop {
            let mut commands = self.shared.queue.take(self.sweeps.is_empty());
            let refusal = self.refusal();
            while let Some(command) = commands.pop_front() {
                match command {
                    Command::Stop => return self.leave(commands, None),
                    Command::Close { answer } => return self.leave(commands, Some(answer)),
                    command => self.handle(command, refusal.as_ref()),
                }
            }
            self.commit();
            self.sweep();
        }
    }

    /// Finishes what was asked before, refuses what was asked after. Makes the next open quick when someone waits for it.
    fn leave(mut self, mut rest: VecDeque<Command>, closing: Option<Answer<()>>) {
        self.commit();
        let result = if closing.is_some() { self.flush_all() } else { Ok(()) };
        self.shared.set_closed();
        rest.extend(self.shared.queue.take(false));
        let refusal = self.refusal();
        for command in rest {
            match command {
                Command::Stop => {}
                Command::Close { answer } => drop(answer.send(result.clone())),
                command => self.handle(command, refusal.as_ref()),
            }
        }
        self.end();
        if let Some(answer) = closing {
            drop(answer.send(result));
        }
    }

    /// Why nothing may be written now.
    fn refusal(&self) -> Option<StorageError> {
        match self.shared.health() {
            Health::Writable => self.shared.keeper.wait_for_room().err(),
            Health::Full => {
                self.shared.ails.notify_waiters();
                Some(StorageError::Full)
            }
            Health::ReadOnly(why) => Some(StorageError::Unavailable(why)),
            Health::Closed => Some(StorageError::Unavailable("the store is closed".into())),
        }
    }

    fn handle(&mut self, command: Command, refusal: Option<&StorageError>) {
        match command {
            Command::Append(append) => self.append(append, refusal),
            Command::Open { log, role, answer } => self.open(log, role, answer, refusal),
            Command::Drop { log, answer } => self.drop_log(log, answer, refusal),
            Command::SeedFinish {
                log,
                view,
                position,
                answer,
            } => {
                self.finish_seed(log, view, position, answer, refusal);
            }
            other => {
                self.commit();
                self.handle_alone(other, refusal);
            }
        }
    }

    /// Commands that write no record.
    fn handle_alone(&mut self, command: Command, refusal: Option<&StorageError>) {
        match command {
            Command::Branch { from, to, answer } => self.branch(from, to, answer, refusal),
            Command::Seed { log, answer } => drop(answer.send(self.begin_seed(log, refusal))),
            Command::SeedWrite { writes, answer } => {
                let result = refusal.cloned().map_or(Ok(()), Err);
                if result.is_ok() {
                    self.write_view(writes);
                }
                drop(answer.send(result));
            }
            Command::SeedAbort { log, view } => {
                self.seeding.remove(&log);
                self.shared.keeper.drop_tables(view);
            }
            Command::Checkpoint { answer } => drop(answer.send(Ok(self.seal()))),
            Command::Tidy => self.tidy(),
            Command::Sweep { view } => self.sweeps.push_back((view, None)),
            Command::Reopen { answer } => drop(answer.send(self.reopen())),
            _ => unreachable!("handled before"),
        }
    }

    fn append(&mut self, append: Append, refusal: Option<&StorageError>) {
        let Append {
            state,
            claim,
            expected,
            last,
            body,
            view,
            writes,
            answer,
        } = append;
        self.prepare(state.id);
        let checked = check_append(&state, claim, expected);
        let refused = || self.current_refusal(refusal).map_or(Ok(()), Err);
        if let Err(error) = checked.and_then(|()| refused()) {
            return drop(answer.send(Err(error)));
        }
        let writer = self.group.writer.get_or_insert_with(GroupWriter::new);
        let offset = writer.push(Record::TRANSACTIONS, state.id.0, &body);
        let layers = state.layers();
        self.group.writes.append(match view == layers.own {
            true => writes,
            false => writes.moved_to(&layers),
        });
        // Segment and sequence are known once the group is written.
        let location = Location {
            last: last.lsn,
            sequence: 0,
            segment: 0,
            offset,
            length: body.len() as u32,
        };
        let effect = Effect::Appended {
            state,
            previous: expected.lsn,
            last,
            location,
        };
        self.group.effects.insert(effect.log(), (effect, Reply::Done(answer)));
    }

    fn open(&mut self, log: LogId, role: Role, answer: Answer<(Arc<LogState>, Claim)>, refusal: Option<&StorageError>) {
        self.prepare(log);
        match self.decide_open(log, role) {
            Ok((state, claim, None)) => drop(answer.send(Ok((state, claim)))),
            Ok((state, claim, Some(record))) => {
                let effect = match record {
                    Record::Owned { epoch } => Effect::Owned { state, epoch },
                    _ => Effect::Began { state },
                };
                self.push_control(effect, &record, Reply::Opened(claim, answer), refusal);
            }
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    /// The log as it will be, the claim on it, and the record that must be written for that.
    fn decide_open(&mut self, log: LogId, role: Role) -> Result<(Arc<LogState>, Claim, Option<Record>)> {
        let Some(state) = self.shared.catalog.get(log) else {
            self.check_not_seeding(log)?;
            let claim = Claim::new(role, Default::default(), Position::default())?;
            let meta = LogMeta {
                layers: Layers::single(self.new_view()),
                owner: claim.owner(Default::default()),
                position: Position::default(),
            };
            let record = Record::Created {
                view: meta.layers.own,
                owner: meta.owner,
            };
            return Ok((Arc::new(LogState::new(log, meta)), claim, Some(record)));
        };
        let owner = state.lock().owner;
        let claim = Claim::new(role, owner, state.position())?;
        let epoch = claim.owner(owner);
        let record = (epoch != owner).then_some(Record::Owned { epoch });
        Ok((state, claim, record))
    }

    fn drop_log(&mut self, log: LogId, answer: Answer<()>, refusal: Option<&StorageError>) {
        self.prepare(log);
        match self.shared.catalog.get(log) {
            None => drop(answer.send(Ok(()))),
            Some(state) => {
                // Dropping gives space back, so a full disk is no reason to refuse it.
                let refusal = refusal.filter(|refusal| **refusal != StorageError::Full);
                let reply = Reply::Done(answer);
                self.push_control(Effect::Dropped { state }, &Record::Dropped, reply, refusal);
            }
        }
    }

    /// Makes a log of what another one shows. Both go on above what they share; one that has written nothing since it was
    /// branched itself stays where it is, so that a log that is only branched from stands on no more views each time.
    fn branch(&mut self, from: LogId, to: LogId, answer: Answer<bool>, refusal: Option<&StorageError>) {
        let (source, is_unwritten) = match self.check_branch(from, to) {
            Ok(found) => found,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let layers = source.layers();
        let beneath: Vec<ViewId> = layers.all().skip(usize::from(is_unwritten)).collect();
        if beneath.len() > BENEATH_MAX {
            return drop(answer.send(Ok(false)));
        }
        let position = source.position();
        if !is_unwritten {
            let layers = Layers::above(self.new_view(), &beneath);
            let record = Record::Rebased { layers: layers.clone() };
            let state = source;
            self.push_control(Effect::Rebased { state, layers }, &record, Reply::Nobody, refusal);
        }
        let layers = Layers::above(self.new_view(), &beneath);
        let meta = LogMeta {
            layers: layers.clone(),
            owner: Default::default(),
            position,
        };
        let state = Arc::new(LogState::new(to, meta));
        let record = Record::Branched { layers, position };
        self.push_control(Effect::Began { state }, &record, Reply::Branched(answer), refusal);
        self.commit();
    }

    /// The log to branch from, and whether it stands on others and has nothing of its own.
    fn check_branch(&self, from: LogId, to: LogId) -> Result<(Arc<LogState>, bool)> {
        if let Some(state) = self.shared.catalog.get(to) {
            return Err(StorageError::Fenced {
                actual: state.position(),
            });
        }
        self.check_not_seeding(to)?;
        let missing = || StorageError::Unavailable(format!("log {from} does not exist"));
        let source = self.shared.catalog.get(from).ok_or_else(missing)?;
        let layers = source.layers();
        let is_unwritten = !layers.beneath().is_empty() && self.shared.view.keys(layers.own, None, 1)?.is_empty();
        Ok((source, is_unwritten))
    }

    fn begin_seed(&mut self, log: LogId, refusal: Option<&StorageError>) -> Result<ViewId> {
        refusal.cloned().map_or(Ok(()), Err)?;
        if let Some(state) = self.shared.catalog.get(log) {
            return Err(StorageError::Fenced {
                actual: state.position(),
            });
        }
        self.check_not_seeding(log)?;
        self.seeding.insert(log);
        Ok(self.new_view())
    }

    fn finish_seed(
        &mut self,
        log: LogId,
        view: ViewId,
        position: Position,
        answer: Answer<()>,
        refusal: Option<&StorageError>,
    ) {
        self.prepare(log);
        let state = Arc::new(LogState::new(
            log,
            LogMeta {
                layers: Layers::single(view),
                owner: Default::default(),
                position,
            },
        ));
        let record = Record::Seeded { view, position };
        self.push_control(Effect::Began { state }, &record, Reply::Done(answer), refusal);
    }

    fn check_not_seeding(&self, log: LogId) -> Result<()> {
        if self.seeding.contains(&log) {
            return Err(StorageError::Unavailable(format!("log {log} is being seeded")));
        }
        Ok(())
    }

    fn new_view(&mut self) -> ViewId {
        let view = self.next_view;
        self.next_view = ViewId(view.0 + 1);
        view
    }

    /// Makes sure that the pending group has no record of this log and is not too large.
    fn prepare(&mut self, log: LogId) {
        let is_large = self
            .group
            .writer
            .as_ref()
            .is_some_and(|writer| writer.size_bytes() >= GROUP_BYTES_MAX);
        if is_large || self.group.effects.contains_key(&log) {
            self.commit();
        }
    }

    fn push_control(&mut self, effect: Effect, record: &Record, reply: Reply, refusal: Option<&StorageError>) {
        if let Some(refusal) = self.current_refusal(refusal) {
            return reply.send(&effect, Err(refusal));
        }
        let (kind, body) = record.encode_control();
        self.group
            .writer
            .get_or_insert_with(GroupWriter::new)
            .push(kind, effect.log().0, &body);
        self.group.effects.insert(effect.log(), (effect, reply));
    }

    /// A refusal known before this batch of commands, or one that came up within it.
    fn current_refusal(&self, refusal: Option<&StorageError>) -> Option<StorageError> {
        refusal
            .cloned()
            .or_else(|| self.shared.read_only().map(StorageError::Unavailable))
    }

    /// Writes the pending group, applies and shows it, and answers.
    pub(super) fn commit(&mut self) {
        let group = std::mem::take(&mut self.group);
        let Some(mut writer) = group.writer else { return };
        let begun = Instant::now();
        let error = match self.segments.write(&mut writer) {
            Ok(written) => {
                let (n_records, bytes) = (group.effects.len(), writer.size_bytes());
                self.shared.stats.group(n_records, bytes, begun.elapsed());
                return self.show(group.writes, group.effects, written, bytes);
            }
            Err(WriteError::Full) => StorageError::Full,
            Err(WriteError::Refused(why)) => {
                self.shared.set_read_only(why.clone());
                StorageError::Unavailable(why)
            }
            Err(WriteError::Unknown(why)) => {
                self.shared.set_read_only(why.clone());
                StorageError::Unknown(why)
            }
        };
        for (effect, reply) in group.effects.into_values() {
            reply.send(&effect, Err(error.clone()));
        }
    }

    fn show(
        &mut self,
        mut batch: Batch,
        mut effects: BTreeMap<LogId, (Effect, Reply)>,
        written: Written,
        size_bytes: usize,
    ) {
        for (effect, _) in effects.values_mut() {
            if let Effect::Appended { location, .. } = effect {
                location.sequence = written.sequence;
                location.segment = written.segment;
                location.offset += written.offset;
            }
            effect.stage(&mut batch);
        }
        batch.applied(written.sequence);
        let sequence = self.shared.view.write(batch);
        self.shared.view.publish(sequence, || {
            effects
                .values()
                .for_each(|(effect, _)| effect.show(&self.shared.catalog));
        });
        self.applied = written.sequence;
        self.unsealed_log_bytes += size_bytes as u64;
        self.shared.set_log_bytes(self.segments.size_bytes());
        for (effect, reply) in effects.into_values() {
            self.after(&effect);
            reply.send(&effect, Ok(()));
        }
        self.seal_when_large();
    }

    fn after(&mut self, effect: &Effect) {
        match effect {
            Effect::Began { state } => drop(self.seeding.remove(&state.id)),
            Effect::Dropped { state } => {
                let (layers, logs) = (state.layers(), self.shared.catalog.all());
                let is_unused = |view: &ViewId| !logs.iter().any(|log| log.layers().contains(*view));
                self.shared.keeper.drop_tables(layers.own);
                let unused = layers.beneath().iter().copied().filter(is_unused);
                unused.for_each(|view| self.shared.keeper.drop_tables(view));
            }
            _ => {}
        }
    }

    /// Writes to the view what no log holds: seeds before they are finished, and the sweeping of leftovers.
    pub(super) fn write_view(&mut self, batch: Batch) {
        let sequence = self.shared.view.write(batch);
        self.shared.view.publish(sequence, || ());
        self.seal_when_large();
    }

    fn seal_when_large(&mut self) {
        let settings = &self.shared.settings;
        if self.shared.view.unsealed_bytes() >= settings.write_buffer_bytes
            || self.unsealed_log_bytes >= settings.replay_bytes_max
        {
            self.seal();
        }
    }

    pub(super) fn seal(&mut self) -> Ticket {
        self.unsealed_log_bytes = 0;
        self.shared.keeper.seal(self.applied)
    }

    fn end(&mut self) {
        self.shared.set_closed();
        self.shared.queue.close();
        self.shared.keeper.stop();
        if let Err(error) = self.lock_file.unlock() {
            tracing::warn!(%error, "cannot release the store's lock");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        // Also after a panic: nobody may wait for an answer that never comes.
        self.end();
    }
}

fn check_append(state: &LogState, claim: Claim, expected: Position) -> Result<()> {
    let content = state.lock();
    if content.is_dropped {
        return Err(StorageError::Fenced {
            actual: Position::default(),
        });
    }
    let position = state.position();
    claim.check(content.owner, position)?;
    if position != expected {
        return Err(StorageError::Fenced { actual: position });
    }
    Ok(())
}
