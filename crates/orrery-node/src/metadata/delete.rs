//! Deleting resources, with everything below them.

use std::sync::Arc;

use orrery_model::etag::Precondition;
use orrery_model::{Error, LogId, Result, Status};

use super::{check_precondition, find};
use crate::api::{Outcome, ResourceKind, Selector};
use crate::catalogue::Record;
use crate::node::Node;

pub(super) async fn delete(
    node: &Arc<Node>,
    kind: ResourceKind,
    path: &[Selector],
    target: &Selector,
    precondition: &Precondition,
) -> Result<Outcome> {
    if kind == ResourceKind::Offer {
        return Err(Error::new(
            Status::METHOD_NOT_ALLOWED,
            "Offers are deleted with their database or container.",
        ));
    }
    let mut change = node.control.change().await;
    let (rid, record) = find(&node.control.catalogue(), kind, path, target)?;
    check_precondition(precondition, &record)?;
    let mut logs: Vec<LogId> = Vec::new();
    {
        let catalogue = node.control.catalogue();
        for gone in catalogue.subtree(&rid) {
            if let Some((offer, _)) = catalogue.offer_of(&gone) {
                change.put(Record::Offer(offer.clone(), None));
            }
            if let Some(container) = catalogue.container(&gone) {
                for range in &container.ranges {
                    change.put(Record::Partition(gone.clone(), range.partition, None));
                    logs.push(range.log);
                }
            }
            for ((container, child), reshard) in &catalogue.reshards {
                if *container == gone {
                    change.put(Record::Reshard(gone.clone(), *child, None));
                    logs.extend(reshard.children.iter().map(|(_, log, _)| *log));
                }
            }
            change.put(Record::Resource(gone, None));
        }
    }
    change.commit().await?;
    node.retire_partitions(logs);
    Ok(Outcome::Deleted)
}
