//! A real server, killed with SIGKILL at random moments while it is written to, again and again on the same data.
//!
//! After every restart: what was acknowledged is there as it was acknowledged, a batch is there whole or not at all, a write
//! nobody heard of happened or did not, and nothing else is there. A reader of the change feed who goes on where it was cut
//! off has missed nothing and seen nothing twice.
//!
//! Twenty rounds, or two hundred with `ORRERY_SOAK=1`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

mod client;
mod feed;
mod ledger;
mod server;

use std::sync::mpsc;
use std::time::Duration;

use client::Client;
use feed::Follower;
use ledger::{Dice, Ledger};
use server::Server;

const WRITERS: usize = 8;

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let n_rounds = if std::env::var_os("ORRERY_SOAK").is_some() {
        200
    } else {
        20
    };
    let directory = tempfile::tempdir().unwrap();
    let mut dice = Dice(0x5EED_0F0D_DB0A_7E11);
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(Ledger::new).collect();
    let server = Server::start(directory.path());
    create_container(&mut Client::connect(server.port));
    let mut follower = Follower::default();
    follower.read(&mut Client::connect(server.port)).unwrap();
    drop(server);

    let mut n_acknowledged = 0;
    for round in 0..n_rounds {
        if dice.roll(3) == 0 {
            // Also while it opens its data, or the moment it is ready.
            Server::spawn(directory.path()).kill_after(Duration::from_millis(dice.roll(120)));
        }
        let server = Server::start(directory.path());
        let found = client::read_all(&mut Client::connect(server.port));
        ledger::settle(&mut ledgers, &found).unwrap_or_else(|problem| panic!("round {round}: {problem}"));
        follower.settle(&mut Client::connect(server.port), &found);
        let after = Duration::from_millis(30 + dice.roll(400));
        n_acknowledged += write_until_killed(server, &mut ledgers, &mut follower, after);
    }
    let server = Server::start(directory.path());
    let found = client::read_all(&mut Client::connect(server.port));
    ledger::settle(&mut ledgers, &found).unwrap_or_else(|problem| panic!("at the end: {problem}"));
    follower.settle(&mut Client::connect(server.port), &found);
    drop(server);
    println!(
        "{n_rounds} kills, {n_acknowledged} acknowledged requests, {} items, {} changes followed",
        found.len(),
        follower.n_changes
    );
    assert!(n_acknowledged > n_rounds * WRITERS, "the server was hardly written to");
}

fn create_container(client: &mut Client) {
    let database = client.post("/dbs", "dbs", "", None, r#"{"id":"db"}"#).unwrap();
    assert_eq!(database.status, 201, "{database:?}");
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
        "changeFeedPolicy":{"retentionDuration":1440}}"#;
    let container = client.post("/dbs/db/colls", "colls", "dbs/db", None, body).unwrap();
    assert_eq!(container.status, 201, "{container:?}");
}

/// Every writer writes until its connection breaks, and the follower reads; answers how many requests were acknowledged.
fn write_until_killed(server: Server, ledgers: &mut [Ledger], follower: &mut Follower, after: Duration) -> usize {
    let port = server.port;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut client = Client::connect(port);
            while follower.read(&mut client).is_ok() {}
        });
        let (first_done, wait_for_first) = mpsc::channel();
        let writers: Vec<_> = ledgers
            .iter_mut()
            .map(|ledger| {
                let first_done = first_done.clone();
                scope.spawn(move || {
                    let mut client = Client::connect(port);
                    let mut n_done = 0;
                    while ledger.write_once(&mut client) {
                        n_done += 1;
                        if n_done == 1 {
                            // Whoever waits may have heard from another writer already.
                            let _ = first_done.send(());
                        }
                    }
                    n_done
                })
            })
            .collect();
        wait_for_first
            .recv_timeout(Duration::from_secs(30))
            .expect("a first write is acknowledged");
        server.kill_after(after);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    })
}
