//! One running process, and the shell that ends it with us.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Starts the server, tells its id, and kills it when our end of the pipe is closed. Only the shell kills, because only it
/// knows that the id is still its child's.
const SHELL: &str = r#""$0" -c "$1" >/dev/null 2>&1 </dev/null & echo $!; read -r _; kill -9 $! 2>/dev/null; wait"#;

#[derive(Debug)]
pub(crate) struct Process {
    shell: Child,
    pid: Pid,
}

impl Process {
    pub(crate) fn start(program: &Path, config: &Path) -> io::Result<Process> {
        let mut shell = Command::new("sh")
            .arg("-c")
            .arg(SHELL)
            .arg(program)
            .arg(config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("it was piped");
        BufReader::new(stdout).read_line(&mut line)?;
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the shell started no process"))?;
        Ok(Process { shell, pid })
    }

    pub(crate) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub(crate) fn pause(&self) -> io::Result<()> {
        Ok(kill_process(self.pid, Signal::STOP)?)
    }

    pub(crate) fn resume(&self) -> io::Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }
}

impl Drop for Process {
    /// Kills the server and waits until it is gone.
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // Nothing is left to do when even waiting fails.
        let _ = self.shell.wait();
    }
}
