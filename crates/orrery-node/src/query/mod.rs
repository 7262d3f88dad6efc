//! Queries: over the items of a container, page by page, and over resources of the catalogue, which are few and at hand.
//!
//! An item query reads the partitions of its target one after the other, in the order of EPKs, on a thread meant for
//! blocking work and within a budget of time, memory and rows. A query whose rows come out in the order of the items goes on
//! where its last page stopped; any other is computed again for each page and skips what it has given.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_model::json::Value;
use orrery_model::{Charge, Error, PartitionKey, ResourceId, Result, Status, Timestamp};
use orrery_query::plan::{Features, Plan, plan, query_plan};
use orrery_query::run::{Budget, Pace, PageLimits, Progress, Resume, Row};
use orrery_query::{Context, Definition, Parameters, Query, evaluate_list};

use crate::api::{
    ContainerRef, Facts, Failure, Feed, FeedOf, FeedTarget, Options, Outcome, Page, Principal, QueryText, Reply,
};
use crate::authorize;
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::feed::{blocking, target_range};
use crate::items::{find_container, finish, item_number};
use crate::node::Node;
use crate::scripts::{Calls, Scripts};

mod cursor;
mod load;
mod token;

use cursor::{ItemCursor, Part};
use load::Admission;
pub use load::QueryLoad;
use token::QueryContinuation;

/// Rows of a page when the client does not say, and at most.
const PAGE_ROWS_DEFAULT: usize = 1_000;
const PAGE_ROWS_MAX: usize = 10_000;
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What sorting, grouping and removing duplicates may hold.
const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// A page that can be continued ends after this long; one that cannot goes on until its query has no time left.
const PAGE_TIME: Duration = Duration::from_secs(4);
/// From here on a query counts as heavy, and waits this long until it may go on as one.
const LIGHT_TIME: Duration = Duration::from_millis(50);
const HEAVY_WAIT: Duration = Duration::from_secs(10);
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
        container: Some(container.facts()),
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
    let plan = prepare(container, query, |parsed, container, parameters| {
        let definition = Definition::of_container(container.definition.fields())?;
        Ok(plan(parsed, &definition, parameters)?)
    });
    let plan = plan.await?;
    let scripts = Scripts::find(&node.control.catalogue(), container, plan.user_functions());
    let mut parts = Vec::with_capacity(ranges.len());
    for entry in &ranges {
        let partition = node.partition(entry)?;
        partition.throttle.admit(node.now())?;
        partition
            .wait_for_session(options.session.as_ref(), &entry.parents)
            .await?;
        facts
            .partition
            .get_or_insert_with(|| partition.facts(orrery_model::Lsn::ZERO, None));
        if let Some(part) = range.intersection(&entry.range) {
            let snapshot = partition.snapshot()?;
            node.confirm(options, &partition, snapshot.position().lsn).await?;
            parts.push(Part { snapshot, range: part });
        }
    }
    let secret = node.keys().internal.clone();
    let fingerprint = token::fingerprint(query);
    let after = match (page.continuation.as_deref(), &query.resume_filter) {
        // When both come, the continuation decides.
        (Some(text), _) => Some(QueryContinuation::decode(text, &secret, fingerprint)?),
        (None, Some(filter)) => Some(resumed_by_client(container, filter)?),
        (None, None) => None,
    };
    let admission = node.query_load.admit().await?;
    let work = PageWork {
        admission,
        time_max: node.settings.query_time_max,
        container: Arc::clone(container),
        plan,
        scripts,
        parts,
        after,
        limits: limits(page),
        now: node.now(),
    };
    let done = blocking(move || work.run()).await?;
    facts.charge = done.charge;
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
    container: &Arc<ContainerEntry>,
    query: &QueryText,
    make: impl FnOnce(&Query, &ContainerEntry, &Parameters) -> Result<T> + Send + 'static,
) -> Result<T> {
    if query.text.len() <= QUICK_TEXT_BYTES {
        return make(&Query::parse(&query.text)?, container, &parameters(&query.parameters)?);
    }
    let (container, query) = (Arc::clone(container), query.clone());
    blocking(move || make(&Query::parse(&query.text)?, &container, &parameters(&query.parameters)?)).await
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
    Ok(QueryContinuation { resume, last: None })
}

fn limits(page: &Page) -> PageLimits {
    PageLimits {
        rows_max: page.n_items_max.unwrap_or(PAGE_ROWS_DEFAULT).clamp(1, PAGE_ROWS_MAX),
        bytes_max: PAGE_BYTES_MAX,
        memory_bytes_max: MEMORY_BYTES_MAX,
    }
}

/// Everything one page needs, to be taken to another thread.
struct PageWork {
    admission: Admission,
    time_max: Duration,
    container: Arc<ContainerEntry>,
    plan: Plan,
    scripts: Scripts,
    parts: Vec<Part>,
    after: Option<QueryContinuation>,
    limits: PageLimits,
    now: Timestamp,
}

struct PageDone {
    rows: Vec<Bytes>,
    after: Option<QueryContinuation>,
    charge: Charge,
}

impl PageWork {
    fn run(self) -> Result<PageDone> {
        let streaming = self.plan.is_streaming();
        let resume = self.after.as_ref().map(|after| &after.resume);
        let mut start = self
            .after
            .as_ref()
            .filter(|_| streaming)
            .and_then(|after| after.last.clone());
        let inclusive = resume.is_some_and(Resume::repeats_item);
        let mut cursor = ItemCursor::new(&self.container, self.parts, start.take(), inclusive, self.now);
        let mut budget = TimeBudget {
            started: Instant::now(),
            time_max: self.time_max,
            admission: self.admission,
            streaming,
            items_seen: 0,
        };
        let calls = Calls::new(self.scripts, self.time_max);
        let context = Context {
            functions: Some(&calls),
            ..context(self.now)
        };
        let page = orrery_query::run::run(&self.plan, &mut cursor, &context, self.limits, resume, &mut budget)?;
        let rows: Vec<Bytes> = page.rows.into_iter().map(Row::into_text).collect();
        let charge = Charge::query(cursor.bytes_read, page.progress.items_read, rows.len());
        let last = cursor
            .last()
            .or_else(|| self.after.as_ref().and_then(|after| after.last.clone()));
        let after = page.resume.map(|resume| QueryContinuation {
            resume,
            last: last.filter(|_| streaming),
        });
        Ok(PageDone { rows, after, charge })
    }
}

/// Ends pages in time.
struct TimeBudget {
    started: Instant,
    time_max: Duration,
    admission: Admission,
    streaming: bool,
    items_seen: u64,
}

impl Budget for TimeBudget {
    fn check(&mut self, progress: &Progress) -> Result<Pace> {
        // Looking at the clock for every item would cost more than the item. A question within one item means much work.
        let within_item = std::mem::replace(&mut self.items_seen, progress.items_read) == progress.items_read;
        if !within_item && !progress.items_read.is_multiple_of(8) {
            return Ok(Pace::GoOn);
        }
        self.admission.hold(progress.memory_bytes)?;
        let elapsed = self.started.elapsed();
        if elapsed > self.time_max {
            return Err(Error::new(Status::REQUEST_TIMEOUT, "The query takes too long."));
        }
        if elapsed > LIGHT_TIME && !self.admission.is_heavy() && !self.admission.try_become_heavy() {
            if self.streaming && !within_item {
                return Ok(Pace::Pause);
            }
            self.admission.become_heavy(HEAVY_WAIT)?;
        }
        Ok(if self.streaming && elapsed > PAGE_TIME {
            Pace::Pause
        } else {
            Pace::GoOn
        })
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
        container: Some(container.facts()),
        charge: Charge::metadata(false),
        ..Facts::default()
    };
    let features = Features::parse(&features.join(","));
    let planned = prepare(&container, query, move |parsed, container, parameters| {
        let definition = Definition::of_container(container.definition.fields())?;
        let key = container.definition.partition_key();
        Ok(query_plan(parsed, &definition, key, parameters, &features)?.to_json())
    });
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
