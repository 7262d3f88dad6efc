//! What the server counts, and the text in which Prometheus reads it.
//!
//! Counting a request is a handful of relaxed atomic additions. The set of operation names is fixed by the program, never
//! by what clients send, so the memory this takes is bounded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use orrery_model::Charge;
use orrery_node::meters::{LatencyCounts, Measure, Reading};

/// Statuses that are counted one by one; any other shares the last slot.
const STATUSES: [u16; 24] = [
    200, 201, 204, 207, 304, 400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 423, 424, 429, 431, 449, 500, 501, 503,
    0,
];

/// Upper bounds of the latency histogram in microseconds.
const BUCKETS_US: [u64; 14] = [
    25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000,
];

/// Name under which requests that were refused before they were understood are counted.
pub const UNKNOWN_OPERATION: &str = "unknown";

/// Operations that read items, and those that write them.
const READS: [&str; 4] = ["read_item", "read_items", "query_items", "change_feed"];
const WRITES: [&str; 8] = [
    "create_item",
    "upsert_item",
    "replace_item",
    "patch_item",
    "delete_item",
    "batch",
    "bulk",
    "delete_partition_key",
];

#[derive(Debug, Default)]
pub struct Metrics {
    operations: Operations,
    n_connections_open: AtomicI64,
    n_connections: AtomicU64,
    n_requests_active: AtomicI64,
    n_faults: AtomicU64,
    n_panics: AtomicU64,
}

/// The counters of each operation, in the order in which they were first counted. The table only grows, so that finding one takes
/// no lock; the usual ones are among the first.
#[derive(Debug)]
struct Operations([OnceLock<(&'static str, Box<OperationMetrics>)>; OPERATIONS_MAX]);

/// More than there are names.
const OPERATIONS_MAX: usize = 128;

impl Default for Operations {
    fn default() -> Operations {
        Operations([const { OnceLock::new() }; OPERATIONS_MAX])
    }
}

impl Operations {
    fn of(&self, operation: &'static str) -> &OperationMetrics {
        let (_, metrics) = self
            .0
            .iter()
            .map(|place| place.get_or_init(|| (operation, Box::default())))
            .find(|(name, _)| *name == operation)
            .expect("there is a place for every name");
        metrics
    }

    fn iter(&self) -> impl Iterator<Item = (&'static str, &OperationMetrics)> {
        let known = self.0.iter().map_while(OnceLock::get);
        known.map(|(name, metrics)| (*name, &**metrics))
    }
}

#[derive(Debug, Default)]
struct OperationMetrics {
    by_status: [AtomicU64; STATUSES.len()],
    by_latency: [AtomicU64; BUCKETS_US.len() + 1],
    latency_us: AtomicU64,
    charge_hundredths: AtomicU64,
}

/// Counts something open until it is dropped.
#[derive(Debug)]
pub struct Counted<'a>(&'a AtomicI64);

impl<'a> Counted<'a> {
    fn new(gauge: &'a AtomicI64) -> Counted<'a> {
        gauge.fetch_add(1, Ordering::Relaxed);
        Counted(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub fn connection(&self) -> Counted<'_> {
        self.n_connections.fetch_add(1, Ordering::Relaxed);
        Counted::new(&self.n_connections_open)
    }

    pub fn request(&self) -> Counted<'_> {
        Counted::new(&self.n_requests_active)
    }

    pub fn fault(&self) {
        self.n_faults.fetch_add(1, Ordering::Relaxed);
    }

    pub fn panic(&self) {
        self.n_panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answered request.
    pub fn record(&self, operation: &'static str, status: u16, took: Duration, charge: Charge) {
        let metrics = self.operations.of(operation);
        let slot = STATUSES
            .iter()
            .position(|known| *known == status)
            .unwrap_or(STATUSES.len() - 1);
        metrics.by_status[slot].fetch_add(1, Ordering::Relaxed);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_US
            .iter()
            .position(|bound| took_us <= *bound)
            .unwrap_or(BUCKETS_US.len());
        metrics.by_latency[bucket].fetch_add(1, Ordering::Relaxed);
        metrics.latency_us.fetch_add(took_us, Ordering::Relaxed);
        metrics
            .charge_hundredths
            .fetch_add(charge.as_hundredths(), Ordering::Relaxed);
    }

    /// Requests that read items and that wrote items, since the start.
    pub fn item_requests(&self) -> (u64, u64) {
        let count = |names: &[&str]| {
            let known = self.operations.iter().filter(|(name, _)| names.contains(name));
            let counts = known.flat_map(|(_, metrics)| &metrics.by_status);
            counts.map(|count| count.load(Ordering::Relaxed)).sum()
        };
        (count(&READS), count(&WRITES))
    }

    /// The Prometheus text format, version 0.0.4.
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(4096);
        let gauge = |value: &AtomicI64| value.load(Ordering::Relaxed).max(0) as u64;
        let single = [
            (
                "orrery_connections_open",
                "gauge",
                "connections that are open",
                gauge(&self.n_connections_open),
            ),
            (
                "orrery_connections_total",
                "counter",
                "connections accepted",
                self.n_connections.load(Ordering::Relaxed),
            ),
            (
                "orrery_requests_active",
                "gauge",
                "requests under way",
                gauge(&self.n_requests_active),
            ),
            (
                "orrery_faults_total",
                "counter",
                "requests a fault rule was applied to",
                self.n_faults.load(Ordering::Relaxed),
            ),
            (
                "orrery_panics_total",
                "counter",
                "requests that ended in a bug of the server",
                self.n_panics.load(Ordering::Relaxed),
            ),
        ];
        for (name, kind, help, value) in single {
            head(&mut text, name, kind, help);
            let _ = writeln!(text, "{name} {value}");
        }
        let operations = self.operations.iter().collect();
        render_requests(&mut text, &operations);
        render_charges(&mut text, &operations);
        render_latencies(&mut text, &operations);
        text
    }
}

type Sorted<'a> = BTreeMap<&'static str, &'a OperationMetrics>;

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// Adds what a node measures. Measures of one name that follow each other share a head.
pub fn render_measures(text: &mut String, measures: &[Measure]) {
    let mut last = "";
    for Measure {
        name,
        help,
        labels,
        reading,
    } in measures
    {
        let kind = match reading {
            Reading::Counter(_) => "counter",
            Reading::Gauge(_) => "gauge",
            Reading::Latency(_) => "histogram",
        };
        if *name != last {
            head(text, name, kind, help);
        }
        last = name;
        let labels: String = labels.iter().map(|(label, value)| label_text(label, value)).collect();
        match reading {
            Reading::Counter(value) | Reading::Gauge(value) => match labels.strip_suffix(',') {
                Some(labels) => drop(writeln!(text, "{name}{{{labels}}} {value}")),
                None => drop(writeln!(text, "{name} {value}")),
            },
            Reading::Latency(latency) => render_histogram(text, name, &labels, latency),
        }
    }
}

/// A label with a comma after it, its value escaped as the format asks for.
fn label_text(label: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{label}=\"{value}\",")
}

/// The lines of one histogram. `label` is empty or ends with a comma.
fn render_histogram(text: &mut String, name: &str, label: &str, latency: &LatencyCounts) {
    let mut count = 0;
    for (bound_us, bucket) in latency.bounds_us.iter().zip(&latency.counts) {
        count += bucket;
        let bound = *bound_us as f64 / 1e6;
        let _ = writeln!(text, "{name}_bucket{{{label}le=\"{bound}\"}} {count}");
    }
    let count: u64 = latency.counts.iter().sum();
    let _ = writeln!(text, "{name}_bucket{{{label}le=\"+Inf\"}} {count}");
    let labels = match label.strip_suffix(',') {
        Some(label) => format!("{{{label}}}"),
        None => String::new(),
    };
    let sum = latency.sum_us as f64 / 1e6;
    let _ = writeln!(text, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}");
}

fn render_requests(text: &mut String, operations: &Sorted<'_>) {
    head(text, "orrery_requests_total", "counter", "requests answered");
    for (operation, metrics) in operations {
        for (status, count) in STATUSES.iter().zip(&metrics.by_status) {
            let (status, count) = (
                if *status == 0 {
                    "other".to_owned()
                } else {
                    status.to_string()
                },
                count.load(Ordering::Relaxed),
            );
            if count > 0 {
                let _ = writeln!(
                    text,
                    "orrery_requests_total{{operation=\"{operation}\",status=\"{status}\"}} {count}"
                );
            }
        }
    }
}

fn render_charges(text: &mut String, operations: &Sorted<'_>) {
    head(text, "orrery_request_units_total", "counter", "request units charged");
    for (operation, metrics) in operations {
        let charge = Charge::hundredths(metrics.charge_hundredths.load(Ordering::Relaxed));
        let _ = writeln!(text, "orrery_request_units_total{{operation=\"{operation}\"}} {charge}");
    }
}

fn render_latencies(text: &mut String, operations: &Sorted<'_>) {
    const NAME: &str = "orrery_request_seconds";
    head(text, NAME, "histogram", "time from the head of a request to its answer");
    for (operation, metrics) in operations {
        let latency = LatencyCounts {
            bounds_us: BUCKETS_US.to_vec(),
            counts: metrics
                .by_latency
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect(),
            sum_us: metrics.latency_us.load(Ordering::Relaxed),
        };
        render_histogram(text, NAME, &format!("operation=\"{operation}\","), &latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_operation_and_status() {
        let metrics = Metrics::default();
        metrics.record("read_item", 200, Duration::from_micros(30), Charge::hundredths(100));
        metrics.record("read_item", 200, Duration::from_micros(300), Charge::hundredths(105));
        metrics.record("read_item", 404, Duration::from_secs(60), Charge::ZERO);
        metrics.record("read_item", 418, Duration::ZERO, Charge::ZERO);
        let text = metrics.render();
        for line in [
            "orrery_requests_total{operation=\"read_item\",status=\"200\"} 2",
            "orrery_requests_total{operation=\"read_item\",status=\"404\"} 1",
            "orrery_requests_total{operation=\"read_item\",status=\"other\"} 1",
            "orrery_request_units_total{operation=\"read_item\"} 2.05",
            "orrery_request_seconds_bucket{operation=\"read_item\",le=\"0.00005\"} 2",
            "orrery_request_seconds_bucket{operation=\"read_item\",le=\"+Inf\"} 4",
            "orrery_request_seconds_count{operation=\"read_item\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} missing in\n{text}");
        }
    }

    #[test]
    fn measures_of_one_name_share_a_head_and_differ_in_their_labels() {
        let lag = |region: &str, value| Measure {
            name: "orrery_lag",
            help: "what is missing",
            labels: vec![("region", region.to_owned())],
            reading: Reading::Gauge(value),
        };
        let mut text = String::new();
        render_measures(&mut text, &[lag("West \"US\"", 1), lag("North Europe", 2)]);
        let expected = "# HELP orrery_lag what is missing\n# TYPE orrery_lag gauge\n\
                        orrery_lag{region=\"West \\\"US\\\"\"} 1\norrery_lag{region=\"North Europe\"} 2\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn gauges_go_back_when_what_they_count_ends() {
        let metrics = Metrics::default();
        let open = metrics.connection();
        assert!(metrics.render().contains("orrery_connections_open 1\n"));
        drop(open);
        assert!(metrics.render().contains("orrery_connections_open 0\n"));
        assert!(metrics.render().contains("orrery_connections_total 1\n"));
    }
}
