//! Point reads: over HTTP/1.1, TLS and HTTP/2 against the limit, and against PostgreSQL.

use std::time::Duration;

use anyhow::Result;

use super::{Settings, filled, record};
use crate::limit::Protocol;
use crate::load::http1::{Target, workers};
use crate::load::{IN_FLIGHT, Worker, http2};
use crate::measure::{Sample, median_sample, run};
use crate::postgres::Postgres;
use crate::process::{Server, text};
use crate::report::Row;
use crate::requests::{read_once, reads, reads_http2};
use crate::tls::Certificate;

const GOAL_OF_LIMIT: f64 = 0.8;
const GOAL_OF_POSTGRES: f64 = 1.0;
const CPU_US_GOAL: f64 = 30.0;
/// Of each subject, before anything counts.
const WARM_UP: Duration = Duration::from_secs(1);

/// HTTP/1.1 against the limit and PostgreSQL, in the same rounds.
pub async fn plain(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let server = filled(&scratch.path().join("data"), settings.n_items).await?;
    let answer = record(&read_once(server.port, 0).await?, scratch.path())?;
    let limit = Server::limit(&["--answer", text(&answer)?])?;
    let postgres = Postgres::start(&settings.directory).await?;
    if let Some(postgres) = &postgres {
        postgres.fill(settings.n_items, IN_FLIGHT).await?;
    }
    let fill = reads(settings.n_items);
    let mut ours = workers(&Target::plain(server.port), IN_FLIGHT, &fill, 200).await?;
    let mut bare = workers(&Target::plain(limit.port), IN_FLIGHT, &fill, 200).await?;
    let mut theirs = match &postgres {
        Some(postgres) => postgres.readers(settings.n_items, IN_FLIGHT).await?,
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
    Ok(vec![
        against_limit("point read, HTTP/1.1, 64 connections", ours, bare),
        match &postgres {
            None => Row::skipped("point read against PostgreSQL 15", "no PostgreSQL 15"),
            Some(_) => Row::at_least(
                "point read against PostgreSQL 15",
                ours,
                format!("PostgreSQL: {theirs}"),
                ours.per_second / theirs.per_second,
                GOAL_OF_POSTGRES,
            ),
        },
        Row::below("server CPU per point read", ours.cpu_us, "µs", CPU_US_GOAL),
    ])
}

/// TLS or HTTP/2 against the limit.
pub async fn other(settings: &Settings, protocol: Protocol) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let certificate = Certificate::make(scratch.path())?;
    let (chain, key) = (text(&certificate.chain)?, text(&certificate.key)?);
    let data = scratch.path().join("data");
    // Filled by one process, measured in another: the certificate is a setting of the server.
    filled(&data, settings.n_items).await?.stop()?;
    let server = Server::orrery(&["--data-dir", text(&data)?, "--tls", &format!("{chain},{key}")])?;
    let answer = record(&read_once(server.port, 0).await?, scratch.path())?;
    let answer = text(&answer)?;
    if protocol == Protocol::Tls {
        let limit = Server::limit(&["--answer", answer, "--protocol", "tls", "--certificate", chain, key])?;
        let fill = reads(settings.n_items);
        let target = |port| {
            Ok::<_, anyhow::Error>(Target {
                port,
                tls: Some(certificate.connector()?),
            })
        };
        let ours = workers(&target(server.port)?, IN_FLIGHT, &fill, 200).await?;
        let bare = workers(&target(limit.port)?, IN_FLIGHT, &fill, 200).await?;
        let (ours, bare) = alternate(settings, (&server, ours), (&limit, bare)).await?;
        return Ok(vec![against_limit(
            "point read, HTTP/1.1 over TLS, 64 connections",
            ours,
            bare,
        )]);
    }
    let limit = Server::limit(&["--answer", answer, "--protocol", "http2"])?;
    let requests = reads_http2(settings.n_items);
    let ours = http2::workers(&Target::plain(server.port), IN_FLIGHT, &requests).await?;
    let bare = http2::workers(&Target::plain(limit.port), IN_FLIGHT, &requests).await?;
    let (ours, bare) = alternate(settings, (&server, ours), (&limit, bare)).await?;
    Ok(vec![against_limit(
        "point read, HTTP/2, 64 in flight on 4 connections",
        ours,
        bare,
    )])
}

/// Medians of alternating runs of two servers.
pub async fn alternate<W: Worker>(
    settings: &Settings,
    (first, mut first_workers): (&Server, Vec<W>),
    (second, mut second_workers): (&Server, Vec<W>),
) -> Result<(Sample, Sample)> {
    let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
    for round in 0..=settings.n_rounds {
        let length = if round == 0 { WARM_UP } else { settings.length };
        let first = run(&mut first_workers, length, || first.cpu()).await?;
        let second = run(&mut second_workers, length, || second.cpu()).await?;
        if round > 0 {
            of_first.push(first);
            of_second.push(second);
        }
    }
    Ok((median_sample(&of_first), median_sample(&of_second)))
}

fn against_limit(what: &str, ours: Sample, limit: Sample) -> Row {
    let ratio = ours.per_second / limit.per_second;
    Row::at_least(what, ours, format!("limit: {limit}"), ratio, GOAL_OF_LIMIT)
}
