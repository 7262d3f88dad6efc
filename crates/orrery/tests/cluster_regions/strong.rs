//! Strong consistency over regions: what was acknowledged is everywhere, whoever is cut off knows that it does not know, and nothing
//! acknowledged is lost.

use crate::client::Client;
use crate::load::eventually;
use crate::world::{NAMES, Node, World};
use crate::{create, create_container, refusal};

const EVENTUAL: &str = "x-ms-consistency-level: Eventual\r\n";

fn world(n_regions: usize) -> World {
    World::of_account(n_regions, "Strong", &[])
}

fn three(world: &World) -> [Node; 3] {
    let [west, north] = world.both();
    [west, north, world.node(2)]
}

fn body(id: &str, value: u64) -> String {
    format!(r#"{{"id":"{id}","pk":"k","n":{value}}}"#)
}

/// Writes until it is acknowledged: while a region is waited for, it may not be in time.
fn write(client: &mut Client, id: &str, value: u64) {
    let is_written = || matches!(client.upsert("k", &body(id, value)).unwrap().status, 200 | 201);
    assert!(eventually(is_written), "{id} is written");
}

/// What a strong read finds, once it is answered at all: a region says that it does not know, or that it does not serve yet, and is
/// asked again. Whatever it finds then counts.
fn value_of(client: &mut Client, id: &str) -> Option<u64> {
    let mut found = None;
    let is_answered = || {
        let answer = client.read("k", id).unwrap();
        found = (answer.status == 200).then(|| answer.json()["n"].as_u64().unwrap());
        matches!(refusal(&answer), (200, _) | (404, None | Some("0")))
    };
    assert!(eventually(is_answered), "{id} is read");
    found
}

#[test]
fn what_was_acknowledged_is_in_the_other_region_at_once_wherever_writes_are() {
    let world = world(2);
    let nodes = world.both();
    create_container(&nodes[0]);
    let found = nodes[1]
        .client()
        .get("/dbs/db/colls/c", "colls", "dbs/db/colls/c")
        .unwrap();
    assert_eq!(found.status, 200, "what exists, too: {found:?}");
    for (from, to) in [(0, 1), (1, 0)] {
        let (mut here, mut there) = (nodes[from].client(), nodes[to].client());
        for value in 0..20 {
            write(&mut here, "i", value);
            assert_eq!(value_of(&mut there, "i"), Some(value));
            assert_eq!(value_of(&mut here, "i"), Some(value));
        }
        let refused = there.create("k", &body("no", 0)).unwrap();
        assert_eq!(refusal(&refused), (403, Some("3")));
        if to == 1 {
            nodes[1].answer(&["failover", NAMES[1]]);
        }
    }
}

#[test]
fn of_two_regions_neither_goes_on_without_the_other_until_it_is_told_that_it_is_out() {
    let world = world(2);
    let [west, north] = world.both();
    create_container(&west);
    let (mut here, mut there) = (west.client(), north.client());
    create(&mut here, "i");
    world.regions.sites[1].link.cut();
    assert_eq!(there.read("k", "i").unwrap().status, 503, "it may lack something");
    assert_eq!(there.read_with("k", "i", EVENTUAL).unwrap().status, 200);
    let unknown = here.create("k", &body("j", 1)).unwrap();
    assert_eq!(unknown.status, 408, "nobody else has it: {unknown:?}");
    let refused = west.region(&["offline", NAMES[1]]);
    assert!(
        !refused.status.success(),
        "it could take over without what comes: {refused:?}"
    );
    world.regions.sites[1].link.heal();
    write(&mut here, "j", 2);
    assert_eq!(value_of(&mut there, "j"), Some(2));

    assert!(eventually(|| west.region(&["offline", NAMES[1]]).status.success()));
    write(&mut here, "alone", 1);
    let refused = north.region(&["offline", NAMES[0]]);
    assert!(!refused.status.success(), "it knows that it is out: {refused:?}");
    assert!(eventually(|| west.region(&["online", NAMES[1]]).status.success()));
    assert_eq!(value_of(&mut there, "alone"), Some(1));
}

#[test]
fn a_region_that_is_cut_off_from_two_others_is_not_waited_for_and_refuses_strong_reads_until_it_is_back() {
    let world = world(3);
    let [west, north, asia] = three(&world);
    create_container(&west);
    let (mut here, mut there) = (west.client(), north.client());
    write(&mut here, "i", 1);
    assert_eq!(value_of(&mut asia.client(), "i"), Some(1));
    world.regions.sites[1].link.cut();
    write(&mut here, "i", 2);
    assert_eq!(there.read("k", "i").unwrap().status, 503, "it does not know");
    assert_eq!(there.read_with("k", "i", EVENTUAL).unwrap().status, 200);
    assert_eq!(value_of(&mut asia.client(), "i"), Some(2));
    let left_out = |name: &str| {
        let list = west.answer(&["list"]);
        let regions = list["regions"].as_array().unwrap().clone();
        let found = regions.iter().find(|region| region["name"] == name).unwrap().clone();
        found["inQuorum"] == false
    };
    assert!(left_out(NAMES[1]) && !left_out(NAMES[2]));
    world.regions.sites[1].link.heal();
    assert!(eventually(|| value_of(&mut there, "i") == Some(2)), "it has caught up");
    write(&mut here, "i", 3);
    assert!(eventually(|| !left_out(NAMES[1])), "it is waited for again");
    write(&mut here, "i", 4);
    assert_eq!(value_of(&mut there, "i"), Some(4));
}

#[test]
fn a_region_that_is_taken_over_from_acknowledges_and_shows_nothing_more_and_nothing_acknowledged_is_lost() {
    let world = world(3);
    let [west, north, asia] = three(&world);
    create_container(&west);
    let (mut here, mut there) = (west.client(), north.client());
    for value in 0..10 {
        write(&mut here, &format!("i{value}"), value);
    }
    world.regions.sites[0].link.cut();
    let unknown = here.create("k", &body("alone", 1)).unwrap();
    assert_eq!(unknown.status, 408, "{unknown:?}");
    assert_eq!(here.read("k", "i0").unwrap().status, 503, "another may have taken over");
    let bounded = here.read_with("k", "i0", "x-ms-consistency-level: BoundedStaleness\r\n");
    assert_eq!(bounded.unwrap().status, 503, "and may have changed it long ago");
    let refused = here.create("k", &body("alone", 2)).unwrap();
    assert_eq!(
        refused.status, 503,
        "nobody else may ever have the other one: {refused:?}"
    );

    north.answer(&["offline", NAMES[0]]);
    write(&mut there, "i0", 77);
    for value in 1..10 {
        assert_eq!(value_of(&mut there, &format!("i{value}")), Some(value));
    }
    assert!(
        eventually(|| value_of(&mut asia.client(), "i0") == Some(77)),
        "the third one follows"
    );
    // It has not heard of it.
    let still = here.read("k", "i0").unwrap();
    assert_eq!(still.status, 503, "{still:?}");
    let unknown = here.upsert("k", &body("i0", 5)).unwrap();
    assert_eq!(unknown.status, 408, "{unknown:?}");

    world.regions.sites[0].link.heal();
    assert!(eventually(|| north.region(&["online", NAMES[0]]).status.success()));
    assert!(eventually(|| value_of(&mut here, "i0") == Some(77)), "it follows");
    assert_eq!(
        value_of(&mut here, "alone"),
        None,
        "nobody was told that it was written"
    );
}

#[test]
fn one_of_three_regions_takes_over_only_when_another_tells_what_it_has() {
    let mut world = world(3);
    let [west, north, asia] = three(&world);
    create_container(&west);
    write(&mut west.client(), "i", 1);
    drop((west, asia));
    world.site(0).servers.kill_all();
    world.site(2).servers.kill_all();
    let refused = north.region(&["offline", NAMES[0]]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("Too few regions"), "{text}");
    world.site(2).servers.restart_all().unwrap();
    let is_taken = || north.region(&["offline", NAMES[0]]).status.success();
    assert!(eventually(is_taken), "{:?}", north.region(&["offline", NAMES[0]]));
    let _asia = world.node(2);
    assert!(eventually(|| value_of(&mut north.client(), "i") == Some(1)));
}

#[test]
fn a_node_that_stood_still_while_its_region_was_taken_over_from_shows_and_acknowledges_nothing_of_before() {
    let world = world(3);
    let [west, north, _asia] = three(&world);
    create_container(&west);
    let (mut reading, mut writing, mut there) = (west.client(), west.client(), north.client());
    write(&mut reading, "i", 1);
    west.pause();
    let (read, written) = std::thread::scope(|scope| {
        // On their way to it while it stands still: the first that it does afterwards.
        let read = scope.spawn(|| reading.read("k", "i"));
        let written = scope.spawn(|| writing.upsert("k", &body("i", 2)));
        assert!(eventually(|| north.region(&["offline", NAMES[0]]).status.success()));
        write(&mut there, "i", 77);
        west.resume();
        (read.join().unwrap(), written.join().unwrap())
    });
    // It may also close the connection, having given up on its servers.
    if let Ok(read) = read {
        assert!(read.status != 200 || read.json()["n"] == 77, "{read:?}");
    }
    if let Ok(written) = written {
        assert!(!matches!(written.status, 200 | 201), "{written:?}");
    }
    assert_eq!(value_of(&mut there, "i"), Some(77));
}
