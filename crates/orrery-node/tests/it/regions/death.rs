//! One region is killed and lives again, while the others go on.

use orrery_model::Result;
use orrery_node::geo::fleet::Outage;
use orrery_node::geo::membership::Sites;
use orrery_node::geo::topology::Region;
use orrery_partition::storage::BoxFuture;
use orrery_storage::SharedStore;

use super::failover::conflicts;
use super::*;

/// What is left of regions when they are killed: one account's part of their disks.
#[derive(Debug)]
struct Disks {
    all: Vec<Arc<SharedStore>>,
    account: u16,
}

impl Disks {
    fn of_all_regions() -> Vec<Arc<SharedStore>> {
        (0..3).map(|_| SharedStore::new(MemoryStore::new())).collect()
    }

    fn of(&self, region: &Region) -> &Arc<SharedStore> {
        &self.all[region.id.0 as usize]
    }
}

impl Sites for Disks {
    fn prepare<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<RegionParts>> {
        let parts = RegionParts {
            name: region.name.clone(),
            store: self.of(region).account(self.account),
            clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
        };
        Box::pin(async move { Ok(parts) })
    }

    fn kill<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<()>> {
        self.of(region).abandon(self.account);
        Box::pin(async { Ok(()) })
    }

    fn release<'a>(&'a self, _region: &'a Region) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Regions that can be killed, with a container in all of them.
async fn mortal(consistency: Consistency) -> Regions {
    mortal_on(Disks::of_all_regions(), 0, consistency).await
}

/// The same for one of the accounts that share disks.
async fn mortal_on(all: Vec<Arc<SharedStore>>, account: u16, consistency: Consistency) -> Regions {
    let disks = Disks { all, account };
    let stores = disks.all.iter().map(|disk| disk.account(account)).collect();
    let regions = Regions::on(stores, consistency, 1).await;
    regions.fleet.settle(Arc::new(disks));
    regions.with_container().await;
    regions
}

impl Regions {
    async fn kill(&self, name: &str) {
        self.fleet.clone().kill(name).await.unwrap();
    }

    async fn revive(&self, name: &str) {
        self.fleet.clone().start_again(name).await.unwrap();
    }
}

/// The versions in a token, by partition.
fn versions(session: &SessionToken) -> Vec<String> {
    let text = session.to_string();
    let version = |part: &str| part.split('#').next().unwrap().to_owned();
    text.split(',').map(version).collect()
}

#[tokio::test]
async fn a_region_for_reading_that_is_killed_catches_up_from_what_its_disk_has() {
    let regions = mortal(Consistency::Session).await;
    fill(&regions.writer(), 0..20).await;
    regions.all_equal().await;
    regions.kill(NORTH).await;
    assert_eq!(regions.fleet.regions()[1].outage, Some(Outage::Killed));
    let session = fill(&regions.writer(), 20..40).await;
    until(|| async { contents(&regions.at(ASIA)).await.len() == 40 }).await;
    regions.revive(NORTH).await;
    assert!(contents(&regions.at(NORTH)).await.len() >= 20, "nothing comes anew");
    assert_eq!(regions.fleet.regions()[1].outage, None);
    regions.all_equal().await;
    assert_eq!(read_in_session(&regions.at(NORTH), &session, 39).await, (200, 0));
}

#[tokio::test]
async fn a_write_region_that_is_killed_lives_again_with_everything_and_the_same_tokens() {
    let regions = mortal(Consistency::Session).await;
    let before = fill(&regions.writer(), 0..20).await;
    regions.all_equal().await;
    regions.kill(WEST).await;
    let (key, body) = document(20);
    assert!(
        regions.writer().create(&key, &body).await.is_err(),
        "nobody takes writes"
    );
    assert_eq!(read_in_session(&regions.at(NORTH), &before, 19).await, (200, 0));
    regions.revive(WEST).await;
    let after = fill(&regions.writer(), 20..30).await;
    assert_eq!(versions(&before), versions(&after));
    assert_eq!(contents(&regions.writer()).await.len(), 30);
    regions.all_equal().await;
}

#[tokio::test]
async fn what_only_a_killed_write_region_had_is_kept_when_it_comes_back_after_a_failover() {
    let regions = mortal(Consistency::Session).await;
    fill(&regions.writer(), 0..10).await;
    regions.all_equal().await;
    regions.set_links(&cut());
    fill(&regions.writer(), 10..14).await;
    regions.kill(WEST).await;
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
    regions.set_links(&LinkSettings::default());
    fill(&regions.writer(), 20..25).await;
    let refused = regions.fleet.clone().take_online(WEST).await.unwrap_err();
    assert!(refused.message().contains("start it first"), "{refused}");
    regions.revive(WEST).await;
    regions.fleet.clone().take_online(WEST).await.unwrap();
    assert_eq!(conflicts(&regions.writer()).await.len(), 4);
    regions.all_equal().await;
}

#[tokio::test(start_paused = true)]
async fn strong_writes_go_on_without_a_region_that_is_killed_and_it_answers_none_until_it_has_them() {
    let regions = mortal(Consistency::Strong).await;
    fill(&regions.writer(), 0..3).await;
    regions.kill(ASIA).await;
    fill(&regions.writer(), 3..5).await;
    regions.revive(ASIA).await;
    until(|| async { code(regions.at(ASIA).read(&document(4).0, "4").await) == 200 }).await;
    regions.all_equal().await;
}

#[tokio::test]
async fn what_needs_a_region_that_is_alive_is_refused_while_it_is_dead() {
    let regions = mortal(Consistency::Session).await;
    regions.kill(NORTH).await;
    for refused in [
        regions.fleet.clone().change_writer(NORTH).await,
        regions.fleet.clone().remove_region(NORTH, Duration::ZERO).await,
        regions.fleet.clone().kill(NORTH).await,
        regions.fleet.set_outage(NORTH, Some(Outage::Hanging)),
    ] {
        assert_eq!(refused.unwrap_err().status(), Status::PRECONDITION_FAILED);
    }
    regions.fleet.clone().change_writer(ASIA).await.unwrap();
    regions.revive(NORTH).await;
    fill(&regions.writer(), 0..5).await;
    regions.all_equal().await;
}

#[tokio::test]
async fn a_killed_write_region_is_taken_over_from_without_anybodys_doing() {
    let regions = mortal(Consistency::Session).await;
    regions.fleet.set_managed_failover(Some(Duration::from_millis(300)));
    fill(&regions.writer(), 0..5).await;
    regions.all_equal().await;
    regions.kill(WEST).await;
    until(|| async { regions.fleet.topology().writer().name == NORTH }).await;
    fill(&regions.writer(), 5..10).await;
    regions.revive(WEST).await;
    regions.fleet.clone().take_online(WEST).await.unwrap();
    regions.all_equal().await;
}

#[tokio::test]
async fn a_region_of_one_account_is_killed_and_lives_again_on_a_disk_that_other_accounts_go_on_using() {
    let disks = Disks::of_all_regions();
    let killed = mortal_on(disks.clone(), 0, Consistency::Session).await;
    let other = mortal_on(disks, 1, Consistency::Session).await;
    fill(&killed.writer(), 0..10).await;
    fill(&other.writer(), 0..5).await;
    for region in [WEST, NORTH] {
        killed.kill(region).await;
        assert!(other.fleet.regions().iter().all(|region| region.outage.is_none()));
    }
    let (key, body) = document(10);
    assert!(killed.writer().create(&key, &body).await.is_err(), "it is dead");
    fill(&other.writer(), 5..15).await;
    other.all_equal().await;
    for region in [WEST, NORTH] {
        killed.revive(region).await;
    }
    fill(&killed.writer(), 10..20).await;
    killed.all_equal().await;
    assert_eq!(contents(&killed.writer()).await.len(), 20);
    assert_eq!(
        contents(&other.at(NORTH)).await.len(),
        15,
        "neither has anything of the other"
    );
}
