use orrery_model::{LogId, Lsn, Position};
use orrery_nats_server::{Server, Settings};
use orrery_partition::storage::{Log, Role, StorageError, Store as _};

use crate::rig::{open, own, settings, try_open, verified_keys};
use crate::support::{bytes, content, transaction, write};

const LOG: LogId = LogId(5);
const OTHER: LogId = LogId(6);

struct Scene {
    urls: Vec<String>,
    _server: Server,
}

impl Scene {
    fn new() -> Scene {
        let server = Server::start(&Settings::default()).unwrap();
        Scene {
            urls: vec![server.url()],
            _server: server,
        }
    }
}

async fn write_many(log: &dyn Log, n: usize) {
    for idx in 0..n {
        let key = format!("key {}", idx % 17);
        write(log, &[(&key, Some(&format!("value {idx}")))]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_opened_again_stands_where_it_stood() {
    let (scene, dir) = (Scene::new(), tempfile::tempdir().unwrap());
    let store = open(&scene.urls, dir.path(), settings("again", 1)).await;
    let log = own(&store, LOG, 1).await;
    write_many(&*log, 40).await;
    let (head, view) = (log.head(), content(log.snapshot().unwrap().as_ref()));
    store.close().await.unwrap();
    drop((log, store));
    let store = open(&scene.urls, dir.path(), settings("again", 1)).await;
    let log = own(&store, LOG, 2).await;
    assert_eq!((log.head(), content(log.snapshot().unwrap().as_ref())), (head, view));
    write(&*log, &[("more", Some("value"))]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_takes_in_what_another_added() {
    let (scene, dirs) = (
        Scene::new(),
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let first = open(&scene.urls, dirs[0].path(), settings("away", 1)).await;
    write_many(&*own(&first, LOG, 1).await, 30).await;
    first.close().await.unwrap();
    drop(first);
    let second = open(&scene.urls, dirs[1].path(), settings("away", 1)).await;
    let log = own(&second, LOG, 2).await;
    // More than is read message by message.
    write_many(&*log, 150).await;
    write_many(&*own(&second, OTHER, 1).await, 3).await;
    let first = open(&scene.urls, dirs[0].path(), settings("away", 1)).await;
    assert_eq!(first.list().unwrap(), second.list().unwrap());
    let follower = first.open(LOG, Role::Follow).await.unwrap();
    assert_eq!(follower.head(), log.head());
    assert_eq!(
        content(follower.snapshot().unwrap().as_ref()),
        content(log.snapshot().unwrap().as_ref())
    );
    assert_eq!(verified_keys(&*follower).await.len(), 180);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_directory_is_rebuilt_from_a_snapshot_and_the_messages_behind_it() {
    let (scene, dirs) = (
        Scene::new(),
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let store = open(&scene.urls, dirs[0].path(), settings("lost", 1)).await;
    let log = own(&store, LOG, 1).await;
    write_many(&*log, 30).await;
    store.save(LOG).await.unwrap();
    let saved_at = log.head().lsn;
    write_many(&*log, 5).await;
    store.save(LOG).await.unwrap();
    write_many(&*log, 20).await;

    let rebuilt = open(&scene.urls, dirs[1].path(), settings("lost", 1)).await;
    let copy = rebuilt.open(LOG, Role::Follow).await.unwrap();
    assert_eq!(copy.head(), log.head());
    assert_eq!(
        content(copy.snapshot().unwrap().as_ref()),
        content(log.snapshot().unwrap().as_ref())
    );
    // The servers forgot what both snapshots hold.
    let start = Lsn(saved_at.0 + 5);
    assert_eq!(
        copy.read_log(Lsn::ZERO, usize::MAX).await,
        Err(StorageError::Trimmed { start })
    );
    assert_eq!(copy.read_log(start, usize::MAX).await.unwrap().len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_while_its_log_was_trimmed_is_rebuilt() {
    let (scene, dirs) = (
        Scene::new(),
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let first = open(&scene.urls, dirs[0].path(), settings("behind", 1)).await;
    write_many(&*own(&first, LOG, 1).await, 5).await;
    first.close().await.unwrap();
    drop(first);
    let second = open(&scene.urls, dirs[1].path(), settings("behind", 1)).await;
    let log = own(&second, LOG, 2).await;
    write_many(&*log, 30).await;
    second.save(LOG).await.unwrap();
    write_many(&*log, 3).await;
    let first = open(&scene.urls, dirs[0].path(), settings("behind", 1)).await;
    let copy = first.open(LOG, Role::Follow).await.unwrap();
    assert_eq!(copy.head(), log.head());
    assert_eq!(
        content(copy.snapshot().unwrap().as_ref()),
        content(log.snapshot().unwrap().as_ref())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_grew_is_saved_and_trimmed_by_itself() {
    let (scene, dirs) = (
        Scene::new(),
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let mut eager = settings("grown", 1);
    eager.save_after_bytes = 20_000;
    let store = open(&scene.urls, dirs[0].path(), eager).await;
    let log = own(&store, LOG, 1).await;
    write_many(&*log, 400).await;
    // Closing waits for a snapshot that is being saved.
    store.close().await.unwrap();
    let rebuilt = open(&scene.urls, dirs[1].path(), settings("grown", 1)).await;
    let copy = rebuilt.open(LOG, Role::Follow).await.unwrap();
    assert_eq!(
        content(copy.snapshot().unwrap().as_ref()),
        content(log.snapshot().unwrap().as_ref())
    );
    let trimmed = copy.read_log(Lsn::ZERO, usize::MAX).await;
    assert!(matches!(trimmed, Err(StorageError::Trimmed { .. })), "{trimmed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seeded_log_is_there_for_every_node() {
    let (scene, dirs) = (
        Scene::new(),
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let first = open(&scene.urls, dirs[0].path(), settings("seeded", 1)).await;
    let position = transaction(Position::default(), &[("elsewhere", None)]).position();
    let mut seed = first.seed(LOG).await.unwrap();
    let large = bytes(&"x".repeat(3_000_000));
    seed.write(vec![
        (bytes("k/a"), Some(large.clone())),
        (bytes("k/b"), Some(bytes("gone"))),
    ])
    .await
    .unwrap();
    seed.write(vec![(bytes("k/b"), None)]).await.unwrap();
    seed.finish(position).await.unwrap();
    let second = open(&scene.urls, dirs[1].path(), settings("seeded", 1)).await;
    assert_eq!(second.list().unwrap(), first.list().unwrap());
    let log = own(&second, LOG, 1).await;
    assert_eq!(log.head(), position);
    assert_eq!(
        content(log.snapshot().unwrap().as_ref()),
        [(bytes("k/a"), large)].into()
    );
    let refused = first.seed(LOG).await.map(|_| ());
    assert!(matches!(refused, Err(StorageError::Fenced { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_dropped_by_one_node_is_gone_for_all() {
    let (scene, dirs) = (
        Scene::new(),
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let first = open(&scene.urls, dirs[0].path(), settings("dropped", 1)).await;
    let second = open(&scene.urls, dirs[1].path(), settings("dropped", 1)).await;
    let log = own(&first, LOG, 1).await;
    write_many(&*log, 10).await;
    first.save(LOG).await.unwrap();
    second.refresh().await.unwrap();
    second.drop_log(LOG).await.unwrap();
    let refused = write(&*log, &[("key", Some("late"))]).await;
    let gone = Err(StorageError::Fenced {
        actual: Position::default(),
    });
    assert_eq!(refused, gone);
    assert_eq!(first.list().unwrap(), []);
    // Made anew, it has nothing of what it was.
    let anew = own(&first, LOG, 1).await;
    assert_eq!(anew.head(), Position::default());
    write_many(&*anew, 2).await;
    second.refresh().await.unwrap();
    let copy = second.open(LOG, Role::Follow).await.unwrap();
    assert_eq!(verified_keys(&*copy).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_more_than_the_servers_have_is_not_opened() {
    let (scene, other, dir) = (Scene::new(), Scene::new(), tempfile::tempdir().unwrap());
    let store = open(&scene.urls, dir.path(), settings("more", 1)).await;
    write_many(&*own(&store, LOG, 1).await, 3).await;
    store.close().await.unwrap();
    drop(store);
    let refused = try_open(&other.urls, dir.path(), settings("more", 1)).await.map(|_| ());
    assert!(matches!(refused, Err(StorageError::Corrupt(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_near_the_limit_of_a_message_is_stored_and_one_beyond_is_refused() {
    let (scene, dirs) = (
        Scene::new(),
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
    );
    let store = open(&scene.urls, dirs[0].path(), settings("large", 1)).await;
    let log = own(&store, LOG, 1).await;
    let position = write(&*log, &[("key", Some(&"x".repeat(8_000_000)))]).await.unwrap();
    let refused = write(&*log, &[("key", Some(&"x".repeat(9_000_000)))]).await;
    assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
    assert_eq!(log.head(), position);
    let second = open(&scene.urls, dirs[1].path(), settings("large", 1)).await;
    assert_eq!(second.open(LOG, Role::Follow).await.unwrap().head(), position);
}
