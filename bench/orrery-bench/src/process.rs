//! The servers that are measured, as processes of their own: started, timed until they are ready, stopped by their id.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::usage;

/// How long a server may take from its ready line to listening for signals.
const CATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A process that says with one line of JSON when it is ready, and where.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub port: u16,
    /// Of the account's regions, where it has several.
    pub region_ports: Vec<u16>,
    /// From the start of the process to its ready line.
    pub ready_after: Duration,
    /// Kept open: a server must not meet a closed pipe.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// `orrery emulator` with these arguments on any free port.
    pub fn orrery(arguments: &[&str]) -> Result<Server> {
        Server::serving("emulator", arguments)
    }

    /// `orrery node` with these arguments on any free port.
    pub fn node(arguments: &[&str]) -> Result<Server> {
        Server::serving("node", arguments)
    }

    fn serving(kind: &str, arguments: &[&str]) -> Result<Server> {
        let mut command = Command::new(orrery_binary()?);
        command.args([kind, "--port", "0"]).args(arguments);
        // Settings of whoever runs the bench are not ours.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ORRERY_")) {
            command.env_remove(name);
        }
        command.env("ORRERY_LOG", "error");
        Server::start(command)
    }

    /// `orrery emulator` that keeps its data in `directory`.
    pub fn durable(directory: &Path) -> Result<Server> {
        Server::orrery(&["--data-dir", text(directory)?])
    }

    /// The publishing platform with its data in `directory`.
    pub fn platform(directory: &Path) -> Result<Server> {
        Server::serving("up", &["--data-dir", text(directory)?])
    }

    /// This program as a limit.
    pub fn limit(arguments: &[&str]) -> Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("limit").args(arguments);
        Server::start(command)
    }

    fn start(mut command: Command) -> Result<Server> {
        let started = Instant::now();
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let mut stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let ready_after = started.elapsed();
        let port = ready_port(&line).with_context(|| format!("not a ready line: '{}'", line.trim()))?;
        Ok(Server {
            child,
            port,
            region_ports: region_ports(&line),
            ready_after,
            _stdout: stdout,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn cpu(&self) -> Result<Duration> {
        usage::cpu(self.pid())
    }

    /// Stops the server and waits until it has.
    pub fn stop(mut self) -> Result<()> {
        let since = Instant::now();
        // A signal that comes before the server listens for it would be a kill.
        while !usage::catches_terminate(self.pid())? && since.elapsed() < CATCH_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        signal(&self.child, Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server stopped with {status}");
        Ok(())
    }

    /// `kill -9`.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been stopped already; then both fail, and nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(child: &Child, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(child.id())?).context("a child has an id")?;
    kill_process(pid, signal).context("cannot signal the process")
}

pub fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not text")
}

/// `$ORRERY_BIN`, or the binary beside this one.
fn orrery_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ORRERY_BIN") {
        return Ok(path.into());
    }
    let beside = std::env::current_exe()?.with_file_name("orrery");
    ensure!(
        beside.exists(),
        "there is no {}: build the package orrerydb in release",
        beside.display()
    );
    Ok(beside)
}

fn ready_port(line: &str) -> Option<u16> {
    let ready: Value = serde_json::from_str(line).ok()?;
    if let Some(port) = ready["port"].as_u64() {
        return u16::try_from(port).ok();
    }
    port_of(&ready["accounts"][0]["endpoint"])
}

fn region_ports(line: &str) -> Vec<u16> {
    let ready: Value = serde_json::from_str(line).unwrap_or_default();
    let regions = ready["accounts"][0]["regions"].as_array();
    let ports = regions.into_iter().flatten().map(|region| port_of(&region["endpoint"]));
    ports.flatten().collect()
}

fn port_of(endpoint: &Value) -> Option<u16> {
    endpoint
        .as_str()?
        .trim_end_matches('/')
        .rsplit(':')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_either_kind_of_ready_line() {
        assert_eq!(ready_port("{\"port\":4000}\n"), Some(4000));
        let line = "{\"accounts\":[{\"endpoint\":\"http://localhost:8081/\"}]}";
        assert_eq!(ready_port(line), Some(8081));
        assert_eq!(ready_port(""), None);
    }
}
