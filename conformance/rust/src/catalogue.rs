//! The data of the query scenarios: 120 items of 40 keys in a container of eight physical partitions. See `../README.md`.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::FeedScope;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::{ContinuationToken, QueryPageIterator};
use azure_data_cosmos::models::{
    CompositeIndex, CompositeIndexOrder, CompositeIndexProperty, ContainerProperties, FullTextIndex, FullTextPath,
    FullTextPolicy, IndexingPolicy, ThroughputProperties, VectorDataType, VectorDistanceFunction, VectorEmbedding,
    VectorEmbeddingPolicy, VectorIndex, VectorIndexType,
};
use azure_data_cosmos::options::{CreateContainerOptions, MaxItemCountHint, QueryOptions, QueryPlanMode};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use crate::admin;
use crate::scene::Scene;

pub const N_ITEMS: u64 = 120;
const N_PARTITIONS: u64 = 8;
const FILL_CONCURRENCY: usize = 8;

pub struct Catalogue {
    scene: Scene,
    container: ContainerClient,
}

/// How a query is asked.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub query: &'a str,
    pub page_size: u32,
    pub mode: QueryPlanMode,
}

impl Catalogue {
    pub async fn create(scene: Scene) -> Result<Catalogue> {
        let database = scene.database().await?;
        let options =
            CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(10_000 * N_PARTITIONS));
        database
            .create_container(properties(scene.name.clone()), Some(options))
            .await?;
        let container = database.container_client(&scene.name, None).await?;
        let n_ranges = container.read_feed_ranges(None).await?.len() as u64;
        ensure!(n_ranges == N_PARTITIONS, "{n_ranges} ranges instead of {N_PARTITIONS}");
        let catalogue = Catalogue { scene, container };
        stream::iter((0..N_ITEMS).map(item).map(Ok))
            .try_for_each_concurrent(FILL_CONCURRENCY, |item| catalogue.add(item))
            .await?;
        Ok(catalogue)
    }

    async fn add(&self, item: Value) -> Result<()> {
        let text = |name: &str| item[name].as_str().map(str::to_owned).context("an item without a name");
        self.container
            .create_item(text("pk")?, &text("id")?, &item, None)
            .await?;
        Ok(())
    }

    /// Splits eight partitions: all there are, the first time.
    pub async fn split(&self) -> Result<()> {
        let (environment, name) = (&self.scene.environment, &self.scene.name);
        let n_partitions = N_PARTITIONS as usize;
        admin::split_partitions(&environment.endpoint, &environment.key, name, name, n_partitions).await
    }

    pub async fn pages(&self, ask: Ask<'_>, from: Option<ContinuationToken>) -> Result<QueryPageIterator<Value>> {
        let size = NonZeroU32::new(ask.page_size).context("a page has rows")?;
        let mut options = QueryOptions::default()
            .with_query_plan_mode(ask.mode)
            .with_max_item_count(MaxItemCountHint::Limit(size));
        if let Some(token) = from {
            options = options.with_continuation_token(token);
        }
        let found = self
            .container
            .query_items(ask.query, FeedScope::full_container(), Some(options))
            .await?;
        Ok(found.into_pages())
    }

    async fn rows(&self, ask: Ask<'_>) -> Result<Vec<Value>> {
        rest(self.pages(ask, None).await?).await
    }

    /// The partitions split when one page has been read.
    async fn rows_across_split(&self, ask: Ask<'_>) -> Result<Vec<Value>> {
        let mut pages = self.pages(ask, None).await?;
        let mut rows = pages.next().await.context("there is no page")??.into_items();
        self.split().await?;
        rows.extend(rest(pages).await?);
        Ok(rows)
    }

    /// Looks at the rows of a query before, during and after a split, and during one when the server has planned it.
    pub async fn check(&self, query: &str, page_size: u32, right: impl Fn(&[Value]) -> Result<()>) -> Result<()> {
        let mode = QueryPlanMode::LocalPreferred;
        let ask = Ask { query, page_size, mode };
        let mode = QueryPlanMode::GatewayOnly;
        let planned_there = Ask { mode, ..ask };
        right(&self.rows(ask).await?).with_context(|| format!("{query} before a split"))?;
        right(&self.rows_across_split(ask).await?).with_context(|| format!("{query} during a split"))?;
        right(&self.rows(ask).await?).with_context(|| format!("{query} after a split"))?;
        right(&self.rows_across_split(planned_there).await?).with_context(|| format!("{query} planned by the server"))
    }

    /// Exactly these rows.
    pub async fn expect(&self, query: &str, page_size: u32, expected: Vec<Value>) -> Result<()> {
        self.check(query, page_size, |rows| same(rows, &expected)).await
    }

    /// Exactly these rows, sorted or not.
    pub async fn expect_in_any_order(&self, query: &str, page_size: u32, expected: Vec<Value>) -> Result<()> {
        self.check(query, page_size, |rows| same(&by_text(rows), &by_text(&expected)))
            .await
    }
}

/// The rows of all pages to come.
pub async fn rest(pages: QueryPageIterator<Value>) -> Result<Vec<Value>> {
    let pages: Vec<_> = pages.try_collect().await?;
    Ok(pages.into_iter().flat_map(|page| page.into_items()).collect())
}

pub fn same(rows: &[Value], expected: &[Value]) -> Result<()> {
    ensure!(rows == expected, "expected {}, got {}", json!(expected), json!(rows));
    Ok(())
}

pub fn by_text(rows: &[Value]) -> Vec<Value> {
    let mut sorted = rows.to_vec();
    sorted.sort_by_cached_key(Value::to_string);
    sorted
}

pub fn items() -> Vec<Value> {
    (0..N_ITEMS).map(item).collect()
}

fn item(i: u64) -> Value {
    let (n, rank) = (i * 37 % N_ITEMS, comet_rank(i));
    let nearness = if rank > 0 { 1000 + rank * 7 % 11 } else { n };
    let words = |word: &str, count: u64| format!("{word} ").repeat(count as usize);
    let mut item = json!({
        "id": i.to_string(), "pk": format!("key {}", i % 40), "n": n, "tie": i % 4, "family": format!("family {}", i % 5),
        "text": words("comet", rank) + &words("dust", 20 - rank), "vector": [nearness, 1],
    });
    match i % 5 {
        0 => {}
        1 => item["mixed"] = Value::Null,
        2 => item["mixed"] = json!(i % 4 == 2),
        3 => item["mixed"] = json!(n),
        _ => item["mixed"] = json!(format!("text {n:03}")),
    }
    item
}

/// Ten items speak of comets: the first once, the last ten times.
fn comet_rank(i: u64) -> u64 {
    if i % 12 == 0 { i / 12 + 1 } else { 0 }
}

fn properties(name: String) -> ContainerProperties {
    let order = CompositeIndex::default()
        .with_property(CompositeIndexProperty::new("/tie", CompositeIndexOrder::Ascending))
        .with_property(CompositeIndexProperty::new("/n", CompositeIndexOrder::Descending));
    let mut indexing = IndexingPolicy::default()
        .with_included_path("/*")
        .with_excluded_path("/vector/*")
        .with_composite_index(order)
        .with_vector_index(VectorIndex::new("/vector", VectorIndexType::Flat))
        .with_full_text_index(FullTextIndex::new("/text"));
    indexing.automatic = true;
    let vector = VectorEmbedding::new("/vector", VectorDataType::Float32, 2, VectorDistanceFunction::Euclidean);
    ContainerProperties::new(name, "/pk".into())
        .with_indexing_policy(indexing)
        .with_vector_embedding_policy(VectorEmbeddingPolicy::default().with_embedding(vector))
        .with_full_text_policy(
            FullTextPolicy::new("en-US").with_full_text_path(FullTextPath::new("/text").with_language("en-US")),
        )
}
