use orrery_model::{Epoch, LogId, Lsn};
use orrery_partition::storage::{Health, Role, StorageError, Store};
use orrery_storage::SharedStore;

use crate::disk::Unsynced;
use crate::rig::{History, Rig, keeping, open, small};
use crate::support::{value, write};

const LOG: LogId = LogId(1);

#[tokio::test]
async fn a_failed_sync_makes_the_store_read_only_until_it_is_reopened() {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    let mut history = History::default();
    history.append(log.as_ref(), &[&[("a", Some("one"))]]).await.unwrap();
    rig.disk.fail_next_sync();
    let unknown = history.append(log.as_ref(), &[&[("a", Some("two"))]]).await;
    assert!(matches!(unknown, Err(StorageError::Unknown(_))), "{unknown:?}");
    assert!(matches!(rig.store.health(), Health::ReadOnly(_)));
    assert_eq!(value(log.as_ref(), "a").as_deref(), Some("one"), "reads go on");
    assert_eq!(log.read_log(Lsn::ZERO, 1).await.unwrap().len(), 1);
    let refused = write(log.as_ref(), &[("a", Some("three"))]).await.map(|_| ());
    assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");

    rig.store.reopen().await.unwrap();
    assert_eq!(rig.store.health(), Health::Writable);
    // The bytes were there, so what was unknown has happened.
    assert_eq!(value(log.as_ref(), "a").as_deref(), Some("two"));
    history.append(log.as_ref(), &[&[("a", Some("three"))]]).await.unwrap();
    history.check(rig.store.as_ref()).await;
}

#[tokio::test]
async fn after_a_failed_sync_each_account_reopens_a_shared_store_before_it_writes() {
    let rig = Rig::new(keeping());
    let shared = SharedStore::new(rig.store.clone());
    let accounts = [shared.account(0), shared.account(1)];
    let owner = Role::Own { epoch: Epoch(1) };
    let first = accounts[0].open(LOG, owner).await.unwrap();
    let second = accounts[1].open(LOG, owner).await.unwrap();
    rig.disk.fail_next_sync();
    assert!(write(first.as_ref(), &[("a", Some("one"))]).await.is_err());
    accounts[0].reopen().await.unwrap();
    write(first.as_ref(), &[("a", Some("two"))]).await.unwrap();
    assert!(matches!(accounts[1].health(), Health::ReadOnly(_)));
    let refused = write(second.as_ref(), &[("a", Some("one"))]).await.map(|_| ());
    assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
    accounts[1].reopen().await.unwrap();
    write(second.as_ref(), &[("a", Some("one"))]).await.unwrap();
    assert_eq!(accounts[0].health(), Health::Writable, "nobody is asked twice");
}

#[tokio::test]
async fn what_is_read_back_after_a_failed_sync_is_written_anew() {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    rig.disk.fail_next_sync();
    assert!(write(log.as_ref(), &[("a", Some("one"))]).await.is_err());
    rig.store.reopen().await.unwrap();
    assert_eq!(value(log.as_ref(), "a").as_deref(), Some("one"));
    // The failed sync had dropped the bytes from the kernel's list; only writing them again makes them durable.
    let disk = rig.disk.after_power_cut(Unsynced::Lost);
    let Rig { dir, store, .. } = rig;
    drop((log, store));
    let store = open(dir.path(), keeping(), &disk).unwrap();
    let log = store.open(LOG, Role::Follow).await.unwrap();
    assert_eq!(value(log.as_ref(), "a").as_deref(), Some("one"));
}

#[tokio::test]
async fn reopening_fails_while_the_disk_does() {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    rig.disk.cut_power_after(0);
    assert!(write(log.as_ref(), &[("a", Some("one"))]).await.is_err());
    assert!(rig.store.reopen().await.is_err());
    assert!(matches!(rig.store.health(), Health::ReadOnly(_)));
}

#[tokio::test]
async fn below_the_reserve_writes_are_refused_before_they_begin_and_resume_by_themselves() {
    let rig = Rig::new(small());
    let log = rig.own(LOG).await;
    let position = write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
    rig.disk.set_free_bytes(999);
    assert_eq!(rig.store.health(), Health::Full);
    let size = rig.disk.size(&rig.disk.names()[0]);
    assert_eq!(
        write(log.as_ref(), &[("a", Some("two"))]).await,
        Err(StorageError::Full)
    );
    assert_eq!(rig.store.seed(LogId(5)).await.map(|_| ()), Err(StorageError::Full));
    assert_eq!(rig.disk.size(&rig.disk.names()[0]), size, "nothing was written");
    assert_eq!(
        (log.head(), value(log.as_ref(), "a").as_deref()),
        (position, Some("one")),
        "reads go on"
    );
    rig.disk.set_free_bytes(1000);
    assert_eq!(rig.store.health(), Health::Writable);
    write(log.as_ref(), &[("a", Some("two"))]).await.unwrap();
}

#[tokio::test]
async fn whoever_looks_after_a_store_is_told_of_a_failed_sync_and_of_a_full_disk_and_left_alone_otherwise() {
    let rig = Rig::new(small());
    let log = rig.own(LOG).await;
    let well = rig.store.ails();
    write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
    assert!(tokio::time::timeout(std::time::Duration::ZERO, well).await.is_err());
    let ailing = rig.store.ails();
    rig.disk.set_free_bytes(999);
    assert!(write(log.as_ref(), &[("a", Some("two"))]).await.is_err());
    ailing.await;
    rig.store.ails().await;
    rig.disk.set_free_bytes(1000);
    // It has failed, and is well again, before anybody looks.
    let ailing = rig.store.ails();
    rig.disk.fail_next_sync();
    assert!(write(log.as_ref(), &[("a", Some("two"))]).await.is_err());
    rig.store.reopen().await.unwrap();
    assert_eq!(rig.store.health(), Health::Writable);
    ailing.await;
}

#[tokio::test]
async fn an_account_that_has_to_reopen_a_store_is_told_so_also_if_another_was_quicker() {
    let rig = Rig::new(small());
    let shared = SharedStore::new(rig.store.clone());
    let [one, other] = [1, 2].map(|number| shared.account(number));
    let log = one.open(LOG, Role::Own { epoch: Epoch(1) }).await.unwrap();
    rig.disk.fail_next_sync();
    assert!(write(log.as_ref(), &[("a", Some("one"))]).await.is_err());
    one.reopen().await.unwrap();
    assert_eq!(one.health(), Health::Writable);
    other.ails().await;
    assert!(matches!(other.health(), Health::ReadOnly(_)));
    other.reopen().await.unwrap();
    assert!(
        tokio::time::timeout(std::time::Duration::ZERO, other.ails())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_log_can_be_dropped_from_a_full_disk() {
    let rig = Rig::new(small());
    write(rig.own(LOG).await.as_ref(), &[("a", Some("one"))]).await.unwrap();
    rig.disk.set_free_bytes(0);
    rig.store.drop_log(LOG).await.unwrap();
    assert_eq!(rig.store.list().unwrap(), []);
}

#[tokio::test]
async fn a_disk_that_fills_during_a_write_loses_nothing() {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    let mut history = History::default();
    let text = "x".repeat(600);
    for round in 0..40 {
        if round % 3 == 1 {
            rig.disk.fill_during_next_write(round % 25);
            let full = history.append(log.as_ref(), &[&[("a", Some("full"))]]).await;
            assert_eq!(full, Err(StorageError::Full), "round {round}");
            assert_eq!(rig.store.health(), Health::Writable, "it resumes by itself");
        }
        history.append(log.as_ref(), &[&[("a", Some(&text))]]).await.unwrap();
    }
    history.check(rig.store.as_ref()).await;
    let disk = rig.disk.after_power_cut(Unsynced::Lost);
    let Rig { dir, store, .. } = rig;
    drop((log, store));
    history
        .check(open(dir.path(), keeping(), &disk).unwrap().as_ref())
        .await;
}

#[tokio::test]
async fn one_failed_sync_fails_every_log_of_its_group_and_no_other_answer() {
    let rig = Rig::new(keeping());
    let mut logs = Vec::new();
    for id in 0..8 {
        logs.push(rig.own(LogId(id)).await);
    }
    rig.disk.fail_next_sync();
    let mut writers = tokio::task::JoinSet::new();
    for log in &logs {
        let log = log.clone();
        writers.spawn(async move { write(log.as_ref(), &[("a", Some("one"))]).await });
    }
    let answers = writers.join_all().await;
    assert!(
        answers
            .iter()
            .any(|answer| matches!(answer, Err(StorageError::Unknown(_))))
    );
    for answer in &answers {
        let is_refused = matches!(answer, Err(StorageError::Unknown(_) | StorageError::Unavailable(_)));
        assert!(is_refused, "{answer:?}");
    }
    rig.store.reopen().await.unwrap();
    for log in &logs {
        write(log.as_ref(), &[("b", Some("two"))]).await.unwrap();
    }
}

/// A store whose disk was full when a new segment was to be started, and which went on in the old one since.
async fn full_between_segments(history: &mut History) -> (Rig, std::sync::Arc<dyn orrery_partition::storage::Log>) {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    let large = "x".repeat(1500);
    history.append(log.as_ref(), &[&[("a", Some(&large))]]).await.unwrap();
    let n_segments = rig.disk.names().len();
    rig.disk.fill_during_next_write(10);
    let full = history.append(log.as_ref(), &[&[("a", Some(&large))]]).await;
    assert_eq!(full, Err(StorageError::Full));
    assert_eq!(rig.disk.names().len(), n_segments + 1, "a segment was begun");
    (rig, log)
}

#[tokio::test]
async fn a_group_torn_after_a_segment_could_not_be_started_is_cut_off() {
    for unsynced in [Unsynced::Lost, Unsynced::Torn, Unsynced::Kept, Unsynced::Holed] {
        let mut history = History::default();
        let (rig, log) = full_between_segments(&mut history).await;
        history.append(log.as_ref(), &[&[("b", Some("one"))]]).await.unwrap();
        rig.disk.cut_power_after(1);
        assert!(history.append(log.as_ref(), &[&[("b", Some("two"))]]).await.is_err());
        let disk = rig.disk.after_power_cut(unsynced);
        let Rig { dir, store, .. } = rig;
        drop((log, store));
        let store = open(dir.path(), keeping(), &disk).unwrap();
        history.check(store.as_ref()).await;
    }
}

#[tokio::test]
async fn a_failed_sync_after_a_segment_could_not_be_started_is_written_anew() {
    let mut history = History::default();
    let (rig, log) = full_between_segments(&mut history).await;
    rig.disk.fail_next_sync();
    let unknown = history.append(log.as_ref(), &[&[("b", Some("one"))]]).await;
    assert!(matches!(unknown, Err(StorageError::Unknown(_))), "{unknown:?}");
    rig.store.reopen().await.unwrap();
    history.append(log.as_ref(), &[&[("b", Some("two"))]]).await.unwrap();
    let disk = rig.disk.after_power_cut(Unsynced::Lost);
    let Rig { dir, store, .. } = rig;
    drop((log, store));
    let store = open(dir.path(), keeping(), &disk).unwrap();
    history.check(store.as_ref()).await;
}
