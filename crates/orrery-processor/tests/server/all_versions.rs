//! Units of all versions and deletes over partitions that split and merge, with a process that is killed.

use std::collections::BTreeSet;

use orrery_processor::StartFrom;
use orrery_processor::lease::FeedMode;
use orrery_processor::pull::Puller;
use orrery_processor::range::EpkRange;

use crate::library::feed;
use crate::moving::assert_tiled;
use crate::process::Process;
use crate::scene::{Scene, until};

const N_ITEMS: usize = 30;
const MODE: FeedMode = FeedMode::AllVersionsAndDeletes;

/// A change as a reader or a host tells it: key, id, LSN and what happened.
type Seen = BTreeSet<(String, String, u64, String)>;

fn delivered(scene: &Scene) -> Seen {
    let notes = scene.notes().into_iter();
    notes
        .map(|note| {
            let (key, id, lsn) = note.version();
            (key, id, lsn, note.operation)
        })
        .collect()
}

/// Everything after where the reader stands.
async fn pulled(puller: &mut Puller) -> Seen {
    let mut seen = Seen::new();
    while let Some(page) = puller.next().await.unwrap() {
        seen.extend(page.changes.iter().map(|change| {
            let (key, id) = (change.key(&["/pk".to_owned()]), change.id().unwrap().to_owned());
            let operation = format!("{:?}", change.metadata.operation);
            (key, id, change.metadata.lsn.unwrap(), operation)
        }));
    }
    seen
}

/// Two versions of every item, and then some are deleted.
async fn write_and_delete(scene: &Scene, round: usize) {
    scene.write(N_ITEMS).await;
    scene.write(N_ITEMS).await;
    for number in (round..N_ITEMS).step_by(5) {
        let (key, id) = (format!("key-item{number}"), format!("item{number}"));
        scene.orders.delete_item(key, &id, None).await.unwrap();
    }
}

async fn started(scene: &Scene, name: &str) -> Process {
    let settings = [("MODE", "all-versions"), ("MAX_ITEMS", "10"), ("DELAY_MS", "20")];
    scene.started_with(name, &settings).await
}

#[tokio::test]
async fn every_version_and_delete_arrives_through_a_split_a_merge_and_a_kill() {
    let scene = Scene::new(2).await;
    let mut victim = started(&scene, "victim").await;
    let _other = started(&scene, "other").await;
    scene.until_shares(&[("other", 1), ("victim", 1)]).await;
    let whole = EpkRange::full();
    let mut puller = Puller::start(feed(&scene), whole, StartFrom::Now, MODE).await.unwrap();
    write_and_delete(&scene, 0).await;
    scene.split(scene.partitions()[0]);
    write_and_delete(&scene, 1).await;
    let partitions = scene.partitions();
    // The right child of the split and its neighbour: not what was one before.
    scene.merge(partitions[1], partitions[2]);
    let n_before = scene.notes().len();
    write_and_delete(&scene, 2).await;
    until("they are at work", || scene.notes().len() > n_before).await;
    victim.kill();
    write_and_delete(&scene, 3).await;
    let expected = pulled(&mut puller).await;
    assert_eq!(
        expected.len(),
        4 * (2 * N_ITEMS + N_ITEMS / 5),
        "the feed itself is complete"
    );
    until("everything is delivered", || delivered(&scene).len() == expected.len()).await;
    assert_eq!(delivered(&scene), expected);
    scene.assert_in_order();
    assert_tiled(&scene, 3).await;
    let n_repeated = scene.repeated_batches().values().map(BTreeSet::len).sum::<usize>();
    assert!(
        n_repeated <= 3,
        "a batch of each lease of the killed one: {:?}",
        scene.repeated_batches()
    );
}
