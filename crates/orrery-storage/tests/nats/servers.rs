use orrery_nats_server::{Server, Settings, Sync};
use orrery_partition::storage::StorageError;
use orrery_storage::nats::servers::{Trust, check_all};

async fn check(settings: &Settings, names_monitor: bool, trust: Trust) -> Result<(), StorageError> {
    let server = Server::start(settings).unwrap();
    let client = async_nats::connect(server.url()).await.unwrap();
    let monitor = server.monitor_url().trim_start_matches("http://").to_owned();
    let monitors = if names_monitor { vec![monitor] } else { Vec::new() };
    check_all(&client, &monitors, trust).await
}

fn refusal(sentence: &str) -> Result<(), StorageError> {
    Err(StorageError::Unavailable(sentence.into()))
}

#[tokio::test]
async fn a_server_as_it_should_be_is_taken() {
    assert_eq!(check(&Settings::default(), true, Trust::Production).await, Ok(()));
}

#[tokio::test]
async fn a_server_that_does_not_sync_is_for_development_only() {
    let settings = Settings {
        sync: Sync::Sometimes,
        ..Settings::default()
    };
    let expected = refusal("n1 acknowledges before it syncs; set sync_interval: always in its jetstream block.");
    assert_eq!(check(&settings, true, Trust::Production).await, expected);
    assert_eq!(check(&settings, true, Trust::Development).await, Ok(()));
}

#[tokio::test]
async fn without_the_monitoring_port_it_is_not_known_whether_a_server_syncs() {
    let expected = refusal("it is not known whether n1 syncs before it acknowledges; name its monitoring port.");
    assert_eq!(check(&Settings::default(), false, Trust::Production).await, expected);
    assert_eq!(check(&Settings::default(), false, Trust::Development).await, Ok(()));
}

#[tokio::test]
async fn a_server_with_a_small_payload_or_without_jetstream_is_refused() {
    let small = Settings {
        max_payload_bytes: 1 << 20,
        ..Settings::default()
    };
    let expected = refusal("n1 takes messages of 1048576 bytes; set its max_payload to 8388608 or more.");
    assert_eq!(check(&small, true, Trust::Development).await, expected);
    let plain = Settings {
        jetstream: false,
        ..Settings::default()
    };
    let expected = refusal("n1 runs without JetStream; enable it in its configuration.");
    assert_eq!(check(&plain, false, Trust::Development).await, expected);
}
