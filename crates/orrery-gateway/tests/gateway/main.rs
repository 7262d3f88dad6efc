//! The gateway over real loopback sockets, mostly with a scripted handler behind it.
//!
//! `transport`: protocols and TLS on one port. `names`: accounts and regions on one port. `limits`: clients that send too much, too slowly or nonsense. `auth`: who
//! sends a request. `feed`: the change feed, over a real node. `admin`: everything beside the Cosmos API, `events` apart.
//! `node`: with a real node instead of a script. `bombs`: queries meant to hurt. `shutdown`: how it ends.

#![allow(
    clippy::unwrap_used,
    reason = "clippy only knows the functions marked as tests, not their helpers"
)]

mod admin;
mod auth;
mod bombs;
mod client;
mod events;
mod feed;
mod limits;
mod names;
mod node;
mod server;
mod shutdown;
mod transport;
