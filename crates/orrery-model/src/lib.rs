//! The vocabulary of Orrery: what the other crates talk about, and nothing that acts.
//!
//! Nothing here opens a socket, reads a clock or rolls a die. Types parse once at the edge and stay valid from there on:
//! a function that takes a [`PartitionKey`] never sees a malformed one.

pub mod charge;
pub mod container;
pub mod epk;
pub mod error;
pub mod etag;
pub mod id;
pub mod json;
pub mod key;
pub mod limits;
pub mod log;
pub mod name;
pub mod offer;
pub mod patch;
pub mod rid;
pub mod session;

pub use charge::Charge;
pub use container::ContainerDefinition;
pub use container::directive::IndexingDirective;
pub use epk::{Epk, EpkRange};
pub use error::{Error, Result, Status};
pub use etag::Etag;
pub use id::{ChainHash, Epoch, LogId, Lsn, PartitionId, Position, Timestamp};
pub use json::{Number, Value};
pub use key::{PartitionKey, PartitionKeyDefinition};
pub use rid::ResourceId;
pub use session::SessionToken;
