//! The physical partitions of a container as clients see them: a feed that can be polled for what is new.

use std::sync::Arc;

use bytes::Bytes;
use orrery_model::json::{Number, Object, Value};
use orrery_model::rid::ChildKind;
use orrery_model::{Charge, Etag, ResourceId};

use crate::api::{ContainerRef, Facts, Failure, Feed, FeedOf, Options, Outcome, Principal, Reply};
use crate::authorize;
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::items::find_container;
use crate::node::Node;

pub fn read(
    node: &Node,
    principal: &Principal,
    options: &Options,
    container: &ContainerRef,
    since: Option<&str>,
) -> Result<Reply, Failure> {
    let container = find_container(node, options, container)?;
    authorize::about(principal, &container.rid)?;
    let facts = Facts {
        charge: Charge::metadata(false),
        container: Some(Arc::clone(&container.facts)),
        ..Facts::default()
    };
    let newest = container.ranges.iter().map(|range| range.since.0).max().unwrap_or(0);
    let etag = format!("\"{newest}\"");
    let since: u64 = since
        .and_then(|tag| tag.trim().trim_matches('"').parse().ok())
        .unwrap_or(0);
    let fresh: Vec<&RangeEntry> = container.ranges.iter().filter(|range| range.since.0 > since).collect();
    if fresh.is_empty() {
        return Ok(Reply {
            outcome: Outcome::NotModified { etag },
            facts,
        });
    }
    let entries = fresh.into_iter().map(|range| entry(&container, range, node)).collect();
    let feed = Feed {
        of: FeedOf::PartitionRanges,
        parent: Some(container.rid.clone()),
        entries,
        continuation: None,
        etag: Some(etag),
    };
    Ok(Reply {
        outcome: Outcome::Feed(feed),
        facts,
    })
}

fn entry(container: &ContainerEntry, range: &RangeEntry, node: &Node) -> Bytes {
    let text = |text: String| Value::String(text);
    let integer = |number: u64| Value::Number(Number::from(number));
    let rid = ResourceId::child_of_container(
        &container.rid,
        ChildKind::PartitionKeyRange,
        u64::from(range.partition.0) + 1,
    );
    let etag = Etag::of(container.rid.own_bytes(), range.partition, range.since, 0);
    let lsn = node.partition(range).map_or(0, |partition| partition.log.head().lsn.0);
    let mut fields = Object::new();
    fields.insert("_rid", text(rid.to_string()));
    fields.insert("id", text(range.partition.to_string()));
    fields.insert("_etag", text(etag.to_string()));
    fields.insert("minInclusive", text(range.range.min.to_string()));
    fields.insert("maxExclusive", text(range.range.max.to_string()));
    fields.insert("ridPrefix", integer(u64::from(range.partition.0)));
    fields.insert(
        "_self",
        text(format!("{}pkranges/{rid}/", container.identity.self_link)),
    );
    fields.insert(
        "throughputFraction",
        Value::Number(Number::from_f64(1.0 / container.ranges.len() as f64)),
    );
    fields.insert("status", text("online".to_owned()));
    fields.insert(
        "parents",
        Value::Array(range.parents.iter().map(|parent| text(parent.to_string())).collect()),
    );
    fields.insert("_ts", integer(node.now().seconds()));
    fields.insert("_lsn", integer(lsn));
    Bytes::from(Value::Object(fields).to_text())
}
