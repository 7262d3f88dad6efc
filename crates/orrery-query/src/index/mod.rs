//! The index as queries see it: which terms an item has, which terms a filter asks for, and which order they give.
//!
//! A *term* is the hash of a path followed by a value in an order-preserving form. Items and searches come by their terms
//! through the same code, so they cannot disagree. An index only narrows: whoever searches evaluates the whole filter on
//! the items found, so a term may stand for more than it says (hashes collide, long strings are cut) but never for less.
//! Where terms are kept, and how they are walked, is the partition's business.

mod calls;
mod condition;
mod encode;
mod order;
mod path;
mod places;
mod range;
mod report;
mod terms;
mod texts;
mod words;

pub use condition::{Condition, covers};
pub use encode::{Code, read_code, successor};
pub use order::{IndexOrder, OrderSource, SortedBy};
pub use path::{Aspect, PathHash, Segment, TermPath};
pub use range::TermRange;
pub use report::IndexUse;
pub use terms::{Indexing, Terms, composite_hash};
pub use texts::TextTest;
