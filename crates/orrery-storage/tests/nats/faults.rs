use orrery_nats_server::{Cluster, Server, Settings};

use crate::rig::{PATIENCE, Writers, is_soak, open, settings, verify};

/// Appends between two faults.
const STEP: usize = 200;

fn n_rounds() -> usize {
    if is_soak() { 30 } else { 2 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_appends_loses_nothing_acknowledged() {
    let mut server = Server::start(&Settings::default()).unwrap();
    let (urls, dir) = (vec![server.url()], tempfile::tempdir().unwrap());
    let store = open(&urls, dir.path(), settings("alone", 1)).await;
    let writers = Writers::start(&store, 4).await;
    for _ in 0..n_rounds() {
        writers.progress(STEP).await;
        server.restart().unwrap();
    }
    writers.progress(STEP).await;
    verify(&urls, settings("alone", 1), writers.stop().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::start(3, &Settings::default()).unwrap();
    let (urls, dir) = (cluster.urls(), tempfile::tempdir().unwrap());
    let store = open(&urls, dir.path(), settings("leader", 3)).await;
    let writers = Writers::start(&store, 4).await;
    for _ in 0..n_rounds() {
        writers.progress(STEP).await;
        let leader = leader_of(&urls, "ORRERY_leader_1").await;
        cluster.named(&leader).unwrap().kill();
        // The other two go on without it.
        writers.progress(STEP).await;
        cluster.restart_all().unwrap();
    }
    verify(&urls, settings("leader", 3), writers.stop().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_servers_killed_at_once_come_back_with_everything_acknowledged() {
    let mut cluster = Cluster::start(3, &Settings::default()).unwrap();
    let (urls, dir) = (cluster.urls(), tempfile::tempdir().unwrap());
    let store = open(&urls, dir.path(), settings("all", 3)).await;
    let writers = Writers::start(&store, 4).await;
    for _ in 0..n_rounds() {
        writers.progress(STEP).await;
        cluster.kill_all();
        cluster.restart_all().unwrap();
    }
    writers.progress(STEP).await;
    verify(&urls, settings("all", 3), writers.stop().await).await;
}

/// The server that leads a stream, once one does.
async fn leader_of(urls: &[String], stream: &str) -> String {
    let jetstream = async_nats::jetstream::new(async_nats::connect(urls.to_vec()).await.unwrap());
    let asking = async {
        loop {
            let found = jetstream.get_stream(stream).await;
            let cluster = found.ok().and_then(|found| found.cached_info().cluster.clone());
            if let Some(leader) = cluster.and_then(|cluster| cluster.leader) {
                return leader;
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .expect("the stream has a leader")
}
