use std::path::Path;

use orrery_model::{Epoch, LogId, Lsn};
use orrery_partition::storage::{Role, StorageError, Store};

use crate::disk::Disk;
use crate::rig::{History, Rig, keeping, open, small};
use crate::support::write;

const LOG: LogId = LogId(1);

/// A store with several segments that was given up without a flush.
async fn written(rounds: usize) -> (tempfile::TempDir, Disk, History) {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    let mut history = History::default();
    for round in 0..rounds {
        let text = format!("{round} {}", "x".repeat(300));
        history.append(log.as_ref(), &[&[("a", Some(&text))]]).await.unwrap();
    }
    let Rig { dir, disk, .. } = rig;
    (dir, disk, history)
}

fn assert_corrupt(dir: &Path, disk: &Disk, what: &str) {
    let opened = open(dir, keeping(), disk).map(|_| ());
    assert!(matches!(opened, Err(StorageError::Corrupt(_))), "{what}: {opened:?}");
}

#[tokio::test]
async fn damage_before_whole_groups_is_corruption_wherever_it_is() {
    let (dir, disk, _) = written(12).await;
    let names = disk.names();
    assert!(names.len() > 2, "{names:?}");
    for name in [&names[0], &names[names.len() - 1]] {
        for offset in [3, 40, 45, 60, 100] {
            disk.damage(name, offset);
            assert_corrupt(dir.path(), &disk, &format!("{name} at {offset}"));
            disk.damage(name, offset);
        }
    }
    open(dir.path(), keeping(), &disk).unwrap();
}

#[tokio::test]
async fn a_damaged_end_of_an_older_segment_is_corruption() {
    let (dir, disk, _) = written(12).await;
    let first = &disk.names()[0];
    disk.damage(first, disk.size(first) - 1);
    assert_corrupt(dir.path(), &disk, "the last byte of the first segment");
}

#[tokio::test]
async fn a_damaged_end_that_the_view_has_flushed_is_corruption() {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
    rig.store.checkpoint().await.unwrap();
    let Rig { dir, disk, store } = rig;
    drop((log, store));
    let name = disk.names()[0].clone();
    disk.shorten(&name, disk.size(&name) - 1);
    assert_corrupt(dir.path(), &disk, "the log ends before the view");
}

#[tokio::test]
async fn a_missing_segment_is_corruption() {
    let (dir, disk, _) = written(12).await;
    let names = disk.names();
    disk.lose(&names[1]);
    assert_corrupt(dir.path(), &disk, "the second segment");
}

#[tokio::test]
async fn a_missing_log_is_corruption_when_there_is_a_view() {
    let rig = Rig::new(keeping());
    write(rig.own(LOG).await.as_ref(), &[("a", Some("one"))]).await.unwrap();
    rig.store.close().await.unwrap();
    let Rig { dir, store, .. } = rig;
    drop(store);
    assert_corrupt(dir.path(), &Disk::default(), "an empty log");
}

#[tokio::test]
async fn a_lost_view_is_rebuilt_from_a_whole_log() {
    let (dir, disk, history) = written(12).await;
    std::fs::remove_dir_all(dir.path().join("view")).unwrap();
    let store = open(dir.path(), keeping(), &disk).unwrap();
    history.check(store.as_ref()).await;
}

#[tokio::test]
async fn a_lost_view_is_not_served_from_a_trimmed_log() {
    let rig = Rig::new(small());
    let log = rig.own(LOG).await;
    let first = rig.disk.names()[0].clone();
    let text = "x".repeat(500);
    while rig.disk.names().contains(&first) {
        write(log.as_ref(), &[("a", Some(&text))]).await.unwrap();
        rig.store.checkpoint().await.unwrap();
    }
    let Rig { dir, disk, store } = rig;
    drop((log, store));
    std::fs::remove_dir_all(dir.path().join("view")).unwrap();
    assert_corrupt(dir.path(), &disk, "the log starts after an empty view");
}

#[tokio::test]
async fn damaged_tables_are_never_read_as_something_else() {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    for number in 0..200 {
        write(
            log.as_ref(),
            &[(&format!("{number:04}"), Some(&format!("value {number}")))],
        )
        .await
        .unwrap();
    }
    rig.store.close().await.unwrap();
    let Rig { dir, disk, store } = rig;
    let whole = crate::support::content(log.snapshot().unwrap().as_ref());
    drop((log, store));
    let tables = dir.path().join("view").join("tables");
    let table = std::fs::read_dir(&tables).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&table).unwrap();
    for at in (0..bytes.len()).step_by(bytes.len() / 40) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x5A;
        std::fs::write(&table, damaged).unwrap();
        let Ok(store) = open(dir.path(), keeping(), &disk) else {
            continue;
        };
        let Ok(log) = store.open(LOG, Role::Follow).await else {
            continue;
        };
        for (key, value) in &whole {
            let read = log.snapshot().unwrap().get(key);
            let is_honest = read.as_ref().is_ok_and(|read| read.as_ref() == Some(value)) || read.is_err();
            assert!(is_honest, "byte {at}: {read:?}");
        }
    }
}

#[tokio::test]
async fn whoever_looks_after_a_store_is_told_of_damage_that_was_met() {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    for number in 0..50 {
        write(log.as_ref(), &[(&format!("{number:04}"), Some("value"))])
            .await
            .unwrap();
    }
    let harmed = rig.store.harmed();
    let name = rig.disk.names()[0].clone();
    log.read_log(Lsn::ZERO, usize::MAX).await.unwrap();
    assert_eq!(rig.store.damage(), None);
    // Wherever a record begins, some of this lies in it.
    (60..rig.disk.size(&name))
        .step_by(16)
        .for_each(|at| rig.disk.damage(&name, at));
    let read = log.read_log(Lsn::ZERO, usize::MAX).await;
    assert!(matches!(read, Err(StorageError::Corrupt(_))), "{read:?}");
    harmed.await;
    assert!(rig.store.damage().is_some());
    rig.store.harmed().await;
}

#[tokio::test]
async fn an_older_view_is_brought_up_by_replay() {
    let rig = Rig::new(keeping());
    let log = rig.own(LOG).await;
    let mut history = History::default();
    history
        .append(log.as_ref(), &[&[("a", Some("one"))], &[("b", Some("one"))]])
        .await
        .unwrap();
    rig.store.checkpoint().await.unwrap();
    let older = tempfile::tempdir().unwrap();
    copy(&rig.dir.path().join("view"), older.path());
    for _ in 0..20 {
        history
            .append(
                log.as_ref(),
                &[&[("a", Some("two"))], &[("b", None), ("c", Some("two"))]],
            )
            .await
            .unwrap();
    }
    rig.store.open(LOG, Role::Own { epoch: Epoch(4) }).await.unwrap();
    rig.store.close().await.unwrap();
    let Rig { dir, disk, store } = rig;
    drop((log, store));
    std::fs::remove_dir_all(dir.path().join("view")).unwrap();
    copy(older.path(), &dir.path().join("view"));
    let store = open(dir.path(), keeping(), &disk).unwrap();
    history.check(store.as_ref()).await;
    assert_eq!(store.list().unwrap()[0].owner, Epoch(4));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
