use serde_json::{Value, json};

use super::{ALL, ENVELOPED, LATEST, NOW, Shop, lsn};
use crate::client::PATIENCE;

/// What all versions look like to a reader who began before anything happened.
async fn everything(shop: &Shop, start: &str) -> Vec<Value> {
    shop.drain(&[ALL, ENVELOPED, ("if-none-match", start)]).await.0
}

async fn start(shop: &Shop) -> String {
    let page = shop.read(&[ALL, ENVELOPED, NOW]).await;
    assert_eq!(page.status, 304, "{:?}", page.answer);
    page.token().to_owned()
}

fn operation(change: &Value) -> &str {
    change["metadata"]["operationType"].as_str().unwrap()
}

#[tokio::test]
async fn every_version_is_an_entry_in_the_order_in_which_it_was_written() {
    let shop = Shop::keeping().await;
    let start = start(&shop).await;
    shop.create("a", "1", 0).await;
    for n in 1..=5 {
        shop.upsert("a", "1", n).await;
    }
    let changes = everything(&shop, &start).await;
    let seen: Vec<_> = changes
        .iter()
        .map(|change| (operation(change), &change["current"]["n"]))
        .collect();
    assert_eq!(seen[0], ("create", &json!(0)));
    for n in 1..=5 {
        assert_eq!(seen[n], ("replace", &json!(n)));
        assert_eq!(changes[n]["previous"], changes[n - 1]["current"]);
        assert_eq!(
            changes[n]["metadata"]["previousImageLSN"],
            changes[n - 1]["metadata"]["lsn"]
        );
        assert!(lsn(&changes[n]) > lsn(&changes[n - 1]));
    }
    assert_eq!(
        (changes.len(), &changes[0]["metadata"]["previousImageLSN"]),
        (6, &json!(0))
    );
    assert!(changes[0].get("previous").is_none() && changes[0]["metadata"]["crts"].as_u64().unwrap() > 0);
    assert_eq!(shop.drain(&[LATEST]).await.0.len(), 1, "the other mode is as it was");
}

#[tokio::test]
async fn a_delete_is_an_entry_with_an_empty_item_and_its_identity() {
    let shop = Shop::keeping().await;
    let start = start(&shop).await;
    shop.create("a", "1", 7).await;
    shop.delete("a", "1").await;
    let changes = everything(&shop, &start).await;
    assert_eq!(changes.iter().map(operation).collect::<Vec<_>>(), ["create", "delete"]);
    let delete = &changes[1];
    assert_eq!(delete["current"], json!({}));
    assert_eq!(delete["previous"]["n"], 7);
    let metadata = &delete["metadata"];
    assert_eq!(
        (&metadata["id"], &metadata["partitionKey"]),
        (&json!("1"), &json!({"pk": "a"}))
    );
    assert_eq!(metadata["previousImageLSN"], changes[0]["metadata"]["lsn"]);
    assert_eq!(metadata["timeToLiveExpired"], false);
}

#[tokio::test]
async fn an_item_that_expires_is_deleted_with_a_mark_once_it_is_purged() {
    let shop = Shop::open(json!({"defaultTtl": 5, "changeFeedPolicy": {"retentionDuration": 10}})).await;
    let start = start(&shop).await;
    shop.create("a", "1", 0).await;
    shop.clock.advance_ms(6_000);
    let purged = async {
        loop {
            let changes = everything(&shop, &start).await;
            if changes.len() == 2 {
                return changes;
            }
            tokio::task::yield_now().await;
        }
    };
    let changes = tokio::time::timeout(PATIENCE, purged)
        .await
        .expect("the item is purged");
    assert_eq!(operation(&changes[1]), "delete");
    assert_eq!(changes[1]["metadata"]["timeToLiveExpired"], true);
    assert_eq!(changes[1]["metadata"]["id"], "1");
}

#[tokio::test]
async fn creating_over_an_expired_item_is_its_deletion_and_a_creation_in_one_transaction() {
    let shop = Shop::open(json!({"defaultTtl": -1, "changeFeedPolicy": {"retentionDuration": 10}})).await;
    let start = start(&shop).await;
    shop.write("a", &json!({"id": "1", "pk": "a", "ttl": 5}), false).await;
    // Between the two the item may be purged; then the deletion stands in a transaction of its own.
    shop.clock.advance_ms(6_000);
    shop.create("a", "1", 2).await;
    let changes = everything(&shop, &start).await;
    assert_eq!(
        changes.iter().map(operation).collect::<Vec<_>>(),
        ["create", "delete", "create"]
    );
    assert_eq!(changes[1]["metadata"]["timeToLiveExpired"], true);
    assert_eq!(changes[2]["metadata"]["previousImageLSN"], 0);
    assert!(lsn(&changes[1]) <= lsn(&changes[2]));
}

#[tokio::test]
async fn batches_patches_and_the_deletion_of_a_key_are_recorded_operation_by_operation() {
    let shop = Shop::keeping().await;
    let start = start(&shop).await;
    let batch = json!([
        {"operationType": "Create", "resourceBody": {"id": "1", "pk": "a", "n": 1}},
        {"operationType": "Upsert", "resourceBody": {"id": "1", "pk": "a", "n": 2}},
        {"operationType": "Create", "resourceBody": {"id": "2", "pk": "a"}},
        {"operationType": "Delete", "id": "2"},
    ]);
    assert_eq!(shop.batch("a", &batch).await, 200);
    let patch = json!({"operations": [{"op": "incr", "path": "/n", "value": 5}]});
    shop.on_item("PATCH", "a", "1", &patch).await;
    let sweep = super::with(
        crate::client::signed(
            "POST",
            &format!("/{}/operations/partitionkeydelete", super::CONTAINER),
            "colls",
            super::CONTAINER,
            "",
        ),
        &[("x-ms-documentdb-partitionkey", "[\"a\"]")],
    );
    let answer = crate::client::send(shop.server.address, sweep).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let changes = everything(&shop, &start).await;
    let kinds: Vec<&str> = changes.iter().map(operation).collect();
    assert_eq!(kinds, ["create", "replace", "create", "delete", "replace", "delete"]);
    assert!(changes[..4].iter().all(|change| lsn(change) == lsn(&changes[0])));
    assert_eq!(
        (&changes[4]["current"]["n"], &changes[5]["previous"]["n"]),
        (&json!(7), &json!(7))
    );
}

#[tokio::test]
async fn all_versions_start_now_or_from_a_token_within_the_window() {
    let shop = Shop::keeping().await;
    let token = start(&shop).await;
    shop.create("a", "1", 0).await;
    let date = shop.http_date(-10);
    assert_eq!(shop.read(&[ALL, ENVELOPED]).await.status, 400);
    assert_eq!(
        shop.read(&[ALL, ENVELOPED, ("if-modified-since", &date)]).await.status,
        400
    );
    shop.clock.advance_ms(9 * 60_000);
    assert_eq!(everything(&shop, &token).await.len(), 1);
    shop.clock.advance_ms(2 * 60_000);
    let late = shop.read(&[ALL, ENVELOPED, ("if-none-match", &token)]).await;
    assert_eq!(
        (late.status, late.answer.json()["code"].as_str().unwrap()),
        (400, "BadRequest")
    );
    let fresh = start(&shop).await;
    assert_eq!(everything(&shop, &fresh).await.len(), 0, "a reader who kept up goes on");
    assert_eq!(shop.drain(&[LATEST, ("if-none-match", &token)]).await.0.len(), 1);
}

#[tokio::test]
async fn a_container_without_a_policy_has_no_feed_of_all_versions_until_it_gets_one() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 0).await;
    let refused = shop.read(&[ALL, ENVELOPED, NOW]).await;
    assert_eq!(refused.status, 400, "{:?}", refused.answer);
    let before = shop.read(&[LATEST, NOW]).await.token().to_owned();
    shop.create("a", "2", 0).await;
    shop.redefine("changeFeedPolicy", json!({"retentionDuration": 10}))
        .await;
    let vanished = shop.read(&[ALL, ENVELOPED, ("if-none-match", &before)]).await;
    assert_eq!(vanished.status, 400, "nothing was kept then");
    let start = start(&shop).await;
    shop.upsert("a", "1", 1).await;
    let changes = everything(&shop, &start).await;
    assert_eq!(
        (changes.len(), operation(&changes[0]), &changes[0]["previous"]["n"]),
        (1, "replace", &json!(0))
    );
    shop.redefine("changeFeedPolicy", json!({"retentionDuration": 0})).await;
    assert_eq!(shop.read(&[ALL, ENVELOPED, NOW]).await.status, 400);
    shop.redefine("changeFeedPolicy", json!({"retentionDuration": 5})).await;
    let across = shop.read(&[ALL, ENVELOPED, ("if-none-match", &start)]).await;
    assert_eq!(across.status, 400, "what happened in between was not kept");
}

#[tokio::test]
async fn a_delete_under_a_hierarchical_key_lists_every_level_and_prefixes_can_be_read() {
    let key = json!({"paths": ["/tenant", "/user"], "kind": "MultiHash", "version": 2});
    let shop = Shop::open_keyed(key, json!({"changeFeedPolicy": {"retentionDuration": 10}})).await;
    let start = start(&shop).await;
    for (tenant, user) in [("t", 7), ("t", 8), ("u", 7)] {
        let item = json!({"id": "1", "tenant": tenant, "user": user});
        let header = json!([tenant, user]).to_string();
        let headers = [("x-ms-documentdb-partitionkey", header.as_str())];
        let created = shop.post(super::CONTAINER, "docs", &item, &headers).await;
        assert_eq!(created.status, 201, "{created:?}");
    }
    let link = format!("{}/docs/1", super::CONTAINER);
    let delete = crate::client::signed("DELETE", &format!("/{link}"), "docs", &link, "");
    let delete = super::with(delete, &[("x-ms-documentdb-partitionkey", "[\"t\",7]")]);
    assert_eq!(crate::client::send(shop.server.address, delete).await.status, 204);
    let changes = everything(&shop, &start).await;
    assert_eq!(
        changes[3]["metadata"]["partitionKey"],
        json!({"tenant": "t", "user": 7})
    );
    let prefix = [LATEST, ("x-ms-documentdb-partitionkey", "[\"t\"]")];
    assert_eq!(shop.drain(&prefix).await.0.len(), 1);
    shop.split(0).await;
    assert_eq!(shop.drain(&prefix).await.0.len(), 1);
    let all = [
        ALL,
        ENVELOPED,
        ("if-none-match", start.as_str()),
        ("x-ms-documentdb-partitionkey", "[\"t\",7]"),
    ];
    assert_eq!(shop.drain(&all).await.0.len(), 2);
}

#[tokio::test]
async fn without_the_envelope_versions_carry_their_metadata_inside() {
    let shop = Shop::keeping().await;
    let start = start(&shop).await;
    shop.create("a", "1", 0).await;
    shop.delete("a", "1").await;
    let changes = shop.drain(&[ALL, ("if-none-match", &start)]).await.0;
    let kinds: Vec<_> = changes
        .iter()
        .map(|change| &change["_metadata"]["operationType"])
        .collect();
    assert_eq!(kinds, ["create", "delete"]);
    assert!(
        changes
            .iter()
            .all(|change| change["id"] == "1" && change["_lsn"].is_u64())
    );
}
