//! Several servers that replicate for each other.

use std::io;

use crate::free_ports;
use crate::server::{Server, Settings};

/// What servers need to know of other regions.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    /// Of the own region.
    pub(crate) domain: String,
    /// Where the other regions are reached.
    pub(crate) hub_port: u16,
}

/// Servers joined by routes.
#[derive(Debug)]
pub struct Cluster {
    pub servers: Vec<Server>,
}

impl Cluster {
    /// A cluster of `n` servers named `n1`, `n2`, …, ready to serve.
    pub fn start(n: usize, settings: &Settings) -> io::Result<Cluster> {
        Cluster::start_as(n, settings, "", "")
    }

    /// A cluster in a JetStream domain of its own, with servers named after it.
    pub(crate) fn start_joined(n: usize, settings: &Settings, joined: &Joined) -> io::Result<Cluster> {
        let settings = Settings {
            domain: Some(joined.domain.clone()),
            ..settings.clone()
        };
        let leaf = format!(
            "leafnodes {{ reconnect: 1, remotes: [ {{ url: \"nats-leaf://127.0.0.1:{}\" }} ] }}\n",
            joined.hub_port
        );
        Cluster::start_as(n, &settings, &format!("{}-", joined.domain), &leaf)
    }

    fn start_as(n: usize, settings: &Settings, prefix: &str, more: &str) -> io::Result<Cluster> {
        let ports = free_ports(3 * n)?;
        let route = |port: &u16| format!("\"nats://127.0.0.1:{port}\"");
        let routes: Vec<String> = ports[2 * n..].iter().map(route).collect();
        let server = |idx: usize| {
            let listen = ports[2 * n + idx];
            let cluster = format!(
                "cluster {{ name: {prefix}orrery, listen: \"127.0.0.1:{listen}\", routes: [{}] }}\n",
                routes.join(", ")
            );
            // A server that waits for peers it does not have never gets ready.
            let cluster = if n > 1 { cluster } else { String::new() };
            let name = format!("{prefix}n{}", idx + 1);
            Server::prepare(
                &name,
                [ports[idx], ports[n + idx]],
                settings,
                &format!("{cluster}{more}"),
            )
        };
        let servers: io::Result<Vec<Server>> = (0..n).map(server).collect();
        let mut cluster = Cluster { servers: servers? };
        cluster.restart_all()?;
        Ok(cluster)
    }

    /// Where clients connect: every server.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// The server of that name.
    pub fn named(&mut self, name: &str) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.name() == name)
    }

    /// `kill -9` of every server, one right after the other.
    pub fn kill_all(&mut self) {
        self.servers.iter_mut().for_each(Server::kill);
    }

    /// Starts every server that does not run and waits until all serve.
    pub fn restart_all(&mut self) -> io::Result<()> {
        for server in self.servers.iter_mut().filter(|server| server.pid().is_none()) {
            server.launch()?;
        }
        self.servers.iter().try_for_each(Server::wait_until_healthy)
    }
}
