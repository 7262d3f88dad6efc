//! Counters of requests, as Prometheus text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the buckets of durations, in seconds.
const BOUNDS_S: [f64; 8] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

#[derive(Debug, Default)]
struct Counted {
    by_status: BTreeMap<u16, u64>,
    buckets: [u64; BOUNDS_S.len()],
    seconds: f64,
    count: u64,
}

/// Requests by the name of their route.
#[derive(Debug, Default)]
pub struct Metrics {
    routes: Mutex<BTreeMap<&'static str, Counted>>,
}

impl Metrics {
    pub fn count(&self, route: &'static str, status: u16, took: Duration) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = routes.entry(route).or_default();
        *counted.by_status.entry(status).or_default() += 1;
        let seconds = took.as_secs_f64();
        for (bucket, bound) in counted.buckets.iter_mut().zip(BOUNDS_S) {
            *bucket += u64::from(seconds <= bound);
        }
        counted.seconds += seconds;
        counted.count += 1;
    }

    /// With gauges that somebody else knows.
    pub fn text(&self, gauges: &[(&str, f64)]) -> String {
        let mut text = String::new();
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str("# TYPE orrery_platform_requests_total counter\n");
        for (route, counted) in routes.iter() {
            for (status, count) in &counted.by_status {
                let labels = format!("route=\"{route}\",status=\"{status}\"");
                let _ = writeln!(text, "orrery_platform_requests_total{{{labels}}} {count}");
            }
        }
        text.push_str("# TYPE orrery_platform_request_seconds histogram\n");
        for (route, counted) in routes.iter() {
            for (bound, count) in BOUNDS_S.iter().zip(counted.buckets) {
                let _ = writeln!(
                    text,
                    "orrery_platform_request_seconds_bucket{{route=\"{route}\",le=\"{bound}\"}} {count}"
                );
            }
            let (count, seconds) = (counted.count, counted.seconds);
            let _ = writeln!(
                text,
                "orrery_platform_request_seconds_bucket{{route=\"{route}\",le=\"+Inf\"}} {count}"
            );
            let _ = writeln!(
                text,
                "orrery_platform_request_seconds_sum{{route=\"{route}\"}} {seconds}"
            );
            let _ = writeln!(
                text,
                "orrery_platform_request_seconds_count{{route=\"{route}\"}} {count}"
            );
        }
        for (name, value) in gauges {
            let _ = writeln!(text, "# TYPE {name} gauge\n{name} {value}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_under_its_route_status_and_duration() {
        let metrics = Metrics::default();
        metrics.count("me", 200, Duration::from_millis(20));
        metrics.count("me", 401, Duration::from_millis(1));
        let text = metrics.text(&[("orrery_platform_listeners", 3.0)]);
        for line in [
            "orrery_platform_requests_total{route=\"me\",status=\"200\"} 1",
            "orrery_platform_requests_total{route=\"me\",status=\"401\"} 1",
            "orrery_platform_request_seconds_bucket{route=\"me\",le=\"0.01\"} 1",
            "orrery_platform_request_seconds_bucket{route=\"me\",le=\"0.025\"} 2",
            "orrery_platform_request_seconds_count{route=\"me\"} 2",
            "orrery_platform_listeners 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
