//! What nodes tell each other: requests with answers of any size, and records that only one writer replaces.

use std::time::Duration;

use bytes::Bytes;
use orrery_nats_server::{Server, Settings};
use orrery_storage::NatsSettings;
use orrery_storage::nats::calls::{self, Answerer, Caller, Silence};
use orrery_storage::nats::roster::{Roster, Written};

const PATIENCE: Duration = Duration::from_secs(30);
/// Two and a half messages.
const LARGE_BYTES: usize = 20 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_larger_than_a_message_arrives_whole() {
    let server = Server::start(&Settings::default()).unwrap();
    let urls = [server.url()];
    let client = calls::connect(&urls).await.unwrap();
    let mut answerer = Answerer::listen(client, "orrery.test.call.a").await.unwrap();
    let caller = Caller::new(calls::connect(&urls).await.unwrap()).await.unwrap();
    let answering = tokio::spawn(async move {
        while let Some(call) = answerer.next().await {
            let n_bytes: usize = std::str::from_utf8(&call.request).unwrap().parse().unwrap();
            call.answer(vec![7; n_bytes].into()).await;
        }
    });
    for n_bytes in [0, 1, LARGE_BYTES] {
        let request = Bytes::from(n_bytes.to_string());
        let answer = caller.ask("orrery.test.call.a", request, PATIENCE).await.unwrap();
        assert_eq!(answer.len(), n_bytes);
        assert!(answer.iter().all(|byte| *byte == 7));
    }
    answering.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_nobody_is_told_at_once_and_silence_is_not_waited_for_longer_than_wished() {
    let server = Server::start(&Settings::default()).unwrap();
    let urls = [server.url()];
    let client = calls::connect(&urls).await.unwrap();
    let caller = Caller::new(client.clone()).await.unwrap();
    let nobody = caller.ask("orrery.test.call.none", Bytes::new(), PATIENCE).await;
    assert_eq!(nobody, Err(Silence::NobodyThere));
    let _mute = Answerer::listen(client, "orrery.test.call.mute").await.unwrap();
    let lost = caller.ask("orrery.test.call.mute", Bytes::new(), Duration::from_millis(100));
    assert_eq!(lost.await, Err(Silence::Lost));
    let too_large = Bytes::from(vec![0; LARGE_BYTES]);
    let refused = caller.ask("orrery.test.call.mute", too_large, PATIENCE).await;
    assert_eq!(refused, Err(Silence::TooLarge));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_replaced_only_by_who_knows_it() {
    let server = Server::start(&Settings::default()).unwrap();
    let client = calls::connect(&[server.url()]).await.unwrap();
    let settings = NatsSettings {
        replicas: 1,
        ..NatsSettings::new("here")
    };
    let one = Roster::open(client.clone(), &settings, PATIENCE).await.unwrap();
    let other = Roster::open(client, &settings, PATIENCE).await.unwrap();
    assert!(one.get("lease").await.unwrap().is_none());
    let Written::Stored(first) = one.write("lease", "a".into(), None).await else {
        panic!("there is none yet")
    };
    assert_eq!(other.write("lease", "b".into(), None).await, Written::Refused);
    let Written::Stored(second) = other.write("lease", "b".into(), Some(first)).await else {
        panic!("it is known")
    };
    assert_eq!(one.write("lease", "c".into(), Some(first)).await, Written::Refused);
    let found = one.get("lease").await.unwrap().unwrap();
    assert_eq!((found.value.as_ref(), found.revision), (b"b".as_ref(), second));

    one.put("node.x", "1".into()).await.unwrap();
    one.put("node.y", "2".into()).await.unwrap();
    one.remove("node.x").await.unwrap();
    let listed = other.below("node").await.unwrap();
    let keys: Vec<&str> = listed.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["node.y"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_was_removed_can_be_written_again_as_if_it_had_never_been() {
    let server = Server::start(&Settings::default()).unwrap();
    let client = calls::connect(&[server.url()]).await.unwrap();
    let settings = NatsSettings {
        replicas: 1,
        ..NatsSettings::new("here")
    };
    let roster = Roster::open(client.clone(), &settings, PATIENCE).await.unwrap();
    let Written::Stored(first) = roster.write("tenure.x", "a".into(), None).await else {
        panic!("there is none yet")
    };
    let Written::Stored(second) = roster.write("tenure.x", "b".into(), Some(first)).await else {
        panic!("it is known")
    };
    assert!(
        !roster.remove_version("tenure.x", first).await.unwrap(),
        "it is another by now"
    );
    assert_eq!(roster.get("tenure.x").await.unwrap().unwrap().revision, second);
    assert!(roster.remove_version("tenure.x", second).await.unwrap());
    assert!(roster.get("tenure.x").await.unwrap().is_none());
    assert_eq!(
        roster.write("tenure.x", "c".into(), Some(second)).await,
        Written::Refused
    );
    assert!(matches!(
        roster.write("tenure.x", "c".into(), None).await,
        Written::Stored(_)
    ));
    // A tool leaves a sign where it removes something.
    let bucket = async_nats::jetstream::new(client)
        .get_key_value("ORRERY_here_cluster")
        .await
        .unwrap();
    bucket.put("lease", "a".into()).await.unwrap();
    bucket.delete("lease").await.unwrap();
    assert!(roster.get("lease").await.unwrap().is_none());
    assert!(matches!(
        roster.write("lease", "b".into(), None).await,
        Written::Stored(_)
    ));
    assert_eq!(roster.write("lease", "c".into(), None).await, Written::Refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_not_under_way_is_given_up_and_one_that_is_may_take_its_time() {
    let server = Server::start(&Settings::default()).unwrap();
    let client = calls::connect(&[server.url()]).await.unwrap();
    let mut answerer = Answerer::listen(client.clone(), "orrery.call.n").await.unwrap();
    let caller = Caller::new(calls::connect(&[server.url()]).await.unwrap())
        .await
        .unwrap();
    client.flush().await.unwrap();
    let patience = Duration::from_secs(600);
    let ask = |what: &'static str| caller.ask("orrery.call.n", Bytes::from_static(what.as_bytes()), patience);
    // As if the answer was lost on its way: whoever took it knows nothing of it any more.
    let (lost, ()) = tokio::join!(ask("lost"), async { drop(answerer.next().await) });
    assert_eq!(lost, Err(Silence::Lost));
    let (answer, ()) = tokio::join!(ask("slow"), async {
        let call = answerer.next().await.unwrap();
        // Longer than it takes to be asked about.
        tokio::time::sleep(Duration::from_secs(5)).await;
        call.answer(Bytes::from_static(b"here")).await;
    });
    assert_eq!(answer.unwrap(), "here");
}
