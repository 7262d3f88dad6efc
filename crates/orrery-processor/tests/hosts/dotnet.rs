//! Hosts of the .NET processor in the same unit, played by its published rules: expiry by clocks, one theft per cycle without
//! asking, whole documents with the fields it knows. No .NET runs here; what it writes is in `tests/golden`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orrery_processor::feed::{FeedRead, FeedSource as _};
use orrery_processor::lease::{FeedMode, Lease};
use orrery_processor::store::LeaseStore as _;
use orrery_processor::token::FeedToken;
use orrery_processor::{Position, StartFrom};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::JoinHandle;

use crate::scene::{Scene, TIMING};
use crate::way::Way;

const GRACE: Duration = Duration::from_secs(30);
const PREFIX: &str = "unitscripted_d_c1";
/// What the .NET class has; anything else is dropped by its next write.
const FIELDS: [&str; 9] = [
    "id",
    "version",
    "LeaseToken",
    "FeedRange",
    "Owner",
    "ContinuationToken",
    "properties",
    "timestamp",
    "Mode",
];

/// One host: a loop that ends when it is dropped, like a process that is killed.
struct DotNet(JoinHandle<()>);

impl Drop for DotNet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Loop {
    name: String,
    scene: Scene,
    way: Way,
    owned: BTreeSet<String>,
}

impl DotNet {
    fn start(scene: &Scene, name: &str) -> DotNet {
        let mut host = Loop {
            name: name.to_owned(),
            scene: scene.clone(),
            way: Way::new(&scene.leases, 0),
            owned: BTreeSet::new(),
        };
        DotNet(tokio::spawn(async move {
            for second in 0u64.. {
                if second.is_multiple_of(TIMING.acquire.as_secs()) {
                    host.balance().await;
                }
                if second.is_multiple_of(TIMING.renew.as_secs()) {
                    host.renew().await;
                }
                host.read().await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }))
    }
}

impl Loop {
    fn is_free(&self, lease: &Value) -> bool {
        let stamp = lease["timestamp"]
            .as_str()
            .map(|text| OffsetDateTime::parse(text, &Rfc3339).unwrap());
        lease["Owner"].is_null() || stamp.is_none_or(|stamp| stamp + TIMING.expiry < self.way.now())
    }

    async fn balance(&mut self) {
        let leases = self.way.list(&format!("{PREFIX}..")).await.unwrap().documents;
        let mut counts = BTreeMap::from([(self.name.clone(), 0)]);
        for lease in leases.iter().filter(|lease| !self.is_free(lease)) {
            *counts.entry(lease["Owner"].as_str().unwrap().to_owned()).or_insert(0) += 1;
        }
        let target = leases.len().div_ceil(counts.len()).max(1);
        let need = target.saturating_sub(counts[&self.name]);
        if need == 0 {
            return;
        }
        let mut taken: Vec<&Value> = leases.iter().filter(|lease| self.is_free(lease)).take(need).collect();
        if taken.is_empty() {
            let (victim, most) = counts.iter().max_by_key(|(_, count)| **count).unwrap();
            let limit = if need > 1 { target - 1 } else { target };
            let theirs = leases.iter().find(|lease| lease["Owner"] == victim.as_str());
            taken.extend(theirs.filter(|_| *most > limit && *victim != self.name));
        }
        let ids: Vec<String> = taken
            .iter()
            .map(|lease| lease["id"].as_str().unwrap().to_owned())
            .collect();
        for lease in ids {
            let owner = Value::from(self.name.as_str());
            if self
                .change(&lease, None, |document| document["Owner"] = owner.clone())
                .await
            {
                self.owned.insert(lease);
            }
        }
    }

    /// Reads the document, checks its owner, and writes it again with what .NET knows of it.
    async fn change(&self, id: &str, owner: Option<&str>, change: impl Fn(&mut Value)) -> bool {
        let Some(fresh) = self.way.read(&json!({ "id": id })).await.unwrap() else {
            return false;
        };
        if owner.is_some_and(|owner| fresh["Owner"] != owner) {
            return false;
        }
        let mut document: Value = FIELDS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), fresh.get(*name)?.clone())))
            .collect::<serde_json::Map<_, _>>()
            .into();
        document["timestamp"] = Value::from("");
        change(&mut document);
        self.way
            .replace(&document, fresh["_etag"].as_str().unwrap())
            .await
            .is_ok()
    }

    async fn renew(&mut self) {
        for id in self.owned.clone() {
            if !self.change(&id, Some(&self.name), |_| {}).await {
                self.owned.remove(&id);
            }
        }
    }

    async fn read(&mut self) {
        for id in self.owned.clone() {
            let Some(document) = self.way.read(&json!({ "id": id })).await.unwrap() else {
                self.owned.remove(&id);
                continue;
            };
            let lease = Lease::from_document(&document).unwrap();
            let from = lease
                .continuation
                .map_or(Position::From(StartFrom::Beginning), Position::After);
            let range = lease.range.unwrap();
            let read = FeedRead::new(&range, &from, FeedMode::LatestVersion);
            let Ok(page) = self.scene.feed.read(read).await else {
                continue;
            };
            if !page.changes.is_empty() {
                self.scene.ledger.note(&self.name, &lease.token, "/key", &page.changes);
                self.checkpoint(&id, &page.token).await;
            }
        }
    }

    async fn checkpoint(&mut self, id: &str, token: &FeedToken) {
        let token = Value::from(token.as_str());
        let saved = self.change(id, Some(&self.name), |document| {
            document["ContinuationToken"] = token.clone()
        });
        if !saved.await {
            self.owned.remove(id);
        }
    }
}

fn share(scene: &Scene, name: &str) -> usize {
    scene.shares().get(name).copied().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn hosts_of_both_kinds_share_a_unit_and_take_over_from_each_other() {
    let scene = Scene::new(6);
    let way = Way::new(&scene.leases, 0);
    let rust = scene
        .try_start(scene.host("rust").leases(way.clone()), "rust")
        .await
        .unwrap();
    scene.write(60);
    scene.until_complete().await;
    let dotnet = DotNet::start(&scene, "dotnet");
    scene
        .until("equal shares", || {
            share(&scene, "dotnet") == 3 && share(&scene, "rust") == 3
        })
        .await;
    scene.write(60);
    scene.until_complete().await;
    let before = scene.shares();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(scene.shares(), before, "nobody robs anybody once the shares are equal");
    drop(dotnet);
    scene
        .until("the Rust host has all", || share(&scene, "rust") == 6)
        .await;
    scene.feed.split(0);
    scene.write(60);
    scene.until_complete().await;
    scene.until("the lease is cut", || scene.stored().len() == 7).await;
    let dotnet = DotNet::start(&scene, "dotnet");
    scene.until("both work again", || share(&scene, "dotnet") >= 3).await;
    way.cut();
    scene
        .until("the .NET host has all", || share(&scene, "dotnet") == 7)
        .await;
    scene.write(60);
    scene.until_complete().await;
    scene.assert_complete();
    drop(dotnet);
    rust.stop(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_unit_that_dotnet_made_goes_on_where_it_stands_also_from_leases_without_a_range() {
    let scene = Scene::new(2);
    scene.write(20);
    let reached = scene.feed.latest().into_values().max().unwrap();
    let lease = |id: &str| {
        json!({
            "id": format!("{PREFIX}..{id}"), "LeaseToken": id, "PartitionId": id, "Owner": "gone",
            "ContinuationToken": format!("\"{reached}\""), "timestamp": "2020-08-20T09:15:02.1234567Z",
            "properties": {"team": "orders"},
        })
    };
    scene
        .leases
        .restore(vec![json!({"id": format!("{PREFIX}.info")}), lease("0"), lease("1")]);
    let running = scene.start("rust").await;
    scene.until("its leases expire", || share(&scene, "rust") == 2).await;
    scene.write(20);
    scene.until("what is new arrives", || scene.ledger.len() == 20).await;
    running.stop(GRACE).await;
    assert!(scene.ledger.deliveries().iter().all(|one| one.lsn > reached));
    for (token, lease) in scene.stored() {
        assert_eq!(
            (lease.version, lease.partition_id.as_deref()),
            (0, Some(token.as_str()))
        );
        assert!(lease.range.is_some(), "the range is filled in");
        assert_eq!(lease.properties["team"], "orders");
    }
}
