//! Regions as processes: servers in a domain each, joined by links, and a node in each.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

use orrery_nats_server::{Regions, Settings, Site};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::client::Client;
use crate::load::eventually;

pub const NAMES: [&str; 3] = ["West US", "North Europe", "Southeast Asia"];
const DOMAINS: [&str; 3] = ["westus", "northeurope", "southeastasia"];

/// The binary without any setting from outside.
fn orrery(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ORRERY_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The servers of all regions, and a directory for each node.
pub struct World {
    pub regions: Regions,
    dirs: TempDir,
    /// What nodes are told besides where they are.
    account: Vec<String>,
}

impl World {
    /// So many regions of one server each, made ready for nodes.
    pub fn new(n_regions: usize) -> World {
        World::of_account(n_regions, "Session", &[])
    }

    /// The same for an account of another consistency level, with flags for its nodes.
    pub fn of_account(n_regions: usize, level: &str, flags: &[&str]) -> World {
        let level = ["--consistency", level];
        let world = World {
            regions: Regions::start(&DOMAINS[..n_regions], 1, &Settings::default()).unwrap(),
            dirs: tempfile::tempdir().unwrap(),
            account: [&level, flags].concat().into_iter().map(str::to_owned).collect(),
        };
        for idx in 0..n_regions {
            // The link between two regions comes up a moment after their servers.
            let made = eventually(|| world.init(idx, n_regions, &level).status.success());
            assert!(made, "{:?}", world.init(idx, n_regions, &level));
        }
        world
    }

    pub fn init(&self, idx: usize, n_regions: usize, extra: &[&str]) -> Output {
        let names = NAMES[..n_regions].join(",");
        let mut command = orrery(&["cluster", "init", "--account-regions", &names]);
        command.args(self.flags(idx)).args(extra).output().unwrap()
    }

    pub fn site(&mut self, idx: usize) -> &mut Site {
        &mut self.regions.sites[idx]
    }

    fn flags(&self, idx: usize) -> Vec<String> {
        let servers = &self.regions.sites[idx].servers;
        let monitors: Vec<String> = servers.servers.iter().map(|server| server.monitor_url()).collect();
        let flags = [
            ["--nats", &servers.urls().join(",")],
            ["--monitor", &monitors.join(",")],
            ["--replicas", "1"],
            ["--region", NAMES[idx]],
        ];
        flags.into_iter().flatten().map(str::to_owned).collect()
    }

    /// A node in each of two regions, once each knows where the other is.
    pub fn both(&self) -> [Node; 2] {
        let nodes = [self.node(0), self.node(1)];
        for (node, other) in [(0, 1), (1, 0)] {
            let is_known = || {
                let account = nodes[node].client().get("/", "", "").unwrap().json();
                let endpoint = account["readableLocations"][other]["databaseAccountEndpoint"].to_string();
                endpoint.contains(&nodes[other].port.to_string())
            };
            assert!(eventually(is_known), "every region says where the other is");
        }
        nodes
    }

    /// Starts a node of a region and waits until it is ready.
    pub fn node(&self, idx: usize) -> Node {
        let child = self.command(idx, DOMAINS[idx]).stdout(Stdio::piped()).spawn();
        Node::ready(child.unwrap())
    }

    /// Starts another node of a region, which is refused; answers why.
    pub fn try_node(&self, idx: usize) -> String {
        let output = self.command(idx, "refused").output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.lines().last().unwrap_or_default().to_owned()
    }

    fn command(&self, idx: usize, dir: &str) -> Command {
        let dir = self.dirs.path().join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        let mut command = orrery(&["node", "--port", "0", "--partitions", "2"]);
        command
            .args(["--lease-renew-ms", "500", "--lease-expiry-ms", "2000"])
            .args(self.flags(idx))
            .args(&self.account)
            .current_dir(&dir);
        command
    }

    /// Whether the streams of two regions hold the same messages. A region that has just begun to follow another copies them one
    /// after the other, and cannot take over without them.
    pub fn has_equal_streams(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.streams(one), self.streams(other));
        !one.is_empty() && one == other
    }

    /// The last message of every stream of a region's logs, by the stream's number.
    fn streams(&self, idx: usize) -> BTreeMap<String, u64> {
        let monitor = self.regions.sites[idx].servers.servers[0].monitor_url();
        let address = monitor.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /jsz?streams=true HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let told: Value = serde_json::from_str(body).unwrap();
        let prefix = format!("ORRERY_{}_", DOMAINS[idx]);
        let number = |stream: &Value| {
            let number = stream["name"].as_str()?.strip_prefix(&prefix)?;
            Some((number.to_owned(), stream["state"]["last_seq"].as_u64()?))
        };
        let accounts = told["account_details"].as_array().unwrap().iter();
        let streams = accounts.filter_map(|account| account["stream_detail"].as_array());
        streams.flatten().filter_map(number).collect()
    }

    /// Nodes are told something else from now on.
    pub fn set_flag(&mut self, name: &str, value: &str) {
        let place = self.account.iter().position(|flag| flag == name).unwrap();
        value.clone_into(&mut self.account[place + 1]);
    }
}

/// A node that serves; killed when it is let go of.
pub struct Node {
    child: Child,
    pub port: u16,
}

impl Node {
    fn ready(mut child: Child) -> Node {
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("not a ready line: {error}: {line:?}"));
        let endpoint = ready["accounts"][0]["endpoint"].as_str().unwrap();
        let port = endpoint.trim_end_matches('/').rsplit(':').next().unwrap();
        Node {
            port: port.parse().unwrap(),
            child,
        }
    }

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

    /// `kill -9`, before it is let go of.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Runs `orrery region` against this node.
    pub fn region(&self, arguments: &[&str]) -> Output {
        let endpoint = format!("http://localhost:{}", self.port);
        let all = [&["region"], arguments, &["--json", "--endpoint", &endpoint]].concat();
        orrery(&all).output().unwrap()
    }

    /// The same; what it answered.
    pub fn answer(&self, arguments: &[&str]) -> Value {
        let output = self.region(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The region that takes writes, and the state of every one.
    pub fn roles(&self) -> (String, Vec<(String, String)>) {
        let list = self.answer(&["list"]);
        let text = |region: &Value, field: &str| region[field].as_str().unwrap().to_owned();
        let regions = list["regions"].as_array().unwrap();
        let writer = regions.iter().find(|region| region["role"] == "write").unwrap();
        let states = regions
            .iter()
            .map(|region| (text(region, "name"), text(region, "state")));
        (text(writer, "name"), states.collect())
    }
}

impl Drop for Node {
    /// `kill -9`.
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
