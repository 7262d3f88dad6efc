//! Real `nats-server` processes for tests and measurements, on free loopback ports and in temporary directories.
//!
//! Nothing here talks NATS: a [`Server`] is a process with an address. It can be killed, paused and started again on the
//! same files, alone or as one of a [`Cluster`]. [`Regions`] are several clusters joined by [`Link`]s. [`Nodes`] are what
//! tests of clients start on a cluster when they are to meet one.
//!
//! Invariant: no process outlives its owner. Each server is the child of a small shell that kills it as soon as the pipe
//! between us breaks, so also when a test is aborted.

use std::io;

mod binary;
mod cluster;
mod health;
mod link;
mod nodes;
mod process;
mod regions;
mod server;

pub use cluster::Cluster;
pub use link::Link;
pub use nodes::Nodes;
pub use regions::{Regions, Site};
pub use server::{Server, Settings, Sync};

/// Ports that were free a moment ago, all different.
fn free_ports(n: usize) -> io::Result<Vec<u16>> {
    // All are held until the last is known, so that none is handed out twice.
    let listeners: io::Result<Vec<_>> = (0..n).map(|_| std::net::TcpListener::bind(("127.0.0.1", 0))).collect();
    listeners?
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect()
}
