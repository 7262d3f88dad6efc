//! Controls of the simulated world: steps over paused links, single partitions, and how they are all told.

use orrery_model::PartitionId;
use orrery_node::events::{Happening, Heard};
use orrery_node::geo::distribution::Distribution;
use orrery_node::geo::fleet::{Distance, Outage, Place};
use orrery_node::geo::simulated::Simulated;

use super::*;

fn partition(number: u32) -> Place {
    Place {
        database: "db".to_owned(),
        container: "c".to_owned(),
        partition: PartitionId(number),
    }
}

async fn count(regions: &Regions, name: &str) -> usize {
    contents(&regions.at(name)).await.len()
}

/// What is left to pass the link from west to north although it is paused.
fn steps_left(regions: &Regions) -> u64 {
    let links = regions.fleet.links();
    let link = links.iter().find(|link| link.from == WEST && link.to == NORTH);
    link.unwrap().steps_left
}

#[tokio::test]
async fn a_paused_link_is_stepped_by_single_transactions_in_their_order() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.fleet.set_link(WEST, NORTH, paused()).unwrap();
    fill(&regions.writer(), 0..6).await;
    until(|| async { count(&regions, ASIA).await == 6 }).await;
    for (n_steps, n_expected) in [(1, 1), (3, 4)] {
        regions.fleet.step(WEST, NORTH, None, n_steps).unwrap();
        until(|| async { steps_left(&regions) == 0 && count(&regions, NORTH).await == n_expected }).await;
        for n in 0..6 {
            let status = code(regions.at(NORTH).read(&document(n).0, &n.to_string()).await);
            assert_eq!(status, if n < n_expected { 200 } else { 404 }, "document {n}");
        }
    }
    regions.fleet.set_link(WEST, NORTH, LinkSettings::default()).unwrap();
    regions.all_equal().await;
}

#[tokio::test]
async fn one_partition_is_held_up_and_stepped_while_the_others_go_on() {
    let regions = Regions::of(Consistency::Session, 2).await;
    regions.with_container().await;
    regions.fleet.pause_partition(WEST, NORTH, partition(0), true).unwrap();
    fill(&regions.writer(), 0..20).await;
    let held_up = |regions: &Regions| {
        let partitions = regions.writer().node.partitions(Some(("db", "c"))).unwrap();
        let held_up = partitions.iter().find(|known| known.partition == PartitionId(0));
        held_up.unwrap().n_items as usize
    };
    let (n_held, n_all) = (held_up(&regions), 20);
    assert!(n_held > 1 && n_held < n_all, "both partitions have something: {n_held}");
    until(|| async { count(&regions, NORTH).await == n_all - n_held }).await;
    let links = regions.fleet.links();
    let link = links.iter().find(|link| link.from == WEST && link.to == NORTH).unwrap();
    assert_eq!(link.paused_partitions, [partition(0)]);
    regions.fleet.step(WEST, NORTH, Some(partition(0)), 1).unwrap();
    until(|| async { count(&regions, NORTH).await == n_all - n_held + 1 }).await;
    regions.fleet.pause_partition(WEST, NORTH, partition(0), false).unwrap();
    regions.all_equal().await;
    assert!(regions.fleet.pause_partition(WEST, NORTH, partition(7), true).is_err());
}

#[tokio::test]
async fn what_was_held_up_on_a_link_that_is_cut_comes_again() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.fleet.set_link(WEST, NORTH, paused()).unwrap();
    fill(&regions.writer(), 0..6).await;
    regions.fleet.step(WEST, NORTH, None, 2).unwrap();
    until(|| async { count(&regions, NORTH).await == 2 }).await;
    regions.fleet.set_link(WEST, NORTH, cut()).unwrap();
    regions.fleet.set_link(WEST, NORTH, LinkSettings::default()).unwrap();
    regions.all_equal().await;
}

#[tokio::test]
async fn every_control_that_is_moved_is_told() {
    let regions = Regions::new().await;
    regions.with_container().await;
    let fleet = &regions.fleet;
    let mut listener = fleet.events().listen();
    let settings = LinkSettings {
        distribution: Distribution::Pareto,
        queue_bytes: Some(1_000),
        ..paused()
    };
    let distance = Distance {
        client: Some("tokyo".to_owned()),
        round_trip: Duration::from_millis(150),
    };
    fleet.set_link("westus", NORTH, settings.clone()).unwrap();
    fleet.pause_partition(WEST, NORTH, partition(0), true).unwrap();
    fleet.step(WEST, NORTH, None, 3).unwrap();
    fleet.set_outage(ASIA, Some(Outage::Refusing)).unwrap();
    fleet.set_outage(ASIA, None).unwrap();
    fleet.set_distance(ASIA, distance.clone()).unwrap();
    fleet.set_clock_skew(ASIA, -5).unwrap();
    fleet.set_flapping(Duration::from_secs(1));
    let (from, to) = (WEST.to_owned(), NORTH.to_owned());
    let region = ASIA.to_owned();
    let expected = [
        Simulated::Link {
            from: from.clone(),
            to: to.clone(),
            settings,
        },
        Simulated::PartitionPaused {
            from: from.clone(),
            to: to.clone(),
            partition: partition(0),
            paused: true,
        },
        Simulated::Stepped {
            from,
            to,
            partition: None,
            n_transactions: 3,
        },
        Simulated::Outage {
            region: region.clone(),
            outage: Some(Outage::Refusing),
        },
        Simulated::Outage {
            region: region.clone(),
            outage: None,
        },
        Simulated::Distance {
            region: region.clone(),
            distance,
        },
        Simulated::Clock { region, skew_ms: -5 },
        Simulated::Flapping { for_ms: 1_000 },
    ];
    for expected in expected {
        let Some(Heard::Event(event)) = listener.next().await else {
            panic!("an event: {expected:?}");
        };
        assert_eq!(event.happening, Happening::Simulated(expected));
    }
}

#[tokio::test]
async fn clients_hear_of_old_and_new_regions_in_turn_when_the_account_flaps() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.fleet.clone().change_writer(NORTH).await.unwrap();
    assert_eq!(
        regions.fleet.outdated_regions(),
        None,
        "not unless somebody asks for it"
    );
    regions.fleet.set_flapping(Duration::from_secs(60));
    regions.fleet.clone().change_writer(ASIA).await.unwrap();
    let heard: Vec<_> = (0..4).map(|_| regions.fleet.outdated_regions()).collect();
    let old = heard[0].clone().unwrap();
    assert_eq!(old.first().map(String::as_str), Some(NORTH));
    assert_eq!(heard, [Some(old.clone()), None, Some(old), None]);
    regions.fleet.set_flapping(Duration::ZERO);
    assert_eq!(regions.fleet.outdated_regions(), None);
}
