//! Queries: over the items of a container, page by page, and over resources of the catalogue, which are few and at hand.
//!
//! An item query finds its items through the index or reads all of its target ([`page`]), on a thread meant for blocking work
//! unless there are few. A query whose rows come out in the order of the items goes on where its last page stopped, one that
//! is sorted by an index too; any other is computed again for each page and skips what it has given.

use std::sync::Arc;
use std::time::Instant;

use orrery_model::json::Value;
use orrery_model::{Charge, Error, PartitionKey, ResourceId, Result, Status, Timestamp};
use orrery_query::index::IndexUse;
use orrery_query::plan::{Features, check_compositions, query_plan};
use orrery_query::run::{PageLimits, Resume};
use orrery_query::{Context, Definition, Parameters, Query, evaluate_list};

use crate::api::{
    ContainerRef, Facts, Failure, Feed, FeedOf, FeedTarget, Options, Outcome, Page, Principal, QueryDiagnostics,
    QueryMetrics, QueryText, Reply,
};
use crate::authorize;
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::feed::{blocking, target_range};
use crate::items::{find_container, finish, item_number};
use crate::node::Node;
use crate::scripts::Scripts;

mod cache;
mod cursor;
mod load;
mod ordered;
mod page;
mod prepared;
mod token;

pub use cache::QueryCache;
use cursor::Part;
pub use load::QueryLoad;
use page::PageWork;
use prepared::Prepared;
use token::QueryContinuation;

/// Rows of a page when the client does not say, and at most.
const PAGE_ROWS_DEFAULT: usize = 1_000;
const PAGE_ROWS_MAX: usize = 10_000;
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What sorting, grouping and removing duplicates may hold.
const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Longer texts take so long to plan that the reactor should not do it.
const QUICK_TEXT_BYTES: usize = 8 * 1024;
/// How often a query begins again because partitions changed under it.
const RESHARD_RETRIES: usize = 3;

/// Runs a query over values that are all at hand.
pub fn over_values(
    text: &str,
    given: &[(String, Option<Value>)],
    values: &[Value],
    now: Timestamp,
) -> Result<Vec<Value>> {
    let query = Query::parse(text)?;
    Ok(evaluate_list(&query, values, &parameters(given)?, &context(now))?)
}

/// What a query request is about.
#[derive(Debug)]
pub struct ItemQuery {
    pub container: ContainerRef,
    pub target: FeedTarget,
    pub query: QueryText,
    pub page: Page,
    pub cross_partition: bool,
    pub diagnostics: QueryDiagnostics,
}

/// One page of a query over items.
pub async fn items(
    node: &Arc<Node>,
    principal: &Principal,
    options: &Options,
    request: ItemQuery,
) -> Result<Reply, Failure> {
    let container = find_container(node, options, &request.container)?;
    authorize::scope(principal, &container.rid, request.target.partition_key.as_ref(), None)?;
    let mut facts = Facts {
        container: Some(Arc::clone(&container.facts)),
        charge: Charge::page(0, 0),
        ..Facts::default()
    };
    let mut result = page_of_items(node, options, &container, &request, &mut facts).await;
    // A query that did not name a partition need not know that one was split or merged under it.
    for _ in 0..RESHARD_RETRIES {
        if request.target.partition.is_some()
            || !matches!(&result, Err(error) if error.status() == Status::PARTITION_GONE)
        {
            break;
        }
        let container = find_container(node, options, &request.container)?;
        result = page_of_items(node, options, &container, &request, &mut facts).await;
    }
    finish(result, facts)
}

async fn page_of_items(
    node: &Arc<Node>,
    options: &Options,
    container: &Arc<ContainerEntry>,
    request: &ItemQuery,
    facts: &mut Facts,
) -> Result<Outcome> {
    let ItemQuery {
        target,
        query,
        page,
        cross_partition,
        diagnostics,
        ..
    } = request;
    let range = target_range(container, target)?;
    let ranges: Vec<RangeEntry> = container.overlapping(&range).cloned().collect();
    let routed = target.partition_key.is_some() || target.partition.is_some();
    if !routed && !*cross_partition && ranges.len() > 1 {
        return Err(Error::new(
            Status::CROSS_PARTITION_QUERY,
            "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, \
             specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
        ));
    }
    let started = Instant::now();
    // Whoever names a partition runs a plan.
    let runs_plan = target.partition.is_some();
    let prepared = prepare(
        node,
        container,
        query,
        move |parsed, container, definition, parameters| {
            let prepared = Prepared::new(parsed, container, definition, parameters, runs_plan)?;
            if !runs_plan {
                check_compositions(parsed)?;
            }
            Ok(prepared)
        },
    );
    let prepared = prepared.await?;
    let prepare_time = started.elapsed();
    if diagnostics.index_use && page.continuation.is_none() {
        facts.index_use = Some(IndexUse::of(&prepared.plan, container.definition.index_rules()));
    }
    let scripts = Scripts::find(&node.control.catalogue(), container, prepared.plan.user_functions());
    let mut parts = Vec::with_capacity(ranges.len());
    for entry in &ranges {
        let partition = node.partition(entry)?;
        partition.throttle.admit(|| node.now())?;
        partition
            .wait_for_session(options.session.as_ref(), &entry.parents, container.n_partitions_ever)
            .await?;
        facts
            .partition
            .get_or_insert_with(|| partition.facts(orrery_model::Lsn::ZERO, None));
        if let Some(part) = range.intersection(&entry.range) {
            let snapshot = partition.snapshot()?;
            node.confirm(options, &partition, snapshot.position().lsn).await?;
            parts.push(Part {
                snapshot,
                range: part,
                access: None,
            });
        }
    }
    let secret = node.keys().internal.clone();
    let fingerprint = token::fingerprint(query);
    let after = match (page.continuation.as_deref(), &query.resume_filter) {
        // When both come, the continuation decides.
        (Some(text), _) => {
            let after = QueryContinuation::decode(text, &secret, fingerprint)?;
            Some(after.over(&range, &prepared.plan)?)
        }
        (None, Some(filter)) => Some(resumed_by_client(container, filter)?),
        (None, None) => None,
    };
    let mut admission = node.query_load.admit().await?;
    let mut work = PageWork {
        time_max: node.settings.query_time_max,
        container: Arc::clone(container),
        prepared,
        scripts,
        parts,
        after,
        range,
        limits: limits(page),
        now: node.now(),
    };
    // Handing work to another thread and back costs more than reading a few items.
    let done = match work.is_small()? {
        true => work.run(&mut admission)?,
        false => blocking(move || work.run(&mut admission)).await?,
    };
    facts.charge = done.charge;
    facts.query_metrics = diagnostics.metrics.then_some(QueryMetrics {
        prepare: prepare_time,
        ..done.metrics
    });
    for entry in &ranges {
        node.partition(entry)?
            .throttle
            .pay(Charge::hundredths(done.charge.as_hundredths() / ranges.len() as u64));
    }
    let continuation = done.after.map(|after| after.encode(&secret, fingerprint));
    if let (Some(text), Some(most)) = (&continuation, page.continuation_bytes_max)
        && text.len() > most
    {
        return Err(Error::bad_request(
            "The continuation of this query is larger than the client accepts: sort by shorter values.",
        ));
    }
    Ok(Outcome::Feed(Feed {
        of: FeedOf::Items,
        parent: Some(container.rid.clone()),
        entries: done.rows,
        continuation,
        etag: None,
    }))
}

/// Parses a query and makes something of it.
async fn prepare<T: Send + 'static>(
    node: &Node,
    container: &Arc<ContainerEntry>,
    query: &QueryText,
    make: impl FnOnce(&Query, &ContainerEntry, &Definition, &Parameters) -> Result<T> + Send + 'static,
) -> Result<T> {
    let definition = node.query_cache.definition(container)?;
    if query.text.len() <= QUICK_TEXT_BYTES {
        let parsed = node.query_cache.query(&query.text)?;
        return make(&parsed, container, &definition, &parameters(&query.parameters)?);
    }
    let (container, query) = (Arc::clone(container), query.clone());
    let work = move || {
        let parsed = Query::parse(&query.text)?;
        make(&parsed, &container, &definition, &parameters(&query.parameters)?)
    };
    blocking(work).await
}

/// Where a client that keeps the last sort values itself wants a sorted query to go on.
fn resumed_by_client(container: &ContainerEntry, filter: &Value) -> Result<QueryContinuation> {
    let rank = |rid: &str| item_number(container, &ResourceId::parse(rid)?);
    let resume = Resume::from_filter(filter, rank).ok_or_else(|| {
        Error::new(
            Status::NOT_IMPLEMENTED,
            "A query sorted by arrays or objects cannot be resumed by its last values.",
        )
    })?;
    Ok(QueryContinuation {
        resume,
        last: None,
        counted_over: None,
    })
}

fn limits(page: &Page) -> PageLimits {
    PageLimits {
        rows_max: page.n_items_max.unwrap_or(PAGE_ROWS_DEFAULT).clamp(1, PAGE_ROWS_MAX),
        bytes_max: PAGE_BYTES_MAX,
        memory_bytes_max: MEMORY_BYTES_MAX,
    }
}

/// How a client should run a query over several partitions.
pub async fn plan_for_client(
    node: &Node,
    principal: &Principal,
    options: &Options,
    container: &ContainerRef,
    query: &QueryText,
    features: &[String],
    partition_key: Option<&PartitionKey>,
) -> Result<Reply, Failure> {
    let container = find_container(node, options, container)?;
    authorize::scope(principal, &container.rid, partition_key, None)?;
    let facts = Facts {
        container: Some(Arc::clone(&container.facts)),
        charge: Charge::metadata(false),
        ..Facts::default()
    };
    let features = Features::parse(&features.join(","));
    let planned = prepare(
        node,
        &container,
        query,
        move |parsed, container, definition, parameters| {
            let key = container.definition.partition_key();
            Ok(query_plan(parsed, definition, key, parameters, &features)?.to_json())
        },
    );
    finish(planned.await.map(Outcome::Plan), facts)
}

fn parameters(given: &[(String, Option<Value>)]) -> Result<Parameters> {
    let mut parameters = Parameters::none();
    for (name, value) in given {
        parameters.add(name, value.clone())?;
    }
    Ok(parameters)
}

fn context(now: Timestamp) -> Context<'static> {
    Context {
        now_ticks: now.0 as i64 * 10_000,
        seed: now.0,
        functions: None,
    }
}
