//! What the process has used so far, as the kernel counts it.

use std::time::Duration;

/// The kernel's clock ticks per second on every Linux we run on.
const TICKS_PER_SECOND: u64 = 100;

pub struct Usage {
    pub cpu: Duration,
    pub written_bytes: u64,
}

impl Usage {
    pub fn now() -> Usage {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells a process its own state");
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .expect("never empty")
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11..13]
            .iter()
            .map(|field| field.parse::<u64>().expect("a number of ticks"))
            .sum();
        let io = std::fs::read_to_string("/proc/self/io").expect("Linux tells a process its own traffic");
        let written = io
            .lines()
            .find_map(|line| line.strip_prefix("write_bytes: "))
            .expect("the field is always there");
        Usage {
            cpu: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND),
            written_bytes: written.parse().expect("a number of bytes"),
        }
    }

    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            cpu: self.cpu - before.cpu,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}
