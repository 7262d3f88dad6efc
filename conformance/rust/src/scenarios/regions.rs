//! An account of three regions: who answers, and what a change of the write region shows. One scenario after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use azure_data_cosmos::clients::ContainerClient;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::fleet::{ADDED, Fleet, LAST, NEXT, REGIONS, WRITER, eventually, fill, read_back};
use crate::harness::{Cases, cases};
use crate::scene::Scene;

pub fn cases() -> Cases {
    cases![
        "region-reads-in-preferred" => [reads_in_preferred],
        "region-writes-in-write-region" => [writes_in_write_region],
        "region-session" => [session],
        "region-session-cut-off" => [session_cut_off],
        "region-down" => [down],
        "region-planned-failover" => [planned_failover],
        "region-forced-failover" => [forced_failover],
        "region-added-and-removed" => [added_and_removed],
        "region-found-by-name" => [skip "the SDK resolves names by the machine's resolver only"],
        "region-conflict-feed" => [skip "the SDK has no conflicts"],
    ]
}

fn named(kind: &str, count: u32) -> Vec<String> {
    (0..count).map(|number| format!("{kind} {number}")).collect()
}

async fn reads_in_preferred(scene: Scene) -> Result<()> {
    let fleet = Fleet::open(scene).await?;
    let names = named("item", 10);
    fill(&fleet.seen_from(WRITER).await?, &names).await?;
    fleet.wait_level().await?;
    for region in REGIONS {
        let container = fleet.seen_from(region).await?;
        let before = fleet.count("read_item", &REGIONS).await?;
        for name in &names {
            read_back(&container, name).await?;
        }
        fleet.expect_only(before, region, 10).await?;
    }
    fleet.close().await;
    Ok(())
}

async fn writes_in_write_region(scene: Scene) -> Result<()> {
    let fleet = Fleet::open(scene).await?;
    for region in REGIONS {
        let container = fleet.seen_from(region).await?;
        let before = fleet.count("create_item", &REGIONS).await?;
        fill(&container, &named(region, 5)).await?;
        fleet.expect_only(before, WRITER, 5).await?;
    }
    fleet.close().await;
    Ok(())
}

async fn session(scene: Scene) -> Result<()> {
    check_session(scene, json!({"latencyMs": 100}), LAST).await
}

async fn session_cut_off(scene: Scene) -> Result<()> {
    check_session(scene, json!({"paused": true}), WRITER).await
}

/// A region lags, and what was just written is read there.
async fn check_session(scene: Scene, lag: Value, answering: &str) -> Result<()> {
    let fleet = Fleet::open(scene).await?;
    let container = fleet.seen_from(LAST).await?;
    let item = |n: u32| json!({"id": "1", "pk": "a", "n": n});
    container.create_item("a", "1", item(0), None).await?;
    fleet.wait_level().await?;
    fleet.set_link(LAST, lag).await?;
    let outcome = async {
        for n in 1..4 {
            container.replace_item("a", "1", item(n), None).await?;
            let before = fleet.count("read_item", &REGIONS).await?;
            let read: Value = container.read_item("a", "1", None).await?.into_model()?;
            ensure!(read["n"] == n, "wrote {n}, read {read}");
            fleet.expect_only(before, answering, 1).await?;
        }
        Ok(())
    }
    .await;
    fleet.set_link(LAST, json!({})).await?;
    fleet.close().await;
    outcome
}

async fn down(scene: Scene) -> Result<()> {
    let fleet = Fleet::open(scene).await?;
    let container = fleet.seen_from(LAST).await?;
    fill(&container, &["1".to_owned()]).await?;
    fleet.wait_level().await?;
    let before = fleet.count("read_item", &REGIONS).await?;
    read_back(&container, "1").await?;
    fleet.expect_only(before, LAST, 1).await?;

    let path = |action: &str| format!("regions/{LAST}/{action}");
    let form = json!({"mode": "unavailable"});
    fleet.manage("POST", &path("stop"), Some(form)).await?;
    let outcome = async {
        let before = fleet.count("read_item", &[WRITER, NEXT]).await?;
        for _ in 0..5 {
            read_back(&container, "1").await?;
        }
        fleet.expect_only(before, WRITER, 5).await
    }
    .await;
    fleet.manage("POST", &path("start"), None).await?;
    fleet.close().await;
    outcome
}

async fn added_and_removed(scene: Scene) -> Result<()> {
    let fleet = Fleet::open(scene).await?;
    fill(&fleet.seen_from(WRITER).await?, &["1".to_owned()]).await?;
    fleet.manage("POST", "regions", Some(json!({"region": ADDED}))).await?;
    let outcome = async {
        let container = fleet.seen_from(ADDED).await?;
        let read_five = || async {
            for _ in 0..5 {
                read_back(&container, "1").await?;
            }
            Ok(())
        };
        let before = fleet.count("read_item", &REGIONS).await?;
        read_five().await?;
        fleet.expect_only(before, ADDED, 0).await?;
        let before = fleet.count("read_item", &REGIONS).await?;
        fleet.while_removed(ADDED, read_five()).await?;
        read_five().await?;
        fleet.expect_only(before, WRITER, 10).await
    }
    .await;
    fleet.forget(ADDED).await?;
    fleet.close().await;
    outcome
}

/// Creates items, and reads each back, until stopped; notes what was acknowledged and what went wrong.
struct Load {
    notes: Arc<Notes>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Notes {
    stopped: AtomicBool,
    acknowledged: Mutex<Vec<String>>,
    errors: Mutex<Vec<String>>,
}

impl Load {
    fn start(container: ContainerClient, name: &str) -> Load {
        let notes = Arc::new(Notes::default());
        let worker = |number: u32| {
            let prefix = format!("{name} {number}");
            tokio::spawn(work(container.clone(), prefix, Arc::clone(&notes)))
        };
        let workers = (0..4).map(worker).collect();
        Load { notes, workers }
    }

    fn n_acknowledged(&self) -> usize {
        self.notes
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// What was acknowledged, if nothing went wrong.
    async fn stop(self) -> Result<Vec<String>> {
        self.notes.stopped.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await?;
        }
        let errors = std::mem::take(&mut *self.notes.errors.lock().unwrap_or_else(PoisonError::into_inner));
        ensure!(errors.is_empty(), "the application saw {errors:?}");
        Ok(std::mem::take(
            &mut *self.notes.acknowledged.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}

async fn work(container: ContainerClient, prefix: String, notes: Arc<Notes>) {
    let note = |list: &Mutex<Vec<String>>, text: String| {
        list.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    };
    for number in 0.. {
        if notes.stopped.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("{prefix}-{number}");
        let outcome = match fill(&container, std::slice::from_ref(&name)).await {
            Ok(()) => {
                note(&notes.acknowledged, name.clone());
                read_back(&container, &name).await
            }
            refused => refused,
        };
        if let Err(error) = outcome {
            note(&notes.errors, format!("{error:#}"));
        }
    }
}

async fn planned_failover(scene: Scene) -> Result<()> {
    let fleet = Fleet::open(scene).await?;
    let mut acknowledged = Vec::new();
    for writer in [NEXT, WRITER] {
        // A client of this SDK reads the account at most every 5 s and gives a write up after as long.
        let load = Load::start(fleet.seen_from(LAST).await?, writer);
        let changed = change_writer(&fleet, &load, writer).await;
        acknowledged.extend(load.stop().await?);
        changed?;
    }
    acknowledged.sort();
    fleet.wait_level().await?;
    for region in REGIONS {
        let found = fleet.ids_seen_from(region).await?;
        ensure!(found == acknowledged, "{region} has {found:?} of {acknowledged:?}");
    }
    fleet.close().await;
    Ok(())
}

/// Changes the write region once the load is under way, and waits until it writes there.
async fn change_writer(fleet: &Fleet, load: &Load, writer: &str) -> Result<()> {
    eventually("load", || async { Ok(load.n_acknowledged() >= 40) }).await?;
    let before = fleet.answered("create_item", writer).await?;
    fleet.fail_over(writer).await?;
    eventually("writing elsewhere", || async {
        Ok(fleet.answered("create_item", writer).await? >= before + 40)
    })
    .await
}

async fn forced_failover(scene: Scene) -> Result<()> {
    let fleet = Fleet::open(scene).await?;
    let [kept, lost, later] = ["kept", "lost", "later"].map(|kind| named(kind, 10));
    let container = fleet.seen_from(LAST).await?;
    fill(&container, &kept).await?;
    fleet.wait_level().await?;
    for region in [NEXT, LAST] {
        fleet.set_link(region, json!({"cut": true})).await?;
    }
    let written = fill(&container, &lost).await;
    let loss = fleet.manage("POST", &format!("regions/{WRITER}/offline"), None).await;
    for region in [NEXT, LAST] {
        fleet.set_link(region, json!({})).await?;
    }
    written?;
    ensure!(
        loss?["lostTransactions"] == lost.len(),
        "another number is reported lost"
    );
    for name in &later {
        // As an application would after a failover it was not spared.
        eventually("writing elsewhere", || async {
            let key = format!("key {name}");
            let item = json!({"id": name, "pk": key});
            Ok(container.upsert_item(key, name, item, None).await.is_ok())
        })
        .await?;
    }
    fleet.wait_level().await?;
    let mut expected = [kept, later].concat();
    expected.sort();
    for region in [NEXT, LAST] {
        let found = fleet.ids_seen_from(region).await?;
        ensure!(found == expected, "{region} has {found:?}");
    }
    fleet.manage("POST", &format!("regions/{WRITER}/online"), None).await?;
    fleet.fail_over(WRITER).await?;
    let found = fleet.ids_seen_from(WRITER).await?;
    ensure!(found == expected, "it returned with {found:?}");
    fleet.close().await;
    Ok(())
}
