//! Dead letters in a container, many of them, over several partitions.

use std::sync::Mutex;

use azure_data_cosmos::models::ContainerProperties;
use futures::StreamExt as _;
use orrery_processor::dead_letters::{ContainerDeadLetters, DeadLetter, DeadLetterStore as _, replay};

use crate::scene::Scene;

fn letter(key: &str, lsn: u64) -> DeadLetter {
    DeadLetter {
        id: format!("{key}-{lsn}"),
        processor: "unit".into(),
        source: "c".into(),
        lease_token: "-FF".into(),
        epoch: 1,
        range: None,
        key: key.into(),
        item_id: None,
        lsn: Some(lsn),
        index: 0,
        committed_at: None,
        operation: None,
        parked: lsn > 0,
        attempts: 1,
        first_failed_at: None,
        failed_at: String::new(),
        error: String::new(),
        current: None,
        previous: None,
    }
}

#[tokio::test]
async fn more_letters_than_fit_into_a_page_are_replayed_in_the_order_of_their_keys() {
    const N: u64 = 1_200;
    let scene = Scene::new(3).await;
    let database = scene.client.database_client("shop");
    let by_id = ContainerProperties::new("letters-by-id", "/id".into());
    database.create_container(by_id, None).await.unwrap();
    let container = database.container_client("letters-by-id", None).await.unwrap();
    let letters = ContainerDeadLetters::new(container);
    // Written backwards, and the last ones of all first.
    let of_keys = (0..N).rev().map(|lsn| letter("busy", lsn));
    let written: Vec<DeadLetter> = of_keys.chain((0..20).map(|lsn| letter("stuck", lsn))).collect();
    let puts = futures::stream::iter(&written).map(|letter| letters.put(letter));
    puts.buffer_unordered(16).for_each(|put| async { put.unwrap() }).await;
    let first = letters.list("unit", 500).await.unwrap();
    let lsns: Vec<u64> = first.iter().filter_map(|letter| letter.lsn).collect();
    assert_eq!(lsns, (0..500).collect::<Vec<_>>());
    let seen = Mutex::new(Vec::new());
    let handle = |letter: DeadLetter| {
        let is_stuck = letter.key == "stuck";
        if !is_stuck {
            seen.lock().unwrap().push(letter.lsn.unwrap());
        }
        async move { if is_stuck { Err("still bad") } else { Ok(()) } }
    };
    // Every other one stays.
    let wanted = |letter: &DeadLetter| letter.key == "stuck" || letter.lsn.unwrap().is_multiple_of(2);
    let done = replay(&letters, "unit", wanted, handle).await.unwrap();
    assert_eq!((done.handled as u64, done.failed.len()), (N / 2, 1));
    let even: Vec<u64> = (0..N).step_by(2).collect();
    assert_eq!(seen.into_inner().unwrap(), even);
    assert_eq!(letters.list("unit", 5_000).await.unwrap().len() as u64, N / 2 + 20);
}
