//! What a command does, decided on an overlay: the operations of its transaction, or the error its sender gets.
//!
//! Precondition, uniqueness and write are one decision: nothing can come between them, because a partition has one
//! writer and every decision of a batch sees the effects of those before it.

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::limits::BATCH_RESULT_BYTES_MAX;
use orrery_model::log::{DeleteItem, Operation, PutItem, RenamedItem};
use orrery_model::{Charge, ContainerDefinition, Epk, Error, Etag, Lsn, PartitionId, Result, Status, Timestamp};
use orrery_query::Allowance;

use crate::command::{Action, Command, Decision, Effect, Step, StepOutcome, StepResult, Target};
use crate::draft::{Identity, ItemDraft};
use crate::expiry::is_expired;
use crate::keys::{self, EpkForm};
use crate::overlay::Overlay;
use crate::project::{self, unique_hashes};
use crate::quota::FullKeys;
use crate::state::PartitionState;
use crate::storage::{StorageError, View, ViewWrite};
use crate::stored::StoredItem;

mod patch;
mod sweep;

/// Everything a decision depends on besides the view and the command.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub now: Timestamp,
    /// The LSN the transaction will have if this command changes anything.
    pub lsn: Lsn,
    pub partition: PartitionId,
    pub identity: &'a Identity,
    pub definition: &'a ContainerDefinition,
    /// Logical partitions that may not grow.
    pub full: &'a FullKeys,
}

impl Context<'_> {
    fn form(&self) -> EpkForm {
        EpkForm::of(self.definition.partition_key())
    }

    fn etag(&self, index: usize) -> Etag {
        Etag::of(self.identity.container.own_bytes(), self.partition, self.lsn, index)
    }
}

/// Decides one command.
pub fn decide(view: &dyn View, command: &Command, context: &Context<'_>) -> Result<Decision> {
    let state = PartitionState::load(view).map_err(unreadable)?;
    if state.as_ref().is_some_and(|state| !state.children.is_empty()) {
        return Err(Error::new(
            Status::PARTITION_GONE,
            "The requested partition has been split or merged.",
        ));
    }
    match command {
        Command::Item(step) => decide_one(view, step, context),
        Command::Batch(steps) => decide_batch(view, steps, context),
        Command::DeleteKey { epk, limit } => sweep::delete_key(view, epk, *limit, context),
        Command::Purge { candidates } => sweep::purge(view, candidates, context),
        Command::TrimHistory { limit } => sweep::trim_history(view, *limit, context),
        Command::Define { version, definition } => Ok(Decision {
            operations: vec![Operation::Defined {
                version: *version,
                definition: definition.clone(),
            }],
            ..Decision::default()
        }),
        Command::Reindex { n_items_max } => Ok(match state.is_some_and(|state| !state.index.is_ready()) {
            true => Decision {
                operations: vec![Operation::Reindexed {
                    n_items_max: *n_items_max,
                }],
                more: true,
                ..Decision::default()
            },
            false => Decision::default(),
        }),
        Command::RaiseVersion => Ok(Decision {
            operations: vec![Operation::EpochStarted {
                previous: Lsn(context.lsn.0.saturating_sub(1)),
            }],
            ..Decision::default()
        }),
        Command::Seal { children } => Ok(Decision {
            operations: vec![Operation::Sealed {
                children: children.clone(),
            }],
            ..Decision::default()
        }),
    }
}

fn decide_one(view: &dyn View, step: &Step, context: &Context<'_>) -> Result<Decision> {
    let (operations, outcome, charge) = decide_step(view, step, context, 0, &mut Allowance::default())?;
    Ok(Decision {
        operations,
        results: vec![StepResult {
            outcome: Ok(outcome),
            charge,
        }],
        more: false,
    })
}

/// Steps see the effects of the steps before them. The first that fails undoes all.
fn decide_batch(view: &dyn View, steps: &[Step], context: &Context<'_>) -> Result<Decision> {
    let mut overlay = Overlay::new(view);
    let mut decision = Decision::default();
    let mut allowance = Allowance::default();
    let mut bytes = 0;
    for (n_done, step) in steps.iter().enumerate() {
        match decide_step(&overlay, step, context, decision.operations.len(), &mut allowance) {
            Ok((operations, outcome, charge)) => {
                let given = outcome.body.as_ref().map_or(0, Bytes::len);
                let first_index = decision.operations.len();
                let writes = project::visible(
                    context.definition,
                    &overlay,
                    &operations,
                    context.lsn,
                    context.now,
                    first_index,
                );
                let writes = writes.map_err(unreadable)?;
                bytes += given.max(n_bytes(&writes));
                if bytes > BATCH_RESULT_BYTES_MAX {
                    return Ok(failed_batch(steps.len(), n_done, too_large()));
                }
                overlay.apply(writes);
                decision.operations.extend(operations);
                decision.results.push(StepResult {
                    outcome: Ok(outcome),
                    charge,
                });
            }
            Err(error) => return Ok(failed_batch(steps.len(), n_done, error)),
        }
    }
    Ok(decision)
}

fn n_bytes(writes: &[ViewWrite]) -> usize {
    let of_one = |(key, value): &ViewWrite| key.len() + value.as_ref().map_or(0, Bytes::len);
    writes.iter().map(of_one).sum()
}

fn too_large() -> Error {
    Error::new(
        Status::TOO_LARGE,
        "The operations of the batch give or write more than fits into one.",
    )
}

fn failed_batch(n_steps: usize, failed: usize, error: Error) -> Decision {
    let mut error = Some(error);
    let result = |index| {
        let error = if index == failed { error.take() } else { None };
        let error =
            error.unwrap_or_else(|| Error::new(Status::FAILED_DEPENDENCY, "Another operation of the batch failed."));
        StepResult {
            outcome: Err(error),
            charge: Charge::read_nothing(),
        }
    };
    Decision {
        operations: Vec::new(),
        results: (0..n_steps).map(result).collect(),
        more: false,
    }
}

type Decided = (Vec<Operation>, StepOutcome, Charge);

fn decide_step(
    view: &dyn View,
    step: &Step,
    context: &Context<'_>,
    first_index: usize,
    allowance: &mut Allowance,
) -> Result<Decided> {
    let writer = Writer {
        view,
        step,
        context,
        first_index,
    };
    match &step.action {
        Action::Create(draft) => writer.create(draft),
        Action::Upsert(draft) => writer.upsert(draft),
        Action::Read(target) => writer.read(target),
        Action::Replace(target, draft) => writer.replace(target, draft),
        Action::Patch(target, patch) => patch::decide(&writer, target, patch, allowance),
        Action::Delete(target) => writer.delete(target),
    }
}

/// One step and what it needs.
struct Writer<'a> {
    view: &'a dyn View,
    step: &'a Step,
    context: &'a Context<'a>,
    first_index: usize,
}

/// An item as it was found.
struct Current {
    number: u64,
    item: StoredItem,
    expired: bool,
}

impl Writer<'_> {
    fn create(&self, draft: &ItemDraft) -> Result<Decided> {
        let mut operations = Vec::new();
        match self.find_id(&draft.id)? {
            Some(current) if !current.expired => Err(already_exists()),
            Some(expired) => {
                operations.push(self.removal(expired.number, &draft.id));
                self.put(operations, draft, None)
            }
            None => self.put(operations, draft, None),
        }
    }

    fn upsert(&self, draft: &ItemDraft) -> Result<Decided> {
        match self.find_id(&draft.id)? {
            Some(current) if !current.expired => {
                self.check_precondition(&current)?;
                self.put(Vec::new(), draft, Some(&current))
            }
            _ => self.create(draft),
        }
    }

    fn replace(&self, target: &Target, draft: &ItemDraft) -> Result<Decided> {
        let current = self.find(target)?;
        self.check_precondition(&current)?;
        let renaming = self.renaming(&current, draft)?;
        self.put(renaming, draft, Some(&current))
    }

    /// A replace may give an item another id, if no other item of the logical partition has it. An expired one makes room.
    fn renaming(&self, current: &Current, draft: &ItemDraft) -> Result<Vec<Operation>> {
        let mut operations = Vec::new();
        if current.item.id == draft.id.as_bytes() {
            return Ok(operations);
        }
        match self.find_id(&draft.id)? {
            Some(other) if !other.expired => return Err(already_exists()),
            Some(expired) => operations.push(self.removal(expired.number, &draft.id)),
            None => {}
        }
        operations.push(Operation::Renamed(RenamedItem {
            epk: self.step.epk.clone(),
            from: id_text(&current.item)?,
            number: current.number,
        }));
        Ok(operations)
    }

    fn delete(&self, target: &Target) -> Result<Decided> {
        let current = self.find(target)?;
        self.check_precondition(&current)?;
        let delete = DeleteItem {
            epk: self.step.epk.clone(),
            id: id_text(&current.item)?,
            number: current.number,
            expired: false,
        };
        let outcome = StepOutcome {
            effect: Effect::Deleted,
            etag: None,
            body: None,
            lsn: self.context.lsn,
        };
        let charge = Charge::delete(current.item.body.len());
        Ok((vec![Operation::Delete(delete)], outcome, charge))
    }

    fn read(&self, target: &Target) -> Result<Decided> {
        let current = self.find(target)?;
        let etag = Some(current.item.etag);
        if let Precondition::IfMatch(_) = self.step.precondition {
            self.check_precondition(&current)?;
        }
        let not_modified = !self.step.precondition.holds(Some(&current.item.etag));
        let effect = if not_modified {
            Effect::NotModified
        } else {
            Effect::Current
        };
        let charge = Charge::read(current.item.body.len());
        let body = (!not_modified).then_some(current.item.body);
        Ok((
            Vec::new(),
            StepOutcome {
                effect,
                etag,
                body,
                lsn: current.item.lsn,
            },
            charge,
        ))
    }

    /// Writes a version: a new item, or the next version of `before`.
    fn put(&self, mut operations: Vec<Operation>, draft: &ItemDraft, before: Option<&Current>) -> Result<Decided> {
        self.check_unique(&mut operations, draft, before)?;
        let number = match before {
            Some(current) => current.number,
            None => PartitionState::load(self.view)
                .map_err(unreadable)?
                .ok_or_else(not_open)?
                .next_number(),
        };
        let etag = self.context.etag(self.first_index + operations.len());
        let body = draft.finish(self.context.identity, number, etag, self.context.now);
        let size_before = before.map(|current| current.item.body.len());
        self.context.full.check(&self.step.epk, body.len(), size_before)?;
        operations.push(Operation::Put(PutItem {
            epk: self.step.epk.clone(),
            id: draft.id.clone(),
            number,
            etag,
            ttl: draft.ttl,
            directive: self.step.directive,
            body: body.clone(),
        }));
        let effect = if before.is_some() {
            Effect::Current
        } else {
            Effect::Created
        };
        let n_indexed = match self.step.directive.is_indexed() {
            true => project::n_leaves(&draft.value),
            false => 0,
        };
        let charge = Charge::write(body.len(), n_indexed, 1 + u64::from(before.is_some()));
        let outcome = StepOutcome {
            effect,
            etag: Some(etag),
            body: Some(body),
            lsn: self.context.lsn,
        };
        Ok((operations, outcome, charge))
    }

    /// Refuses a value that another item of the logical partition has. An expired owner makes room.
    fn check_unique(&self, operations: &mut Vec<Operation>, draft: &ItemDraft, before: Option<&Current>) -> Result<()> {
        for (constraint, values) in unique_hashes(self.context.definition, &draft.value) {
            let key = keys::unique(self.context.form(), &self.step.epk, constraint, values);
            let Some(owner) = self
                .view
                .get(&key)
                .map_err(unreadable)?
                .and_then(|bytes| number(&bytes))
            else {
                continue;
            };
            if before.is_some_and(|current| current.number == owner) || removes(operations, owner) {
                continue;
            }
            match self.find_number(owner)? {
                Some(current) if !current.expired => {
                    return Err(Error::new(Status::CONFLICT, "Unique index constraint violation."));
                }
                Some(current) => operations.push(self.removal(owner, &id_text(&current.item)?)),
                None => {}
            }
        }
        Ok(())
    }

    fn removal(&self, number: u64, id: &str) -> Operation {
        Operation::Delete(DeleteItem {
            epk: self.step.epk.clone(),
            id: id.to_owned(),
            number,
            expired: true,
        })
    }

    fn check_precondition(&self, current: &Current) -> Result<()> {
        if self.step.precondition.holds(Some(&current.item.etag)) {
            return Ok(());
        }
        Err(precondition_failed())
    }

    /// The item a step is about; an expired one is absent.
    fn find(&self, target: &Target) -> Result<Current> {
        let found = match target {
            Target::Id(id) => self.find_id(id)?,
            Target::Number(number) => self.find_number(*number)?,
        };
        found.filter(|current| !current.expired).ok_or_else(not_found)
    }

    fn find_id(&self, id: &str) -> Result<Option<Current>> {
        let key = keys::id(self.context.form(), &self.step.epk, id);
        match self
            .view
            .get(&key)
            .map_err(unreadable)?
            .and_then(|bytes| number(&bytes))
        {
            Some(number) => self.find_number(number),
            None => Ok(None),
        }
    }

    fn find_number(&self, number: u64) -> Result<Option<Current>> {
        load(self.view, self.context, &self.step.epk, number)
    }
}

fn load(view: &dyn View, context: &Context<'_>, epk: &Epk, number: u64) -> Result<Option<Current>> {
    let key = keys::item(context.form(), epk, number);
    let Some(bytes) = view.get(&key).map_err(unreadable)? else {
        return Ok(None);
    };
    let item = StoredItem::decode(&bytes).map_err(unreadable)?;
    let expired = is_expired(context.definition, &item, context.now);
    Ok(Some(Current { number, item, expired }))
}

fn removes(operations: &[Operation], number: u64) -> bool {
    operations
        .iter()
        .any(|operation| matches!(operation, Operation::Delete(delete) if delete.number == number))
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

fn id_text(item: &StoredItem) -> Result<String> {
    String::from_utf8(item.id.to_vec()).map_err(|_| Error::new(Status::INTERNAL, "a stored id is not UTF-8"))
}

pub fn not_found() -> Error {
    Error::new(
        Status::NOT_FOUND,
        "Entity with the specified id does not exist in the system.",
    )
}

pub fn precondition_failed() -> Error {
    Error::new(
        Status::PRECONDITION_FAILED,
        "Operation cannot be performed because one of the specified precondition is not met.",
    )
}

fn already_exists() -> Error {
    Error::new(
        Status::CONFLICT,
        "Entity with the specified id already exists in the system.",
    )
}

fn not_open() -> Error {
    Error::new(Status::INTERNAL, "the partition has not been opened")
}

/// A view that cannot be read is our fault, never the client's.
pub fn unreadable(error: StorageError) -> Error {
    Error::new(Status::UNAVAILABLE, "The partition's storage cannot be read.").with_source(error)
}
