//! A cluster per region, each a JetStream domain of its own, joined through a hub by links that can be cut.
//!
//! Leaf nodes must not form a ring, so regions are not joined to each other but each to the hub, a server that stores nothing.

use std::io;

use crate::cluster::{Cluster, Joined};
use crate::free_ports;
use crate::link::Link;
use crate::server::{Server, Settings};

/// Regions and what joins them.
#[derive(Debug)]
pub struct Regions {
    pub hub: Server,
    pub sites: Vec<Site>,
}

/// The servers of one region.
#[derive(Debug)]
pub struct Site {
    pub domain: String,
    pub servers: Cluster,
    /// The way to all other regions.
    pub link: Link,
}

impl Regions {
    /// Regions in these domains, each of `n` servers, joined and ready to serve.
    pub fn start(domains: &[&str], n: usize, settings: &Settings) -> io::Result<Regions> {
        let ports = free_ports(3)?;
        let plain = Settings {
            jetstream: false,
            ..settings.clone()
        };
        // Whoever knew the hub's own address would connect to it past a link that is cut.
        let leaves = format!(
            "leafnodes {{ listen: \"127.0.0.1:{}\", no_advertise: true }}\n",
            ports[2]
        );
        let mut hub = Server::prepare("hub", [ports[0], ports[1]], &plain, &leaves)?;
        hub.restart()?;
        let site = |domain: &&str| {
            let link = Link::to(ports[2])?;
            let joined = Joined {
                domain: (*domain).to_owned(),
                hub_port: link.port(),
            };
            Ok(Site {
                domain: (*domain).to_owned(),
                servers: Cluster::start_joined(n, settings, &joined)?,
                link,
            })
        };
        let sites: io::Result<Vec<Site>> = domains.iter().map(site).collect();
        Ok(Regions { hub, sites: sites? })
    }
}
