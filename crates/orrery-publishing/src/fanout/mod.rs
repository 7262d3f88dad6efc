//! From a published article to its subscribers' notifications, driven by the change feed and never by the publishing call.
//!
//! The role of a region reads the articles of *every* account from its own region, finds the subscribers in its *own* account,
//! where subscriptions have no lag, and writes notifications there. So each subscription is served by exactly one role, and
//! every write is local. [`decide`] and [`audience`] say what to do; [`serve`] does it for one article; [`role`] runs it. The
//! same role counts the reviews of its own account ([`tally`]).

pub mod audience;
pub mod decide;
mod role;
mod serve;
mod tally;

pub use role::{Fanout, FanoutSettings, RunningFanout, SourceLease, SourceState};
