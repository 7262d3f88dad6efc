//! Several regions of one account for real: `nats-server` processes in a JetStream domain per region, joined by links that are
//! cut, and a node in each, written to while the region that takes writes changes, dies and comes back.
//!
//! A few rounds, or many with `ORRERY_SOAK=1`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

mod bounded;
#[path = "../kill_loop/client.rs"]
mod client;
mod forced;
mod histories;
#[path = "../kill_loop/ledger.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod ledger;
#[path = "../cluster/load.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod load;
#[path = "../cluster/recording.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod recording;
mod strong;
mod world;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use client::{Answer, Client};
use ledger::{Ledger, Told};
use load::{eventually, rounds};
use world::{NAMES, Node, World};

const WRITERS: usize = 4;

fn create_container(node: &Node) {
    let mut client = node.client();
    let database = client.post("/dbs", "dbs", "", None, r#"{"id":"db"}"#).unwrap();
    assert_eq!(database.status, 201, "{database:?}");
    create_container_named(node, "c");
}

fn create_container_named(node: &Node, name: &str) {
    let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#);
    let container = node
        .client()
        .post("/dbs/db/colls", "colls", "dbs/db", None, &body)
        .unwrap();
    assert_eq!(container.status, 201, "{container:?}");
}

fn create(client: &mut Client, id: &str) -> Answer {
    let body = format!(r#"{{"id":"{id}","pk":"k","n":1}}"#);
    let created = client.create("k", &body).unwrap();
    assert_eq!(created.status, 201, "{created:?}");
    created
}

fn session_of(answer: &Answer) -> String {
    format!("x-ms-session-token: {}\r\n", answer.headers["x-ms-session-token"])
}

/// Status and sub-status.
fn refusal(answer: &Answer) -> (u16, Option<&str>) {
    (answer.status, answer.headers.get("x-ms-substatus").map(String::as_str))
}

/// Two regions hold the same.
fn become_equal(one: &Node, other: &Node) {
    // What exists may have to arrive first.
    let is_there = || {
        other
            .client()
            .get("/dbs/db/colls/c", "colls", "dbs/db/colls/c")
            .unwrap()
            .status
            == 200
    };
    assert!(eventually(is_there), "the container arrives");
    let all = |node: &Node| client::read_all(&mut node.client());
    assert!(eventually(|| all(one) == all(other)), "the regions become equal");
}

#[test]
fn a_region_that_follows_answers_reads_and_refuses_writes() {
    let world = World::new(2);
    let [west, north] = world.both();
    create_container(&west);
    let (mut here, mut there) = (west.client(), north.client());
    let session = session_of(&create(&mut here, "i"));
    assert!(eventually(|| there.read_with("k", "i", &session).unwrap().status == 200));
    assert_eq!(there.read("k", "i").unwrap().status, 200, "without a token, too");
    let refused = there.create("k", r#"{"id":"no","pk":"k"}"#).unwrap();
    assert_eq!(refusal(&refused), (403, Some("3")));

    let account = north.client().get("/", "", "").unwrap().json();
    assert_eq!(account["writableLocations"][0]["name"], NAMES[0]);
    assert_eq!(account["readableLocations"][1]["name"], NAMES[1]);

    world.regions.sites[1].link.cut();
    let session = session_of(&create(&mut here, "later"));
    let behind = there.read_with("k", "later", &session).unwrap();
    assert_eq!(refusal(&behind), (404, Some("1002")), "it does not pretend to know");
    assert_eq!(there.read("k", "i").unwrap().status, 200);
    let (writer, states) = north.roles();
    assert_eq!((writer.as_str(), states.len()), (NAMES[0], 2));
    world.regions.sites[1].link.heal();
    assert!(eventually(
        || there.read_with("k", "later", &session).unwrap().status == 200
    ));
    become_equal(&west, &north);
}

/// Lets the writers end, also when the test fails.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Writes where writes are taken, in one of two regions; moves them when all have begun; stops when all have gone on.
fn write_while(ports: [u16; 2], ledgers: &mut [Ledger], change: impl FnOnce()) -> usize {
    let (stop, changed) = (AtomicBool::new(false), AtomicBool::new(false));
    let (n_begun, n_after, n_writers) = (AtomicUsize::new(0), AtomicUsize::new(0), ledgers.len());
    std::thread::scope(|scope| {
        let writers: Vec<_> = ledgers
            .iter_mut()
            .map(|ledger| {
                let (stop, changed, n_begun, n_after) = (&stop, &changed, &n_begun, &n_after);
                scope.spawn(move || {
                    let (mut at, mut n_done, mut went_on) = (0, 0, false);
                    let mut client = Client::connect(ports[at]);
                    while !stop.load(Ordering::Acquire) {
                        let was_changed = changed.load(Ordering::Acquire);
                        match ledger.try_once(&mut client) {
                            Told::Done => n_done += 1,
                            Told::Elsewhere => {
                                at = 1 - at;
                                client = Client::connect(ports[at]);
                                continue;
                            }
                            Told::Refused | Told::Nothing => panic!("every outcome is known"),
                        }
                        if n_done == 1 {
                            n_begun.fetch_add(1, Ordering::AcqRel);
                        }
                        if was_changed && !went_on {
                            went_on = true;
                            n_after.fetch_add(1, Ordering::AcqRel);
                        }
                    }
                    n_done
                })
            })
            .collect();
        let _stopping = Stopping(&stop);
        assert!(
            eventually(|| n_begun.load(Ordering::Acquire) == n_writers),
            "every writer begins"
        );
        change();
        changed.store(true, Ordering::Release);
        let went_on =
            || n_after.load(Ordering::Acquire) == n_writers || writers.iter().any(|writer| writer.is_finished());
        assert!(eventually(went_on), "every writer goes on");
        stop.store(true, Ordering::Release);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    })
}

#[test]
fn writes_move_to_another_region_and_back_and_none_is_lost() {
    let world = World::new(2);
    let nodes = world.both();
    create_container(&nodes[0]);
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(Ledger::new).collect();
    let (mut from, mut to) = (0, 1);
    for round in 1..=rounds(2, 20) {
        let ports = [nodes[from].port, nodes[to].port];
        // Asked where writes are not: it is passed on.
        let n_done = write_while(ports, &mut ledgers, || drop(nodes[to].answer(&["failover", NAMES[to]])));
        println!("round {round}: {n_done} writes");
        let found = client::read_all(&mut nodes[to].client());
        ledger::settle(&mut ledgers, &found).unwrap_or_else(|problem| panic!("round {round}: {problem}"));
        assert_eq!(nodes[to].roles().0, NAMES[to]);
        assert!(eventually(|| nodes[from].roles().0 == NAMES[to]));
        become_equal(&nodes[from], &nodes[to]);
        (from, to) = (to, from);
    }
}

#[test]
fn a_region_takes_over_from_one_that_is_gone_and_what_that_had_alone_becomes_conflicts() {
    let mut world = World::new(2);
    let [west, north] = world.both();
    create_container(&west);
    let mut here = west.client();
    for n in 0..20 {
        create(&mut here, &format!("i{n}"));
    }
    become_equal(&west, &north);
    world.regions.sites[0].link.cut();
    for n in 0..5 {
        create(&mut here, &format!("lost-{n}"));
    }
    drop(west);
    world.site(0).servers.kill_all();

    let loss = north.answer(&["offline", NAMES[0]]);
    assert!(
        loss["lostTransactions"].as_u64().is_some_and(|lost| lost <= 5),
        "{loss}"
    );
    let mut there = north.client();
    for n in 0..10 {
        create(&mut there, &format!("after-{n}"));
    }

    world.regions.sites[0].link.heal();
    world.site(0).servers.restart_all().unwrap();
    let west = world.node(0);
    let out = west.client().read("k", "i0").unwrap();
    assert_eq!(
        refusal(&out),
        (403, Some("1008")),
        "it serves nothing until it is taken in"
    );
    north.answer(&["online", NAMES[0]]);
    let (writer, states) = north.roles();
    assert_eq!(writer, NAMES[1]);
    assert!(states.iter().all(|(_, state)| state == "online"), "{states:?}");

    let conflicts = there
        .get("/dbs/db/colls/c/conflicts", "conflicts", "dbs/db/colls/c")
        .unwrap();
    let conflicts = conflicts.json();
    let conflicts = conflicts["Conflicts"].as_array().unwrap().clone();
    assert_eq!(conflicts.len(), 5, "{conflicts:?}");
    assert!(conflicts.iter().all(|conflict| conflict["region"] == NAMES[0]));
    assert!(
        eventually(|| west.client().read("k", "i0").unwrap().status == 200),
        "it serves"
    );
    become_equal(&west, &north);
    assert_eq!(client::read_all(&mut west.client()).len(), 30);
}

#[test]
fn every_other_region_follows_whoever_takes_writes() {
    let mut world = World::new(3);
    let [west, north] = world.both();
    let asia = world.node(2);
    create_container(&west);
    create(&mut west.client(), "in the west");
    become_equal(&west, &asia);
    // Asked in a region that has nothing to do with it, as soon as it has heard of the others.
    let is_moved = || asia.region(&["failover", NAMES[1]]).status.success();
    assert!(eventually(is_moved), "{:?}", asia.region(&["failover", NAMES[1]]));
    create(&mut north.client(), "in the north");
    become_equal(&north, &asia);
    become_equal(&north, &west);

    drop(north);
    world.site(1).servers.kill_all();
    // The next in line is the one that took writes before.
    asia.answer(&["offline", NAMES[1]]);
    create(&mut west.client(), "in the west again");
    become_equal(&west, &asia);
    assert_eq!(client::read_all(&mut asia.client()).len(), 3);
    let (writer, states) = asia.roles();
    assert_eq!(writer, NAMES[0]);
    let offline = states.iter().filter(|(_, state)| state == "offline");
    assert_eq!(offline.map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [NAMES[1]]);
}

#[test]
fn what_regions_of_a_cluster_cannot_do_is_refused_in_one_sentence() {
    let world = World::new(1);
    let last = |output: &std::process::Output| {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.lines().last().unwrap_or_default().to_owned()
    };
    let others = world.init(0, 2, &[]);
    assert!(
        last(&others).contains("the account has the regions westus"),
        "{others:?}"
    );
}
