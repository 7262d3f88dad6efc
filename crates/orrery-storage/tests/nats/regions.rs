use std::sync::Arc;
use std::time::Duration;

use orrery_model::{Epoch, LogId, Lsn};
use orrery_nats_server::{Regions, Settings};
use orrery_partition::storage::{Log, Role, StorageError, Store as _};
use orrery_storage::NatsStore;
use orrery_storage::nats::mirrors::{Mirrors, Origin, Standing};
use tempfile::TempDir;

use crate::rig::{PATIENCE, client, open, own, settings, verified_keys};
use crate::support::{TestProject, content, write};

const LOG: LogId = LogId(5);
const OTHER: LogId = LogId(6);
const DOMAINS: [&str; 3] = ["east", "west", "south"];

/// Regions of one server each, and directories for their nodes.
struct World {
    regions: Regions,
    dirs: Vec<TempDir>,
}

impl World {
    fn new(n_regions: usize) -> World {
        World {
            regions: Regions::start(&DOMAINS[..n_regions], 1, &Settings::default()).unwrap(),
            dirs: (0..n_regions).map(|_| tempfile::tempdir().unwrap()).collect(),
        }
    }

    fn urls(&self, idx: usize) -> Vec<String> {
        self.regions.sites[idx].servers.urls()
    }

    async fn mirrors(&self, idx: usize) -> Mirrors {
        Mirrors::new(client(&self.urls(idx)).await, &settings(DOMAINS[idx], 1)).unwrap()
    }

    /// A node in the region that writes.
    async fn writer(&self, idx: usize) -> Arc<NatsStore> {
        open(&self.urls(idx), self.dirs[idx].path(), settings(DOMAINS[idx], 1)).await
    }

    /// A node in a region that follows.
    async fn reader(&self, idx: usize) -> Arc<NatsStore> {
        let (client, project) = (client(&self.urls(idx)).await, Arc::new(TestProject));
        let (dir, settings) = (self.dirs[idx].path(), settings(DOMAINS[idx], 1));
        let opened = NatsStore::open_mirrored(client, dir, settings, project).await;
        opened.unwrap()
    }
}

async fn reaches(store: &NatsStore, log: &dyn Log) -> Arc<dyn Log> {
    let reaching = async {
        loop {
            match store.open(log.id(), Role::Follow).await {
                Ok(copy) if copy.head() == log.head() => return copy,
                Ok(copy) => {
                    let before = Lsn(log.head().lsn.0.saturating_sub(1));
                    let _ = tokio::time::timeout(Duration::from_millis(50), copy.wait_past(before)).await;
                }
                Err(StorageError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let reached = tokio::time::timeout(PATIENCE, reaching).await;
    reached.expect("the region that follows catches up")
}

async fn write_some(log: &dyn Log, name: &str, n: usize) {
    for idx in 0..n {
        let key = format!("{name} {idx}");
        write(log, &[(&key, Some("value"))]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_that_follows_has_what_the_other_wrote_also_after_its_link_was_cut() {
    let world = World::new(2);
    let east = world.writer(0).await;
    let log = own(&east, LOG, 1).await;
    write_some(&*log, "before", 30).await;
    // A log that was dropped leaves nothing behind, also not in a mirror.
    write_some(&*own(&east, OTHER, 1).await, "gone", 3).await;
    east.drop_log(OTHER).await.unwrap();

    let mirrors = world.mirrors(1).await;
    assert_eq!(mirrors.standing().await.unwrap(), Standing::Missing);
    mirrors.follow(&Origin::of("east")).await.unwrap();
    assert_eq!(mirrors.standing().await.unwrap(), Standing::Mirrors("east".into()));
    let west = world.reader(1).await;
    let _following = west.follow();
    let copy = reaches(&west, &*log).await;
    assert_eq!(verified_keys(&*copy).await.len(), 30);

    // The log that was dropped is made anew.
    let other = own(&east, OTHER, 1).await;
    write_some(&*other, "again", 5).await;
    assert_eq!(verified_keys(&*reaches(&west, &*other).await).await.len(), 5);

    world.regions.sites[1].link.cut();
    write_some(&*log, "while it was cut", 20).await;
    assert!(copy.head().lsn < log.head().lsn);
    world.regions.sites[1].link.heal();
    reaches(&west, &*log).await;
    assert_eq!(verified_keys(&*copy).await.len(), 50);

    let refused = west.open(LOG, Role::Own { epoch: Epoch(2) }).await.map(drop);
    assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
    assert!(west.drop_log(LOG).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_that_comes_late_begins_with_snapshots_that_were_mirrored() {
    let world = World::new(2);
    let east = world.writer(0).await;
    let log = own(&east, LOG, 1).await;
    write_some(&*log, "before", 40).await;
    // From here on the log has no beginning.
    east.save(LOG).await.unwrap();
    write_some(&*log, "after", 10).await;
    world.mirrors(1).await.follow(&Origin::of("east")).await.unwrap();
    let west = world.reader(1).await;
    let _following = west.follow();
    let copy = reaches(&west, &*log).await;
    let views = [&log, &copy].map(|log| content(log.snapshot().unwrap().as_ref()));
    assert_eq!(views[0], views[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_takes_over_and_the_others_follow_it() {
    let world = World::new(3);
    let east = world.writer(0).await;
    let log = own(&east, LOG, 1).await;
    write_some(&*log, "first", 20).await;
    for idx in [1, 2] {
        world.mirrors(idx).await.follow(&Origin::of("east")).await.unwrap();
    }
    let (west, south) = (world.reader(1).await, world.reader(2).await);
    let _following = south.follow();
    reaches(&west, &*log).await;
    reaches(&south, &*log).await;

    // What the other two do not have any more: they are cut off.
    world.regions.sites[0].link.cut();
    write_some(&*log, "lost", 7).await;
    let cut_off = log.head();

    let mirrors = world.mirrors(1).await;
    mirrors.promote().await.unwrap();
    mirrors.promote().await.unwrap();
    assert_eq!(mirrors.standing().await.unwrap(), Standing::Own);
    west.set_mirrored(false);
    let taken = own(&west, LOG, 2).await;
    assert_eq!(verified_keys(&*taken).await.len(), 20);
    write_some(&*taken, "second", 10).await;
    world.mirrors(2).await.follow(&Origin::of("west")).await.unwrap();
    let copy = reaches(&south, &*taken).await;
    assert_eq!(verified_keys(&*copy).await.len(), 30);

    // The one that was cut off comes back.
    world.regions.sites[0].link.heal();
    assert_eq!(log.head(), cut_off);
    east.set_mirrored(true);
    let mirrors = world.mirrors(0).await;
    until_reachable(&mirrors, &Origin::of("west")).await;
    mirrors.follow(&Origin::of("west")).await.unwrap();
    east.start_anew().await.unwrap();
    let _following = east.follow();
    let copy = reaches(&east, &*taken).await;
    let keys = verified_keys(&*copy).await;
    assert!(keys.iter().all(|key| !key.starts_with("lost")), "{keys:?}");
    assert_eq!(keys.len(), 30);
}

async fn until_reachable(mirrors: &Mirrors, origin: &Origin) {
    let reachable = async {
        while mirrors.reached_by(origin).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reachable).await.expect("the link heals");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_that_is_made_anew_has_everything_again() {
    let world = World::new(2);
    let east = world.writer(0).await;
    let log = own(&east, LOG, 1).await;
    write_some(&*log, "first", 20).await;
    let (mirrors, origin) = (world.mirrors(1).await, Origin::of("east"));
    mirrors.follow(&origin).await.unwrap();
    let west = world.reader(1).await;
    let _following = west.follow();
    let copy = reaches(&west, &*log).await;
    for idx in 0..3 {
        mirrors.renew(idx, &origin).await.unwrap();
    }
    write_some(&*log, "second", 20).await;
    reaches(&west, &*log).await;
    assert_eq!(verified_keys(&*copy).await.len(), 40);
    assert_eq!(
        mirrors.reached().await.unwrap(),
        mirrors.reached_by(&origin).await.unwrap()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_takes_messages_is_not_given_up_for_what_another_region_has_more() {
    let world = World::new(2);
    let east = world.writer(0).await;
    let log = own(&east, LOG, 1).await;
    write_some(&*log, "before", 3).await;
    let mirrors = world.mirrors(1).await;
    mirrors.follow(&Origin::of("east")).await.unwrap();
    let west = world.reader(1).await;
    reaches(&west, &*log).await;
    mirrors.promote().await.unwrap();
    // What it is told by then is older than what it does.
    let reached = mirrors.reached().await.unwrap();
    write_some(&*log, "in the east alone", 3).await;
    for idx in 0..reached.len() {
        let taken = mirrors.take_from(idx, &Origin::of("east")).await;
        assert!(matches!(taken, Err(StorageError::Unavailable(_))), "{taken:?}");
    }
    assert_eq!(mirrors.standing().await.unwrap(), Standing::Own);
    assert_eq!(mirrors.reached().await.unwrap(), reached);
}
