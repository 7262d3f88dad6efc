//! Who may append to a log, and where: the checks every implementation makes before it accepts anything.
//!
//! A handle remembers the epoch under which it was opened; a higher owner makes it powerless for good.

use orrery_model::{Epoch, Position};
use orrery_partition::storage::{Result, Role, Staged, StorageError};

/// What a handle was given at open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    role: Role,
    /// The highest owner known when the handle was opened; its own epoch when it owns.
    epoch: Epoch,
}

impl Claim {
    /// A claim on a log that stands at `position` and was last owned in `owner`; `Fenced` when it comes too late.
    pub(crate) fn new(role: Role, owner: Epoch, position: Position) -> Result<Claim> {
        match role {
            Role::Follow => Ok(Claim { role, epoch: owner }),
            Role::Own { epoch } if epoch >= owner && epoch >= position.epoch => Ok(Claim { role, epoch }),
            Role::Own { .. } => Err(StorageError::Fenced { actual: position }),
        }
    }

    /// The owner of the log once this claim is made.
    pub(crate) fn owner(&self, before: Epoch) -> Epoch {
        match self.role {
            Role::Follow => before,
            Role::Own { epoch } => epoch,
        }
    }

    /// `Fenced` when a later owner has taken the log, or has written to it from elsewhere.
    pub(crate) fn check(&self, owner: Epoch, position: Position) -> Result<()> {
        let overtaken = matches!(self.role, Role::Own { epoch } if epoch < position.epoch);
        if self.epoch < owner || overtaken {
            return Err(StorageError::Fenced { actual: position });
        }
        Ok(())
    }
}

/// Do the transactions follow `expected` and each other, and are they what their hashes say?
pub(crate) fn check_chain(expected: Position, staged: &[Staged]) -> Result<()> {
    let mut previous = expected;
    for Staged { transaction, .. } in staged {
        if !transaction.follows(previous) {
            let problem = format!("transaction {} does not follow {}", transaction.lsn, previous.lsn);
            return Err(StorageError::Corrupt(problem));
        }
        previous = transaction.position();
    }
    Ok(())
}
