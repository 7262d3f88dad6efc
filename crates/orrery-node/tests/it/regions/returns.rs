//! Regions that come back: what they alone had, how long it may take, and what may come in between.

use orrery_node::ConflictLimits;
use orrery_node::api::{ItemSelector, MetadataVerb};
use orrery_node::geo::failover::AcceptLoss;
use orrery_node::geo::topology::RegionState;
use orrery_partition::storage::Role;

use super::failover::{conflicts, text};
use super::*;

impl Regions {
    fn state(&self, name: &str) -> RegionState {
        self.fleet.topology().named(name).unwrap().state
    }

    /// Forgets what it can of every log of a store, as other accounts in it would have it.
    async fn trim(&self, store: usize) {
        trim(&self.stores[store]).await;
    }

    /// Four new items and a deletion, which leaves no trace but in the log, that only the first region has when the second
    /// takes over.
    async fn cut_off_five() -> Regions {
        Regions::new().await.cut_off(5).await
    }

    async fn cut_off(self, n_lost: usize) -> Regions {
        self.with_container().await;
        fill(&self.writer(), 0..5).await;
        self.all_equal().await;
        self.set_links(&cut());
        fill(&self.writer(), 5..4 + n_lost).await;
        delete_first(&self.writer()).await;
        let loss = self.fleet.clone().take_offline(WEST).await.unwrap();
        assert_eq!(loss.n_transactions(), n_lost as u64);
        self
    }
}

/// What is left of regions that do not run.
struct Stopped<'a> {
    stores: &'a [Arc<dyn Store>],
    keeper: &'a InMemory,
}

impl Regions {
    /// In memory nothing but the fleet ends: the stores stay as they are.
    async fn restarted_after(self, meanwhile: impl AsyncFnOnce(Stopped<'_>)) -> Regions {
        let Regions {
            fleet,
            stores,
            keeper,
            consistency,
        } = self;
        drop(fleet);
        meanwhile(Stopped {
            stores: &stores,
            keeper: &keeper,
        })
        .await;
        Regions {
            fleet: start(&stores, &keeper, consistency).await,
            stores,
            keeper,
            consistency,
        }
    }
}

async fn delete_first(world: &World) {
    let verb = ItemVerb::Delete {
        item: ItemSelector::Id("0".to_owned()),
    };
    world.item("k0", verb).await.unwrap();
}

async fn trim(store: &Arc<dyn Store>) {
    for info in store.list().unwrap() {
        let log = store.open(info.log, Role::Follow).await.unwrap();
        log.trim(info.position.lsn).await.unwrap();
    }
}

#[tokio::test]
async fn what_a_region_alone_has_stays_in_its_log_until_it_is_kept() {
    let regions = Regions::cut_off_five().await;
    regions.trim(0).await;
    regions.set_links(&LinkSettings::default());
    regions.fleet.clone().take_online(WEST).await.unwrap();
    assert_eq!(conflicts(&regions.writer()).await.len(), 5);
    regions.all_equal().await;
}

#[tokio::test]
async fn what_a_region_alone_has_stays_in_its_log_over_a_restart() {
    let regions = Regions::cut_off_five().await.restarted_after(async |_| {}).await;
    regions.trim(0).await;
    regions.fleet.clone().take_online(WEST).await.unwrap();
    assert_eq!(conflicts(&regions.writer()).await.len(), 5);
}

#[tokio::test]
async fn what_is_no_longer_in_the_log_is_kept_as_far_as_it_is_still_there() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..5).await;
    regions.all_equal().await;
    regions.set_links(&cut());
    fill(&regions.writer(), 5..8).await;
    delete_first(&regions.writer()).await;
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    // Nobody holds anything while nothing runs.
    let regions = regions
        .restarted_after(async |stopped| trim(&stopped.stores[0]).await)
        .await;
    regions.fleet.clone().take_online(WEST).await.unwrap();
    let kept = conflicts(&regions.writer()).await;
    let kinds: Vec<&str> = kept.iter().map(|conflict| text(conflict, "operationType")).collect();
    assert_eq!(kinds, ["create"; 3], "the deletion left no trace");
    regions.all_equal().await;
}

#[tokio::test]
async fn a_region_that_was_out_before_a_failover_keeps_what_it_is_ahead_by() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.fleet.set_link(WEST, NORTH, cut()).unwrap();
    fill(&regions.writer(), 0..4).await;
    until(|| async { contents(&regions.at(ASIA)).await.len() == 4 }).await;
    regions.fleet.clone().take_offline(ASIA).await.unwrap();
    regions.trim(2).await;
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    regions.fleet.set_link(WEST, NORTH, LinkSettings::default()).unwrap();
    regions.fleet.clone().take_online(ASIA).await.unwrap();
    assert_eq!(conflicts(&regions.writer()).await.len(), 4);
}

async fn with_room_for(n_max: usize) -> Regions {
    let (stores, keeper) = (memory(), Arc::new(InMemory::default()));
    let settings = NodeSettings {
        conflicts: ConflictLimits {
            n_max,
            ..ConflictLimits::default()
        },
        ..settings()
    };
    Regions {
        fleet: start_with(settings, &stores, keeper.clone()).await,
        stores,
        keeper,
        consistency: Consistency::Session,
    }
}

async fn delete_conflicts(regions: &Regions) -> usize {
    let kept = conflicts(&regions.writer()).await;
    for conflict in &kept {
        let delete = MetadataVerb::Delete {
            target: named(text(conflict, "id")),
            precondition: orrery_model::etag::Precondition::None,
        };
        let path = vec![named("db"), named("c")];
        let deleted = regions.writer().metadata(ResourceKind::Conflict, path, delete).await;
        deleted.unwrap();
    }
    kept.len()
}

/// Large enough that two of them are more than is kept at a time.
async fn fill_large(world: &World, numbers: std::ops::Range<usize>) {
    let padding = "x".repeat(700_000);
    for n in numbers {
        let body = format!(r#"{{"id":"{n}","pk":"k","padding":"{padding}"}}"#);
        world.create("k", &body).await.unwrap();
    }
}

#[tokio::test]
async fn a_region_whose_writes_have_no_room_stays_out_and_drops_nothing() {
    let regions = with_room_for(2).await;
    regions.with_container().await;
    regions.all_equal().await;
    regions.set_links(&cut());
    fill_large(&regions.writer(), 0..5).await;
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    regions.set_links(&LinkSettings::default());
    let mut n_deleted = 0;
    for _ in 0..10 {
        match regions.fleet.clone().take_online(WEST).await {
            Ok(()) => break,
            Err(refused) => assert_eq!(refused.status(), Status::PRECONDITION_FAILED, "{refused:?}"),
        }
        assert_eq!(regions.state(WEST), RegionState::Offline);
        regions.trim(0).await;
        // What has been looked at makes room for the rest, and does not come again.
        n_deleted += delete_conflicts(&regions).await;
    }
    assert_eq!(regions.state(WEST), RegionState::Online);
    assert_eq!(n_deleted + conflicts(&regions.writer()).await.len(), 5);
    regions.all_equal().await;
}

#[tokio::test]
async fn what_has_no_room_is_dropped_only_by_who_says_so_and_is_counted() {
    let regions = with_room_for(2).await.cut_off(3).await;
    regions.set_links(&LinkSettings::default());
    let mut events = regions.fleet.events().listen();
    regions.fleet.clone().take_online(WEST).await.unwrap_err();
    let dropped = regions.fleet.clone().bring_back(WEST, AcceptLoss::Any).await.unwrap();
    let n_kept = conflicts(&regions.writer()).await.len();
    assert_eq!(dropped + n_kept, 3);
    assert!(dropped > 0);
    let measures = regions.fleet.measures();
    let measure = measures
        .iter()
        .find(|measure| measure.name == "orrery_failover_dropped_versions_total");
    assert_eq!(
        measure.unwrap().reading,
        orrery_node::meters::Reading::Counter(dropped as u64)
    );
    let told = loop {
        let Some(orrery_node::events::Heard::Event(event)) = events.next().await else {
            panic!("nothing is missed");
        };
        if let orrery_node::events::Happening::ConflictsDropped { region, n_versions, .. } = event.happening {
            break (region, n_versions);
        }
    };
    assert_eq!(told, (WEST.to_owned(), dropped as u64));
    regions.all_equal().await;
}

/// Slow enough that nothing is done in the time callers wait, fast enough to be done once.
fn slow() -> LinkSettings {
    LinkSettings {
        bytes_per_second: Some(300),
        ..LinkSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_return_that_takes_long_goes_on_by_itself() {
    let regions = Regions::cut_off_five().await;
    fill(&regions.writer(), 10..200).await;
    regions.set_links(&LinkSettings::default());
    regions.fleet.set_link(NORTH, WEST, slow()).unwrap();
    let refused = regions.fleet.clone().take_online(WEST).await.unwrap_err();
    assert_eq!(refused.status(), Status::PRECONDITION_FAILED);
    assert_eq!(regions.state(WEST), RegionState::Seeding);
    assert_eq!(
        regions.keeper.load().unwrap().unwrap().named(WEST).unwrap().state,
        RegionState::Seeding
    );
    // The account can be changed meanwhile.
    regions.fleet.prioritize(&[ASIA.to_owned()]).unwrap();
    let long = tokio::time::timeout(Duration::from_secs(3_600), async {
        while regions.state(WEST) != RegionState::Online {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    long.await.expect("it arrives in the end");
    assert_eq!(conflicts(&regions.writer()).await.len(), 5);
    regions.set_links(&LinkSettings::default());
    regions.all_equal().await;
}

#[tokio::test(start_paused = true)]
async fn a_return_that_is_taken_back_and_begun_again_invents_no_losses() {
    let regions = Regions::cut_off_five().await;
    fill(&regions.writer(), 10..200).await;
    regions.set_links(&LinkSettings::default());
    regions.fleet.set_link(NORTH, WEST, slow()).unwrap();
    regions.fleet.clone().take_online(WEST).await.unwrap_err();
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(regions.state(WEST), RegionState::Offline);
    fill(&regions.writer(), 200..210).await;
    regions.set_links(&LinkSettings::default());
    // What is on its way comes first. No time passes but that which is waited for.
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(regions.state(WEST), RegionState::Offline, "nobody brings it back");
    regions.fleet.clone().take_online(WEST).await.unwrap();
    assert_eq!(conflicts(&regions.writer()).await.len(), 5);
    regions.all_equal().await;
}

#[tokio::test(start_paused = true)]
async fn a_failover_does_not_wait_for_a_region_that_is_on_its_way() {
    let regions = Regions::cut_off_five().await;
    fill(&regions.writer(), 10..200).await;
    regions.fleet.set_link(NORTH, ASIA, LinkSettings::default()).unwrap();
    regions.all_equal().await;
    let returning = tokio::spawn({
        let fleet = regions.fleet.clone();
        async move { fleet.take_online(WEST).await }
    });
    until(|| async { regions.state(WEST) == RegionState::Seeding }).await;
    let started = tokio::time::Instant::now();
    regions.fleet.clone().take_offline(NORTH).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(regions.fleet.topology().writer().name, ASIA);
    regions.set_links(&LinkSettings::default());
    // It goes on with whoever writes now.
    fill(&regions.writer(), 300..310).await;
    until(|| async { regions.state(WEST) == RegionState::Online }).await;
    let _ = returning.await.unwrap();
    regions.all_equal().await;
    assert_eq!(contents(&regions.at(WEST)).await.len(), 5 + 190 + 10);
}

#[tokio::test(start_paused = true)]
async fn a_planned_change_happens_while_a_region_is_on_its_way() {
    let regions = Regions::cut_off_five().await;
    fill(&regions.writer(), 10..200).await;
    regions.set_links(&LinkSettings::default());
    regions.fleet.set_link(NORTH, WEST, cut()).unwrap();
    regions.fleet.clone().take_online(WEST).await.unwrap_err();
    assert_eq!(regions.state(WEST), RegionState::Seeding);
    regions.fleet.clone().change_writer(ASIA).await.unwrap();
    until(|| async { regions.state(WEST) == RegionState::Online }).await;
    regions.all_equal().await;
}

#[tokio::test]
async fn a_restart_goes_on_with_a_return() {
    let regions = Regions::cut_off_five().await;
    let decided = regions.keeper.load().unwrap().unwrap();
    let decided = decided.returning(decided.named(WEST).unwrap().id).unwrap();
    // Decided, and cut off before anything else.
    let regions = regions
        .restarted_after(async |stopped| stopped.keeper.save(&decided).unwrap())
        .await;
    until(|| async { regions.state(WEST) == RegionState::Online }).await;
    assert_eq!(conflicts(&regions.writer()).await.len(), 5);
    regions.all_equal().await;
}

async fn delete(world: &World, n: usize) {
    let verb = ItemVerb::Delete {
        item: ItemSelector::Id(n.to_string()),
    };
    world.item(&document(n).0, verb).await.unwrap();
}

#[tokio::test]
async fn deletions_of_a_partition_that_only_a_lost_region_has_split_are_kept() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..10).await;
    regions.all_equal().await;
    regions.set_links(&cut());
    let west = regions.writer();
    delete(&west, 1).await;
    fill(&west, 10..12).await;
    west.node.split("db", "c", 0).await.unwrap();
    delete(&west, 2).await;
    // What nobody else ever had is nobody else's loss.
    delete(&west, 10).await;
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    regions.set_links(&LinkSettings::default());
    fill(&regions.writer(), 20..25).await;
    regions.fleet.clone().take_online(WEST).await.unwrap();
    let expected = [("create", "11"), ("delete", "1"), ("delete", "2")];
    let expected = expected.map(|(kind, id)| (kind.to_owned(), id.to_owned()));
    assert_eq!(told(&regions).await, expected);
    regions.all_equal().await;
    assert_eq!(
        contents(&regions.writer()).await.len(),
        15,
        "they are there until somebody decides"
    );
}

#[tokio::test]
async fn a_loss_names_the_databases_and_containers_that_only_the_lost_region_knew() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.set_links(&cut());
    let west = regions.writer();
    west.create_container("young", "").await.unwrap();
    west.create_database("alone").await;
    let loss = regions.fleet.clone().take_offline(WEST).await.unwrap();
    let expected = [("alone".to_owned(), None), ("db".to_owned(), Some("young".to_owned()))];
    assert_eq!(loss.known_alone, expected);
}

/// Kinds and ids of the conflicts of the container, sorted.
async fn told(regions: &Regions) -> Vec<(String, String)> {
    let kept = conflicts(&regions.writer()).await;
    let one = |conflict: &orrery_model::json::Value| {
        let content = orrery_model::json::parse_value(text(conflict, "content").as_bytes()).unwrap();
        (
            text(conflict, "operationType").to_owned(),
            text(&content, "id").to_owned(),
        )
    };
    let mut told: Vec<_> = kept.iter().map(one).collect();
    told.sort();
    told
}

fn deletes(ids: &[&str]) -> Vec<(String, String)> {
    ids.iter().map(|id| ("delete".to_owned(), (*id).to_owned())).collect()
}

#[tokio::test]
async fn deletions_of_partitions_that_only_a_lost_region_has_merged_are_kept() {
    let regions = Regions::of(Consistency::Session, 2).await;
    regions.with_container().await;
    fill(&regions.writer(), 0..10).await;
    regions.all_equal().await;
    regions.set_links(&cut());
    let west = regions.writer();
    delete(&west, 3).await;
    west.node.merge("db", "c", (0, 1)).await.unwrap();
    delete(&west, 4).await;
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    regions.set_links(&LinkSettings::default());
    regions.fleet.clone().take_online(WEST).await.unwrap();
    assert_eq!(told(&regions).await, deletes(&["3", "4"]));
    regions.all_equal().await;
}

#[tokio::test]
async fn deletions_are_kept_although_the_region_that_took_over_has_split_since() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..10).await;
    regions.all_equal().await;
    regions.set_links(&cut());
    delete(&regions.writer(), 5).await;
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    regions.set_links(&LinkSettings::default());
    // What it deletes itself is nobody's loss.
    delete(&regions.writer(), 6).await;
    regions.writer().node.split("db", "c", 0).await.unwrap();
    regions.fleet.clone().take_online(WEST).await.unwrap();
    assert_eq!(told(&regions).await, deletes(&["5"]));
    regions.all_equal().await;
}
