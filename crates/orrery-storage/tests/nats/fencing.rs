use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use orrery_model::LogId;
use orrery_nats_server::{Cluster, Settings};
use orrery_partition::storage::{StorageError, Store as _};
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{PATIENCE, is_soak, open, own, settings, verified_keys};
use crate::support::write;

const LOG: LogId = LogId(5);
/// Set for the process that plays the owner: where the servers are and where its directory is.
const OWNER_URLS: &str = "ORRERY_TEST_OWNER_URLS";
const OWNER_DIR: &str = "ORRERY_TEST_OWNER_DIR";

/// Not a check of its own: what the process of an owner runs, and nothing where no one asked for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_process() {
    let (Ok(urls), Ok(dir)) = (std::env::var(OWNER_URLS), std::env::var(OWNER_DIR)) else {
        return;
    };
    let urls: Vec<String> = urls.split(',').map(str::to_owned).collect();
    let store = open(&urls, &PathBuf::from(dir), settings("fencing", 3)).await;
    let log = own(&store, LOG, 1).await;
    let mut n = 0;
    let end = loop {
        n += 1;
        let key = format!("old {n}");
        match write(&*log, &[(&key, Some("value"))]).await {
            Ok(_) => say(&format!("acknowledged:{key}")),
            Err(StorageError::Fenced { .. }) => break "fenced",
            Err(error) => say(&format!("trouble:{error}")),
        }
    };
    assert!(matches!(log.barrier().await, Err(StorageError::Fenced { .. })));
    say(end);
    store.close().await.unwrap();
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// An owner in a process of its own, ended with the test.
struct OwnerProcess {
    child: Child,
    lines: Receiver<String>,
}

impl OwnerProcess {
    fn start(urls: &[String], dir: &std::path::Path) -> OwnerProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fencing::owner_process", "--nocapture"])
            .env(OWNER_URLS, urls.join(","))
            .env(OWNER_DIR, dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        OwnerProcess { child, lines }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Keys acknowledged up to the moment `enough` is true of a line.
    fn acknowledged_until(&self, mut enough: impl FnMut(&str, usize) -> bool) -> Vec<String> {
        let mut keys = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the owner says something");
            if let Some(key) = line.strip_prefix("acknowledged:") {
                keys.push(key.to_owned());
            }
            if enough(&line, keys.len()) {
                return keys;
            }
        }
    }
}

impl Drop for OwnerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_stood_still_while_another_took_over_is_fenced() {
    let cluster = Cluster::start(3, &Settings::default()).unwrap();
    let (old_dir, new_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = OwnerProcess::start(&cluster.urls(), old_dir.path());
    let mut acknowledged = old.acknowledged_until(|_, n| n >= 50);
    old.signal(Signal::STOP);

    let store = open(&cluster.urls(), new_dir.path(), settings("fencing", 3)).await;
    let new = own(&store, LOG, 2).await;
    let taken_over_at = new.head();
    for n in 0..20 {
        write(&*new, &[(&format!("new {n}"), Some("value"))]).await.unwrap();
    }
    if is_soak() {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    old.signal(Signal::CONT);
    acknowledged.extend(old.acknowledged_until(|line, _| line == "fenced"));

    // It may have been told of appends that were stored before the claim, and of none after.
    assert_eq!(new.barrier().await, Ok(()));
    let keys = verified_keys(&*new).await;
    let (before, after) = keys.split_at(usize::try_from(taken_over_at.lsn.0).unwrap());
    assert!(before.iter().all(|key| key.starts_with("old ")), "{before:?}");
    assert_eq!(after, (0..20).map(|n| format!("new {n}")).collect::<Vec<_>>());
    let lost: Vec<_> = acknowledged.iter().filter(|key| !before.contains(key)).collect();
    assert!(lost.is_empty(), "lost {lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_stores_that_claim_in_turn_only_the_last_writes() {
    let server = orrery_nats_server::Server::start(&Settings::default()).unwrap();
    let (urls, dirs) = (
        vec![server.url()],
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let first = open(&urls, dirs[0].path(), settings("turns", 1)).await;
    let second = open(&urls, dirs[1].path(), settings("turns", 1)).await;
    let mut epoch = 0;
    for _ in 0..5 {
        for (store, other) in [(&first, &second), (&second, &first)] {
            epoch += 1;
            let before = own(other, LOG, epoch).await;
            epoch += 1;
            let after = own(store, LOG, epoch).await;
            let refused = write(&*before, &[("key", Some("late"))]).await;
            assert!(matches!(refused, Err(StorageError::Fenced { .. })), "{refused:?}");
            assert!(matches!(before.barrier().await, Err(StorageError::Fenced { .. })));
            write(&*after, &[("key", Some("value"))]).await.unwrap();
            assert_eq!(after.barrier().await, Ok(()));
        }
    }
    let log = own(&first, LOG, epoch + 1).await;
    assert_eq!(verified_keys(&*log).await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_comes_back_with_an_equal_epoch_fences_its_former_self() {
    let server = orrery_nats_server::Server::start(&Settings::default()).unwrap();
    let (urls, dirs) = (
        vec![server.url()],
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let former = open(&urls, dirs[0].path(), settings("twins", 1)).await;
    let zombie = own(&former, LOG, 1).await;
    write(&*zombie, &[("key", Some("first"))]).await.unwrap();
    let latter = open(&urls, dirs[1].path(), settings("twins", 1)).await;
    let owner = own(&latter, LOG, 1).await;
    assert_eq!(owner.head(), zombie.head());
    let refused = write(&*zombie, &[("key", Some("late"))]).await;
    assert!(matches!(refused, Err(StorageError::Fenced { .. })), "{refused:?}");
    write(&*owner, &[("key", Some("second"))]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marked_log_is_dropped_only_as_it_was_whatever_is_known_by_then() {
    let server = orrery_nats_server::Server::start(&Settings::default()).unwrap();
    let (urls, dirs) = (
        vec![server.url()],
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let former = open(&urls, dirs[0].path(), settings("marks", 1)).await;
    let latter = open(&urls, dirs[1].path(), settings("marks", 1)).await;
    let is_fenced = |dropped| matches!(dropped, Err(StorageError::Fenced { .. }));
    let nothing = former.mark(LOG).await.unwrap();
    assert_eq!(nothing, None);
    // Made by another.
    let log = own(&latter, LOG, 1).await;
    write(&*log, &[("key", Some("value"))]).await.unwrap();
    former.refresh().await.unwrap();
    assert!(is_fenced(former.drop_marked(LOG, nothing).await));
    // Owned by another, in the same epoch.
    drop(own(&former, LOG, 1).await);
    let mark = former.mark(LOG).await.unwrap();
    let log = own(&latter, LOG, 1).await;
    former.refresh().await.unwrap();
    assert!(is_fenced(former.drop_marked(LOG, mark).await));
    write(&*log, &[("key", Some("later"))]).await.unwrap();
    // What is appended by the owner it was marked with changes nothing.
    let mark = former.mark(LOG).await.unwrap();
    write(&*log, &[("key", Some("last"))]).await.unwrap();
    assert_eq!(former.drop_marked(LOG, mark).await, Ok(()));
    assert_eq!(former.mark(LOG).await, Ok(None));
    assert_eq!(former.drop_marked(LOG, mark).await, Ok(()), "it is gone already");
}
