//! Nodes as processes of their own, and the servers they stand on.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use orrery_nats_server::{Cluster, Settings};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Lease times of tests.
pub const RENEW_MS: &str = "700";
pub const EXPIRY_MS: &str = "2500";

/// The binary without any setting from outside.
pub fn orrery(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ORRERY_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// NATS servers, and a directory for each node.
pub struct Ground {
    pub servers: Cluster,
    dirs: TempDir,
    replicas: usize,
}

impl Ground {
    /// Every server holds a copy of everything.
    pub fn new(n_servers: usize) -> Ground {
        Ground {
            servers: Cluster::start(n_servers, &Settings::default()).unwrap(),
            dirs: tempfile::tempdir().unwrap(),
            replicas: n_servers,
        }
    }

    /// What every command needs to find the servers.
    fn flags(&self) -> Vec<String> {
        let monitors: Vec<String> = self.servers.servers.iter().map(|server| server.monitor_url()).collect();
        [
            "--nats",
            &self.servers.urls().join(","),
            "--monitor",
            &monitors.join(","),
        ]
        .map(str::to_owned)
        .into_iter()
        .chain(["--replicas".to_owned(), self.replicas.to_string()])
        .collect()
    }

    /// Runs a command about the cluster to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        orrery(&[arguments, &flags].concat()).output().unwrap()
    }

    /// Starts a node with a directory of this name, and waits until it is ready.
    pub fn node(&self, name: &str) -> Node {
        self.launch(name, &[]).ready()
    }

    /// Starts a node without waiting.
    pub fn launch(&self, name: &str, extra: &[&str]) -> Starting {
        let dir = self.dirs.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Starting(spawn(&dir, &self.flags(), extra))
    }
}

fn spawn(dir: &Path, flags: &[String], extra: &[&str]) -> Child {
    let mut command = orrery(&["node", "--port", "0", "--partitions", "2"]);
    command
        .args(["--lease-renew-ms", RENEW_MS, "--lease-expiry-ms", EXPIRY_MS])
        .args(flags)
        .args(extra)
        .current_dir(dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A node that is not ready yet.
pub struct Starting(Child);

impl Starting {
    /// Waits until it has ended, because it was refused.
    pub fn ended(&mut self) -> std::process::ExitStatus {
        self.0.wait().unwrap()
    }

    pub fn ready(mut self) -> Node {
        let mut line = String::new();
        let stdout = self.0.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let ready: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("not a ready line: {error}: {line:?}"));
        let endpoint = ready["accounts"][0]["endpoint"].as_str().unwrap();
        let port = endpoint.trim_end_matches('/').rsplit(':').next().unwrap();
        Node {
            port: port.parse().unwrap(),
            child: self.0,
        }
    }
}

/// A node that serves; killed when it is let go of.
pub struct Node {
    child: Child,
    pub port: u16,
}

impl Node {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// SIGSTOP: it stands still, its connections stay open.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGTERM, without waiting.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits until it has ended by itself; did it end well?
    pub fn ended_well(mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
