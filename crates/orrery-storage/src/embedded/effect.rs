//! What a record does to the view and to the catalog, the same when it is committed and when it is replayed.

use std::sync::Arc;

use orrery_model::{Epoch, LogId, Lsn, Position};

use super::catalog::{Catalog, Location, LogState};
use super::layers::Layers;
use super::view::{Batch, LogMeta};

/// The effect of one record.
#[derive(Debug)]
pub(super) enum Effect {
    Appended {
        state: Arc<LogState>,
        previous: Lsn,
        last: Position,
        location: Location,
    },
    Owned {
        state: Arc<LogState>,
        epoch: Epoch,
    },
    /// A log begins, empty or seeded.
    Began {
        state: Arc<LogState>,
    },
    /// A log goes on in another view.
    Rebased {
        state: Arc<LogState>,
        layers: Layers,
    },
    Dropped {
        state: Arc<LogState>,
    },
}

impl Effect {
    pub(super) fn log(&self) -> LogId {
        match self {
            Effect::Appended { state, .. }
            | Effect::Owned { state, .. }
            | Effect::Began { state }
            | Effect::Rebased { state, .. }
            | Effect::Dropped { state } => state.id,
        }
    }

    /// Adds what the view must remember about the log.
    pub(super) fn stage(&self, batch: &mut Batch) {
        match self {
            Effect::Appended { state, last, .. } => {
                let meta = LogMeta {
                    position: *last,
                    ..state.meta()
                };
                batch.log(state.id, Some(meta));
            }
            Effect::Owned { state, epoch } => {
                let meta = LogMeta {
                    owner: *epoch,
                    ..state.meta()
                };
                batch.log(state.id, Some(meta));
            }
            Effect::Rebased { state, layers } => {
                let meta = LogMeta {
                    layers: layers.clone(),
                    ..state.meta()
                };
                batch.log(state.id, Some(meta));
            }
            Effect::Began { state } => batch.log(state.id, Some(state.meta())),
            Effect::Dropped { state } => batch.log(state.id, None),
        }
    }

    /// Shows it to everyone.
    pub(super) fn show(&self, catalog: &Catalog) {
        match self {
            Effect::Appended {
                state,
                previous,
                last,
                location,
            } => {
                state.lock().add(*previous, *location);
                state.head.set(*last);
            }
            Effect::Owned { state, epoch } => state.lock().owner = *epoch,
            Effect::Rebased { state, layers } => state.set_layers(layers.clone()),
            Effect::Began { state } => catalog.insert(state.clone()),
            Effect::Dropped { state } => {
                state.lock().is_dropped = true;
                catalog.remove(state.id);
            }
        }
    }
}
