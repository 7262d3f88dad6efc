use std::time::Duration;

use futures::StreamExt as _;
use orrery_model::{LogId, Position};
use orrery_nats_server::{Server, Settings};
use orrery_partition::storage::{Role, StorageError, Store as _};

use crate::rig::{PATIENCE, client, open, own, settings, verified_keys};
use crate::support::write;

const LOG: LogId = LogId(5);
const LATER: LogId = LogId(6);

/// Waits until something becomes true that nobody announces.
async fn until(mut is_true: impl FnMut() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it becomes true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_by_sees_what_the_owner_writes_and_takes_over_from_there() {
    let server = Server::start(&Settings::default()).unwrap();
    let (urls, dirs) = (
        vec![server.url()],
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let owner = open(&urls, dirs[0].path(), settings("standby", 1)).await;
    let standby = open(&urls, dirs[1].path(), settings("standby", 1)).await;
    let log = own(&owner, LOG, 1).await;
    let following = standby.follow();
    let copy = standby.open(LOG, Role::Follow).await.unwrap();
    for n in 0..100 {
        write(&*log, &[(&format!("key {n}"), Some("value"))]).await.unwrap();
    }
    let reached = tokio::time::timeout(PATIENCE, copy.wait_past(orrery_model::Lsn(log.head().lsn.0 - 1))).await;
    assert_eq!(reached.unwrap(), log.head());
    assert_eq!(verified_keys(&*copy).await.len(), 100);

    // Logs that are made and dropped meanwhile are followed too.
    let later = own(&owner, LATER, 1).await;
    write(&*later, &[("key", Some("value"))]).await.unwrap();
    until(|| standby.list().unwrap() == owner.list().unwrap()).await;
    owner.drop_log(LATER).await.unwrap();
    until(|| standby.list().unwrap() == owner.list().unwrap()).await;
    assert_eq!(standby.list().unwrap().len(), 1);

    let taken = own(&standby, LOG, 2).await;
    assert_eq!(taken.head(), log.head());
    write(&*taken, &[("mine", Some("now"))]).await.unwrap();
    let refused = write(&*log, &[("late", Some("value"))]).await;
    assert!(matches!(refused, Err(StorageError::Fenced { .. })), "{refused:?}");
    drop(following);
    standby.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_by_goes_on_after_its_server_was_killed() {
    let mut server = Server::start(&Settings::default()).unwrap();
    let (urls, dirs) = (
        vec![server.url()],
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let owner = open(&urls, dirs[0].path(), settings("goes-on", 1)).await;
    let standby = open(&urls, dirs[1].path(), settings("goes-on", 1)).await;
    let log = own(&owner, LOG, 1).await;
    let _following = standby.follow();
    let copy = standby.open(LOG, Role::Follow).await.unwrap();
    assert_eq!(copy.head(), Position::default());
    for round in 0..3 {
        let position = write(&*log, &[(&format!("round {round}"), Some("value"))])
            .await
            .unwrap();
        until(|| copy.head() == position).await;
        server.restart().unwrap();
    }
    assert_eq!(verified_keys(&*copy).await.len(), 3);
}

/// Of the consumers of a stream: the logs that each is sent, sorted, and how many messages all have been sent.
async fn consumed(jetstream: &async_nats::jetstream::Context, stream: &str) -> (Vec<Vec<String>>, u64) {
    let stream = jetstream.get_stream(stream).await.unwrap();
    let consumers: Vec<_> = stream.consumers().map(Result::unwrap).collect().await;
    let log = |subject: &String| subject.rsplit('.').next().unwrap().to_owned();
    let logs = consumers
        .iter()
        .map(|consumer| match consumer.config.filter_subjects.as_slice() {
            [] => vec![log(&consumer.config.filter_subject)],
            subjects => subjects.iter().map(log).collect(),
        });
    let n_sent = consumers
        .iter()
        .map(|consumer| consumer.delivered.consumer_sequence)
        .sum();
    (logs.collect(), n_sent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_sent_what_others_write_and_nothing_of_its_own_whoever_owns_what() {
    let server = Server::start(&Settings::default()).unwrap();
    let urls = vec![server.url()];
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let one = open(&urls, dirs[0].path(), settings("shared", 1)).await;
    let other = open(&urls, dirs[1].path(), settings("shared", 1)).await;
    let jetstream = async_nats::jetstream::new(client(&urls).await);
    // Two logs of one stream.
    let (mine, yours) = (LogId(4), LogId(6));
    let _following = (one.follow(), other.follow());
    let my_log = own(&one, mine, 1).await;
    let your_log = own(&other, yours, 1).await;
    let patience = tokio::time::Instant::now() + PATIENCE;
    let n_sent = loop {
        // Those that nobody reads any more stay for a while.
        let (logs, n_sent) = consumed(&jetstream, "ORRERY_shared_0").await;
        if logs.contains(&vec!["4".to_owned()]) && logs.contains(&vec!["6".to_owned()]) {
            break n_sent;
        }
        assert!(
            tokio::time::Instant::now() < patience,
            "each follows the other's log alone"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let copies = (
        other.open(mine, Role::Follow).await.unwrap(),
        one.open(yours, Role::Follow).await.unwrap(),
    );
    for n in 0..20 {
        write(&*my_log, &[(&format!("key {n}"), Some("mine"))]).await.unwrap();
        write(&*your_log, &[(&format!("key {n}"), Some("yours"))])
            .await
            .unwrap();
    }
    until(|| copies.0.head() == my_log.head() && copies.1.head() == your_log.head()).await;
    let sent = consumed(&jetstream, "ORRERY_shared_0").await.1 - n_sent;
    assert_eq!(sent, 40, "each message is sent to the other node and to nobody else");

    // One takes over what the other had, in the middle of its writes.
    let taken = own(&one, yours, 2).await;
    let copy = other.open(yours, Role::Follow).await.unwrap();
    for n in 0..20 {
        let position = write(&*taken, &[(&format!("late {n}"), Some("mine now"))])
            .await
            .unwrap();
        until(|| copy.head() == position).await;
    }
    assert_eq!(verified_keys(&*copy).await.len(), 40);
}
