//! A server of a test's own: an `orrery emulator` in memory, on a free port, which ends with the test.
//!
//! Invariant: when `start` returns, the server serves; when the value is dropped, the process is gone.

use std::io::{BufRead as _, BufReader, Error, Result};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// The key every emulator knows.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// A running server process.
#[derive(Debug)]
pub struct Emulator {
    child: Child,
    /// Open as long as the process, which may write to it.
    output: BufReader<ChildStdout>,
    endpoint: String,
    region_endpoints: Vec<String>,
}

impl Emulator {
    /// Starts [`binary`] with more flags, such as `--partitions 4`, and waits until it is ready.
    pub fn start(flags: &[&str]) -> Result<Emulator> {
        let mut child = Command::new(binary()?)
            .args(["emulator", "--memory", "--port", "0"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = child.stdout.take().ok_or_else(|| Error::other("it has no output"))?;
        let mut emulator = Emulator {
            child,
            output: BufReader::new(output),
            endpoint: String::new(),
            region_endpoints: Vec::new(),
        };
        emulator.read_ready_line()?;
        Ok(emulator)
    }

    fn read_ready_line(&mut self) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let ready: Value = serde_json::from_str(&line).map_err(|_| Error::other("the server did not start"))?;
        let account = &ready["accounts"][0];
        self.endpoint = endpoint_of(account);
        let regions = account["regions"].as_array().into_iter().flatten();
        self.region_endpoints = regions.map(endpoint_of).collect();
        Ok(())
    }

    /// Address of the account.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Addresses of its regions, the one that takes writes first.
    pub fn region_endpoints(&self) -> &[String] {
        &self.region_endpoints
    }

    /// Of the process, for signals.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended already; either way nobody is left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn endpoint_of(served: &Value) -> String {
    served["endpoint"].as_str().unwrap_or_default().to_owned()
}

/// The port of an address such as `http://localhost:8081/`.
pub fn port_of(endpoint: &str) -> Option<u16> {
    endpoint.trim_end_matches('/').rsplit(':').next()?.parse().ok()
}

/// The server's program: the one that `ORRERY_BIN` names, or the one in the folder that holds this build's programs, which is
/// built first if it is not there.
pub fn binary() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("ORRERY_BIN") {
        return Ok(given.into());
    }
    let program = std::env::current_exe()?;
    let folder = program.parent().and_then(|deps| deps.parent());
    let beside = folder
        .ok_or_else(|| Error::other("this program lies nowhere"))?
        .join("orrery");
    if !beside.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--package", "orrerydb"])
            .status()?;
        if !built.success() {
            return Err(Error::other("the server could not be built"));
        }
    }
    Ok(beside)
}
