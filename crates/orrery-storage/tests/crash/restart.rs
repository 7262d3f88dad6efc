use std::ops::Bound;

use orrery_model::{Epoch, LogId, Lsn, Position};
use orrery_partition::storage::{LogInfo, Role, StorageError, Store};

use crate::rig::{History, Rig, keeping, open_on_disk, small};
use crate::support::{Model, bytes, content, value, write};

const LOG: LogId = LogId(1);

#[tokio::test]
async fn a_closed_store_opens_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_on_disk(dir.path(), keeping()).unwrap();
    let log = store.open(LOG, Role::Own { epoch: Epoch(6) }).await.unwrap();
    let position = write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
    let before = content(log.snapshot().unwrap().as_ref());
    store.close().await.unwrap();

    let again = open_on_disk(dir.path(), keeping()).unwrap();
    assert_eq!(
        again.list().unwrap(),
        [LogInfo {
            log: LOG,
            position,
            owner: Epoch(6)
        }]
    );
    let refused = again.open(LOG, Role::Own { epoch: Epoch(5) }).await.map(|_| ());
    assert_eq!(
        refused,
        Err(StorageError::Fenced { actual: position }),
        "a fence outlives the process"
    );
    let log = again.open(LOG, Role::Own { epoch: Epoch(6) }).await.unwrap();
    assert_eq!(content(log.snapshot().unwrap().as_ref()), before);
    assert_eq!(log.read_log(Lsn::ZERO, usize::MAX).await.unwrap().len(), 1);
    write(log.as_ref(), &[("a", Some("two"))]).await.unwrap();
}

#[tokio::test]
async fn a_directory_has_one_store_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_on_disk(dir.path(), small()).unwrap();
    let second = open_on_disk(dir.path(), small()).map(|_| ());
    assert!(
        matches!(&second, Err(StorageError::Unavailable(why)) if why.contains("in use")),
        "{second:?}"
    );
    drop(store);
    open_on_disk(dir.path(), small()).unwrap();
}

/// Reports of stores whose writes halted after a kill and reopen, and of recoveries that silently ended early, concern
/// exactly this: crash again and again in the middle of work, with flushes and merges under way.
#[tokio::test]
async fn a_store_that_crashes_again_and_again_goes_on_every_time() {
    let mut rig = Rig::new(small());
    let mut history = History::default();
    for round in 0..25 {
        for id in 1..4 {
            let log = rig.own(LogId(id)).await;
            for number in 0..12 {
                let (key, text) = (format!("{}", number % 5), format!("{round} {}", "x".repeat(400)));
                history.append(log.as_ref(), &[&[(&key, Some(&text))]]).await.unwrap();
            }
        }
        rig = rig.crash(small()).unwrap();
        history.check(rig.store.as_ref()).await;
    }
}

#[tokio::test]
async fn the_log_stays_bounded_although_nobody_trims() {
    let rig = Rig::new(small());
    let (busy, idle) = (rig.own(LOG).await, rig.own(LogId(2)).await);
    write(idle.as_ref(), &[("a", Some("one"))]).await.unwrap();
    let text = "x".repeat(500);
    for _ in 0..400 {
        write(busy.as_ref(), &[("a", Some(&text))]).await.unwrap();
    }
    rig.store.checkpoint().await.unwrap();
    // A flush tells the committer to tidy before anyone can ask it for something else.
    write(busy.as_ref(), &[("a", Some("last"))]).await.unwrap();
    assert!(
        rig.disk.names().len() < 20,
        "{} segments for some 200 KB",
        rig.disk.names().len()
    );
    let rig = rig.crash(small()).unwrap();
    assert_eq!(value(rig.own(LogId(2)).await.as_ref(), "a").as_deref(), Some("one"));
    assert_eq!(value(rig.own(LOG).await.as_ref(), "a").as_deref(), Some("last"));
}

#[tokio::test]
async fn a_hold_keeps_the_log_however_large_it_grows() {
    let rig = Rig::new(small());
    let log = rig.own(LOG).await;
    write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
    let hold = log.hold(Lsn(1));
    let text = "x".repeat(500);
    for _ in 0..200 {
        write(log.as_ref(), &[("a", Some(&text))]).await.unwrap();
    }
    rig.store.checkpoint().await.unwrap();
    assert_eq!(log.read_log(Lsn(1), usize::MAX).await.unwrap().len(), 200);
    drop(hold);
}

#[tokio::test]
async fn an_unfinished_seed_is_swept_after_a_crash() {
    let rig = Rig::new(small());
    let mut seed = rig.store.seed(LOG).await.unwrap();
    let entries = (0..500)
        .map(|number| (bytes(&format!("{number}")), Some(bytes("half"))))
        .collect();
    seed.write(entries).await.unwrap();
    rig.store.checkpoint().await.unwrap();
    std::mem::forget(seed);
    let rig = rig.crash(small()).unwrap();
    assert_eq!(rig.store.list().unwrap(), []);
    let log = rig.own(LOG).await;
    assert_eq!(log.head(), Position::default());
    assert!(
        log.snapshot()
            .unwrap()
            .scan(Bound::Unbounded, Bound::Unbounded, false)
            .next()
            .is_none()
    );
}

#[tokio::test]
async fn dropped_logs_give_their_space_back() {
    let rig = Rig::new(small());
    let log = rig.own(LOG).await;
    let text = "x".repeat(2000);
    for number in 0..200 {
        write(log.as_ref(), &[(&format!("key {number}"), Some(&text))])
            .await
            .unwrap();
    }
    rig.store.checkpoint().await.unwrap();
    let before = rig.store.size_bytes();
    assert!(before > 300_000, "{before} bytes");
    rig.store.drop_log(LOG).await.unwrap();
    // The space comes back when tables are merged, which goes on as long as something is written.
    let other = rig.own(LogId(2)).await;
    while rig.store.size_bytes() > before / 4 {
        write(other.as_ref(), &[("a", Some("more"))]).await.unwrap();
        rig.store.checkpoint().await.unwrap();
    }
}

#[tokio::test]
async fn branches_are_what_they_were_after_every_crash() {
    let mut rig = Rig::new(small());
    let mut history = History::default();
    let mut saved = std::collections::BTreeMap::new();
    for round in 0..25u64 {
        let log = rig.own(LOG).await;
        for number in 0..6 {
            let (key, text) = (format!("{}", number % 4), format!("{round} {}", "x".repeat(400)));
            let value = (number != 3).then_some(text.as_str());
            history.append(log.as_ref(), &[&[(&key, value)]]).await.unwrap();
        }
        // A copy that is kept, a branch of the copy that is written, and the log itself, which goes on.
        let (copy, branch) = (LogId(100 + round), LogId(200 + round));
        let shown = content(log.snapshot().unwrap().as_ref());
        if rig.store.branch(LOG, copy).await.unwrap() {
            saved.insert(copy, shown);
            assert!(rig.store.branch(copy, branch).await.unwrap());
            let branch = rig.store.open(branch, Role::Own { epoch: Epoch(2) }).await.unwrap();
            write(branch.as_ref(), &[("0", None), ("branch", Some("written"))])
                .await
                .unwrap();
            saved.insert(branch.id(), content(branch.snapshot().unwrap().as_ref()));
            history.append(log.as_ref(), &[&[("1", None)]]).await.unwrap();
        }
        if round % 3 == 2 {
            let gone = LogId(100 + round - 1);
            rig.store.drop_log(gone).await.unwrap();
            saved.remove(&gone);
        }
        rig = rig.crash(small()).unwrap();
        let log = rig.store.open(LOG, Role::Follow).await.unwrap();
        assert_eq!(log.head(), history.logs[&LOG].acknowledged, "round {round}");
        let expected = Model::replay(history.logs[&LOG].transactions.iter()).0;
        assert_eq!(content(log.snapshot().unwrap().as_ref()), expected, "round {round}");
        for (id, expected) in &saved {
            let log = rig.store.open(*id, Role::Follow).await.unwrap();
            assert_eq!(
                &content(log.snapshot().unwrap().as_ref()),
                expected,
                "round {round}, log {id}"
            );
        }
    }
    assert!(saved.len() > 6, "{} branches were made", saved.len());
}
