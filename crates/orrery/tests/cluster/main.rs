//! Clusters for real: `nats-server` processes and nodes, written to while nodes and servers are killed, stopped and told to
//! leave.
//!
//! A few rounds, or many with `ORRERY_SOAK=1`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

#[path = "../kill_loop/client.rs"]
mod client;
mod disasters;
mod histories;
#[path = "../kill_loop/ledger.rs"]
mod ledger;
mod load;
mod node;
#[allow(dead_code, reason = "other tests use the rest")]
mod recording;
mod sharing;

use std::time::{Duration, Instant};

use client::Client;
use ledger::Ledger;
use load::{eventually, rounds, write_through};
use node::Ground;

const WRITERS: usize = 6;
/// Containers of the tests, each of two partitions.
const CONTAINERS: [&str; 3] = ["c", "d", "e"];
/// The lease of tests, and as long again for a busy machine.
const PAUSE_MAX: Duration = Duration::from_secs(12);

/// Two writers per partition, more or less, the containers one after the other.
fn ledgers() -> Vec<Ledger> {
    let ledger = |writer: usize| {
        let mut ledger = Ledger::new(writer);
        ledger.container = CONTAINERS[writer / WRITERS].to_owned();
        ledger
    };
    (0..WRITERS * CONTAINERS.len()).map(ledger).collect()
}

fn create_containers(port: u16) {
    let mut client = Client::connect(port);
    create_database(&mut client);
    CONTAINERS.iter().for_each(|name| create_container(&mut client, name));
}

fn create_database(client: &mut Client) {
    let database = client.post("/dbs", "dbs", "", None, r#"{"id":"db"}"#).unwrap();
    assert_eq!(database.status, 201, "{database:?}");
}

fn create_container(client: &mut Client, name: &str) {
    let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#);
    let container = client.post("/dbs/db/colls", "colls", "dbs/db", None, &body).unwrap();
    assert_eq!(container.status, 201, "{container:?}");
}

/// What the cluster holds, seen through a node, is what the writers were told.
fn settle(ledgers: &mut [Ledger], port: u16, when: &str) -> usize {
    let mut n_items = 0;
    for ledgers in ledgers.chunk_by_mut(|one, other| one.container == other.container) {
        let found = client::read_all(&mut Client::connect_to(port, &ledgers[0].container));
        ledger::settle(ledgers, &found).unwrap_or_else(|problem| panic!("{when}: {problem}"));
        n_items += found.len();
    }
    n_items
}

#[test]
fn two_nodes_serve_the_same_data() {
    let ground = Ground::new(1);
    let (first, second) = (ground.node("a"), ground.node("b"));
    // The second does not coordinate: it passes this on.
    create_containers(second.port);
    let (mut here, mut there) = (Client::connect(first.port), Client::connect(second.port));
    for n in 0..20 {
        let writer = if n % 2 == 0 { &mut here } else { &mut there };
        let body = format!(r#"{{"id":"i{n}","pk":"k","n":{n}}}"#);
        assert_eq!(writer.create("k", &body).unwrap().status, 201);
    }
    // Whichever wrote it, the owner has it.
    let by_the_owner = "x-ms-cosmos-hub-region-processing-only: True\r\n";
    for n in 0..20 {
        for reader in [&mut here, &mut there] {
            let answer = reader.read_with("k", &format!("i{n}"), by_the_owner).unwrap();
            assert_eq!((answer.status, answer.json()["n"].as_u64()), (200, Some(n)));
        }
    }
    assert_eq!(there.create("k", r#"{"id":"i3","pk":"k","n":0}"#).unwrap().status, 409);
    assert_eq!(
        there.replace("k", "none", r#"{"id":"none","pk":"k"}"#).unwrap().status,
        404
    );
    assert_eq!(client::read_all(&mut here), client::read_all(&mut there));
}

#[test]
fn a_follower_answers_from_its_view_once_it_has_what_the_client_has_seen() {
    let ground = Ground::new(1);
    let (first, second) = (ground.node("a"), ground.node("b"));
    create_containers(first.port);
    let (mut here, mut there) = (Client::connect(first.port), Client::connect(second.port));
    let created = here.create("k", r#"{"id":"i","pk":"k","n":1}"#).unwrap();
    let token = created.headers["x-ms-session-token"].clone();
    // However far it is: from its view, or from the owner.
    let session = format!("x-ms-session-token: {token}\r\n");
    assert_eq!(there.read_with("k", "i", &session).unwrap().status, 200);
    // Without its owner, only the view is left.
    let eventual = "x-ms-consistency-level: Eventual\r\n";
    assert!(eventually(|| there.read_with("k", "i", eventual).unwrap().status == 200));
    first.pause();
    assert_eq!(there.read_with("k", "i", eventual).unwrap().status, 200);
    assert_eq!(there.read_with("k", "i", &session).unwrap().status, 200);
    first.resume();
}

#[test]
fn a_client_without_a_token_finds_through_a_node_what_was_written_through_it() {
    let ground = Ground::new(1);
    let (first, second) = sharing::pair(&ground);
    for port in [first.port, second.port] {
        let mut client = Client::connect(port);
        for n in 0..200 {
            // Half of the keys are another node's: its answer is ahead of this one's copy.
            let (key, id) = (format!("k{n}"), format!("i{port}"));
            let body = format!(r#"{{"id":"{id}","pk":"{key}","n":0}}"#);
            assert_eq!(client.create(&key, &body).unwrap().status, 201);
            assert_eq!(client.read(&key, &id).unwrap().status, 200, "created through {port}");
            let body = format!(r#"{{"id":"{id}","pk":"{key}","n":1}}"#);
            assert_eq!(client.replace(&key, &id, &body).unwrap().status, 200);
            let read = client.read(&key, &id).unwrap();
            assert_eq!(read.json()["n"].as_u64(), Some(1), "replaced through {port}");
            assert_eq!(client.delete(&key, &id).unwrap().status, 204);
            assert_eq!(client.read(&key, &id).unwrap().status, 404, "deleted through {port}");
        }
    }
}

#[test]
fn a_client_without_a_token_is_answered_from_the_copy_of_the_node_it_calls() {
    let ground = Ground::new(1);
    let (first, second) = (ground.node("a"), ground.node("b"));
    create_containers(first.port);
    let (mut here, mut there) = (Client::connect(first.port), Client::connect(second.port));
    assert_eq!(here.create("k", r#"{"id":"i","pk":"k","n":1}"#).unwrap().status, 201);
    assert!(eventually(|| there.read("k", "i").unwrap().status == 200));
    // Without whoever owns it, nobody else could answer.
    first.pause();
    assert_eq!(there.read("k", "i").unwrap().status, 200);
    first.resume();
}

#[test]
fn nothing_acknowledged_is_lost_when_owners_are_killed() {
    let ground = Ground::new(1);
    let mut owner = ground.node("node-0");
    create_containers(owner.port);
    let mut ledgers = ledgers();
    for round in 1..=rounds(3, 40) {
        let other = ground.node(&format!("node-{}", round % 2));
        let effect = write_through(&[other.port], &mut ledgers, || drop(owner));
        println!("round {round}: {effect:?}");
        assert!(effect.n_done > 0);
        assert!(effect.pause() < PAUSE_MAX, "{effect:?}");
        settle(&mut ledgers, other.port, &format!("round {round}"));
        owner = other;
    }
}

#[test]
fn an_owner_that_is_told_to_leave_hands_over_and_nobody_is_refused() {
    let ground = Ground::new(1);
    let mut owner = ground.node("node-0");
    create_containers(owner.port);
    let mut ledgers = ledgers();
    for round in 1..=rounds(2, 20) {
        let other = ground.node(&format!("node-{}", round % 2));
        let effect = write_through(&[other.port], &mut ledgers, || owner.terminate());
        println!("round {round}: {effect:?}");
        assert_eq!(effect.n_unsure, 0, "every outcome is known: {effect:?}");
        assert!(
            effect.pause() < Duration::from_secs(2),
            "nobody waits for a lease: {effect:?}"
        );
        settle(&mut ledgers, other.port, &format!("round {round}"));
        assert!(owner.ended_well());
        owner = other;
    }
}

#[test]
fn an_owner_that_stood_still_acknowledges_nothing_once_it_was_replaced() {
    let ground = Ground::new(1);
    let (first, second) = (ground.node("a"), ground.node("b"));
    create_containers(first.port);
    let mut ledgers = ledgers();
    let (at_first, rest) = ledgers.split_at_mut(6);
    let (at_second, spare) = rest.split_at_mut(6);
    // What waited for an owner in it for too long, by its clock, is refused when it goes on.
    at_first.iter_mut().for_each(|ledger| ledger.bears_refusals = true);
    let (port, other_port) = (first.port, second.port);
    // As long as it takes to replace it, or a minute.
    let stands_still = Duration::from_secs(rounds(0, 60) as u64);
    std::thread::scope(|scope| {
        let (paused, is_paused) = std::sync::mpsc::channel();
        let first = &first;
        // Through the one that stands still: whatever is under way hangs until it goes on.
        let through_first = scope.spawn(move || {
            write_through(&[port], at_first, || {
                first.pause();
                paused.send(()).unwrap();
            })
        });
        is_paused.recv().unwrap();
        let stopped_at = Instant::now();
        let effect = write_through(&[other_port], at_second, || {});
        println!("through the other: {effect:?}");
        // Those may have written only what was the other's before. It owns everything once these lose track of nothing.
        let owns_all = || write_through(&[other_port], spare, || {}).n_unsure == 0;
        assert!(eventually(owns_all), "it takes over");
        while stopped_at.elapsed() < stands_still {
            let effect = write_through(&[other_port], spare, || {});
            assert_eq!(effect.n_unsure, 0, "{effect:?}");
        }
        // Its writers go on while the other one wakes up.
        let effect = write_through(&[other_port], spare, || first.resume());
        assert_eq!(effect.n_unsure, 0, "{effect:?}");
        println!("while it went on: {effect:?}");
        let effect = through_first.join().unwrap();
        println!("through the one that stood still: {effect:?}");
    });
    settle(&mut ledgers, second.port, "after it went on");
    assert_eq!(
        client::read_all(&mut Client::connect(first.port)),
        client::read_all(&mut Client::connect(second.port))
    );
}

#[test]
fn servers_that_are_not_fit_are_refused_in_one_sentence() {
    let sloppy = orrery_nats_server::Settings {
        sync: orrery_nats_server::Sync::Sometimes,
        ..orrery_nats_server::Settings::default()
    };
    let server = orrery_nats_server::Server::start(&sloppy).unwrap();
    let refusal_of = |url: &str, extra: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let mut command = node::orrery(&["node", "--port", "0", "--replicas", "1", "--nats", url]);
        let output = command.args(extra).current_dir(dir.path()).output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().last().unwrap_or_default().to_owned()
    };
    let refusal = |extra: &[&str]| refusal_of(&server.url(), extra);
    assert!(refusal(&[]).contains("name its monitoring port"), "{}", refusal(&[]));
    let asked = refusal(&["--monitor", &server.monitor_url()]);
    assert!(asked.contains("sync_interval: always"), "{asked}");
    assert!(refusal(&["--region", "A,B"]).contains("one region"));
    assert!(refusal_of("nats://127.0.0.1:1", &["--dev"]).contains("cannot reach a NATS server"));
}

#[test]
fn nodes_must_agree_on_the_account() {
    let ground = Ground::new(1);
    let _first = ground.node("a");
    let mut second = ground.launch("b", &["--consistency", "Strong"]);
    assert!(!second.ended().success());
}

#[test]
fn operators_see_servers_streams_and_nodes() {
    let ground = Ground::new(1);
    let text = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let check = ground.run(&["cluster", "check"]);
    assert!(check.status.success() && text(&check).contains("fit"), "{check:?}");
    let init = ground.run(&["cluster", "init"]);
    assert!(init.status.success() && text(&init).contains("16 streams"), "{init:?}");
    assert!(text(&ground.run(&["cluster", "status"])).contains("nobody coordinates"));
    let node = ground.node("a");
    let status = text(&ground.run(&["cluster", "status"]));
    assert!(status.contains("coordinates, in term"), "{status}");
    assert!(status.contains(&node.port.to_string()), "{status}");
    assert!(status.contains("ORRERY_westus_15"), "{status}");
}
