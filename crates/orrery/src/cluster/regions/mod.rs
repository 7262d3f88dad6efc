//! Several regions of one account, each a cluster on a JetStream domain of its own, joined by leaf nodes.
//!
//! One region takes writes; the streams of the others are mirrors of its streams. [`records`] is what regions tell each other,
//! [`far`] reads it where they keep it, [`geography`] is what a node knows of it all. [`steward`] keeps a region in step,
//! [`command`] changes which region does what, [`progress`] tells how far regions are where the account's promise depends on it, [`keep`] saves what a region had alone, [`office`] is what they work with,
//! [`handler`] is what clients meet, [`init`] makes a region and [`opening`] lets a node find its place in it. ADR 010. Under strong
//! consistency [`reign`] makes sure that one region at a time acknowledges. ADR 013.

mod command;
mod far;
mod geography;
mod handler;
pub mod init;
mod keep;
mod office;
mod opening;
mod progress;
pub mod records;
mod reign;
mod steward;

pub use geography::{Geography, Mode};
pub use opening::{Beginning, Joining, find};
