//! The index of a partition: entries of its view that lead from values to items.
//!
//! Every item has an entry per term, one per composite index, and one for its *shape*, the set of paths it has; from the
//! shapes follows which items lack a path. Entries are written and removed with the item they belong to, so a reader of
//! one snapshot finds them complete, except while a changed policy is being applied ([`IndexProgress`]). Keys are
//! described in `docs/formats/view-keys.md`.

mod entries;
mod items;
mod maintain;
mod ordered;
mod progress;
mod rebuild;
mod search;
mod shapes;

pub(crate) use entries::{epk_of, shape_of_posting};
pub use items::{OrderedItem, OrderedItems};
pub(crate) use maintain::changes;
pub use ordered::{Found, Group, Ordered};
pub use progress::IndexProgress;
pub(crate) use rebuild::step;
pub use search::{Access, EFFORT, Scope};
