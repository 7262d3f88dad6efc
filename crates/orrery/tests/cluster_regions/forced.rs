//! Histories of clients whose region is taken over from by force: cut off, killed, or alive and not asked. What was acknowledged is
//! there afterwards, but for what the region had alone; under strong consistency all of it.

use orrery_node::api::Consistency;

use crate::bounded::{self, TRANSACTIONS};
use crate::create_container;
use crate::histories::{N_ANSWERS, judge, move_writes, recorder};
use crate::load::{eventually, rounds};
use crate::recording::{ITEMS, Recorder};
use crate::world::{NAMES, Node, World};

/// Regions hear of each other now and then, so what they are told is refused at first, perhaps.
fn command(node: &Node, arguments: &[&str]) {
    let is_done = || node.region(arguments).status.success();
    assert!(eventually(is_done), "{:?}", node.region(arguments));
}

fn kill(world: &mut World, nodes: &mut [Node], idx: usize) {
    nodes[idx].kill();
    world.site(idx).servers.kill_all();
}

fn restart(world: &mut World, nodes: &mut [Node], idx: usize) {
    world.site(idx).servers.restart_all().unwrap();
    nodes[idx] = world.node(idx);
}

/// The region that writes is cut off while all have the same, goes on alone for a while, and is taken over from; then it comes back.
/// Answers how many acknowledged writes were lost.
fn take_over(recorder: &Recorder, world: &mut World, nodes: &mut [Node], from: usize, is_killed: bool) -> usize {
    let to = 1 - from;
    let (mut since, mut n_lost) = (0, 0);
    recorder.quietly(|| {
        recorder.become_equal();
        let have_the_same = || world.has_equal_streams(from, to);
        assert!(eventually(have_the_same), "the streams of both regions become equal");
        world.regions.sites[from].link.cut();
        since = recorder.tick();
    });
    recorder.go_on(N_ANSWERS / 2);
    recorder.quietly(|| {
        recorder.remove(NAMES[from]);
        if is_killed {
            kill(world, nodes, from);
        }
        command(&nodes[to], &["offline", NAMES[from]]);
        n_lost = recorder.note_loss(NAMES[to], since);
    });
    recorder.go_on(N_ANSWERS);
    world.regions.sites[from].link.heal();
    if is_killed {
        restart(world, nodes, from);
    }
    command(&nodes[to], &["online", NAMES[from]]);
    recorder.add(NAMES[from], nodes[from].port);
    recorder.go_on(N_ANSWERS);
    n_lost
}

/// Writes move to the other region by force, and back by plan, round by round.
fn take_over_and_move_back(world: &mut World, level: Consistency, n_lost_max: usize) {
    let mut nodes = Vec::from(world.both());
    create_container(&nodes[0]);
    for round in 1..=rounds(2, 20) {
        let mut n_lost = 0;
        let recorder = recorder(level, &nodes, round);
        let history = recorder.record(|recorder| {
            recorder.go_on(N_ANSWERS);
            n_lost = take_over(recorder, world, &mut nodes, 0, round % 2 == 0);
            move_writes(&nodes, 0);
            recorder.go_on(N_ANSWERS);
        });
        println!("round {round}, {level:?}: {n_lost} acknowledged writes were in one region alone");
        judge(&history, level, round);
        assert!(n_lost <= n_lost_max, "{n_lost} were lost");
    }
}

#[test]
fn sessions_lose_only_what_a_region_had_alone_when_it_is_taken_over_from_by_force() {
    take_over_and_move_back(&mut World::new(2), Consistency::Session, usize::MAX);
}

#[test]
fn under_bounded_staleness_a_region_that_is_taken_over_from_had_no_more_alone_than_the_bound() {
    // Each item is in one partition, and each partition may be behind by so much.
    let n_lost_max = TRANSACTIONS * ITEMS.len();
    take_over_and_move_back(&mut bounded::world(2), Consistency::BoundedStaleness, n_lost_max);
}

/// First the region that writes is alive and knows nothing of it, with clients everywhere; then it is killed, servers and all.
#[test]
fn strong_clients_lose_nothing_when_a_region_that_lives_or_was_killed_is_taken_over_from() {
    let level = Consistency::Strong;
    let mut world = World::of_account(3, "Strong", &[]);
    let mut nodes = Vec::from(world.both());
    nodes.push(world.node(2));
    create_container(&nodes[0]);
    for round in 1..=rounds(1, 10) {
        let recorder = recorder(level, &nodes, round);
        let history = recorder.record(|recorder| {
            recorder.go_on(N_ANSWERS);
            command(&nodes[2], &["offline", NAMES[0]]);
            recorder.go_on(N_ANSWERS);
            let writer = nodes[2].roles().0;
            let from = NAMES.iter().position(|name| *name == writer).unwrap();
            command(&nodes[from], &["online", NAMES[0]]);
            recorder.go_on(N_ANSWERS);

            kill(&mut world, &mut nodes, from);
            recorder.remove(NAMES[from]);
            command(&nodes[0], &["offline", NAMES[from]]);
            recorder.go_on(N_ANSWERS);
            restart(&mut world, &mut nodes, from);
            command(&nodes[0], &["online", NAMES[from]]);
            recorder.add(NAMES[from], nodes[from].port);
            recorder.go_on(N_ANSWERS);
            if nodes[0].roles().0 != NAMES[0] {
                move_writes(&nodes, 0);
            }
            recorder.go_on(N_ANSWERS);
        });
        judge(&history, level, round);
        assert!(history.losses.is_empty());
    }
}
