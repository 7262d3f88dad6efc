//! `GET events`: what happens, as server-sent events, until the listener leaves or the server stops.
//!
//! A listener that reads too slowly holds up nobody: its queue is bounded, and an event `missed` says how many it lost.

use std::time::Duration;

use bytes::Bytes;
use orrery_node::api::ResourceKind;
use orrery_node::events::{Event, Happening, Heard, Listener, Named, Reshard};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::simulation;
use super::stream::{EventSource, EventStream};
use crate::guard::InRequest;

/// How often a line is sent when nothing happens, so that either side notices when the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Listeners at a time.
pub(crate) const LISTENERS_MAX: usize = 64;

struct Source {
    listener: Listener,
    stopping: CancellationToken,
}

/// The text of events as they happen.
pub(super) fn stream(
    listener: Listener,
    stopping: CancellationToken,
    in_request: InRequest,
    place: OwnedSemaphorePermit,
) -> EventStream {
    let source = Source { listener, stopping };
    // Something to read at once: whoever has read it hears everything from then on.
    let greeting = Bytes::from_static(b": listening\n\n");
    EventStream::new(Some((greeting, source)), in_request, place)
}

impl EventSource for Source {
    async fn next(mut self) -> Option<(Bytes, Source)> {
        let text = tokio::select! {
            // All are safe to drop: an event that was not returned stays queued.
            heard = self.listener.next() => shown(&heard?),
            () = self.stopping.cancelled() => return None,
            () = tokio::time::sleep(KEEP_ALIVE) => ": nothing new\n\n".to_owned(),
        };
        Some((text.into(), self))
    }
}

fn shown(heard: &Heard) -> String {
    match heard {
        Heard::Missed(n_events) => format!("event: missed\ndata: {}\n\n", json!({"events": n_events})),
        Heard::Event(Event {
            sequence,
            at,
            happening,
        }) => {
            let (name, mut data) = described(happening);
            data["at"] = json!(at.0);
            format!("id: {sequence}\nevent: {name}\ndata: {data}\n\n")
        }
    }
}

/// The name of an event and what is said about it.
fn described(happening: &Happening) -> (String, Value) {
    let simple = |name: &str| (name.to_owned(), json!({}));
    match happening {
        Happening::Created(resource) => about(resource, "created"),
        Happening::Replaced(resource) => about(resource, "replaced"),
        Happening::Deleted(resource) => about(resource, "deleted"),
        Happening::ReshardStarted(reshard) => resharding(reshard, "started"),
        Happening::ReshardFinished(reshard) => resharding(reshard, "finished"),
        Happening::ReshardUndone(reshard) => resharding(reshard, "undone"),
        Happening::SnapshotSaved { name } => ("snapshot-saved".to_owned(), json!({"name": name})),
        Happening::SnapshotDropped { name } => ("snapshot-dropped".to_owned(), json!({"name": name})),
        Happening::KeysChanged => simple("keys-changed"),
        Happening::StoreWritable => simple("store-writable"),
        Happening::StoreFull => simple("store-full"),
        Happening::StoreReadOnly { reason } => ("store-read-only".to_owned(), json!({"reason": reason})),
        Happening::FailedOver {
            from,
            to,
            lost_transactions,
            n_uncounted,
        } => {
            let lost = (*n_uncounted == 0).then_some(lost_transactions);
            let data = json!({"from": from, "to": to, "lostTransactions": lost});
            ("failed-over".to_owned(), data)
        }
        Happening::ConflictsDropped {
            region,
            n_versions,
            n_unreadable_logs,
        } => {
            let data = json!({"region": region, "versions": n_versions, "unreadableLogs": n_unreadable_logs});
            ("conflicts-dropped".to_owned(), data)
        }
        Happening::RegionDamaged { region, reason } => {
            let data = json!({"region": region, "reason": reason});
            ("region-damaged".to_owned(), data)
        }
        Happening::RegionRenewed { region } => ("region-renewed".to_owned(), json!({"region": region})),
        Happening::FaultApplied { rule, operation } => {
            let data = json!({"fault": rule, "operation": operation});
            ("fault-applied".to_owned(), data)
        }
        Happening::Simulated(simulated) => {
            let (name, data) = simulation::moved(simulated);
            (name.to_owned(), data)
        }
    }
}

fn about(Named { kind, path }: &Named, what: &str) -> (String, Value) {
    let (kind, members): (_, &[&str]) = match kind {
        ResourceKind::Database => ("database", &["database"]),
        ResourceKind::Container => ("container", &["database", "container"]),
        ResourceKind::User => ("user", &["database", "user"]),
        ResourceKind::Permission => ("permission", &["database", "user", "permission"]),
        ResourceKind::Offer => ("offer", &["offer"]),
        ResourceKind::StoredProcedure => ("stored-procedure", &["database", "container", "storedProcedure"]),
        ResourceKind::Trigger => ("trigger", &["database", "container", "trigger"]),
        ResourceKind::Conflict => ("conflict", &["database", "container", "conflict"]),
        ResourceKind::UserDefinedFunction => (
            "user-defined-function",
            &["database", "container", "userDefinedFunction"],
        ),
    };
    let named = members
        .iter()
        .zip(path)
        .map(|(member, name)| ((*member).to_owned(), json!(name)));
    (format!("{kind}-{what}"), Value::Object(named.collect()))
}

fn resharding(reshard: &Reshard, what: &str) -> (String, Value) {
    let kind = if reshard.is_split() { "split" } else { "merge" };
    let data = json!({
        "database": reshard.database,
        "container": reshard.container,
        "parents": reshard.parents.iter().map(|parent| parent.0).collect::<Vec<_>>(),
        "children": reshard.children.iter().map(|child| child.0).collect::<Vec<_>>(),
    });
    (format!("{kind}-{what}"), data)
}

#[cfg(test)]
mod tests {
    use orrery_model::{PartitionId, Timestamp};

    use super::*;

    #[test]
    fn an_event_is_one_block_of_text_with_its_number() {
        let event = Event {
            sequence: 7,
            at: Timestamp(1000),
            happening: Happening::Created(Named {
                kind: ResourceKind::Container,
                path: vec!["shop".to_owned(), "line\nbreak".to_owned()],
            }),
        };
        assert_eq!(
            shown(&Heard::Event(event)),
            "id: 7\nevent: container-created\ndata: {\"database\":\"shop\",\"container\":\"line\\nbreak\",\"at\":1000}\n\n"
        );
    }

    #[test]
    fn a_merge_has_two_parents() {
        let reshard = Reshard {
            database: "shop".to_owned(),
            container: "orders".to_owned(),
            parents: vec![PartitionId(1), PartitionId(2)],
            children: vec![PartitionId(3)],
        };
        let (name, data) = described(&Happening::ReshardFinished(reshard));
        assert_eq!(name, "merge-finished");
        assert_eq!(data["parents"], json!([1, 2]));
    }

    #[test]
    fn lost_events_are_counted() {
        assert_eq!(shown(&Heard::Missed(3)), "event: missed\ndata: {\"events\":3}\n\n");
    }
}
