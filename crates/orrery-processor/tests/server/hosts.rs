//! Host processes that come and go in peace.

use azure_data_cosmos::models::ContainerProperties;
use serde_json::json;

use crate::scene::{KEY, Scene, until};

#[tokio::test]
async fn three_processes_share_twelve_leases_and_a_graceful_stop_repeats_nothing() {
    let scene = Scene::new(12).await;
    scene.write(100).await;
    let mut hosts = vec![scene.started("a").await];
    scene.until_shares(&[("a", 12)]).await;
    hosts.push(scene.started("b").await);
    scene.until_shares(&[("a", 6), ("b", 6)]).await;
    hosts.push(scene.started("c").await);
    scene.until_shares(&[("a", 4), ("b", 4), ("c", 4)]).await;
    scene.write(100).await;
    scene.until_complete().await;
    let mut leaving = hosts.remove(1);
    leaving.signal("TERM");
    until("b ends", || leaving.has_ended()).await;
    assert!(leaving.printed("stopped []"));
    scene.until_shares(&[("a", 6), ("c", 6)]).await;
    scene.write(100).await;
    scene.until_complete().await;
    assert!(scene.ledger().repeated().is_empty(), "{:?}", scene.ledger().repeated());
}

#[tokio::test]
async fn all_versions_and_deletes_reach_a_process() {
    let scene = Scene::new(2).await;
    let host = scene.host_with("a", &[("MODE", "all-versions")]);
    until("the host is ready", || host.printed("ready")).await;
    for _ in 0..3 {
        scene.write_one("x".into()).await;
    }
    scene.orders.delete_item("key-x", "x", None).await.unwrap();
    until("every version arrives", || scene.ledger().len() == 4).await;
    let lsns: Vec<u64> = scene
        .ledger()
        .deliveries()
        .iter()
        .map(|delivery| delivery.lsn)
        .collect();
    assert!(
        lsns.is_sorted() && scene.ledger().deliveries().iter().all(|one| one.id == "x"),
        "{lsns:?}"
    );
}

#[tokio::test]
async fn the_lease_container_may_be_in_another_account() {
    let scene = Scene::new(2).await;
    let other = Scene::new(1).await;
    let rotated = other.administer("POST", "/_orrery/v1/keys/primary/rotate", &json!({}));
    let key = rotated["key"].as_str().unwrap();
    let about = ("colls", "dbs/shop/colls/leases");
    let (head, _) = other.request("GET", "/dbs/shop/colls/leases", about, "", "");
    assert!(
        head.starts_with("HTTP/1.1 401"),
        "the monitored account's key opens nothing there: {head}"
    );
    scene.write(20).await;
    let settings = [("LEASE_ENDPOINT", other.server.endpoint.as_str()), ("LEASE_KEY", key)];
    let _host = scene.started_with("a", &settings).await;
    scene.until_complete().await;
    let database = other.server.client_apart(key).await.database_client("shop");
    let leases = database.container_client("leases", None).await.unwrap();
    assert_eq!(
        (scene.stored().await.len(), Scene::stored_in(&leases).await.len()),
        (0, 2)
    );
}

#[tokio::test]
async fn a_hundred_and_twenty_eight_leases_are_shared_by_four_processes_within_three_cycles() {
    let scene = Scene::new(8).await;
    let per_look = scene.queries_per_look().await;
    let settings = [
        ("LEASES_PER_PARTITION", "16"),
        ("ACQUIRE_MS", "3000"),
        ("RENEW_MS", "4000"),
        ("EXPIRY_MS", "15000"),
    ];
    scene.write(100).await;
    let first = scene.host_with("a", &settings);
    until("the first host is ready", || first.printed("ready")).await;
    scene.until_shares(&[("a", 128)]).await;
    let others: Vec<_> = ["b", "c", "d"].map(|name| scene.host_with(name, &settings)).into();
    until("the others are ready", || {
        others.iter().all(|host| host.printed("ready"))
    })
    .await;
    let n_before = scene.requests("query_items");
    until("each of the others has its share", || {
        others.iter().all(|host| host.n_printed("LeaseAcquired") >= 32)
    })
    .await;
    // Looks of all four together: a busy machine makes them rarer, and no more of them necessary. Each may have begun one more
    // before what was acquired showed.
    let n_looks = (scene.requests("query_items") - n_before).div_ceil(per_look);
    assert!(n_looks <= 4 * 3 + 4, "{n_looks}");
    scene.until_shares(&[("a", 32), ("b", 32), ("c", 32), ("d", 32)]).await;
    scene.write(100).await;
    scene.until_complete().await;
    assert!(scene.ledger().repeated().is_empty(), "{:?}", scene.ledger().repeated());
}

#[tokio::test]
async fn a_process_without_a_lease_does_not_read_the_container_and_takes_over_when_the_worker_is_killed() {
    let scene = Scene::new(1).await;
    let per_look = scene.queries_per_look().await;
    let settings = [("EXPIRY_MS", "6000")];
    let mut worker = scene.started_with("worker", &settings).await;
    let _idle = scene.started_with("idle", &settings).await;
    scene.write(20).await;
    scene.until_complete().await;
    scene.until_shares(&[("worker", 1)]).await;
    // While the worker stands still, whatever is read is read by the other one.
    scene.freeze("worker", &worker);
    let looks = || scene.requests("query_items") / per_look;
    let n_before = looks();
    until("what was under way is over", || looks() > n_before).await;
    let n_reads = scene.requests("change_feed");
    until("the idle one has looked again and again", || looks() > n_before + 4).await;
    assert_eq!(scene.requests("change_feed"), n_reads);
    worker.kill();
    scene.write(20).await;
    scene.until_shares(&[("idle", 1)]).await;
    scene.until_complete().await;
    scene.assert_at_most_a_batch_of_each_lease_came_again();
}

#[tokio::test]
async fn a_container_made_again_ends_its_unit_and_a_new_start_makes_other_leases() {
    let mut scene = Scene::new(2).await;
    scene.write(10).await;
    let mut host = scene.started("a").await;
    scene.until_complete().await;
    let before = scene.lease_ids().await;
    scene.orders.delete(None).await.unwrap();
    let database = scene.client.database_client("shop");
    let properties = ContainerProperties::new("orders", "/pk".into());
    database.create_container(properties, None).await.unwrap();
    until("the host ends", || host.has_ended()).await;
    assert_eq!(host.n_printed("SourceGone"), 1);
    scene.client = scene.server.client_apart(KEY).await;
    let database = scene.client.database_client("shop");
    scene.orders = database.container_client("orders", None).await.unwrap();
    let new: Vec<String> = (0..10).map(|number| format!("new{number}")).collect();
    for id in &new {
        scene.write_one(id.clone()).await;
    }
    let _again = scene.started("a").await;
    until("the new container's items arrive", || {
        let seen = scene.ledger().latest();
        new.iter().all(|id| seen.keys().any(|(_, item)| item == id))
    })
    .await;
    let after = scene.lease_ids().await;
    assert_eq!((before.len(), after.len()), (2, 4));
    assert!(after.is_superset(&before), "what the old unit left is not touched");
}

#[tokio::test]
async fn of_two_processes_with_one_name_the_older_ends_and_says_so() {
    let scene = Scene::new(4).await;
    let mut older = scene.started("twin").await;
    scene.write(20).await;
    scene.until_complete().await;
    let newer = scene.started("twin").await;
    until("the older one ends", || older.has_ended()).await;
    assert_eq!(older.n_printed("DuplicateInstance"), 1);
    scene.write(20).await;
    scene.until_complete().await;
    assert!(!newer.printed("DuplicateInstance"));
    scene.until_shares(&[("twin", 4)]).await;
    let mut alike = scene.host("Twin");
    until("a name that differs in case only is refused", || alike.has_ended()).await;
    assert!(!alike.printed("ready"));
}
