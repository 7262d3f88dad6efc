//! Units over an account with several regions: a planned change of the write region, the loss of one, and leases out of
//! reach.

use std::collections::BTreeMap;

use orrery_processor::token::FeedToken;
use serde_json::{Value, json};

use crate::process::{Server, until_told};
use crate::scene::{Scene, until};

const REGIONS: [&str; 2] = ["--regions", "West US,North Europe"];
/// A forced change of the write region begins a new epoch of LSNs, at a multiple of this.
const EPOCH: u64 = 1 << 32;

impl Scene {
    fn regions(&self) -> Vec<Value> {
        let answer = self.administer("GET", "/_orrery/v1/regions", &json!({}));
        answer["regions"].as_array().unwrap().clone()
    }

    async fn until_replicated(&self) {
        until("every region has everything", || {
            self.regions().iter().all(|region| region["lagTransactionsTotal"] == 0)
        })
        .await;
    }

    fn cut(&self, from: &str, to: &str) {
        self.administer(
            "PUT",
            "/_orrery/v1/links",
            &json!({"from": from, "to": to, "cut": true}),
        );
    }

    async fn positions(&self) -> BTreeMap<String, u64> {
        let leases = self.stored().await;
        let position = |token: &FeedToken| token.lsn().unwrap();
        leases
            .into_iter()
            .map(|(token, lease)| (token, lease.continuation.as_ref().map_or(0, position)))
            .collect()
    }
}

#[tokio::test]
async fn a_planned_failover_loses_nothing_and_repeats_at_most_the_batch_at_hand() {
    let scene = Scene::on(Server::emulator(2, &REGIONS)).await;
    let settings = [("REGION", "North Europe"), ("MAX_ITEMS", "5"), ("DELAY_MS", "100")];
    let _host = scene.started_with("a", &settings).await;
    scene.write(60).await;
    scene.until_replicated().await;
    until("the host is at work", || scene.n_batches() >= 3).await;
    let before = scene.positions().await;
    scene.administer("POST", "/_orrery/v1/failover", &json!({"region": "North Europe"}));
    scene.write(60).await;
    scene.until_replicated().await;
    scene.until_complete().await;
    scene.assert_at_most_a_batch_of_each_lease_came_again();
    for (lease, position) in scene.positions().await {
        assert!(position >= before[&lease], "positions never go back");
    }
    let regions = scene.regions();
    let writer = regions.iter().find(|region| region["role"] == "write");
    assert_eq!(writer.unwrap()["name"], "North Europe");
}

#[tokio::test]
async fn the_loss_of_the_write_region_with_an_unreplicated_tail_skips_nothing_of_the_new_history() {
    let scene = Scene::on(Server::emulator(1, &REGIONS)).await;
    let leases = Scene::new(1).await;
    let host = scene.host_with("a", &[("LEASE_ENDPOINT", &leases.server.endpoint)]);
    until("the host is ready", || host.printed("ready")).await;
    scene.write(30).await;
    scene.until_replicated().await;
    scene.until_complete().await;
    scene.cut("West US", "North Europe");
    scene.write(20).await;
    until("the tail is seen where it was written", || scene.ledger().len() == 50).await;
    let tail = leases.positions().await;
    let loss = scene.administer("POST", "/_orrery/v1/regions/West-US/offline", &json!({}));
    assert_eq!(loss["lostTransactions"], 20, "the loss is told: {loss}");
    scene.write(20).await;
    scene.until_complete().await;
    let ledger = scene.ledger().deliveries();
    let n_new = ledger.iter().filter(|one| one.lsn >= EPOCH).count();
    assert!(n_new >= 20, "every change of the new history came: {n_new}");
    let told = |line: &&String| line.starts_with("HistoryChanged { lease: \"-FF\", before: ");
    until("the host tells that its history is another one", || {
        host.output.lock().unwrap().iter().filter(told).count() == 1
    })
    .await;
    until_told("the position is of the new history", async || {
        leases.positions().await.values().all(|lsn| *lsn >= EPOCH)
    })
    .await;
    assert!(tail.values().all(|lsn| *lsn < EPOCH), "{tail:?}");
}

#[tokio::test]
async fn hosts_whose_lease_region_is_cut_off_stop_in_time_and_share_again_after_it() {
    let scene = Scene::new(4).await;
    let leases = Scene::on(Server::emulator(1, &REGIONS)).await;
    let settings = [("LEASE_ENDPOINT", leases.server.endpoint.as_str())];
    let hosts = [scene.host_with("a", &settings), scene.host_with("b", &settings)];
    until("the hosts are ready", || hosts.iter().all(|host| host.printed("ready"))).await;
    leases.until_shares(&[("a", 2), ("b", 2)]).await;
    scene.write(40).await;
    scene.until_complete().await;
    let before = leases.stored().await;
    for region in ["West US", "North Europe"] {
        let path = format!("/_orrery/v1/regions/{}/stop", region.replace(' ', "-"));
        leases.administer("POST", &path, &json!({"mode": "hang"}));
    }
    until("both hosts let go of everything by themselves", || {
        hosts.iter().all(|host| host.n_printed("Fenced") >= 2)
    })
    .await;
    let n_before = scene.ledger().len();
    scene.write(40).await;
    assert_eq!(scene.ledger().len(), n_before, "nobody delivers what it cannot hold");
    for region in ["West US", "North Europe"] {
        let path = format!("/_orrery/v1/regions/{}/start", region.replace(' ', "-"));
        leases.administer("POST", &path, &json!({}));
    }
    scene.until_complete().await;
    leases.until_shares(&[("a", 2), ("b", 2)]).await;
    let after = leases.stored().await;
    assert_eq!(after.len(), 4, "one lease per range");
    assert!(after.iter().all(|(token, lease)| lease.epoch() > before[token].epoch()));
    assert!(scene.ledger().repeated().is_empty(), "{:?}", scene.ledger().repeated());
}
