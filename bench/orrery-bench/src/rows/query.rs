//! Queries that the index serves, among ten thousand, a hundred thousand and a million items: what one costs beside a point
//! read, and whether it costs more where there are more items.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Settings, fill_quickly};
use crate::load::IN_FLIGHT;
use crate::load::http1::{Fill, Http1Worker, Target, workers};
use crate::measure::{Sample, median, median_sample, run};
use crate::process::Server;
use crate::report::{Row, plot};
use crate::requests::{equality_queries, make_container, ordered_queries, property_queries, query_once, reads_among};
use crate::svg::{Chart, Line};

/// A query against a point read of the same container.
const GOAL_OF_READ: f64 = 0.5;
/// Ten times the items, and the largest container against the smallest.
const GOAL_TENFOLD: f64 = 1.3;
const GOAL_ORDERED: f64 = 1.5;
const WARM_UP: Duration = Duration::from_millis(500);
/// Documents that point reads choose from: their requests are signed beforehand.
const READ_MAX: u64 = 100_000;
const SCAN: &str = "SELECT VALUE COUNT(1) FROM c WHERE c.rank + c.owner.age + c.score < 0";
const OPERATIONS: [&str; 5] = [
    "point read",
    "equality, one row by its id",
    "equality, one row by a property",
    "ORDER BY, first 20",
    "ORDER BY, 20 from anywhere",
];
const N_OPERATIONS: usize = OPERATIONS.len();

/// A container of one size.
struct Subject {
    n_items: u64,
    server: Server,
    /// As [`OPERATIONS`].
    workers: Vec<Vec<Http1Worker>>,
    samples: [Vec<Sample>; N_OPERATIONS],
    /// Server CPU per item of a scan.
    scan_us: Vec<f64>,
}

pub async fn rows(settings: &Settings) -> Result<(Vec<Row>, String)> {
    let scratch = settings.scratch()?;
    let mut subjects = Vec::new();
    for n_items in &settings.query_sizes {
        subjects.push(Subject::filled(&scratch.path().join(n_items.to_string()), *n_items).await?);
    }
    // Not before all are filled: a server closes connections that say nothing for a while.
    for subject in &mut subjects {
        subject.connect().await?;
    }
    for round in 0..=settings.n_rounds {
        let length = if round == 0 { WARM_UP } else { settings.length / 3 };
        for operation in 0..OPERATIONS.len() {
            for subject in &mut subjects {
                let sample = run(&mut subject.workers[operation], length, || subject.server.cpu()).await?;
                if round > 0 {
                    subject.samples[operation].push(sample);
                }
            }
        }
        for subject in &mut subjects {
            subject.scan().await?;
        }
    }
    let path = settings.plots.join("cost-by-size.svg");
    chart(&subjects).write(&path)?;
    Ok((table(&subjects), bars(&subjects)))
}

impl Subject {
    async fn filled(directory: &Path, n_items: u64) -> Result<Subject> {
        let server = Server::durable(directory)?;
        make_container(server.port).await?;
        fill_quickly(&server, n_items).await?;
        Ok(Subject {
            n_items,
            server,
            workers: Vec::new(),
            samples: Default::default(),
            scan_us: Vec::new(),
        })
    }

    async fn connect(&mut self) -> Result<()> {
        let fills: [Fill; N_OPERATIONS] = [
            reads_among(self.n_items, self.n_items.min(READ_MAX)),
            equality_queries(self.n_items),
            property_queries(self.n_items),
            ordered_queries(false),
            ordered_queries(true),
        ];
        for fill in &fills {
            let connected = workers(&Target::plain(self.server.port), IN_FLIGHT, fill, 200).await?;
            self.workers.push(connected);
        }
        Ok(())
    }

    async fn scan(&mut self) -> Result<()> {
        let (before, started) = (self.server.cpu()?, Instant::now());
        let answer = query_once(self.server.port, SCAN).await?;
        ensure!(
            answer.body.windows(3).any(|text| text == b"[0]"),
            "a scan of {} items ended after {:?} with another answer than 0",
            self.n_items,
            started.elapsed()
        );
        let used = self.server.cpu()?.saturating_sub(before);
        self.scan_us.push(used.as_secs_f64() * 1e6 / self.n_items as f64);
        Ok(())
    }

    fn sample(&self, operation: usize) -> Sample {
        median_sample(&self.samples[operation])
    }
}

fn table(subjects: &[Subject]) -> Vec<Row> {
    let [small, .., large] = subjects else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for operation in [1, 2] {
        rows.push(of_read(operation, small));
        for pair in subjects.windows(2) {
            rows.push(growth(operation, &pair[1], &pair[0], GOAL_TENFOLD));
        }
    }
    for operation in [3, 4] {
        rows.push(growth(operation, large, small, GOAL_ORDERED));
    }
    rows
}

fn of_read(operation: usize, subject: &Subject) -> Row {
    let (read, query) = (subject.sample(0), subject.sample(operation));
    Row::at_least(
        &format!("indexed {}, {} items", OPERATIONS[operation], subject.n_items),
        query,
        format!("own point read: {read}"),
        query.per_second / read.per_second,
        GOAL_OF_READ,
    )
}

fn growth(operation: usize, many: &Subject, few: &Subject, goal: f64) -> Row {
    let what = OPERATIONS[operation];
    let (dear, cheap) = (many.sample(operation), few.sample(operation));
    Row::at_most(
        &format!("growth: {what}, {} → {} items", few.n_items, many.n_items),
        dear,
        format!("{} items: {cheap}", few.n_items),
        dear.cpu_us / cheap.cpu_us,
        goal,
    )
}

fn chart(subjects: &[Subject]) -> Chart {
    let line = |operation: usize| Line {
        name: OPERATIONS[operation].to_owned(),
        points: subjects
            .iter()
            .map(|subject| (subject.n_items as f64, subject.sample(operation).cpu_us))
            .collect(),
    };
    let scan = Line {
        name: "full scan, per item".to_owned(),
        points: subjects
            .iter()
            .map(|subject| (subject.n_items as f64, median(subject.scan_us.clone())))
            .collect(),
    };
    Chart {
        title: "Server CPU per operation against the number of items".to_owned(),
        x_label: "items".to_owned(),
        y_label: "µs".to_owned(),
        lines: (0..OPERATIONS.len()).map(line).chain([scan]).collect(),
    }
}

fn bars(subjects: &[Subject]) -> String {
    let bars: Vec<(String, f64)> = (0..OPERATIONS.len())
        .flat_map(|operation| subjects.iter().map(move |subject| (operation, subject)))
        .map(|(operation, subject)| {
            let label = format!("{}, {} items", OPERATIONS[operation], subject.n_items);
            (label, subject.sample(operation).cpu_us)
        })
        .collect();
    plot("server CPU per operation as items grow", "µs", &bars)
}
