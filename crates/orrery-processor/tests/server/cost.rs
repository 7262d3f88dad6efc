//! What leases cost, counted at the server. Short here; an hour with the default timing when `ORRERY_SOAK` is set.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::scene::{Scene, is_soak, until};

const N_HOSTS: usize = 4;
const N_LEASES: usize = 32;

/// How long, and the timing of the leases in milliseconds.
struct Load {
    lasts: Duration,
    acquire_ms: u64,
    renew_ms: u64,
    expiry_ms: u64,
}

fn load() -> Load {
    if is_soak() {
        return Load {
            lasts: Duration::from_secs(3600),
            acquire_ms: 13_000,
            renew_ms: 17_000,
            expiry_ms: 60_000,
        };
    }
    Load {
        lasts: Duration::from_secs(16),
        acquire_ms: 1500,
        renew_ms: 2000,
        expiry_ms: 8000,
    }
}

/// Requests and request units of an operation since the server started.
#[derive(Clone, Copy, Default)]
struct Traffic {
    requests: f64,
    units: f64,
}

impl Traffic {
    fn since(self, before: Traffic) -> Traffic {
        Traffic {
            requests: self.requests - before.requests,
            units: self.units - before.units,
        }
    }

    /// Of one request, on average.
    fn each(self) -> f64 {
        self.units / self.requests.max(1.0)
    }
}

impl Scene {
    fn traffic(&self, operation: &str) -> Traffic {
        let metrics = self.metrics();
        let sum = |name: &str| -> f64 {
            let label = format!("{name}{{operation=\"{operation}\"");
            let lines = metrics.lines().filter(|line| line.starts_with(&label));
            lines
                .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
                .sum()
        };
        Traffic {
            requests: sum("orrery_requests_total"),
            units: sum("orrery_request_units_total"),
        }
    }

    /// Ids of items, one in the range of every lease.
    async fn one_item_per_lease(&self) -> Vec<String> {
        self.write(10 * N_LEASES).await;
        self.until_complete().await;
        let deliveries = self.ledger().deliveries().into_iter();
        let items: BTreeMap<String, String> = deliveries.map(|one| (one.lease, one.id)).collect();
        assert_eq!(items.len(), N_LEASES);
        items.into_values().collect()
    }

    fn lease_traffic(&self) -> [Traffic; 3] {
        ["replace_item", "read_item", "query_items"].map(|operation| self.traffic(operation))
    }
}

/// What the .NET processor sends for the same work: a read and a write per renewal, a refused write, a read and a write per
/// checkpoint because it keeps the old entity tag, and the same listings.
fn of_dotnet(load: &Load, n_checkpoints: f64, used: &[Traffic; 3]) -> f64 {
    // A short run may have no read at all; one costs a request unit.
    let (replace, read) = (used[0].each(), used[1].each().max(1.0));
    let renewals = N_LEASES as f64 * load.lasts.as_millis() as f64 / load.renew_ms as f64;
    renewals * (read + replace) + n_checkpoints * (2.0 * replace + read) + used[2].units
}

#[tokio::test]
async fn leases_cost_at_most_two_fifths_of_what_dotnet_pays_under_steady_load() {
    // One partition, because the container of leases would have as many.
    let (scene, load) = (Scene::new(1).await, load());
    let [acquire, renew, expiry] = [load.acquire_ms, load.renew_ms, load.expiry_ms].map(|ms| ms.to_string());
    let settings = [
        ("LEASES_PER_PARTITION", "32"),
        ("ACQUIRE_MS", acquire.as_str()),
        ("RENEW_MS", renew.as_str()),
        ("EXPIRY_MS", expiry.as_str()),
    ];
    let hosts: Vec<_> = ["a", "b", "c", "d"].map(|name| scene.host_with(name, &settings)).into();
    until("the hosts are ready", || hosts.iter().all(|host| host.printed("ready"))).await;
    let share = N_LEASES / N_HOSTS;
    scene
        .until_shares(&[("a", share), ("b", share), ("c", share), ("d", share)])
        .await;
    let items = scene.one_item_per_lease().await;
    let (before, n_before) = (scene.lease_traffic(), scene.n_batches());
    // Every lease has one change a little more often than it would have to be renewed.
    let mut rounds = tokio::time::interval(Duration::from_millis(load.renew_ms * 4 / 5));
    let began = Instant::now();
    while began.elapsed() < load.lasts {
        rounds.tick().await;
        futures::future::join_all(items.iter().map(|id| scene.write_one(id.clone()))).await;
    }
    let after = scene.lease_traffic();
    let n_checkpoints = (scene.n_batches() - n_before) as f64;
    let mut used = [Traffic::default(); 3];
    for (index, traffic) in used.iter_mut().enumerate() {
        *traffic = after[index].since(before[index]);
    }
    let ours: f64 = used.iter().map(|traffic| traffic.units).sum();
    let theirs = of_dotnet(&load, n_checkpoints, &used);
    println!(
        "{n_checkpoints} checkpoints: {} writes, {} reads, {} listings; {ours:.0} RU against {theirs:.0}",
        used[0].requests, used[1].requests, used[2].requests
    );
    assert!(n_checkpoints > 100.0, "there was load: {n_checkpoints}");
    assert!(ours <= 0.4 * theirs, "{ours} of {theirs}");
    scene.until_complete().await;
    assert!(scene.ledger().repeated().is_empty());
}
