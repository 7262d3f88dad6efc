//! Feeds of resources, whole or filtered by a query, page by page.

use bytes::Bytes;
use orrery_model::json::{self, Value};
use orrery_model::{Error, ResourceId, Result};

use super::{body, parent};
use crate::api::{Feed, FeedOf, Outcome, Page, QueryText, ResourceKind, Selector};
use crate::node::Node;

const PAGE_ITEMS_DEFAULT: usize = 100;
const PAGE_ITEMS_MAX: usize = 1000;

pub(super) fn list(
    node: &Node,
    kind: ResourceKind,
    path: &[Selector],
    query: Option<&QueryText>,
    page: &Page,
) -> Result<Outcome> {
    let (parent, all) = bodies(node, kind, path)?;
    let all = match query {
        Some(query) => filter(node, query, &all)?,
        None => all,
    };
    let from = page.continuation.as_deref().map(offset).transpose()?.unwrap_or(0);
    let n_items = page.n_items_max.unwrap_or(PAGE_ITEMS_DEFAULT).clamp(1, PAGE_ITEMS_MAX);
    let entries: Vec<Bytes> = all.iter().skip(from).take(n_items).cloned().collect();
    let reached = from + entries.len();
    let continuation = (reached < all.len()).then(|| format!("{CONTINUATION}{reached}"));
    Ok(Outcome::Feed(Feed {
        of: FeedOf::Resources(kind),
        parent,
        entries,
        continuation,
        etag: None,
    }))
}

const CONTINUATION: &str = "resources:";

fn offset(continuation: &str) -> Result<usize> {
    let number = continuation
        .strip_prefix(CONTINUATION)
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| Error::bad_request("The continuation token is not one that this feed issued."))
}

fn bodies(node: &Node, kind: ResourceKind, path: &[Selector]) -> Result<(Option<ResourceId>, Vec<Bytes>)> {
    let catalogue = node.control.catalogue();
    if kind == ResourceKind::Offer {
        return Ok((
            None,
            catalogue
                .offers()
                .into_iter()
                .map(|(rid, offer)| body::of_offer(rid, offer))
                .collect(),
        ));
    }
    let parent = parent(&catalogue, kind, path)?;
    let bodies = catalogue
        .list(kind, parent.as_ref())
        .into_iter()
        .map(|(rid, record)| body::of(rid, record))
        .collect();
    Ok((parent, bodies))
}

fn filter(node: &Node, query: &QueryText, bodies: &[Bytes]) -> Result<Vec<Bytes>> {
    let values: Vec<Value> = bodies.iter().filter_map(|body| json::parse_value(body).ok()).collect();
    let rows = crate::query::over_values(&query.text, &query.parameters, &values, node.now())?;
    Ok(rows.iter().map(|row| Bytes::from(row.to_text())).collect())
}
