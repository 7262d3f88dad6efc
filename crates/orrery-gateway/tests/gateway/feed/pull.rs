use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ALL, ENVELOPED, LATEST, NOW, Shop, ids};
use crate::client::{send, signed};

const RANGE: &str = "x-ms-documentdb-partitionkeyrangeid";

/// Writes one item under each of 16 keys.
async fn round(shop: &Shop, n: i64) {
    for key in 0..16 {
        shop.upsert(&format!("k{key}"), "1", n).await;
    }
}

/// The reads of a container's partitions, each by its number.
async fn of_partitions(shop: &Shop, partitions: &[u64], token: &str) -> Vec<(Vec<Value>, String)> {
    let mut found = Vec::new();
    for partition in partitions {
        let id = partition.to_string();
        let headers = [LATEST, (RANGE, id.as_str()), ("if-none-match", token)];
        found.push(shop.drain(&headers).await);
    }
    found
}

/// How often each key was seen with each value.
fn tally<'a>(changes: impl IntoIterator<Item = &'a Value>) -> BTreeMap<(String, i64), usize> {
    let mut tally = BTreeMap::new();
    for change in changes {
        let change = change.get("current").unwrap_or(change);
        let key = (change["pk"].as_str().unwrap().to_owned(), change["n"].as_i64().unwrap());
        *tally.entry(key).or_default() += 1;
    }
    tally
}

fn once(n: i64) -> BTreeMap<(String, i64), usize> {
    (0..16).map(|key| ((format!("k{key}"), n), 1)).collect()
}

#[tokio::test]
async fn a_saved_token_resumes_with_what_is_new_once() {
    let shop = Shop::open(json!({})).await;
    round(&shop, 0).await;
    let (changes, token) = shop.drain(&[LATEST, ("x-ms-max-item-count", "3")]).await;
    assert_eq!(tally(&changes), once(0));
    round(&shop, 1).await;
    let (changes, token) = shop.drain(&[LATEST, ("if-none-match", &token)]).await;
    assert_eq!(tally(&changes), once(1));
    assert_eq!(shop.drain(&[LATEST, ("if-none-match", &token)]).await.0.len(), 0);
}

#[tokio::test]
async fn a_token_never_moves_backwards() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 0).await;
    let ahead = shop.read(&[LATEST, ("if-none-match", "\"9000\"")]).await;
    assert_eq!((ahead.status, ahead.token()), (304, "\"9000\""));
}

#[tokio::test]
async fn a_token_that_is_none_is_refused() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 0).await;
    for bad in [
        "abc",
        "\"-1\"",
        "1.5",
        "\"99999999999999999999\"",
        "\"f1.AAAA\"",
        "\"f1.\"",
        "{}",
    ] {
        let refused = shop.read(&[LATEST, ("if-none-match", bad)]).await;
        assert_eq!(
            (refused.status, refused.answer.json()["code"].as_str().unwrap()),
            (400, "BadRequest"),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn a_container_of_several_partitions_is_read_as_one_with_a_token_for_all() {
    let shop = Shop::open(json!({})).await;
    shop.split(0).await;
    round(&shop, 0).await;
    let (changes, token) = shop.drain(&[LATEST, ("x-ms-max-item-count", "3")]).await;
    assert_eq!(tally(&changes), once(0));
    let numbers = shop.read(&[LATEST, ("if-none-match", "\"5\"")]).await;
    assert_eq!(numbers.status, 400, "one position cannot be meant for two partitions");
    for partition in [1, 2] {
        shop.split(partition).await;
    }
    round(&shop, 1).await;
    let (changes, token) = shop.drain(&[LATEST, ("if-none-match", &token)]).await;
    assert_eq!(tally(&changes), once(1));
    shop.merge(4, 5).await;
    round(&shop, 2).await;
    let (changes, _) = shop.drain(&[LATEST, ("if-none-match", &token)]).await;
    assert_eq!(tally(&changes), once(2));
}

#[tokio::test]
async fn a_token_of_another_container_or_of_one_made_again_is_refused() {
    let shop = Shop::open(json!({})).await;
    shop.split(0).await;
    round(&shop, 0).await;
    let token = shop.drain(&[LATEST]).await.1;
    let rid = shop.read(&[LATEST]).await.answer.json()["_rid"]
        .as_str()
        .unwrap()
        .to_owned();
    let delete = signed(
        "DELETE",
        &format!("/{}", super::CONTAINER),
        "colls",
        super::CONTAINER,
        "",
    );
    assert_eq!(send(shop.server.address, delete).await.status, 204);
    let again = json!({"id": "orders", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    assert_eq!(shop.post("dbs/shop", "colls", &again, &[]).await.status, 201);
    shop.create("a", "1", 0).await;
    assert_eq!(shop.read(&[LATEST, ("if-none-match", &token)]).await.status, 400);
    // Clients with a token that is a plain position name the container they believe to read.
    let intended = ("x-ms-cosmos-intended-collection-rid", rid.as_str());
    let stale = shop.read(&[LATEST, ("if-none-match", "\"1\""), intended]).await;
    assert_eq!((stale.status, stale.answer.header("x-ms-substatus")), (400, "1024"));
}

#[tokio::test]
async fn a_token_of_the_other_mode_is_refused() {
    let shop = Shop::keeping().await;
    shop.split(0).await;
    let token = shop.read(&[LATEST, NOW]).await.token().to_owned();
    let refused = shop.read(&[ALL, ENVELOPED, ("if-none-match", &token)]).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn after_a_split_the_parents_token_goes_on_at_every_child() {
    let shop = Shop::open(json!({})).await;
    round(&shop, 0).await;
    let token = of_partitions(&shop, &[0], "0").await[0].1.clone();
    round(&shop, 1).await;
    let children = shop.split(0).await;
    round(&shop, 2).await;
    let parent = shop.read(&[LATEST, (RANGE, "0"), ("if-none-match", &token)]).await;
    assert_eq!((parent.status, parent.answer.header("x-ms-substatus")), (410, "1002"));
    let read = of_partitions(&shop, &children, &token).await;
    assert!(read.iter().all(|(changes, _)| !changes.is_empty()));
    assert_eq!(
        tally(read.iter().flat_map(|(changes, _)| changes)),
        once(2),
        "no history again, nothing twice"
    );
}

#[tokio::test]
async fn after_a_merge_each_parents_token_goes_on_in_its_own_sub_range() {
    let shop = Shop::keeping().await;
    let children = shop.split(0).await;
    round(&shop, 0).await;
    // The partitions advance differently, so that their positions mean different things.
    for n in 0..20 {
        shop.upsert("k0", "other", n).await;
    }
    let ranges = send(
        shop.server.address,
        signed(
            "GET",
            &format!("/{}/pkranges", super::CONTAINER),
            "pkranges",
            super::CONTAINER,
            "",
        ),
    )
    .await
    .json();
    let mut cursors = Vec::new();
    for child in &children {
        let id = child.to_string();
        let range = ranges["PartitionKeyRanges"].as_array().unwrap();
        let range = range.iter().find(|range| range["id"] == id.as_str()).unwrap();
        let bound = |name: &str| range[name].as_str().unwrap().to_owned();
        let latest = shop.drain(&[LATEST, (RANGE, &id)]).await.1;
        let all = shop.read(&[ALL, ENVELOPED, NOW, (RANGE, &id)]).await.token().to_owned();
        cursors.push((bound("minInclusive"), bound("maxExclusive"), latest, all));
    }
    round(&shop, 1).await;
    let merged = shop.merge(children[0], children[1]).await.to_string();
    round(&shop, 2).await;
    let (mut latest, mut all) = (Vec::new(), Vec::new());
    for (min, max, latest_token, all_token) in &cursors {
        let within = [
            (RANGE, merged.as_str()),
            ("x-ms-read-key-type", "EffectivePartitionKeyRange"),
            ("x-ms-start-epk", min),
            ("x-ms-end-epk", max),
        ];
        let mut headers = within.to_vec();
        headers.extend([LATEST, ("if-none-match", latest_token)]);
        latest.extend(shop.drain(&headers).await.0);
        let mut headers = within.to_vec();
        headers.extend([ALL, ENVELOPED, ("if-none-match", all_token)]);
        all.extend(shop.drain(&headers).await.0);
    }
    assert_eq!(tally(&latest), once(2));
    let mut both = once(1);
    both.extend(once(2));
    assert_eq!(tally(&all), both);
}

#[tokio::test]
async fn a_merge_and_a_split_elsewhere_between_save_and_resume_lose_nothing() {
    let shop = Shop::keeping().await;
    let halves = shop.split(0).await;
    let quarters = shop.split(halves[0]).await;
    let start = shop.read(&[ALL, ENVELOPED, NOW]).await.token().to_owned();
    round(&shop, 0).await;
    let (first, token) = shop.drain(&[ALL, ENVELOPED, ("if-none-match", &start)]).await;
    assert_eq!(tally(&first), once(0));
    round(&shop, 1).await;
    let merged = shop.merge(quarters[1], halves[1]).await;
    round(&shop, 2).await;
    shop.split(merged).await;
    round(&shop, 3).await;
    let (changes, _) = shop
        .drain(&[ALL, ENVELOPED, ("if-none-match", &token), ("x-ms-max-item-count", "5")])
        .await;
    let wanted: BTreeMap<_, _> = (1..=3).flat_map(once).collect();
    assert_eq!(tally(&changes), wanted);
}

#[tokio::test]
async fn one_token_serves_four_workers_and_the_union_of_what_they_see_is_the_whole() {
    let shop = Shop::open(json!({})).await;
    round(&shop, 0).await;
    let token = shop.drain(&[LATEST]).await.1;
    round(&shop, 1).await;
    let bounds = ["", "10", "20", "30", "FF"];
    let mut changes = Vec::new();
    for pair in bounds.windows(2) {
        let worker = [
            LATEST,
            (RANGE, "0"),
            ("x-ms-read-key-type", "EffectivePartitionKeyRange"),
            ("x-ms-start-epk", pair[0]),
            ("x-ms-end-epk", pair[1]),
            ("if-none-match", token.as_str()),
        ];
        changes.extend(shop.drain(&worker).await.0);
    }
    assert_eq!(tally(&changes), once(1));
    let point = [
        LATEST,
        (RANGE, "0"),
        ("x-ms-read-key-type", "EffectivePartitionKey"),
        ("x-ms-start-epk", "10"),
    ];
    assert_eq!(shop.read(&point).await.status, 400);
}

#[tokio::test]
async fn from_now_over_several_partitions_loses_no_delete_of_one_that_was_not_read_yet() {
    let shop = Shop::keeping().await;
    shop.split(0).await;
    round(&shop, 0).await;
    let first = shop.read(&[ALL, ENVELOPED, NOW]).await;
    assert_eq!(first.status, 304);
    for key in 0..16 {
        shop.delete(&format!("k{key}"), "1").await;
    }
    let page = shop
        .read(&[
            ALL,
            ENVELOPED,
            ("if-none-match", first.token()),
            ("x-ms-max-item-count", "2"),
        ])
        .await;
    assert_eq!(page.changes().len(), 2);
    let (rest, _) = shop.drain(&[ALL, ENVELOPED, ("if-none-match", page.token())]).await;
    assert_eq!(rest.len(), 14);
    assert!(
        rest.iter()
            .all(|change| change["metadata"]["operationType"] == "delete")
    );
}

#[tokio::test]
async fn the_partitions_of_a_container_are_a_feed_too() {
    let shop = Shop::open(json!({})).await;
    let read = async |since: &str| {
        let request = signed(
            "GET",
            &format!("/{}/pkranges", super::CONTAINER),
            "pkranges",
            super::CONTAINER,
            "",
        );
        send(
            shop.server.address,
            super::with(request, &[LATEST, ("if-none-match", since)]),
        )
        .await
    };
    let first = read("").await;
    assert_eq!((first.status, first.json()["_count"].as_u64()), (200, Some(1)));
    let etag = first.header("etag").to_owned();
    let same = read(&etag).await;
    assert_eq!(
        (same.status, same.header("etag"), same.header("x-ms-item-count")),
        (304, etag.as_str(), "0")
    );
    shop.split(0).await;
    let children = read(&etag).await;
    let list = children.json()["PartitionKeyRanges"].clone();
    assert_eq!(ids(list.as_array().unwrap()), ["1", "2"]);
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .all(|range| range["parents"] == json!(["0"]))
    );
    assert_eq!(read(children.header("etag")).await.status, 304);
}

#[tokio::test]
async fn a_feed_read_waits_for_the_session_it_names() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 0).await;
    let ahead = shop.read(&[LATEST, ("x-ms-session-token", "0:0#9000")]).await;
    assert_eq!((ahead.status, ahead.answer.header("x-ms-substatus")), (404, "1002"));
}
