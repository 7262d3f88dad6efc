//! Nodes that share the logs of a region: each owns some, and what happens to one of them is felt by its logs alone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::{self, Client};
use crate::ledger::Dice;
use crate::load::rounds;
use crate::load::{eventually, write_through};
use crate::node::{Ground, Node};
use crate::{CONTAINERS, PAUSE_MAX, create_container, create_containers, ledgers, settle};

/// Felt by nobody who has to wait for a lease to expire.
const SHORT: Duration = Duration::from_millis(1500);

/// How many logs each node owns, once none is on its way. Empty while one is.
fn owners(ground: &Ground) -> BTreeMap<String, usize> {
    let output = ground.run(&["cluster", "status"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut owners = BTreeMap::new();
    // Ids of nodes, further up, may look like numbers as well.
    for line in text.lines().skip_while(|line| !line.starts_with("log ")) {
        let mut columns = line.split_whitespace();
        let is_log = columns.next().is_some_and(|log| log.parse::<u64>().is_ok());
        if !is_log {
            continue;
        }
        let columns: Vec<&str> = columns.collect();
        if columns.len() > 4 {
            return BTreeMap::new();
        }
        *owners.entry(columns[0].to_owned()).or_default() += 1;
    }
    owners
}

/// Waits until the logs are spread evenly over so many nodes.
fn spread(ground: &Ground, n_logs: usize, n_nodes: usize) {
    let is_even = || {
        let owners = owners(ground);
        let (least, most) = (owners.values().min(), owners.values().max());
        let n_owned: usize = owners.values().sum();
        n_owned == n_logs && owners.len() == n_nodes && most.zip(least).is_some_and(|(most, least)| most - least <= 1)
    };
    assert!(eventually(is_even), "{:?}", owners(ground));
}

/// Two nodes with the containers' six partitions spread over them. The first coordinates.
pub fn pair(ground: &Ground) -> (Node, Node) {
    let (first, second) = (ground.node("node-0"), ground.node("node-1"));
    create_containers(first.port);
    spread(ground, 2 * CONTAINERS.len(), 2);
    (first, second)
}

#[test]
fn logs_are_spread_over_the_nodes_and_every_node_answers_for_all_of_them() {
    let ground = Ground::new(1);
    let (first, second) = pair(&ground);
    let mut ledgers = ledgers();
    write_through(&[first.port, second.port], &mut ledgers, || {});
    for port in [first.port, second.port] {
        let n_items = settle(&mut ledgers, port, "through either node");
        let mut client = Client::connect_to(port, "d");
        let counted = client.query("SELECT VALUE COUNT(1) FROM c").unwrap();
        assert_eq!(counted.status, 200, "{counted:?}");
        let n_counted = counted.json()["Documents"][0].as_u64().unwrap();
        assert!(n_counted > 0 && n_counted < n_items as u64);
    }
    // A third comes and gets its share.
    let third = ground.node("node-2");
    let effect = write_through(&[first.port, second.port, third.port], &mut ledgers, || {
        spread(&ground, 2 * CONTAINERS.len(), 3);
    });
    assert_eq!(effect.n_unsure, 0, "{effect:?}");
    settle(&mut ledgers, third.port, "after a third node came");
}

#[test]
fn only_the_logs_of_a_node_that_is_killed_pause() {
    let ground = Ground::new(1);
    let (first, mut second) = pair(&ground);
    let mut ledgers = ledgers();
    for round in 1..=rounds(2, 20) {
        let effect = write_through(&[first.port], &mut ledgers, || drop(second));
        println!("round {round}: {effect:?}");
        assert!(effect.pause() < PAUSE_MAX, "{effect:?}");
        let n_undisturbed = effect.n_within(SHORT);
        assert!(n_undisturbed > 0, "what the other node owns goes on: {effect:?}");
        assert!(
            n_undisturbed < ledgers.len(),
            "what the lost one owned waits: {effect:?}"
        );
        settle(&mut ledgers, first.port, &format!("round {round}"));
        second = ground.node(&format!("node-{}", round + 1));
        spread(&ground, 2 * CONTAINERS.len(), 2);
    }
}

#[test]
fn logs_of_other_nodes_go_on_when_the_coordinator_is_killed() {
    let ground = Ground::new(1);
    let (mut first, mut second) = pair(&ground);
    let mut ledgers = ledgers();
    for round in 1..=rounds(2, 20) {
        let effect = write_through(&[second.port], &mut ledgers, || drop(first));
        println!("round {round}: {effect:?}");
        assert!(effect.pause() < PAUSE_MAX, "{effect:?}");
        assert!(effect.n_within(SHORT) > 0, "{effect:?}");
        settle(&mut ledgers, second.port, &format!("round {round}"));
        // The other one coordinates now.
        first = second;
        second = ground.node(&format!("node-{}", round + 1));
        spread(&ground, 2 * CONTAINERS.len(), 2);
    }
}

#[test]
fn a_member_that_is_told_to_leave_hands_its_logs_over_and_nobody_is_refused() {
    let ground = Ground::new(1);
    let (first, mut second) = pair(&ground);
    let mut ledgers = ledgers();
    for round in 1..=rounds(2, 20) {
        let effect = write_through(&[first.port], &mut ledgers, || second.terminate());
        println!("round {round}: {effect:?}");
        assert_eq!(effect.n_unsure, 0, "every outcome is known: {effect:?}");
        assert_eq!(effect.n_within(Duration::from_secs(2)), ledgers.len(), "{effect:?}");
        assert!(second.ended_well());
        settle(&mut ledgers, first.port, &format!("round {round}"));
        second = ground.node(&format!("node-{}", round + 1));
        spread(&ground, 2 * CONTAINERS.len(), 2);
    }
}

#[test]
fn a_member_that_stood_still_acknowledges_nothing_of_what_it_owned() {
    let ground = Ground::new(1);
    let (first, second) = pair(&ground);
    let mut ledgers = ledgers();
    let effect = write_through(&[first.port], &mut ledgers, || second.pause());
    println!("while it stands still: {effect:?}");
    assert!(effect.pause() < PAUSE_MAX, "{effect:?}");
    settle(&mut ledgers, first.port, "while it stands still");
    let effect = write_through(&[first.port], &mut ledgers, || second.resume());
    println!("while it goes on: {effect:?}");
    spread(&ground, 2 * CONTAINERS.len(), 2);
    for port in [first.port, second.port] {
        settle(&mut ledgers, port, "after it went on");
    }
}

#[test]
fn partitions_are_split_and_merged_wherever_they_are_while_they_are_written() {
    let ground = Ground::new(1);
    let (first, second) = pair(&ground);
    let mut ledgers = ledgers();
    let effect = write_through(&[first.port, second.port], &mut ledgers, || {
        let mut client = Client::connect(second.port);
        for partition in [0, 1] {
            let body = format!(r#"{{"database":"db","container":"c","partition":{partition}}}"#);
            let split = client.administer("partitions/split", &body).unwrap();
            assert_eq!(split.status, 200, "{split:?}");
        }
        let body = r#"{"database":"db","container":"d","partitions":[0,1]}"#;
        let merged = client.administer("partitions/merge", body).unwrap();
        assert_eq!(merged.status, 200, "{merged:?}");
    });
    assert_eq!(effect.n_unsure, 0, "{effect:?}");
    spread(&ground, 7, 2);
    for port in [first.port, second.port] {
        settle(&mut ledgers, port, "after splits and a merge");
    }
}

#[test]
fn a_split_whose_coordinator_is_killed_or_stands_still_loses_nothing() {
    let ground = Ground::new(1);
    let (mut first, mut second) = pair(&ground);
    let mut ledgers = ledgers();
    let mut dice = Dice(0xC0FFEE);
    for round in 1..=rounds(4, 40) {
        let (port, stands_still) = (second.port, round % 2 == 0);
        // A partition that is there whatever became of the last split.
        let partitions = partitions(&mut Client::connect(port), "c");
        let body = format!(r#"{{"database":"db","container":"c","partition":{}}}"#, partitions[0]);
        let delay = Duration::from_millis(dice.roll(60));
        let effect = write_through(&[port], &mut ledgers, || {
            std::thread::scope(|scope| {
                // It is answered, or nobody knows what became of it.
                scope.spawn(|| Client::connect(port).administer("partitions/split", &body));
                std::thread::sleep(delay);
                first.pause();
            });
        });
        println!("round {round}, after {delay:?}: {effect:?}");
        settle(&mut ledgers, port, &format!("round {round}"));
        // One that goes on finds that another has finished what it had begun.
        if stands_still {
            let effect = write_through(&[port], &mut ledgers, || first.resume());
            println!("while it goes on: {effect:?}");
            settle(&mut ledgers, port, &format!("round {round}, after it went on"));
        }
        drop(first);
        settle(&mut ledgers, port, &format!("round {round}, after it was killed"));
        first = second;
        second = ground.node(&format!("node-{}", round + 1));
    }
}

/// The numbers of a container's physical partitions.
fn partitions(client: &mut Client, container: &str) -> Vec<u64> {
    let link = "_orrery/v1/partitions";
    let listed = client
        .get(&format!("/{link}?database=db&container={container}"), "", link)
        .unwrap();
    assert_eq!(listed.status, 200, "{listed:?}");
    let listed = listed.json();
    let numbers = listed["partitions"].as_array().unwrap().iter();
    numbers
        .map(|partition| partition["partition"].as_u64().unwrap())
        .collect()
}

#[test]
fn what_is_changed_through_one_node_is_known_to_all_when_it_is_acknowledged() {
    let ground = Ground::new(1);
    let (first, second) = pair(&ground);
    let (mut here, mut there) = (
        Client::connect_to(first.port, "x"),
        Client::connect_to(second.port, "x"),
    );
    for round in 0..rounds(5, 50) {
        create_container(&mut here, "x");
        for key in 0..4 {
            let created = there.create(
                &format!("k{key}"),
                &format!(r#"{{"id":"i","pk":"k{key}","n":{round}}}"#),
            );
            assert_eq!(created.unwrap().status, 201, "round {round}, key {key}");
        }
        let body = r#"{"id":"f","body":"function (n) { return n + 1; }"}"#;
        let made = there
            .post("/dbs/db/colls/x/udfs", "udfs", "dbs/db/colls/x", None, body)
            .unwrap();
        assert_eq!(made.status, 201, "{made:?}");
        let found = here.query("SELECT VALUE udf.f(c.n) FROM c").unwrap();
        assert_eq!(
            (found.status, found.json()["_count"].as_u64()),
            (200, Some(4)),
            "{found:?}"
        );
        let removed = there.remove("colls", "dbs/db/colls/x").unwrap();
        assert_eq!(removed.status, 204, "{removed:?}");
        assert_eq!(here.read("k0", "i").unwrap().status, 404);
        assert_eq!(here.create("k0", r#"{"id":"j","pk":"k0"}"#).unwrap().status, 404);
    }
}

#[test]
fn snapshots_and_steps_of_many_partitions_bring_the_logs_together_first() {
    let ground = Ground::new(1);
    let (first, second) = pair(&ground);
    let (mut here, mut there) = (Client::connect(first.port), Client::connect(second.port));
    let step = |n: usize| {
        format!(
            r#"{{"operationType":"Create","partitionKey":"[\"k{n}\"]","resourceBody":{{"id":"i","pk":"k{n}","n":{n}}}}}"#
        )
    };
    let steps: Vec<String> = (0..12).map(step).collect();
    let done = there.bulk(&format!("[{}]", steps.join(","))).unwrap();
    assert_eq!(done.status, 200, "{}", String::from_utf8_lossy(&done.body));
    let results = done.json();
    let codes: Vec<u64> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["statusCode"].as_u64().unwrap())
        .collect();
    assert_eq!(codes, [201; 12], "{done:?}");
    let saved = there.administer("snapshots", r#"{"name":"before"}"#).unwrap();
    assert_eq!(saved.status, 201, "{saved:?}");
    for n in 0..12 {
        let client = if n % 2 == 0 { &mut here } else { &mut there };
        assert_eq!(client.delete(&format!("k{n}"), "i").unwrap().status, 204);
    }
    assert!(client::read_all(&mut there).is_empty());
    let restored = here.administer("snapshots/before/restore", "").unwrap();
    assert_eq!(restored.status, 200, "{restored:?}");
    assert_eq!(client::read_all(&mut there).len(), 12);
    spread(&ground, 2 * CONTAINERS.len(), 2);
    assert_eq!(client::read_all(&mut here).len(), 12);
}

#[test]
fn strong_reads_see_what_was_acknowledged_through_any_node() {
    let ground = Ground::new(1);
    let strong: &[&str] = &["--consistency", "Strong"];
    let (first, second) = (ground.launch("a", strong).ready(), ground.launch("b", strong).ready());
    create_containers(first.port);
    spread(&ground, 2 * CONTAINERS.len(), 2);
    let (mut here, mut there) = (Client::connect(first.port), Client::connect(second.port));
    for n in 0..rounds(20, 500) {
        let (key, body) = (format!("k{n}"), format!(r#"{{"id":"i","pk":"k{n}","n":{n}}}"#));
        let (writer, reader) = if n % 2 == 0 {
            (&mut here, &mut there)
        } else {
            (&mut there, &mut here)
        };
        assert_eq!(writer.create(&key, &body).unwrap().status, 201);
        assert_eq!(reader.read(&key, "i").unwrap().status, 200);
        let counted = reader.query("SELECT VALUE COUNT(1) FROM c").unwrap();
        assert_eq!(
            counted.json()["Documents"][0].as_u64(),
            Some(n as u64 + 1),
            "{counted:?}"
        );
    }
}
