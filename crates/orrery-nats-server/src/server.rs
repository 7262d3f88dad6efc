//! One server: its files, its addresses, and the process while it runs.

use std::io;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::process::Process;
use crate::{binary, free_ports, health};

const LOG_LINES_SHOWN: usize = 20;

/// When the server makes what it acknowledges durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before it acknowledges, as Orrery asks of a server that keeps its logs.
    Always,
    /// Every two minutes, which is the server's own default.
    Sometimes,
}

/// What can be chosen about a server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub sync: Sync,
    pub max_payload_bytes: usize,
    pub jetstream: bool,
    /// The JetStream domain it belongs to, if regions are joined.
    pub domain: Option<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sync: Sync::Always,
            max_payload_bytes: 8 << 20,
            jetstream: true,
            domain: None,
        }
    }
}

/// A server that runs, or could be started again on the files it left.
#[derive(Debug)]
pub struct Server {
    name: String,
    port: u16,
    monitor_port: u16,
    program: PathBuf,
    dir: TempDir,
    process: Option<Process>,
}

impl Server {
    /// A server of its own, ready to serve.
    pub fn start(settings: &Settings) -> io::Result<Server> {
        let ports = free_ports(2)?;
        let mut server = Server::prepare("n1", [ports[0], ports[1]], settings, "")?;
        server.restart()?;
        Ok(server)
    }

    /// Files of a server that has not been started. `more` is added to its configuration.
    pub(crate) fn prepare(name: &str, ports: [u16; 2], settings: &Settings, more: &str) -> io::Result<Server> {
        let server = Server {
            name: name.to_owned(),
            port: ports[0],
            monitor_port: ports[1],
            program: binary::find()?,
            dir: tempfile::tempdir()?,
            process: None,
        };
        std::fs::write(server.config_file(), server.config(settings, more))?;
        Ok(server)
    }

    fn config(&self, settings: &Settings, more: &str) -> String {
        let dir = self.dir.path().display();
        let sync = match settings.sync {
            Sync::Always => "always",
            Sync::Sometimes => "2m",
        };
        let jetstream = if settings.jetstream {
            let domain = settings.domain.iter().map(|domain| format!(", domain: {domain}"));
            let domain: String = domain.collect();
            format!("jetstream {{ store_dir: \"{dir}/jetstream\", sync_interval: {sync}{domain} }}\n")
        } else {
            String::new()
        };
        format!(
            "server_name: {}\nlisten: \"127.0.0.1:{}\"\nhttp: \"127.0.0.1:{}\"\nmax_payload: {}\nlog_file: \"{dir}/log\"\n{jetstream}{more}",
            self.name, self.port, self.monitor_port, settings.max_payload_bytes
        )
    }

    fn config_file(&self) -> PathBuf {
        self.dir.path().join("nats.conf")
    }

    /// The name it has in its cluster, which is what a stream calls its leader.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Where the server tells about itself over HTTP.
    pub fn monitor_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.monitor_port)
    }

    /// Id of the running process.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// `kill -9`. Files stay as they are.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// SIGSTOP: the process stands still, its connections stay open.
    pub fn pause(&self) -> io::Result<()> {
        self.process.as_ref().map_or(Ok(()), Process::pause)
    }

    /// SIGCONT.
    pub fn resume(&self) -> io::Result<()> {
        self.process.as_ref().map_or(Ok(()), Process::resume)
    }

    /// Starts it on its files and waits until it serves. One that runs is killed before.
    pub fn restart(&mut self) -> io::Result<()> {
        self.launch()?;
        self.wait_until_healthy()
    }

    /// Starts it without waiting.
    pub fn launch(&mut self) -> io::Result<()> {
        self.process = None;
        self.process = Some(Process::start(&self.program, &self.config_file())?);
        Ok(())
    }

    /// Waits until it serves. What it has logged last is part of the error when it does not.
    pub fn wait_until_healthy(&self) -> io::Result<()> {
        health::wait(self.monitor_port).map_err(|error| {
            let log = self.log();
            let lines: Vec<&str> = log.lines().rev().take(LOG_LINES_SHOWN).collect();
            let last: Vec<&str> = lines.into_iter().rev().collect();
            io::Error::new(error.kind(), format!("{error}\n{}", last.join("\n")))
        })
    }
}
