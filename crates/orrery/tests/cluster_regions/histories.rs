//! What concurrent clients of two regions saw while the link between them was cut and writes moved, judged by the checks of the
//! simulation.

use std::time::Duration;

use orrery_node::api::Consistency;
use orrery_node::geo::bounds::Bounds;
use orrery_sim::regions::checks;
use orrery_sim::regions::history::{Answer, History};

use crate::bounded::{self, SECONDS, TRANSACTIONS};
use crate::load::{eventually, rounds};
use crate::recording::Recorder;
use crate::world::{NAMES, Node, World};
use crate::{become_equal, create_container, create_container_named};

pub const N_ANSWERS: usize = 20;

/// A recorder of requests to both regions, about a container of its own that has arrived in both.
pub fn recorder(level: Consistency, nodes: &[Node], round: usize) -> Recorder {
    let name = format!("round-{round}");
    create_container_named(&nodes[0], &name);
    let link = format!("dbs/db/colls/{name}");
    for node in &nodes[1..] {
        let found = || node.client().get(&format!("/{link}"), "colls", &link).unwrap();
        assert!(eventually(|| found().status == 200), "the container arrives");
    }
    let recorder = Recorder::new(level, &name);
    for (node, name) in nodes.iter().zip(NAMES) {
        recorder.add(name, node.port);
    }
    recorder
}

pub fn judge(history: &History, level: Consistency, round: usize) {
    let bounds = Bounds {
        transactions: TRANSACTIONS as u64,
        age: Duration::from_secs(SECONDS),
    };
    let count =
        |is_counted: &dyn Fn(&Answer) -> bool| history.calls.iter().filter(|call| is_counted(&call.answer)).count();
    let n_read = |region: &str| {
        let here = history.calls.iter().filter(|call| call.region == region);
        here.filter(|call| matches!(call.answer, Answer::Read { .. })).count()
    };
    println!(
        "round {round}, {level:?}: {} and {} read, {} written, {} refused, {} unknown",
        n_read(NAMES[0]),
        n_read(NAMES[1]),
        count(&|answer| matches!(answer, Answer::Written { .. })),
        count(&|answer| matches!(answer, Answer::Refused(..))),
        count(&|answer| *answer == Answer::Unknown),
    );
    checks::check(history, level, bounds).unwrap_or_else(|broken| panic!("round {round}, {level:?}: {broken}"));
    let n_least = n_read(NAMES[0]).min(n_read(NAMES[1]));
    assert!(n_least > 20, "both regions answered");
}

/// The regions have to hear of each other before writes move.
pub fn move_writes(nodes: &[Node], to: usize) {
    let is_moved = || nodes[to].region(&["failover", NAMES[to]]).status.success();
    assert!(eventually(is_moved), "{:?}", nodes[to].region(&["failover", NAMES[to]]));
}

/// Three regions: one that follows is cut off, writes move, and the region that takes them then is cut off and taken over from.
#[test]
fn strong_clients_of_all_regions_see_one_order_of_everything_whatever_is_cut_off() {
    let level = Consistency::Strong;
    let world = World::of_account(3, "Strong", &[]);
    let [west, north] = world.both();
    let nodes = [west, north, world.node(2)];
    create_container(&nodes[0]);
    for round in 1..=rounds(1, 10) {
        let history = recorder(level, &nodes, round).record(|recorder| {
            recorder.go_on(N_ANSWERS);
            world.regions.sites[2].link.cut();
            recorder.go_on(N_ANSWERS);
            world.regions.sites[2].link.heal();
            recorder.go_on(N_ANSWERS);
            move_writes(&nodes, 1);
            recorder.go_on(N_ANSWERS);

            world.regions.sites[1].link.cut();
            recorder.shun(NAMES[1], true);
            let is_taken = || nodes[0].region(&["offline", NAMES[1]]).status.success();
            assert!(eventually(is_taken), "{:?}", nodes[0].region(&["offline", NAMES[1]]));
            recorder.go_on(N_ANSWERS);
            world.regions.sites[1].link.heal();
            let is_back = || nodes[0].region(&["online", NAMES[1]]).status.success();
            assert!(eventually(is_back), "{:?}", nodes[0].region(&["online", NAMES[1]]));
            recorder.shun(NAMES[1], false);
            recorder.go_on(N_ANSWERS);
        });
        judge(&history, level, round);
    }
}

#[test]
fn sessions_never_go_back_while_links_are_cut_and_writes_move() {
    let level = Consistency::Session;
    let world = World::new(2);
    let nodes = world.both();
    create_container(&nodes[0]);
    become_equal(&nodes[0], &nodes[1]);
    for round in 1..=rounds(1, 20) {
        let history = recorder(level, &nodes, round).record(|recorder| {
            recorder.go_on(N_ANSWERS);
            world.regions.sites[1].link.cut();
            recorder.go_on(N_ANSWERS);
            world.regions.sites[1].link.heal();
            for to in [1, 0] {
                // The regions have to hear of each other first.
                let is_moved = || nodes[to].region(&["failover", NAMES[to]]).status.success();
                assert!(eventually(is_moved), "{:?}", nodes[to].region(&["failover", NAMES[to]]));
                recorder.go_on(N_ANSWERS);
            }
        });
        judge(&history, level, round);
    }
}

#[test]
fn no_read_misses_what_is_older_than_the_bound_while_links_are_cut() {
    let level = Consistency::BoundedStaleness;
    let world = bounded::world(2);
    let nodes = world.both();
    create_container(&nodes[0]);
    become_equal(&nodes[0], &nodes[1]);
    for round in 1..=rounds(1, 10) {
        let history = recorder(level, &nodes, round).record(|recorder| {
            recorder.go_on(N_ANSWERS);
            world.regions.sites[1].link.cut();
            let mut there = nodes[1].client();
            assert!(
                eventually(|| there.read("k", "a").unwrap().status == 503),
                "it may lack too much"
            );
            recorder.go_on(N_ANSWERS / 4);
            world.regions.sites[1].link.heal();
            assert!(
                eventually(|| there.read("k", "a").unwrap().status != 503),
                "it has caught up"
            );
            recorder.go_on(N_ANSWERS);
        });
        judge(&history, level, round);
    }
}
