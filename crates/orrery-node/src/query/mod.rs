//! Queries: over the items of a container, page by page, and over resources of the catalogue, which are few and at hand.
//!
//! An item query finds its items through the index or reads all of its target ([`page`]), on a thread meant for blocking work
//! unless there are few. A query whose rows come out in the order of the items goes on where its last page stopped, one that
//! is sorted by an index too; any other is computed again for each page and skips what it has given.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use orrery_model::json::{self, Value};
use orrery_model::{Charge, EpkRange, Error, PartitionKey, ResourceId, Result, Status, Timestamp};
use orrery_query::index::IndexUse;
use orrery_query::plan::{Features, QueryPlan, check_compositions, query_plan};
use orrery_query::run::{PageLimits, Resume, Row};
use orrery_query::{Context, Definition, Parameters, Query, page_of_list};

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
mod lookup;
mod ordered;
mod page;
mod prepared;
mod token;

pub use cache::QueryCache;
use cursor::Part;
pub use load::QueryLoad;
use page::{PageDone, PageWork, TimeBudget};
use prepared::Prepared;
use token::QueryContinuation;

/// Rows of a page when the client does not say, and at most.
const PAGE_ROWS_DEFAULT: usize = 1_000;
const PAGE_ROWS_MAX: usize = 10_000;
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Clients take heads of 16 KiB, some no more.
const CONTINUATION_BYTES_MAX: usize = 12 * 1024;
/// What sorting, grouping and removing duplicates may hold.
const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Texts and parameters that are longer together take so long to plan that the reactor should not do it.
const QUICK_BYTES: usize = 8 * 1024;
/// How often a query begins again because partitions changed under it.
const RESHARD_RETRIES: usize = 3;

/// The rows of a query over resources that follow the first `n_skipped`, at most `n_rows_max` of them, and whether there are
/// more. The resources are few, but nothing else about the query need be small: it runs like any other.
pub async fn over_resources(
    node: &Node,
    query: QueryText,
    resources: Vec<Bytes>,
    n_skipped: u64,
    n_rows_max: usize,
) -> Result<(Vec<Bytes>, bool)> {
    let mut admission = node.query_load.admit().await?;
    let (now, time_max) = (node.now(), node.settings.query_time_max);
    let work = move || {
        let mut budget = TimeBudget::new(time_max, &mut admission);
        let resources = resources.iter().filter_map(|body| json::parse_value(body).ok());
        let resources: Vec<Value> = resources.collect();
        let limits = PageLimits {
            // One more tells whether there are more.
            rows_max: n_rows_max.saturating_add(1),
            bytes_max: PAGE_BYTES_MAX,
            memory_bytes_max: MEMORY_BYTES_MAX,
        };
        let parsed = Query::parse(&query.text)?;
        let given = parameters(&query.parameters)?;
        let page = page_of_list(
            &parsed,
            &resources,
            &given,
            &context(now),
            n_skipped,
            limits,
            &mut budget,
        )?;
        let has_more = page.resume.is_some() || page.rows.len() > n_rows_max;
        let rows = page.rows.into_iter().take(n_rows_max).map(Row::into_text).collect();
        Ok((rows, has_more))
    };
    blocking(work).await
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
        charge: node.charge_of_read(options, Charge::page(0, 0)),
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
    let mut range = target_range(container, target)?;
    if !*cross_partition && may_cross(container, target, &range) {
        let plan = plan_of(node, container, query, Features::all()).await?;
        // A filter that leaves one partition key is as good as naming it.
        let only_key = match plan.ranges.as_slice() {
            [only] => only.only_key().cloned(),
            _ => None,
        };
        match only_key.and_then(|key| range.intersection(&EpkRange::of_epk(key))) {
            Some(keyed) => range = keyed,
            None => return Err(needs_cross_partition()),
        }
    }
    if let Some(id) = lookup::only_id(node, container, request, &range)? {
        let rows = lookup::rows(node, options, container, &range, &id, facts).await?;
        facts.query_metrics = facts.query_metrics.filter(|_| diagnostics.metrics);
        return Ok(feed_of(container, rows, None));
    }
    let ranges: Vec<&RangeEntry> = container.overlapping(&range).collect();
    let started = Instant::now();
    let prepared = prepared(node, container, query, target).await?;
    let prepare_time = started.elapsed();
    if diagnostics.index_use && page.continuation.is_none() {
        facts.index_use = Some(IndexUse::of(&prepared.plan, container.definition.index_rules()));
    }
    let account = node.account();
    let session = options.session(account.consistency);
    let mut partitions = Vec::with_capacity(ranges.len());
    let mut parts = Vec::with_capacity(ranges.len());
    for entry in ranges {
        let partition = node.partition(entry)?;
        let is_first = partitions.is_empty();
        if is_first {
            // Should it be refused; an answer shows what it has after the wait.
            facts.partition = Some(partition.facts(orrery_model::Lsn::ZERO, None));
        }
        partition.throttle.admit(|| node.now())?;
        partition
            .wait_for_session(session, &entry.parents, container.n_partitions_ever)
            .await?;
        node.await_bound(options, &partition).await?;
        if is_first {
            facts.partition = Some(partition.facts(orrery_model::Lsn::ZERO, None));
        }
        if let Some(part) = range.intersection(&entry.range) {
            let snapshot = partition.hot_snapshot()?;
            node.confirm(options, &partition, snapshot.position().lsn).await?;
            parts.push(Part {
                snapshot,
                range: part,
                policy: container.definition.index_rules().fingerprint(),
                state: None,
                n_items: None,
                access: None,
            });
        }
        partitions.push(partition);
    }
    let keyed = target.partition_key.is_some().then_some(&range);
    let asked = token::fingerprint(&container.rid, keyed, query);
    let done = page_by_plan(node, container, request, range, asked, prepared, parts).await?;
    facts.charge = node.charge_of_read(options, done.charge);
    facts.query_metrics = diagnostics.metrics.then_some(QueryMetrics {
        prepare: prepare_time,
        ..done.metrics
    });
    let share = Charge::hundredths(facts.charge.as_hundredths() / partitions.len().max(1) as u64);
    for partition in partitions {
        partition.throttle.pay(share);
    }
    let continuation = done.after.map(|after| after.encode(&node.keys().internal, asked));
    let most = page.continuation_bytes_max.unwrap_or(CONTINUATION_BYTES_MAX);
    if continuation
        .as_ref()
        .is_some_and(|text| text.len() > most.min(CONTINUATION_BYTES_MAX))
    {
        return Err(Error::bad_request(
            "The continuation of this query is larger than clients accept: sort by shorter values.",
        ));
    }
    Ok(feed_of(container, done.rows, continuation))
}

fn feed_of(container: &ContainerEntry, entries: Vec<Bytes>, continuation: Option<String>) -> Outcome {
    Outcome::Feed(Feed {
        of: FeedOf::Items,
        parent: Some(container.rid.clone()),
        entries,
        continuation,
        etag: None,
    })
}

/// Whether a query may leave the partition it names. One that names nothing may, also where there is one partition today: what a
/// client must say does not depend on how large its container has grown.
fn may_cross(container: &ContainerEntry, target: &FeedTarget, range: &EpkRange) -> bool {
    if target.partition_key.is_some() || target.partition.is_some() {
        return false;
    }
    target.names_nothing() || container.overlapping(range).nth(1).is_some()
}

fn needs_cross_partition() -> Error {
    // Without the substatus of a query that only a client can put together: whoever gets that takes it for permission.
    Error::bad_request(
        "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, \
         specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
    )
}

async fn prepared(
    node: &Node,
    container: &Arc<ContainerEntry>,
    query: &QueryText,
    target: &FeedTarget,
) -> Result<Prepared> {
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
    prepared.await
}

async fn page_by_plan(
    node: &Arc<Node>,
    container: &Arc<ContainerEntry>,
    request: &ItemQuery,
    range: EpkRange,
    asked: [u8; 8],
    prepared: Prepared,
    parts: Vec<Part>,
) -> Result<PageDone> {
    let ItemQuery { query, page, .. } = request;
    let scripts = Scripts::find(&node.control.catalogue(), container, prepared.plan.user_functions());
    let after = match (page.continuation.as_deref(), &query.resume_filter) {
        // When both come, the continuation decides.
        (Some(text), _) => {
            let after = QueryContinuation::decode(text, &node.keys().internal, asked)?;
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
    match work.is_small()? {
        true => work.run(&mut admission),
        false => blocking(move || work.run(&mut admission)).await,
    }
}

/// Parses a query and makes something of it.
async fn prepare<T: Send + 'static>(
    node: &Node,
    container: &Arc<ContainerEntry>,
    query: &QueryText,
    make: impl FnOnce(&Query, &ContainerEntry, &Definition, &Parameters) -> Result<T> + Send + 'static,
) -> Result<T> {
    let definition = node.query_cache.definition(container);
    let parameters = parameters(&query.parameters)?;
    if query.text.len() + parameters.size_bytes() <= QUICK_BYTES {
        let parsed = node.query_cache.query(&query.text)?;
        return make(&parsed, container, &definition, &parameters);
    }
    let (container, text) = (Arc::clone(container), query.text.clone());
    let work = move || {
        let parsed = Query::parse(&text)?;
        make(&parsed, &container, &definition, &parameters)
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
    let planned = plan_of(node, &container, query, features).await;
    finish(planned.map(|plan| Outcome::Plan(plan.to_json())), facts)
}

async fn plan_of(
    node: &Node,
    container: &Arc<ContainerEntry>,
    query: &QueryText,
    features: Features,
) -> Result<QueryPlan> {
    let planned = prepare(
        node,
        container,
        query,
        move |parsed, container, definition, parameters| {
            let key = container.definition.partition_key();
            Ok(query_plan(parsed, definition, key, parameters, &features)?)
        },
    );
    planned.await
}

fn parameters(given: &[(String, Option<Value>)]) -> Result<Parameters> {
    let mut parameters = Parameters::none();
    for (name, value) in given {
        parameters.add(name, value.clone())?;
    }
    Ok(parameters)
}

/// What a query that begins now sees of the world.
pub fn context(now: Timestamp) -> Context<'static> {
    Context {
        now_ticks: i64::try_from(now.0).unwrap_or(i64::MAX).saturating_mul(10_000),
        seed: now.0,
        functions: None,
    }
}
