//! The server as a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that is killed when it is let go of.
pub struct Process(Child);

pub struct Server {
    process: Process,
    pub port: u16,
}

impl Server {
    /// Starts a server on the data in a directory, and does not wait for it.
    pub fn spawn(directory: &Path) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
        // Settings of whoever runs the tests are not for this server.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ORRERY_")) {
            command.env_remove(name);
        }
        command
            .args(["emulator", "--port", "0", "--partitions", "2", "--data-dir"])
            .arg(directory.join("data"))
            .current_dir(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        Process(command.spawn().expect("the server can be started"))
    }

    /// Starts a server and waits until it is ready.
    pub fn start(directory: &Path) -> Server {
        let mut process = Server::spawn(directory);
        let stdout = process.0.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("the ready line");
        let ready: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("the server did not become ready: {error}: {line:?}"));
        let endpoint = ready["accounts"][0]["endpoint"].as_str().expect("an endpoint");
        let port = endpoint
            .trim_end_matches('/')
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        Server {
            process,
            port: port.expect("a port"),
        }
    }

    pub fn kill_after(self, after: Duration) {
        self.process.kill_after(after);
    }
}

impl Process {
    /// Sends SIGKILL after a while, whatever the server is doing.
    pub fn kill_after(self, after: Duration) {
        std::thread::sleep(after);
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        self.0.wait().expect("the server's end can be waited for");
    }
}
