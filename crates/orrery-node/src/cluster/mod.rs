//! One of several nodes that open the same store: one of them owns it and writes, the others follow and may take over.
//!
//! Who owns is a [`lease`], and the lease only decides who tries: the store fences whoever was replaced. [`roles`] lets a
//! node take over and step down, [`following`] keeps the catalogue of a follower in step with a log that moves by itself,
//! and [`answerable`] says which reads a follower may answer.
//!
//! Invariant: a follower adds nothing to any log, and drops none.

mod answerable;
mod following;
pub mod lease;
mod roles;

pub use answerable::Grounds;
