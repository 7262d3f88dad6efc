//! Feeds of resources, whole or filtered by a query, page by page.

use bytes::Bytes;
use orrery_model::{Error, ResourceId, Result};

use super::{body, parent};
use crate::api::{Feed, FeedOf, Outcome, Page, QueryText, ResourceKind, Selector};
use crate::node::Node;
use crate::query;

const PAGE_ITEMS_DEFAULT: usize = 100;
const PAGE_ITEMS_MAX: usize = 1000;

pub(super) async fn list(
    node: &Node,
    kind: ResourceKind,
    path: &[Selector],
    query: Option<&QueryText>,
    page: &Page,
) -> Result<Outcome> {
    let (parent, all) = bodies(node, kind, path)?;
    let n_items = page.n_items_max.unwrap_or(PAGE_ITEMS_DEFAULT).clamp(1, PAGE_ITEMS_MAX);
    let from = page.continuation.as_deref();
    let (entries, continuation) = match query {
        Some(query) => page_of_rows(node, query, all, from, n_items).await?,
        None => page_of_resources(&all, from, n_items)?,
    };
    Ok(Outcome::Feed(Feed {
        of: FeedOf::Resources(kind),
        parent,
        entries,
        continuation,
        etag: None,
    }))
}

/// A resource's place in the order of creation, which it keeps, and its body.
type Placed = (u64, Bytes);

/// Goes on after the last resource that was shown, whatever was made or deleted since.
fn page_of_resources(all: &[Placed], from: Option<&str>, n_items: usize) -> Result<(Vec<Bytes>, Option<String>)> {
    let after = from.map(|from| number(from, AFTER)).transpose()?;
    let rest = all.partition_point(|(sequence, _)| after.is_some_and(|after| *sequence <= after));
    let shown = &all[rest..all.len().min(rest + n_items)];
    let last = shown.last().filter(|_| rest + shown.len() < all.len());
    Ok((
        shown.iter().map(|(_, body)| body.clone()).collect(),
        last.map(|(sequence, _)| format!("{AFTER}{sequence}")),
    ))
}

/// Rows that a query made have no place but their number.
async fn page_of_rows(
    node: &Node,
    query: &QueryText,
    all: Vec<Placed>,
    from: Option<&str>,
    n_items: usize,
) -> Result<(Vec<Bytes>, Option<String>)> {
    let from = from.map(|from| number(from, ROWS)).transpose()?.unwrap_or(0);
    let resources = all.into_iter().map(|(_, body)| body).collect();
    let (rows, has_more) = query::over_resources(node, query.clone(), resources, from, n_items).await?;
    let reached = from.saturating_add(rows.len() as u64);
    Ok((rows, has_more.then(|| format!("{ROWS}{reached}"))))
}

const AFTER: &str = "resources:after:";
const ROWS: &str = "resources:rows:";

fn number(continuation: &str, prefix: &str) -> Result<u64> {
    let number = continuation.strip_prefix(prefix).and_then(|number| number.parse().ok());
    number.ok_or_else(|| Error::bad_request("The continuation token is not one that this feed issued."))
}

fn bodies(node: &Node, kind: ResourceKind, path: &[Selector]) -> Result<(Option<ResourceId>, Vec<Placed>)> {
    let catalogue = node.control.catalogue();
    if kind == ResourceKind::Offer {
        let offers = catalogue.offers().into_iter();
        let placed = offers.map(|(rid, offer)| (offer.sequence, body::of_offer(rid, offer)));
        return Ok((None, placed.collect()));
    }
    let parent = parent(&catalogue, kind, path)?;
    let resources = catalogue.list(kind, parent.as_ref()).into_iter();
    let placed = resources.map(|(rid, record)| (record.sequence, body::of(rid, record)));
    Ok((parent, placed.collect()))
}
