//! Runs the scenarios side by side and writes down what came of each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use serde_json::json;

use crate::scenarios;
use crate::scene::{Environment, Scene};

const SCENARIOS: &str = include_str!("../../scenarios.toml");
const LOCK_FILE: &str = include_str!("../Cargo.lock");
const CONCURRENCY: usize = 8;
const SCENARIO_TIMEOUT: Duration = Duration::from_secs(180);

pub type Cases = Vec<(&'static str, Case)>;

/// What is done about a scenario.
#[derive(Clone)]
pub enum Case {
    Run(fn(Scene) -> BoxFuture<'static, Result<()>>),
    /// A sentence on why the SDK cannot express it.
    Skip(&'static str),
}

/// A list of cases: `"name" => function` or `"name" => skip "reason"`.
macro_rules! cases {
    (@case $case:path) => { $crate::harness::Case::Run(|scene| Box::pin($case(scene))) };
    (@case skip $reason:expr) => { $crate::harness::Case::Skip($reason) };
    ($($name:literal => [$($case:tt)+]),* $(,)?) => {
        vec![$(($name, $crate::harness::cases!(@case $($case)+))),*]
    };
}
pub(crate) use cases;

pub async fn run(environment: Environment) -> Result<()> {
    check_names(&[scenarios::all(), scenarios::one_by_one()].concat())?;
    let path = environment.results.clone();
    let (side_by_side, one_by_one) = futures::join!(
        play(environment.clone(), scenarios::all(), CONCURRENCY),
        play(environment, scenarios::one_by_one(), 1),
    );
    let outcomes: BTreeMap<&str, String> = side_by_side.into_iter().chain(one_by_one).collect();
    let results = json!({
        "language": "rust",
        "sdk": "azure_data_cosmos",
        "version": sdk_version()?,
        "results": outcomes,
    });
    std::fs::write(&path, results.to_string()).with_context(|| format!("cannot write {}", path.display()))
}

async fn play(environment: Environment, cases: Cases, concurrency: usize) -> BTreeMap<&'static str, String> {
    stream::iter(cases)
        .map(|(name, case)| {
            let environment = environment.clone();
            async move { (name, outcome(environment, name, case).await) }
        })
        .buffer_unordered(concurrency)
        .inspect(|(name, outcome)| eprintln!("{name}: {outcome}"))
        .collect()
        .await
}

/// The list is the truth: nothing missing here, nothing made up.
fn check_names(cases: &[(&'static str, Case)]) -> Result<()> {
    let listed: BTreeSet<&str> = SCENARIOS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name)
        .collect();
    let ours: BTreeSet<&str> = cases.iter().map(|(name, _)| *name).collect();
    let difference: Vec<_> = listed.symmetric_difference(&ours).collect();
    ensure!(
        difference.is_empty() && cases.len() == ours.len(),
        "not as in scenarios.toml: {difference:?}"
    );
    Ok(())
}

async fn outcome(environment: Environment, name: &'static str, case: Case) -> String {
    let run = match case {
        Case::Skip(reason) => return format!("skip: {reason}"),
        Case::Run(run) => run,
    };
    // A task of its own turns a panic into a result.
    let task = tokio::spawn(async move {
        let scene = Scene::open(environment, name).await?;
        let result = tokio::time::timeout(SCENARIO_TIMEOUT, run(scene.clone())).await;
        scene.clean_up().await;
        result.context("took too long")?
    });
    match task.await {
        Ok(Ok(())) => "pass".to_owned(),
        Ok(Err(error)) => format!("fail: {}", one_line(&format!("{error:#}"))),
        Err(panic) => format!("fail: {}", one_line(&panic.to_string())),
    }
}

fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(600).collect()
}

fn sdk_version() -> Result<&'static str> {
    let mut lines = LOCK_FILE
        .lines()
        .skip_while(|line| *line != r#"name = "azure_data_cosmos""#)
        .skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = \""));
    version
        .and_then(|line| line.strip_suffix('"'))
        .context("Cargo.lock has no azure_data_cosmos")
}
