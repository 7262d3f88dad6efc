//! What can be asked of a partition's writer, and what it answers.

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::log::Operation;
use orrery_model::patch::Patch;
use orrery_model::{Charge, Epk, Error, Etag, IndexingDirective, Lsn, PartitionId, PartitionKey};

use crate::draft::ItemDraft;

/// One request to the writer.
#[derive(Clone, Debug)]
pub enum Command {
    Item(Step),
    /// All steps or none.
    Batch(Vec<Step>),
    /// Removes up to `limit` items of one logical partition.
    DeleteKey {
        epk: Epk,
        limit: usize,
    },
    /// Removes up to `limit` items whose time has run out.
    Purge {
        candidates: Vec<(Epk, u64)>,
    },
    /// Forgets up to about `limit` kept versions that have left the container's window.
    TrimHistory {
        limit: usize,
    },
    /// The container's definition changes.
    Define {
        version: u64,
        definition: Bytes,
    },
    /// Goes on applying a changed indexing policy, with so many items at most.
    Reindex {
        n_items_max: u32,
    },
    /// Session tokens given out before are superseded from here on.
    RaiseVersion,
    /// The partition ends; nothing is accepted after it.
    Seal {
        children: Vec<PartitionId>,
    },
}

/// One item operation, routed.
#[derive(Clone, Debug)]
pub struct Step {
    pub epk: Epk,
    pub key: PartitionKey,
    pub precondition: Precondition,
    /// Of what the action writes.
    pub directive: IndexingDirective,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub enum Action {
    Create(ItemDraft),
    Upsert(ItemDraft),
    Read(Target),
    Replace(Target, ItemDraft),
    Patch(Target, Patch),
    Delete(Target),
}

/// An item by its id, or by its number in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Id(String),
    Number(u64),
}

/// What a command does and answers. No operations: it changes nothing, and what it read stands.
#[derive(Debug, Default)]
pub struct Decision {
    pub operations: Vec<Operation>,
    pub results: Vec<StepResult>,
    /// Of [`Command::DeleteKey`] and [`Command::Reindex`]: items may be left.
    pub more: bool,
}

/// The result of one step.
#[derive(Debug)]
pub struct StepResult {
    pub outcome: Result<StepOutcome, Error>,
    pub charge: Charge,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    pub effect: Effect,
    pub etag: Option<Etag>,
    pub body: Option<Bytes>,
    /// LSN of the version this answer shows.
    pub lsn: Lsn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Created,
    /// Replaced, patched, or read.
    Current,
    Deleted,
    NotModified,
}
