//! What processes use, as the kernel counts it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// The kernel's clock ticks per second on every Linux we run on.
const TICKS_PER_SECOND: u64 = 100;

/// User and system time of one process so far.
pub fn cpu(pid: u32) -> Result<Duration> {
    Ok(ticks(&stat_fields(pid)?[11..13]))
}

/// User and system time of a process, the children it has now and those that have ended.
pub fn cpu_with_children(pid: u32) -> Result<Duration> {
    let mut sum = ticks(&stat_fields(pid)?[11..15]);
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end between being listed and being read.
        let Ok(fields) = stat_fields(child) else { continue };
        if fields[1].parse() == Ok(pid) {
            sum += ticks(&fields[11..13]);
        }
    }
    Ok(sum)
}

/// Time on a core of all living threads, in nanoseconds: finer than ticks, for processes that do next to nothing.
pub fn cpu_fine(pid: u32) -> Result<Duration> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let text = std::fs::read_to_string(thread.path().join("schedstat"))?;
        nanoseconds += text.split(' ').next().context("the first field")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Cores of this machine.
pub fn cores() -> usize {
    std::fs::read_to_string("/proc/cpuinfo").map_or(1, |text| text.matches("processor\t").count().max(1))
}

/// Lets all threads of a process, and those they begin, run on these cores only.
pub fn pin(pid: u32, cores: &str) -> Result<()> {
    let mut command = std::process::Command::new("taskset");
    command.args(["--all-tasks", "--pid", "--cpu-list", cores, &pid.to_string()]);
    let done = command.output().context("taskset, of util-linux, is needed")?;
    ensure!(
        done.status.success(),
        "a process cannot be held to core {cores}: {}",
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(())
}

/// Memory of a process that is in RAM.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("a process has memory")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}

/// Does the process handle SIGTERM itself?
pub fn catches_terminate(pid: u32) -> Result<bool> {
    const TERMINATE_BIT: u64 = 1 << 14;
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = u64::from_str_radix(mask.context("a process has a mask of signals")?.trim(), 16)?;
    Ok(mask & TERMINATE_BIT != 0)
}

/// Space a directory takes on disk, in allocated blocks.
pub fn disk_bytes(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory)?.flatten() {
        // A file may be merged away between being listed and being read.
        let Ok(metadata) = entry.metadata() else { continue };
        sum += if metadata.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(sum)
}

/// The fields of `/proc/PID/stat` after the command's name: 0 is the state, 1 the parent, 11 to 14 the times.
fn stat_fields(pid: u32) -> Result<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(')').next().context("never empty")?;
    Ok(after_name.split_whitespace().map(str::to_owned).collect())
}

fn ticks(fields: &[String]) -> Duration {
    let ticks: u64 = fields.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}
