//! How much a logical partition may hold: which ones of a partition hold that much already, and what that means for a write.

use std::collections::HashSet;
use std::ops::Bound;

use orrery_model::{Epk, Error, Result, Status};

use crate::keys::{self, EpkForm, KeySpace};
use crate::storage::{self, StorageError, View};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The logical partitions that may not grow any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullKeys {
    epks: HashSet<Epk>,
    bytes_max: u64,
}

impl FullKeys {
    /// Adds up what the items of each key take, and keeps the keys whose items take as much as is allowed. Reads the whole partition.
    pub fn count(view: &dyn View, form: EpkForm, bytes_max: u64) -> storage::Result<FullKeys> {
        let mut epks = HashSet::new();
        let mut current: Option<(Epk, u64)> = None;
        let mut close =
            |done: Option<(Epk, u64)>| epks.extend(done.filter(|(_, size)| *size >= bytes_max).map(|(epk, _)| epk));
        let (from, to) = keys::bounds(KeySpace::Item);
        for entry in view.scan(Bound::Included(&from), Bound::Excluded(&to), false) {
            let (key, value) = entry?;
            let (epk, _) = form
                .read(&key[1..])
                .ok_or_else(|| StorageError::Corrupt("an item's key is malformed".to_owned()))?;
            match &mut current {
                Some((of, size)) if *of == epk => *size += value.len() as u64,
                _ => close(current.replace((epk, value.len() as u64))),
            }
        }
        close(current);
        Ok(FullKeys { epks, bytes_max })
    }

    /// Refuses what would make a full logical partition larger.
    pub fn check(&self, epk: &Epk, size_bytes: usize, before: Option<usize>) -> Result<()> {
        let grows = before.is_none_or(|before| size_bytes > before);
        if !grows || !self.epks.contains(epk) {
            return Ok(());
        }
        let limit = match self.bytes_max {
            whole if whole.is_multiple_of(GIB) => format!("{} GB", whole / GIB),
            other => format!("{} MB", other / MIB),
        };
        let message = format!("Partition key reached maximum size of {limit}.");
        Err(Error::new(Status::LOGICAL_PARTITION_FULL, message))
    }
}
