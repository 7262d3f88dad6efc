//! Several regions of one account: one writes, the others follow its logs and serve reads.
//!
//! ```text
//! region that writes                       region that follows
//!   system log ──── link ────────────────▶ replica: what exists, and the logs it names
//!   partition logs ─ link ───────────────▶ follow:  one task per partition
//!   progress ◀────── link ─────────────── follow
//! ```
//!
//! [`topology`] says which region is which and what may change, [`link`] is the simulated way between two of them, [`follow`]
//! carries one log across, [`named`] knows which entries of the system log are true only together, [`replica`] keeps a whole region in step, [`roles`] changes what it does, [`progress`] and [`duty`] say what the writer owes the
//! others, [`bounds`] how far behind they may be, [`freshness`] how far one is, [`jumps`] which LSNs no transaction has, [`start`]
//! opens the regions of an account, [`fleet`] holds them together and changes their roles, [`failover`] takes one out, [`level`]
//! brings one to where another stands, [`membership`] lets regions come and go, and [`report`] tells operators how they are.
//! [`kept`] and [`salvage`] keep what a failover cut off, [`returning`] takes a region in again, [`watch`] reacts to regions that
//! cannot be reached, and [`vote`] says who may take over from them.
//!
//! What is simulated besides: [`traffic`] has the links, each with its [`distribution`] of delays and its [`gate`]; [`front`] says
//! how regions meet their clients, [`flapping`] what clients hear of the account while it changes, [`death`] kills a single
//! region, and [`simulated`] tells it all.

pub mod bounds;
pub(crate) mod death;
pub mod distribution;
pub(crate) mod duty;
pub mod failover;
pub(crate) mod flapping;
pub mod fleet;
pub(crate) mod follow;
pub(crate) mod freshness;
pub mod front;
pub(crate) mod gate;
pub(crate) mod jumps;
pub(crate) mod kept;
pub(crate) mod level;
pub mod link;
pub mod membership;
pub(crate) mod named;
pub mod progress;
pub(crate) mod repair;
pub(crate) mod replica;
pub mod report;
pub(crate) mod returning;
pub(crate) mod roles;
pub(crate) mod salvage;
pub mod simulated;
pub(crate) mod start;
pub mod topology;
pub(crate) mod traffic;
pub(crate) mod vote;
pub(crate) mod watch;
