//! Several servers that replicate for each other.

use std::io;

use crate::free_ports;
use crate::server::{Server, Settings};

/// Servers joined by routes.
#[derive(Debug)]
pub struct Cluster {
    pub servers: Vec<Server>,
}

impl Cluster {
    /// A cluster of `n` servers named `n1`, `n2`, …, ready to serve.
    pub fn start(n: usize, settings: &Settings) -> io::Result<Cluster> {
        let ports = free_ports(3 * n)?;
        let route = |port: &u16| format!("\"nats://127.0.0.1:{port}\"");
        let routes: Vec<String> = ports[2 * n..].iter().map(route).collect();
        let server = |idx: usize| {
            let listen = ports[2 * n + idx];
            let more = format!(
                "cluster {{ name: orrery, listen: \"127.0.0.1:{listen}\", routes: [{}] }}\n",
                routes.join(", ")
            );
            // A server that waits for peers it does not have never gets ready.
            let more = if n > 1 { more } else { String::new() };
            Server::prepare(&format!("n{}", idx + 1), [ports[idx], ports[n + idx]], settings, &more)
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
