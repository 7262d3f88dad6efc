//! Queries over eight partitions, all of which split between two pages.

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::options::QueryPlanMode;
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::catalogue::{Ask, Catalogue, N_ITEMS, by_text, items, rest, same};
use crate::harness::{Cases, cases};
use crate::scene::Scene;

pub fn cases() -> Cases {
    const NO_AGGREGATES: &str = "The SDK refuses aggregates and GROUP BY over several partitions.";
    const NO_FULL_TEXT: &str = "The SDK refuses full text and hybrid ranks over several partitions.";
    cases![
        "query-scan" => [scan],
        "query-order-by" => [order_by],
        "query-order-by-ties" => [order_by_ties],
        "query-order-by-two" => [order_by_two],
        "query-order-by-types" => [order_by_types],
        "query-top" => [top],
        "query-offset-limit" => [offset_limit],
        "query-distinct" => [distinct],
        "query-aggregates" => [skip NO_AGGREGATES],
        "query-group-by" => [skip NO_AGGREGATES],
        "query-vector" => [vector],
        "query-full-text" => [skip NO_FULL_TEXT],
        "query-hybrid" => [skip NO_FULL_TEXT],
        "query-resume-after-split" => [resume_after_split],
        "query-resume-ties-after-split" => [resume_ties_after_split],
    ]
}

fn numbers(range: impl Iterator<Item = u64>) -> Vec<Value> {
    range.map(Value::from).collect()
}

async fn scan(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    catalogue
        .expect_in_any_order("SELECT VALUE c.n FROM c", 10, numbers(0..N_ITEMS))
        .await
}

async fn order_by(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    catalogue
        .expect("SELECT VALUE c.n FROM c ORDER BY c.n", 10, numbers(0..N_ITEMS))
        .await?;
    let query = "SELECT VALUE c.n FROM c WHERE c.n < 50 ORDER BY c.n DESC";
    catalogue.expect(query, 10, numbers((0..50).rev())).await
}

/// Sorted by tie, and every item once.
fn complete_by_tie(rows: &[Value]) -> Result<()> {
    let ties: Vec<_> = rows.iter().map(|row| row[0].as_u64()).collect();
    ensure!(ties.is_sorted(), "not sorted: {}", json!(rows));
    let pairs: Vec<_> = items().iter().map(|item| json!([item["tie"], item["n"]])).collect();
    same(&by_text(rows), &by_text(&pairs))
}

async fn order_by_ties(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    catalogue
        .check("SELECT VALUE [c.tie, c.n] FROM c ORDER BY c.tie", 7, complete_by_tie)
        .await
}

async fn order_by_two(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    let mut pairs: Vec<_> = items()
        .iter()
        .map(|item| (item["tie"].as_u64(), item["n"].as_u64()))
        .collect();
    pairs.sort_by_key(|(tie, n)| (*tie, std::cmp::Reverse(*n)));
    let expected = pairs.into_iter().map(|(tie, n)| json!([tie, n])).collect();
    let query = "SELECT VALUE [c.tie, c.n] FROM c ORDER BY c.tie ASC, c.n DESC";
    catalogue.expect(query, 10, expected).await
}

/// The order of kinds, and within a kind.
fn place(row: &Value) -> (u8, u64, String) {
    match row.get("mixed") {
        None => (0, 0, String::new()),
        Some(Value::Null) => (1, 0, String::new()),
        Some(Value::Bool(value)) => (2, u64::from(*value), String::new()),
        Some(Value::Number(value)) => (3, value.as_u64().unwrap_or(u64::MAX), String::new()),
        Some(other) => (4, 0, other.to_string()),
    }
}

async fn order_by_types(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    let mut places: Vec<_> = items().iter().map(place).collect();
    places.sort();
    let right = |rows: &[Value]| {
        let found: Vec<_> = rows.iter().map(place).collect();
        ensure!(found == places, "got {}", json!(rows));
        Ok(())
    };
    catalogue
        .check("SELECT c.n, c.mixed FROM c ORDER BY c.mixed", 10, right)
        .await
}

async fn top(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    let query = "SELECT TOP 25 VALUE c.n FROM c ORDER BY c.n DESC";
    catalogue.expect(query, 10, numbers((95..120).rev())).await
}

async fn offset_limit(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    let query = "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 15 LIMIT 30";
    catalogue.expect(query, 10, numbers(15..45)).await?;
    let right = |rows: &[Value]| {
        let mut found = by_text(rows);
        found.dedup();
        ensure!(rows.len() == 50 && found.len() == 50, "got {}", json!(rows));
        Ok(())
    };
    catalogue
        .check("SELECT VALUE c.n FROM c OFFSET 5 LIMIT 50", 10, right)
        .await
}

async fn distinct(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    let families: Vec<_> = (0..5).map(|number| json!(format!("family {number}"))).collect();
    let pair = |tie: u64| families.iter().map(move |family| json!({"tie": tie, "family": family}));
    // Without a sort this SDK wants to know how many rows it must remember.
    catalogue
        .expect_in_any_order(
            "SELECT DISTINCT TOP 100 c.tie, c.family FROM c",
            6,
            (0..4).flat_map(pair).collect(),
        )
        .await?;
    let query = "SELECT DISTINCT VALUE c.family FROM c ORDER BY c.family";
    catalogue.expect(query, 2, families.clone()).await
}

async fn vector(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    let nearest = [3, 6, 9, 1, 4, 7, 10, 2, 5, 8];
    let expected = nearest.map(|rank: u32| json!({"id": ((rank - 1) * 12).to_string()}));
    let query = "SELECT TOP 10 c.id FROM c ORDER BY VectorDistance(c.vector, [2000, 1])";
    catalogue.expect(query, 4, expected.to_vec()).await
}

/// Reads a page, splits, and goes on with the continuation in a new pager.
async fn resumed_after_split(catalogue: &Catalogue, query: &str, mode: QueryPlanMode) -> Result<Vec<Value>> {
    let ask = Ask {
        query,
        page_size: 25,
        mode,
    };
    let mut pages = catalogue.pages(ask, None).await?;
    let mut rows = pages.next().await.context("there is no page")??.into_items();
    let token = pages.to_continuation_token()?;
    ensure!(!rows.is_empty() && rows.len() <= 25, "{} rows", rows.len());
    catalogue.split().await?;
    rows.extend(rest(catalogue.pages(ask, Some(token)).await?).await?);
    Ok(rows)
}

const MODES: [QueryPlanMode; 2] = [QueryPlanMode::LocalPreferred, QueryPlanMode::GatewayOnly];

async fn resume_after_split(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    for mode in MODES {
        let rows = resumed_after_split(&catalogue, "SELECT VALUE c.n FROM c ORDER BY c.n", mode).await?;
        same(&rows, &numbers(0..N_ITEMS))?;
    }
    Ok(())
}

async fn resume_ties_after_split(scene: Scene) -> Result<()> {
    let catalogue = Catalogue::create(scene).await?;
    let query = "SELECT VALUE [c.tie, c.n] FROM c ORDER BY c.tie";
    for mode in MODES {
        complete_by_tie(&resumed_after_split(&catalogue, query, mode).await?)?;
    }
    Ok(())
}
