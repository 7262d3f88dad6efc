//! Everything that can happen to a unit, one thing after another, under load. Seconds here; half an hour when `ORRERY_SOAK` is
//! set, or as many seconds as it says.

use std::time::{Duration, Instant};

use orrery_processor::operations::Operations;
use orrery_processor::store::ContainerLeases;
use serde_json::json;

use crate::library::feed;
use crate::scene::{Process, Scene, until};

const N_HOSTS: usize = 3;
const N_ITEMS: usize = 40;
/// Partitions are merged again when there are so many.
const PARTITIONS_MAX: usize = 8;

fn lasts() -> Duration {
    let Some(said) = std::env::var_os("ORRERY_SOAK") else {
        return Duration::from_secs(20);
    };
    let seconds = said.to_str().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.filter(|seconds| *seconds > 1).unwrap_or(1800))
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Kill,
    Freeze,
    Stop,
    Split,
    Merge,
    /// The leases cannot be written for a moment.
    LeasesDown,
    /// The feed cannot be read for a moment.
    FeedDown,
}

const BLOWS: [Blow; 7] = [
    Blow::Kill,
    Blow::Split,
    Blow::Freeze,
    Blow::LeasesDown,
    Blow::Merge,
    Blow::Stop,
    Blow::FeedDown,
];

struct Storm {
    scene: Scene,
    /// With their names.
    hosts: Vec<(String, Process)>,
    n_started: usize,
}

impl Storm {
    async fn strike(&mut self, blow: Blow, round: usize) {
        let index = round % N_HOSTS;
        match blow {
            Blow::Kill => {
                self.hosts[index].1.kill();
                self.hosts[index] = self.another();
            }
            Blow::Stop => {
                let host = &mut self.hosts[index].1;
                host.signal("TERM");
                until("the host ends", || host.has_ended()).await;
                self.hosts[index] = self.another();
            }
            Blow::Freeze => {
                let (name, host) = &self.hosts[index];
                self.scene.freeze(name, host);
                // Longer than a lease lasts, so that its leases run elsewhere when it wakes.
                self.scene.write(N_ITEMS).await;
                self.scene.until_complete().await;
                host.signal("CONT");
            }
            Blow::Split => {
                let partitions = self.scene.partitions();
                self.scene.split(partitions[round % partitions.len()]);
            }
            Blow::Merge => {
                let partitions = self.scene.partitions();
                if partitions.len() > PARTITIONS_MAX || round.is_multiple_of(2) && partitions.len() > 2 {
                    let left = round % (partitions.len() - 1);
                    self.scene.merge(partitions[left], partitions[left + 1]);
                }
            }
            Blow::LeasesDown => {
                self.fault(json!({"operation": "replace_item", "container": "leases"}))
                    .await
            }
            Blow::FeedDown => {
                self.fault(json!({"operation": "change_feed", "container": "orders"}))
                    .await
            }
        }
    }

    fn another(&mut self) -> (String, Process) {
        self.n_started += 1;
        let name = format!("host{}", self.n_started);
        let host = self.scene.host(&name);
        (name, host)
    }

    /// Something answers 503 a few times.
    async fn fault(&self, mut rule: serde_json::Value) {
        rule["status"] = json!(503);
        rule["message"] = json!("down");
        rule["count"] = json!(20);
        self.scene.add_fault(&rule);
        self.scene.write(N_ITEMS).await;
        self.scene.clear_faults();
    }
}

#[tokio::test]
async fn a_unit_loses_nothing_and_keeps_every_keys_order_whatever_happens_to_its_hosts_and_partitions() {
    let mut storm = Storm {
        scene: Scene::new(2).await,
        hosts: Vec::new(),
        n_started: 0,
    };
    for _ in 0..N_HOSTS {
        let host = storm.another();
        storm.hosts.push(host);
    }
    let (began, lasts) = (Instant::now(), lasts());
    let mut n_rounds = 0;
    // At least once each, however slow the machine.
    while began.elapsed() < lasts || n_rounds < BLOWS.len() {
        let blow = BLOWS[n_rounds % BLOWS.len()];
        storm.scene.write(N_ITEMS).await;
        storm.strike(blow, n_rounds).await;
        storm.scene.write(N_ITEMS).await;
        storm.scene.until_complete().await;
        n_rounds += 1;
    }
    let scene = &storm.scene;
    let unit = Operations::open(
        "unit",
        feed(scene),
        ContainerLeases::new(scene.leases.clone()),
        Duration::from_millis(2500),
    );
    let unit = unit.await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !unit.tiling().await.unwrap().is_exact() {
        assert!(Instant::now() < deadline, "{:?}", unit.tiling().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ledger = scene.ledger();
    println!(
        "{n_rounds} blows in {:?}: {} deliveries, {} versions more than once, {} late, {} hosts",
        began.elapsed(),
        ledger.len(),
        ledger.repeated().len(),
        scene.late().len(),
        storm.n_started
    );
    scene.assert_in_order();
    assert!(ledger.repeated().len() < ledger.len() / 2, "repeats are the exception");
}
