//! Servers and commands, started for a test and gone after it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long enough for a busy machine; nothing waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than an export of a few items takes.
const BRIEF: Duration = Duration::from_secs(5);

/// The binary without any setting from outside.
pub fn orrery(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ORRERY_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

/// Runs a command to its end.
pub fn run(arguments: &[&str]) -> Output {
    orrery(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must succeed; gives its standard output.
pub fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail; gives its standard error.
pub fn fail(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

/// All lines that a region exports, `None` when it does not give them within some seconds: the command waits much longer for one that
/// asks for patience.
pub fn exported(arguments: &[&str]) -> Option<Vec<String>> {
    let arguments = [&["export", "db", "c"], arguments].concat();
    let mut command = orrery(&arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        text
    });
    let deadline = Instant::now() + BRIEF;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_whole = child.wait().unwrap().success();
    let text = reading.join().unwrap();
    is_whole.then(|| text.lines().map(str::to_owned).collect())
}

/// A running emulator, killed when the test is over.
pub struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub ready: Value,
}

impl Server {
    /// An emulator in memory.
    pub fn start(extra: &[&str]) -> Server {
        Server::spawn(&[&["emulator", "--memory", "--port", "0"], extra].concat())
    }

    pub fn durable(directory: &Path, extra: &[&str]) -> Server {
        let directory = directory.to_str().unwrap();
        Server::spawn(&[&["emulator", "--port", "0", "--data-dir", directory], extra].concat())
    }

    pub fn spawn(arguments: &[&str]) -> Server {
        let mut command = orrery(arguments);
        command
            .env("ORRERY_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: not a ready line: {line:?}"));
        Server { child, stdout, ready }
    }

    pub fn endpoint(&self) -> &str {
        self.ready["accounts"][0]["endpoint"].as_str().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits; gives what was written to stdout after the ready line.
    pub fn terminate(mut self) -> (ExitStatus, String) {
        signal("TERM", self.pid());
        let status = wait(&mut self.child);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(name: &str, pid: u32) {
    let status = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Waits for a process, and ends it if it takes too long.
pub fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    let ended = until(|| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if !ended {
        child.kill().unwrap();
        panic!("the process did not end");
    }
    status.unwrap()
}

/// Waits for a condition.
pub fn until(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Imports items into `db/c`, which is created with the partition key `/pk`.
pub fn import(server: &Server, lines: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("items.ndjson");
    std::fs::write(&file, lines).unwrap();
    let endpoint = server.endpoint();
    let create = ["--create", "--partition-key", "/pk"];
    succeed(
        &[
            &["import", "db", "c", file.to_str().unwrap(), "--endpoint", endpoint],
            &create[..],
        ]
        .concat(),
    );
}

/// All items of a container, in the order of their ids.
pub fn export(server: &Server, database: &str, container: &str) -> Vec<Value> {
    let text = succeed(&["export", database, container, "--endpoint", server.endpoint()]);
    sorted(text.lines().map(|line| serde_json::from_str(line).unwrap()))
}

pub fn sorted(items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut items: Vec<Value> = items.collect();
    items.sort_by(|a, b| a["id"].as_str().cmp(&b["id"].as_str()));
    items
}
