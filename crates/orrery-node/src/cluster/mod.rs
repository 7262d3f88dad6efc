//! One of several nodes that open the same store: each log is owned and written by one of them and followed by the others.
//!
//! One node coordinates: it holds the [`lease`], owns the system log, and says which node owns which partition
//! ([`place`], [`placement`]). Every node answers for its logs as long as its own lease runs ([`tenures`]). All of this only
//! decides who tries: the store fences whoever was replaced. [`roles`] lets a node begin and cease to own logs,
//! [`following`] keeps its catalogue in step with a log that moves by itself, [`reach`] says which logs a request is about, and
//! [`answerable`] which reads any node may answer. Where the account has other regions, [`reader`] answers in one
//! that follows, [`regional`] lets one region hand over to another, [`abroad`] is what regions learn of each other's progress,
//! [`quorum`] how many of them have to agree, [`proofs`] what strong reads ask, and [`cut_off`] keeps what one had alone.
//!
//! Invariant: a node adds nothing to a log it does not own, and only the coordinator drops any.

mod abroad;
mod answerable;
mod cut_off;
mod following;
pub mod lease;
pub mod place;
pub mod placement;
pub(crate) mod proofs;
pub mod quorum;
mod reach;
mod reader;
mod regional;
mod roles;
pub mod tenures;

pub use answerable::Grounds;
pub use cut_off::{CutOff, Suffix};
pub use reach::Reach;
pub use regional::HeldWrites;
