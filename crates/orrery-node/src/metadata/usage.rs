//! How much a container holds, from what its partitions count.

use orrery_model::ResourceId;
use orrery_partition::state::PartitionState;

use crate::api::Usage;
use crate::node::Node;

pub(super) fn of_container(node: &Node, rid: &ResourceId) -> Option<Usage> {
    let container = node.control.catalogue().container(rid).cloned()?;
    let mut usage = Usage {
        n_items: 0,
        size_kib: 0,
    };
    let mut size_bytes = 0;
    for range in &container.ranges {
        let snapshot = node.partition(range).ok()?.snapshot().ok()?;
        let state = PartitionState::load(&*snapshot).ok()??;
        usage.n_items += state.n_items;
        size_bytes += state.size_bytes;
    }
    usage.size_kib = size_bytes / 1024;
    Some(usage)
}
