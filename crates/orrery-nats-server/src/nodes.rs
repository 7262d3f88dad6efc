//! Nodes of Orrery on a cluster of servers, as a client meets them: tests that usually start one server start these instead.
//!
//! Nothing here knows what a node does: it is a program that is told where the servers are, and says in one line that it is
//! ready.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::server::Settings;

/// Set by whoever wants tests to meet a cluster.
const WANTED: &str = "ORRERY_TEST_CLUSTER";
const SERVERS: usize = 3;
const NODES: usize = 2;
const LOG_LINES_SHOWN: usize = 20;

/// Two nodes on three servers; they end with it.
#[derive(Debug)]
pub struct Nodes {
    nodes: Vec<Node>,
    ready: String,
    // Last, so that no node outlives what it stands on.
    _servers: Arc<Cluster>,
}

impl Nodes {
    /// Whether tests are to meet a cluster where they usually start one server.
    pub fn wanted() -> bool {
        std::env::var_os(WANTED).is_some()
    }

    /// Servers that one or several pairs of nodes can stand on.
    pub fn ground() -> io::Result<Arc<Cluster>> {
        Ok(Arc::new(Cluster::start(SERVERS, &Settings::default())?))
    }

    /// Starts the program's nodes with more flags, one after the other. Nodes of different regions may share servers.
    pub fn start(servers: &Arc<Cluster>, program: &Path, flags: &[&str]) -> io::Result<Nodes> {
        let mut nodes = Vec::new();
        let mut ready = String::new();
        for _ in 0..NODES {
            let (node, line) = Node::start(servers, program, flags)?;
            nodes.push(node);
            ready = line;
        }
        Ok(Nodes {
            nodes,
            ready,
            _servers: Arc::clone(servers),
        })
    }

    /// What the last node said when it was ready. The first one coordinates.
    pub fn ready_line(&self) -> &str {
        &self.ready
    }

    /// Of the nodes' processes, for signals.
    pub fn process_ids(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().map(|node| node.child.id())
    }
}

#[derive(Debug)]
struct Node {
    child: Child,
    dir: TempDir,
}

impl Node {
    fn start(servers: &Cluster, program: &Path, flags: &[&str]) -> io::Result<(Node, String)> {
        let dir = tempfile::tempdir()?;
        let monitors: Vec<String> = servers.servers.iter().map(|server| server.monitor_url()).collect();
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ORRERY_")) {
            command.env_remove(name);
        }
        let child = command
            .args(["node", "--port", "0", "--nats", &servers.urls().join(",")])
            .args(["--monitor", &monitors.join(",")])
            .args(flags)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log_in(dir.path()))?)
            .spawn()?;
        let mut node = Node { child, dir };
        let stdout = node.child.stdout.take().expect("it was piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::Error::other(format!(
                "a node did not get ready:\n{}",
                node.last_words()
            )));
        }
        Ok((node, line))
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(log_in(self.dir.path())).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(LOG_LINES_SHOWN).collect();
        let last: Vec<&str> = lines.into_iter().rev().collect();
        last.join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended by itself; either way nobody is left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("what a node said last:\n{}", self.last_words());
        }
    }
}

fn log_in(dir: &Path) -> PathBuf {
    dir.join("log")
}
