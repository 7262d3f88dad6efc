//! What is worse than the loss of a node: the server that leads is killed, or everything is, in the middle of writes.

use std::collections::BTreeMap;

use crate::load::{eventually, rounds, write_through};
use crate::node::{Ground, Starting};
use crate::sharing::pair;
use crate::{create_containers, ledgers, settle};

/// How many of the streams each server leads, once every one has a leader. Empty until then.
fn leaders(ground: &Ground) -> BTreeMap<String, usize> {
    let output = ground.run(&["cluster", "status"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut leaders = BTreeMap::new();
    for line in text.lines().skip_while(|line| !line.starts_with("stream ")).skip(1) {
        match line.split_whitespace().nth(1) {
            Some("-") | None => return BTreeMap::new(),
            Some(leader) => *leaders.entry(leader.to_owned()).or_default() += 1,
        }
    }
    leaders
}

/// The server that leads more streams than any other.
pub fn first_of_servers(ground: &Ground) -> String {
    let mut found = BTreeMap::new();
    let all_lead = eventually(|| {
        found = leaders(ground);
        !found.is_empty()
    });
    assert!(all_lead, "every stream has a leader");
    let most = found.into_iter().max_by_key(|(_, n_led)| *n_led);
    most.unwrap().0
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_that_leads_is_killed() {
    let mut ground = Ground::new(3);
    let (first, second) = pair(&ground);
    let ports = [first.port, second.port];
    let mut ledgers = ledgers();
    // Where electing another leader takes longer than requests wait, they are refused.
    ledgers.iter_mut().for_each(|ledger| ledger.bears_refusals = true);
    for round in 1..=rounds(1, 20) {
        let leader = first_of_servers(&ground);
        let effect = write_through(&ports, &mut ledgers, || ground.servers.named(&leader).unwrap().kill());
        println!("round {round}, without {leader}: {effect:?}");
        settle(
            &mut ledgers,
            ports[round % 2],
            &format!("round {round}, without {leader}"),
        );
        // Whoever lost track of a write goes on; and so do all of them while the server comes back.
        let effect = write_through(&ports, &mut ledgers, || ground.servers.restart_all().unwrap());
        println!("while it comes back: {effect:?}");
        settle(
            &mut ledgers,
            ports[(round + 1) % 2],
            &format!("round {round}, with {leader}"),
        );
    }
}

#[test]
fn everything_is_there_after_all_nodes_and_all_servers_were_killed_under_writes() {
    let mut ground = Ground::new(3);
    let mut ledgers = ledgers();
    let (mut first, mut second) = (ground.node("a"), ground.node("b"));
    create_containers(first.port);
    for round in 1..=rounds(1, 20) {
        let effect = write_through(&[first.port, second.port], &mut ledgers, || {
            std::thread::scope(|scope| {
                scope.spawn(|| ground.servers.kill_all());
                scope.spawn(|| drop(first));
                drop(second);
            });
        });
        println!("round {round}: {effect:?}");
        assert_eq!(effect.n_unsure, ledgers.len(), "nobody is left to answer: {effect:?}");
        ground.servers.restart_all().unwrap();
        let again = [ground.launch("a", &[]), ground.launch("b", &[])].map(Starting::ready);
        let n_items = settle(&mut ledgers, again[round % 2].port, &format!("round {round}"));
        assert!(n_items > 0);
        [first, second] = again;
    }
    write_through(&[first.port, second.port], &mut ledgers, || {});
    settle(&mut ledgers, first.port, "after it went on");
}
