//! Ten thousand clients that are connected and say nothing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::Client;
use crate::{make_container, port_of};

const N_CONNECTIONS: usize = 10_000;
/// Files of either process besides the connections.
const FILES_BESIDES: u64 = 500;
/// What an idle connection may cost the server, on average: half of them have sent a request before.
const BYTES_PER_CONNECTION_MAX: u64 = 24 << 10;
/// A request among idle connections, on a busy machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start() -> (Server, u16) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ORRERY_")) {
        command.env_remove(name);
    }
    command
        .args(["emulator", "--memory", "--port", "0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let port = port_of(&serde_json::from_str(&line).unwrap());
    (Server(child), port)
}

/// Raises the limit of open files of this process as far as needed, if that is allowed.
fn may_open_files(n_files: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= n_files) {
        return true;
    }
    let raised = Rlimit {
        current: Some(n_files),
        maximum: limit.maximum,
    };
    limit.maximum.is_none_or(|maximum| maximum >= n_files) && setrlimit(Resource::Nofile, raised).is_ok()
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_others_are_served_quickly() {
    // The server is its own process: each needs one file per connection.
    if !may_open_files(N_CONNECTIONS as u64 + FILES_BESIDES) {
        eprintln!("skipped: this machine does not allow a process {N_CONNECTIONS} open files (ulimit -Hn)");
        return;
    }
    let (server, port) = start();
    let mut client = Client::connect(port);
    make_container(&mut client);
    assert_eq!(client.create("a", "{\"id\":\"1\",\"pk\":\"a\"}").unwrap().status, 201);
    let before = resident_bytes(&server);

    let idle: Vec<TcpStream> = (0..N_CONNECTIONS).map(|n| connect(port, n % 2 == 0)).collect();
    while client.metric("orrery_connections_open") < Some(N_CONNECTIONS as u64) {
        std::thread::yield_now();
    }
    let grown = resident_bytes(&server).saturating_sub(before);
    println!("an idle connection costs {} bytes", grown / N_CONNECTIONS as u64);
    assert!(
        grown < BYTES_PER_CONNECTION_MAX * N_CONNECTIONS as u64,
        "{N_CONNECTIONS} connections cost {grown} bytes"
    );

    let mut fresh = Client::connect(port);
    for client in [&mut client, &mut fresh] {
        let asked_at = Instant::now();
        assert_eq!(client.read("a", "1").unwrap().status, 200);
        let took = asked_at.elapsed();
        assert!(took < ANSWER_TIME_MAX, "a read took {took:?}");
    }
    drop(idle);
    let closed_at = Instant::now();
    while client.metric("orrery_connections_open") > Some(2) {
        assert!(closed_at.elapsed() < Duration::from_secs(30), "connections stay open");
        std::thread::yield_now();
    }
}

/// A connection that has said nothing, or has had one answer and is kept.
fn connect(port: u16, asks_once: bool) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    if asks_once {
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
    }
    stream
}

fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
