//! What concurrent clients of a cluster saw while nodes and servers were killed and stood still, judged by the checks of the
//! simulation: the promises of the account's consistency level, whatever happened.

use orrery_node::api::Consistency;
use orrery_node::geo::bounds::Bounds;
use orrery_sim::regions::checks;
use orrery_sim::regions::history::{Answer, History};

use crate::client::Client;
use crate::disasters::first_of_servers;
use crate::load::rounds;
use crate::node::{Ground, Node};
use crate::recording::{ITEMS, Recorder, RecordingClient, body};
use crate::{create_container, create_database};

const NAMES: [&str; 2] = ["node-0", "node-1"];
/// Answers that most clients get before the next thing goes wrong.
const N_ANSWERS: usize = 20;

/// Two nodes of an account with a consistency level.
struct World {
    ground: Ground,
    level: Consistency,
    nodes: [Option<Node>; 2],
}

impl World {
    fn new(n_servers: usize, level: Consistency) -> World {
        let mut world = World {
            ground: Ground::new(n_servers),
            level,
            nodes: [None, None],
        };
        world.start(0);
        world.start(1);
        create_database(&mut Client::connect(world.port(0)));
        world
    }

    fn start(&mut self, idx: usize) {
        let level = format!("{:?}", self.level);
        let starting = self.ground.launch(NAMES[idx], &["--consistency", &level]);
        self.nodes[idx] = Some(starting.ready());
    }

    fn node(&self, idx: usize) -> &Node {
        self.nodes[idx].as_ref().unwrap()
    }

    fn port(&self, idx: usize) -> u16 {
        self.node(idx).port
    }

    /// A recorder of requests to both nodes, about a container of its own.
    fn recorder(&self, container: &str) -> Recorder {
        create_container(&mut Client::connect(self.port(0)), container);
        let recorder = Recorder::new(self.level, container);
        for (idx, name) in NAMES.into_iter().enumerate() {
            recorder.add(name, self.port(idx));
        }
        recorder
    }

    /// `kill -9`, and a new one with the same copy some time later.
    fn kill(&mut self, idx: usize, recorder: &Recorder) {
        println!("{} is killed", NAMES[idx]);
        recorder.remove(NAMES[idx]);
        self.nodes[idx] = None;
        recorder.go_on(N_ANSWERS);
        self.start(idx);
        recorder.add(NAMES[idx], self.port(idx));
        recorder.go_on(N_ANSWERS);
    }

    /// It stands still until others have taken over, and goes on.
    fn pause(&mut self, idx: usize, recorder: &Recorder) {
        println!("{} stands still", NAMES[idx]);
        recorder.shun(NAMES[idx], true);
        // Who is not loyal has left by then, or would wait for as long as it stands still.
        recorder.go_on(1);
        self.node(idx).pause();
        recorder.go_on(N_ANSWERS);
        println!("{} goes on", NAMES[idx]);
        self.node(idx).resume();
        recorder.shun(NAMES[idx], false);
        recorder.go_on(N_ANSWERS);
    }

    /// The server that leads most streams is killed, and comes back.
    fn kill_leader(&mut self, recorder: &Recorder) {
        let leader = first_of_servers(&self.ground);
        println!("{leader} is killed");
        self.ground.servers.named(&leader).unwrap().kill();
        recorder.go_on(N_ANSWERS);
        self.ground.servers.restart_all().unwrap();
        recorder.go_on(N_ANSWERS);
    }
}

fn judge(history: &History, level: Consistency) -> Result<(), String> {
    // Of one region: nothing is checked by bounds.
    checks::check(history, level, Bounds::least(1))
}

/// Runs clients through all faults, round after round, and judges every round by itself.
fn check(n_servers: usize, level: Consistency) {
    let mut world = World::new(n_servers, level);
    for round in 1..=rounds(1, 20) {
        let recorder = world.recorder(&format!("round-{round}"));
        let history = recorder.record(|recorder| {
            recorder.go_on(N_ANSWERS);
            // Whoever coordinates and whoever does not, in turns: it changes with every one that is lost.
            world.kill(round % 2, recorder);
            world.pause(0, recorder);
            world.pause(1, recorder);
            if n_servers > 1 {
                world.kill_leader(recorder);
            }
        });
        println!("round {round}, {level:?}: {}", summary(&history));
        judge(&history, level).unwrap_or_else(|broken| panic!("round {round}, {level:?}: {broken}"));
        is_worth_judging(&history);
    }
}

fn count(history: &History, is_counted: impl Fn(&Answer) -> bool) -> usize {
    history.calls.iter().filter(|call| is_counted(&call.answer)).count()
}

fn summary(history: &History) -> String {
    format!(
        "{} read, {} written, {} refused, {} unknown; {} of the catalogue, {} pairs, {} pages",
        count(history, |answer| matches!(answer, Answer::Read { .. })),
        count(history, |answer| matches!(answer, Answer::Written { .. })),
        count(history, |answer| matches!(answer, Answer::Refused(..))),
        count(history, |answer| *answer == Answer::Unknown),
        history.catalogue.len(),
        history.pairs.len(),
        history.pages.len(),
    )
}

/// A history in which nothing was asked, or nothing was answered, proves nothing.
fn is_worth_judging(history: &History) {
    for name in NAMES {
        let here = history.calls.iter().filter(|call| call.region == name);
        let n_read = here.clone().filter(|call| matches!(call.answer, Answer::Read { .. }));
        let n_written = here.filter(|call| matches!(call.answer, Answer::Written { .. }));
        assert!(n_read.count() > 20 && n_written.count() > 20, "{}", summary(history));
    }
    assert!(!history.pairs.is_empty() && !history.pages.is_empty());
    assert_eq!(history.items().len(), ITEMS.len(), "every item was used");
}

#[test]
fn strong_clients_see_one_order_of_everything_whatever_is_lost() {
    check(3, Consistency::Strong);
}

#[test]
fn sessions_never_go_back_whatever_is_lost() {
    check(1, Consistency::Session);
}

#[test]
fn nobody_is_shown_a_write_without_what_came_before_it_whatever_is_lost() {
    check(1, Consistency::ConsistentPrefix);
}

/// The recording is tested itself: somebody whom it does not know of undoes what was acknowledged, as a cluster would that lost
/// it.
#[test]
fn what_a_cluster_did_wrong_would_be_found_in_what_is_recorded() {
    let level = Consistency::Session;
    let world = World::new(1, level);
    let item = ITEMS[0];
    let found = |container: &str, undo: &dyn Fn(&mut Client), judged_as: Consistency| {
        let recorder = world.recorder(container);
        let mut one = RecordingClient::new(&recorder, 0);
        one.use_node(NAMES[0]);
        one.write(item);
        one.write(item);
        one.read(item);
        undo(&mut Client::connect_to(world.port(1), container));
        // The same client, as far as the checks know; without its token it takes what it is given.
        let mut one = RecordingClient::new(&recorder, 0);
        one.use_node(NAMES[1]);
        one.read(item);
        recorder.end();
        judge(&recorder.into_history(), judged_as)
    };
    for level in [Consistency::Strong, Consistency::Session] {
        let container = format!("nothing-{level:?}");
        found(&container, &|_| {}, level).expect("nothing was done wrong");
    }

    // The value of the first write is there again.
    let old = |client: &mut Client| assert_eq!(client.upsert(item.0, &body(item, 1)).unwrap().status, 200);
    let lost = found("old", &old, Consistency::Session).unwrap_err();
    assert!(lost.contains("was acknowledged later"), "{lost}");
    // One that nobody wrote.
    let strange = |client: &mut Client| assert_eq!(client.upsert(item.0, &body(item, 77)).unwrap().status, 200);
    let invented = found("strange", &strange, Consistency::Session).unwrap_err();
    assert!(invented.contains("nobody wrote"), "{invented}");

    // The end is as it should be, and a read in between was not.
    let recorder = world.recorder("between");
    let mut one = RecordingClient::new(&recorder, 0);
    one.use_node(NAMES[0]);
    one.write(item);
    one.write(item);
    let mut other = Client::connect_to(world.port(1), "between");
    old(&mut other);
    one.read(item);
    assert_eq!(other.upsert(item.0, &body(item, 2)).unwrap().status, 200);
    recorder.end();
    let history = recorder.into_history();
    let stale = judge(&history, Consistency::Strong).unwrap_err();
    assert!(stale.contains("not linearizable"), "{stale}");

    // A container that begins anew has forgotten what a session has seen.
    let anew = |client: &mut Client| {
        assert_eq!(client.remove("colls", "dbs/db/colls/anew").unwrap().status, 204);
        create_container(client, "anew");
        assert_eq!(client.upsert(item.0, &body(item, 2)).unwrap().status, 201);
    };
    let back = found("anew", &anew, Consistency::Session).unwrap_err();
    assert!(back.contains("had seen"), "{back}");
}
