//! Throughput of a database or container, and the offer resource that shows it.

/// Request units per second a resource may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throughput {
    Manual(u32),
    Autoscale { max: u32, increment_percent: Option<u32> },
}
