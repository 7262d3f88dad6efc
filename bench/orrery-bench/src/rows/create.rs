//! Durable creates with the default indexing policy, against the limit and PostgreSQL.

use std::time::Duration;

use anyhow::Result;

use super::{Settings, record};
use crate::load::IN_FLIGHT;
use crate::load::http1::{Target, workers};
use crate::measure::{Sample, median_sample, run};
use crate::postgres::Postgres;
use crate::process::{Server, text};
use crate::report::Row;
use crate::requests::{create_once, creates, make_container};

const GOAL_OF_LIMIT: f64 = 0.6;
const GOAL_OF_POSTGRES: f64 = 1.0;
const WARM_UP: Duration = Duration::from_secs(1);

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let server = Server::durable(&scratch.path().join("data"))?;
    make_container(server.port).await?;
    let answer = record(&create_once(server.port, 0).await?, scratch.path())?;
    let store = scratch.path().join("limit");
    std::fs::create_dir(&store)?;
    let limit = Server::limit(&["--answer", text(&answer)?, "--store", text(&store)?])?;
    let postgres = Postgres::start(&settings.directory).await?;
    let mut ours = workers(&Target::plain(server.port), IN_FLIGHT, &creates(1), 201).await?;
    let mut bare = workers(&Target::plain(limit.port), IN_FLIGHT, &creates(1), 201).await?;
    let mut theirs = match &postgres {
        Some(postgres) => postgres.writers(1, IN_FLIGHT).await?,
        None => Vec::new(),
    };
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for round in 0..=settings.n_rounds {
        let length = if round == 0 { WARM_UP } else { settings.length };
        let ours = run(&mut ours, length, || server.cpu()).await?;
        let bare = run(&mut bare, length, || limit.cpu()).await?;
        let theirs = match &postgres {
            Some(postgres) => Some(run(&mut theirs, length, || postgres.cpu()).await?),
            None => None,
        };
        if round > 0 {
            samples[0].push(ours);
            samples[1].push(bare);
            samples[2].extend(theirs);
        }
    }
    let [ours, bare, theirs] = samples.map(|samples| median_sample(&samples));
    Ok(table(ours, bare, postgres.is_some().then_some(theirs)))
}

fn table(ours: Sample, bare: Sample, theirs: Option<Sample>) -> Vec<Row> {
    let of_limit = ours.per_second / bare.per_second;
    let mut rows = vec![Row::at_least(
        "durable create, 64 in flight",
        ours,
        format!("limit: {bare}"),
        of_limit,
        GOAL_OF_LIMIT,
    )];
    let Some(theirs) = theirs else {
        rows.push(Row::skipped("durable create against PostgreSQL 15", "no PostgreSQL 15"));
        return rows;
    };
    rows.push(Row::at_least(
        "durable create against PostgreSQL 15",
        ours,
        format!("PostgreSQL: {theirs}"),
        ours.per_second / theirs.per_second,
        GOAL_OF_POSTGRES,
    ));
    rows.push(Row::at_most(
        "server CPU per create against PostgreSQL 15",
        format!("{:.1} µs", ours.cpu_us),
        format!("PostgreSQL: {:.1} µs", theirs.cpu_us),
        ours.cpu_us / theirs.cpu_us,
        1.0,
    ));
    rows
}
