//! From a published article to its subscribers' notifications, driven by the change feed and never by the publishing call.
//!
//! The role of an account runs where the account takes its writes. It reads the articles of *every* account from that region,
//! finds the subscribers in its *own* account, where subscriptions have no lag, and writes notifications there. So each
//! subscription is served by exactly one role, and every write is local. [`decide`] and [`audience`] say what to do, [`placement`]
//! says where; [`serve`] does it for one article and [`walk`] for all of its subscribers; [`role`] runs it, [`region`] runs the
//! roles that belong to a region, and [`moved`] makes good what a lost region took along. The same role counts the reviews of its
//! account ([`tally`]) and does its [`chores`].

pub mod audience;
mod chores;
pub mod decide;
mod document;
mod moved;
pub mod placement;
mod region;
mod role;
mod serve;
mod settings;
mod tally;
mod walk;

pub use region::{Fanout, RunningFanout};
pub use role::{SourceLease, SourceState};
pub use settings::FanoutSettings;
