//! Alternating runs and their medians.

use std::time::Duration;

use anyhow::Result;

use crate::load::{Until, Worker, drive};

/// One run of one subject.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub per_second: f64,
    /// Server CPU per request, in microseconds.
    pub cpu_us: f64,
    pub p50_ms: f64,
}

/// Drives a subject for a while; `cpu` tells what its processes have used so far.
pub async fn run<W: Worker>(
    workers: &mut Vec<W>,
    length: Duration,
    cpu: impl Fn() -> Result<Duration>,
) -> Result<Sample> {
    let before = cpu()?;
    let load = drive(workers, Until::Elapsed(length)).await?;
    let used = cpu()?.saturating_sub(before);
    Ok(Sample {
        per_second: load.per_second(),
        cpu_us: used.as_secs_f64() * 1e6 / load.n_requests.max(1) as f64,
        p50_ms: load.latency_ms(0.5),
    })
}

/// The median of each value by itself.
pub fn median_sample(samples: &[Sample]) -> Sample {
    let by = |value: fn(&Sample) -> f64| median(samples.iter().map(value).collect());
    Sample {
        per_second: by(|sample| sample.per_second),
        cpu_us: by(|sample| sample.cpu_us),
        p50_ms: by(|sample| sample.p50_ms),
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.0}/s, {:.1} µs CPU, p50 {:.2} ms",
            self.per_second, self.cpu_us, self.p50_ms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_whatever_the_order() {
        assert_eq!(median(vec![5.0, 1.0, 9.0, 2.0, 7.0]), 5.0);
    }
}
