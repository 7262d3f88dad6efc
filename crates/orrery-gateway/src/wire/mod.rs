//! The translation between HTTP and the node's vocabulary. Everything here is pure and synchronous: request heads and
//! bodies in, [`Operation`](orrery_node::api::Operation)s out; replies and failures in, responses out.
//!
//! Only this module knows header names, paths, envelopes and encodings. Whatever a stranger sends ends in an operation
//! that is valid by construction or in an [`Error`](orrery_model::Error) with the status the service would give; it never
//! panics, and it costs memory in proportion to the bytes that were sent.
//!
//! A server calls, in this order: [`path::route`] (before the body is read, so that the signature can be checked),
//! [`decode`] with the body, and [`encode`] with what the node answered.

pub mod account;
mod batch;
pub mod binary_json;
pub(crate) mod change_feed;
mod feed;
pub mod headers;
pub mod hybrid_row;
mod item;
mod metadata;
pub mod path;
mod query;
mod request;
mod response;

pub use path::{Route, RouteKind, route};
pub use request::{Decoded, ItemWrite, RejectedStep, ReplyForm, decode, is_operation, item_write, may_write};
pub use response::{RequestMeta, encode, encode_account, insert_duration, refuse};

#[cfg(test)]
mod tests;
