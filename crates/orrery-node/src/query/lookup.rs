//! One item by its id within a partition key: what many clients ask by a query where a point read would do. Such a query is
//! answered like a point read, without a plan, with the rows, the charge and the counts that a plan would give.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use orrery_model::{Charge, EpkRange, Lsn, Result};
use orrery_partition::expiry::is_expired;
use orrery_partition::keys::EpkForm;

use super::{ItemQuery, QUICK_BYTES};
use crate::api::{Facts, Options, QueryMetrics};
use crate::catalogue::ContainerEntry;
use crate::items::gone;
use crate::node::Node;

/// The id a request asks for and nothing else, if its range is that of one partition key.
pub fn only_id(
    node: &Node,
    container: &ContainerEntry,
    request: &ItemQuery,
    range: &EpkRange,
) -> Result<Option<String>> {
    let ItemQuery {
        query,
        page,
        diagnostics,
        ..
    } = request;
    let is_one_key = match EpkForm::of(container.definition.partition_key()) {
        EpkForm::Fixed(epk_bytes) => range.only(epk_bytes).is_some(),
        EpkForm::Escaped => false,
    };
    let is_plain = page.continuation.is_none() && query.resume_filter.is_none() && !diagnostics.index_use;
    if !is_one_key || !is_plain || query.parameters.len() > 1 || query.text.len() > QUICK_BYTES {
        return Ok(None);
    }
    // A computed property may hide what is stored.
    if container.definition.fields().get("computedProperties").is_some() {
        return Ok(None);
    }
    let parsed = node.query_cache.query(&query.text)?;
    Ok(parsed.only_id(&query.parameters).map(str::to_owned))
}

/// The rows of such a query: the item, or nothing.
pub async fn rows(
    node: &Arc<Node>,
    options: &Options,
    container: &ContainerEntry,
    range: &EpkRange,
    id: &str,
    facts: &mut Facts,
) -> Result<Vec<Bytes>> {
    let started = Instant::now();
    let entry = container.overlapping(range).next().ok_or_else(gone)?;
    let partition = node.partition(entry)?;
    // Should it be refused; an answer shows what it has after the wait.
    facts.partition = Some(partition.facts(Lsn::ZERO, None));
    partition.throttle.admit(|| node.now())?;
    let account = node.account();
    let session = options.session(account.consistency);
    partition
        .wait_for_session(session, &entry.parents, container.n_partitions_ever)
        .await?;
    node.await_bound(options, &partition).await?;
    facts.partition = Some(partition.facts(Lsn::ZERO, None));
    let found = partition.find(&container.definition, &range.min, id)?;
    node.confirm(options, &partition, partition.log.head().lsn).await?;
    let found = found.filter(|item| !is_expired(&container.definition, item, node.now()));
    let rows: Vec<Bytes> = found.iter().map(|item| item.body.clone()).collect();
    let n_bytes = rows.iter().map(Bytes::len).sum();
    let charge = Charge::query(n_bytes, rows.len() as u64, rows.len(), 0);
    facts.charge = node.charge_of_read(options, charge);
    partition.throttle.pay(facts.charge);
    facts.query_metrics = Some(QueryMetrics {
        n_items_read: rows.len() as u64,
        bytes_read: n_bytes,
        n_rows: rows.len() as u64,
        bytes_given: n_bytes,
        execute: started.elapsed(),
        ..QueryMetrics::default()
    });
    Ok(rows)
}
