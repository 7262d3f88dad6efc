//! Bounded staleness between regions: writes stop where another region would lack too much, and reads where one may.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::load::eventually;
use crate::world::{NAMES, World};
use crate::{become_equal, create, create_container, refusal};

/// As tight as an account may be.
pub const TRANSACTIONS: usize = 12;
pub const SECONDS: u64 = 5;
const EVENTUAL: &str = "x-ms-consistency-level: Eventual\r\n";

pub fn world(n_regions: usize) -> World {
    let (transactions, seconds) = (TRANSACTIONS.to_string(), SECONDS.to_string());
    let bounds = [
        "--max-staleness-prefix",
        &transactions,
        "--max-staleness-interval-s",
        &seconds,
        "--dev-allow-tight-bounds",
        "--dev",
    ];
    World::of_account(n_regions, "BoundedStaleness", &bounds)
}

/// Creates items until one is refused; answers how many were taken, and the refusal.
fn write_until_refused(client: &mut Client) -> (usize, (u16, Option<String>)) {
    for n in 0.. {
        let body = format!(r#"{{"id":"more-{n}","pk":"k","n":1}}"#);
        let answer = client.create("k", &body).unwrap();
        if answer.status != 201 {
            let (status, sub_status) = refusal(&answer);
            return (n, (status, sub_status.map(str::to_owned)));
        }
    }
    unreachable!("it goes on until something is refused")
}

#[test]
fn writes_and_reads_stop_at_the_bound_while_a_region_is_cut_off_and_go_on_when_it_is_back() {
    let world = world(2);
    let [west, north] = world.both();
    create_container(&west);
    let (mut here, mut there) = (west.client(), north.client());
    create(&mut here, "i");
    become_equal(&west, &north);
    // As long as it keeps in step it may be written as much as anybody likes.
    for n in 0..5 * TRANSACTIONS {
        let body = format!(r#"{{"id":"before-{n}","pk":"k","n":1}}"#);
        let taken = || here.create("k", &body).unwrap().status == 201;
        assert!(eventually(taken), "a region that keeps in step holds nobody up");
    }
    become_equal(&west, &north);
    assert_eq!(there.read("k", "i").unwrap().status, 200);

    world.regions.sites[1].link.cut();
    let cut = Instant::now();
    let (n_taken, refused) = write_until_refused(&mut here);
    assert_eq!(refused, (429, Some("3075".to_owned())));
    assert!(
        n_taken <= TRANSACTIONS && (n_taken > 0 || cut.elapsed() > Duration::from_secs(SECONDS)),
        "{n_taken} were taken"
    );
    assert_eq!(
        here.read("k", "i").unwrap().status,
        200,
        "where writes are taken nothing is old"
    );

    // The region cannot know what it lacks once it has heard of nothing for so long.
    let is_refused = || there.read("k", "i").unwrap().status == 503;
    assert!(eventually(is_refused), "it may lack too much");
    assert_eq!(
        there.read_with("k", "i", EVENTUAL).unwrap().status,
        200,
        "who asks for less is answered"
    );

    world.regions.sites[1].link.heal();
    let is_taken = || here.create("k", r#"{"id":"after","pk":"k","n":1}"#).unwrap().status == 201;
    assert!(eventually(is_taken), "writes go on");
    assert!(
        eventually(|| there.read("k", "after").unwrap().status == 200),
        "and reads"
    );
    become_equal(&west, &north);
}

#[test]
fn a_region_that_is_taken_out_holds_nobody_up() {
    let mut world = world(2);
    let [west, north] = world.both();
    create_container(&west);
    become_equal(&west, &north);
    drop(north);
    world.site(1).servers.kill_all();
    let mut here = west.client();
    let (_, refused) = write_until_refused(&mut here);
    assert_eq!(refused, (429, Some("3075".to_owned())));
    west.answer(&["offline", NAMES[1]]);
    for n in 0..2 * TRANSACTIONS {
        create(&mut here, &format!("alone-{n}"));
    }
}

#[test]
fn the_region_that_takes_over_keeps_the_bound() {
    let world = world(2);
    let [west, north] = world.both();
    create_container(&west);
    create(&mut west.client(), "i");
    become_equal(&west, &north);
    west.answer(&["failover", NAMES[1]]);
    create(&mut north.client(), "j");
    become_equal(&north, &west);
    assert_eq!(west.client().read("k", "j").unwrap().status, 200);
    world.regions.sites[0].link.cut();
    let (n_taken, refused) = write_until_refused(&mut north.client());
    assert_eq!(refused, (429, Some("3075".to_owned())));
    assert!(n_taken <= TRANSACTIONS, "{n_taken} were taken");
    assert!(eventually(|| west.client().read("k", "i").unwrap().status == 503));
}

#[test]
fn regions_that_are_told_different_bounds_do_not_serve_together() {
    let mut world = world(2);
    let _west = world.node(0);
    world.set_flag("--max-staleness-prefix", "13");
    let refused = world.try_node(1);
    assert!(refused.contains("West US serves"), "{refused}");
    assert!(refused.contains("12 transactions and 5 s"), "{refused}");
    world.set_flag("--max-staleness-prefix", "12");
    let _north = world.node(1);
}
