//! The rules of one physical partition: what a command does to it, what view its log implies, and what it needs of a
//! store.
//!
//! Everything but the traits in [`storage`] is a pure function of its arguments: no clock, no randomness, no IO.
//!
//! A command meets an [`overlay::Overlay`] (a snapshot and the effects of what the batch has accepted so far);
//! [`decide`] answers with operations or an error; [`project`] turns operations into changes of the view. The same
//! `project` replays a log, so what a reader sees never depends on which of the two wrote it.

pub mod command;
pub mod decide;
mod definition;
pub mod draft;
pub mod expiry;
pub mod history;
pub mod index;
pub mod keys;
pub mod overlay;
pub mod project;
pub mod quota;
pub mod reshard;
pub mod state;
pub mod storage;
pub mod stored;

pub use definition::IndexedDefinition;

#[cfg(test)]
mod tests;
