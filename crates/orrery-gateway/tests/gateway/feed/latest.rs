use orrery_node::Clock as _;
use serde_json::{Value, json};

use super::{ENVELOPED, LATEST, NOW, Shop, ids, lsn};

#[tokio::test]
async fn every_kind_of_write_is_an_entry_at_a_higher_position_with_the_latest_content() {
    let shop = Shop::open(json!({})).await;
    let (mut token, mut last) = (String::new(), 0);
    for step in 0..4 {
        match step {
            0 => drop(shop.create("a", "1", 1).await),
            1 => drop(
                shop.on_item("PUT", "a", "1", &json!({"id": "1", "pk": "a", "n": 2}))
                    .await,
            ),
            2 => {
                let patch = json!({"operations": [{"op": "set", "path": "/n", "value": 3}]});
                shop.on_item("PATCH", "a", "1", &patch).await;
            }
            _ => drop(shop.upsert("a", "1", 4).await),
        }
        let headers = [LATEST, ("if-none-match", token.as_str())];
        let page = shop.read(&headers[..if step == 0 { 1 } else { 2 }]).await;
        let changes = page.changes();
        assert_eq!((changes.len(), &changes[0]["n"]), (1, &json!(step + 1)));
        assert!(lsn(&changes[0]) > last);
        assert!(changes[0]["_etag"].is_string() && changes[0]["_ts"].is_u64() && changes[0]["_self"].is_string());
        last = lsn(&changes[0]);
        token = page.token().to_owned();
    }
}

#[tokio::test]
async fn an_item_updated_often_before_the_first_read_is_one_entry_in_its_last_state() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 0).await;
    for n in 1..=5 {
        shop.upsert("a", "1", n).await;
    }
    let (changes, _) = shop.drain(&[LATEST]).await;
    assert_eq!((changes.len(), &changes[0]["n"]), (1, &json!(5)));
}

#[tokio::test]
async fn a_deleted_item_is_not_in_the_feed_of_latest_versions() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 0).await;
    shop.delete("a", "1").await;
    assert_eq!(shop.drain(&[LATEST]).await.0, Vec::<Value>::new());
}

#[tokio::test]
async fn an_expired_item_is_gone_for_late_readers() {
    let shop = Shop::open(json!({"defaultTtl": 5})).await;
    shop.create("a", "1", 0).await;
    assert_eq!(shop.drain(&[LATEST]).await.0.len(), 1);
    shop.clock.advance_ms(6_000);
    assert_eq!(shop.drain(&[LATEST]).await.0.len(), 0);
}

#[tokio::test]
async fn a_batch_comes_in_one_page_with_one_position_whatever_the_page_size() {
    let shop = Shop::open(json!({})).await;
    let create = |n: i64| json!({"operationType": "Create", "resourceBody": {"id": n.to_string(), "pk": "a", "n": n}});
    let operations: Vec<Value> = (0..50).map(create).collect();
    assert_eq!(shop.batch("a", &json!(operations)).await, 200);
    let failing = json!([create(60), create(0)]);
    assert_eq!(shop.batch("a", &failing).await, 207);
    let page = shop.read(&[LATEST, ("x-ms-max-item-count", "10")]).await;
    let changes = page.changes();
    assert_eq!(page.field("n"), (0..50).map(|n| json!(n)).collect::<Vec<_>>());
    assert!(changes.iter().all(|change| lsn(change) == lsn(&changes[0])));
    let next = shop.read(&[LATEST, ("if-none-match", page.token())]).await;
    assert_eq!(next.status, 304, "a batch that failed leaves nothing");
}

#[tokio::test]
async fn pages_of_large_items_are_cut_between_transactions_only() {
    let shop = Shop::open(json!({})).await;
    let text = "x".repeat(1_500_000);
    let item = |n: i64| json!({"id": format!("doc{n}"), "pk": "a", "text": text});
    let create = |n: i64| json!({"operationType": "Create", "resourceBody": item(n)});
    shop.write("a", &item(0), false).await;
    // Small ones together with a large one, because a request has a limit of its own. The small one of the second comes first:
    // it would still fit into the page that its large one does not fit into.
    let small = |n: i64| json!({"operationType": "Create", "resourceBody": {"id": format!("doc{n}"), "pk": "a"}});
    assert_eq!(shop.batch("a", &json!([create(1), small(2)])).await, 200);
    assert_eq!(shop.batch("a", &json!([small(3), create(4)])).await, 200);
    assert_eq!(shop.batch("a", &json!([create(5), small(6)])).await, 200);
    let (mut seen, mut token, mut n_pages) = (Vec::new(), "0".to_owned(), 0);
    loop {
        let page = shop.read(&[LATEST, ("if-none-match", &token)]).await;
        if page.status == 304 {
            break;
        }
        let changes = page.changes();
        // A transaction that was begun is told to its end.
        assert!(page.answer.body.len() < 4 * 1024 * 1024 + text.len());
        n_pages += 1;
        let last = lsn(changes.last().unwrap());
        seen.extend(
            changes
                .iter()
                .map(|change| (lsn(change), change["id"].as_str().unwrap().to_owned())),
        );
        assert_eq!(page.token(), format!("\"{last}\""), "a page ends with a transaction");
        token = page.token().to_owned();
    }
    let order: Vec<&str> = seen.iter().map(|(_, id)| id.as_str()).collect();
    assert_eq!(order, ["doc0", "doc1", "doc2", "doc3", "doc4", "doc5", "doc6"]);
    assert_eq!((seen[1].0, seen[3].0, seen[5].0), (seen[2].0, seen[4].0, seen[6].0));
    assert_eq!(n_pages, 2, "all of it is more than a page holds");
}

#[tokio::test]
async fn nothing_new_is_304_with_everything_a_reader_needs_to_go_on() {
    let shop = Shop::open(json!({})).await;
    let empty = shop.read(&[LATEST]).await;
    shop.create("a", "1", 1).await;
    assert_eq!((empty.status, empty.answer.body.len()), (304, 0));
    assert_eq!(empty.answer.header("x-ms-item-count"), "0");
    for name in ["x-ms-session-token", "x-ms-request-charge", "x-ms-activity-id", "lsn"] {
        assert!(!empty.answer.header(name).is_empty(), "{name}");
    }
    let page = shop.read(&[LATEST, ("if-none-match", empty.token())]).await;
    assert_eq!(ids(&page.changes()), ["1"]);
    assert_eq!(page.answer.header("x-ms-item-count"), "1");
    for name in [
        "x-ms-session-token",
        "x-ms-request-charge",
        "lsn",
        "x-ms-documentdb-partitionkeyrangeid",
    ] {
        assert!(!page.answer.header(name).is_empty(), "{name}");
    }
    let session = page.answer.header("x-ms-session-token");
    let head: u64 = session.split(['#', ':']).nth(2).unwrap().parse().unwrap();
    assert!(
        head >= lsn(&page.changes()[0]),
        "estimators read the head out of {session}"
    );
    let caught_up = shop.read(&[LATEST, ("if-none-match", page.token())]).await;
    assert_eq!(caught_up.status, 304);
    shop.create("a", "2", 2).await;
    let next = shop.read(&[LATEST, ("if-none-match", caught_up.token())]).await;
    assert_eq!(ids(&next.changes()), ["2"]);
}

#[tokio::test]
async fn a_start_time_excludes_its_own_second() {
    let shop = Shop::open(json!({})).await;
    let first = shop.create("a", "1", 1).await["_ts"].as_u64().unwrap();
    shop.clock.advance_ms(10_000);
    shop.create("a", "2", 2).await;
    let from_first = shop.clock.now().seconds() as i64 - first as i64;
    for (offset, wanted) in [
        (-from_first - 5, vec!["1", "2"]),
        (-from_first, vec!["2"]),
        (-5, vec!["2"]),
        (0, vec![]),
        (3600, vec![]),
    ] {
        let date = shop.http_date(offset);
        let page = shop.read(&[LATEST, ("if-modified-since", &date)]).await;
        assert_eq!(ids(&page.changes()), wanted, "{offset}");
        assert!(page.token().len() > 2);
    }
    let go = shop.http_date(-5).replace("GMT", "UTC");
    let page = shop.read(&[LATEST, ("if-modified-since", &go)]).await;
    assert_eq!(ids(&page.changes()), ["2"], "a client that writes UTC is understood");
    let least = shop
        .read(&[LATEST, ("if-modified-since", "Mon, 01 Jan 0001 00:00:00 GMT")])
        .await;
    assert_eq!(
        ids(&least.changes()),
        ["1", "2"],
        "the least date there is means the beginning"
    );
}

#[tokio::test]
async fn a_range_of_keys_that_ends_before_it_begins_is_refused_and_one_elsewhere_is_gone() {
    let shop = Shop::open(json!({})).await;
    let read = async |min: &str, max: &str, more: &[(&str, &str)]| {
        let kind = ("x-ms-read-key-type", "EffectivePartitionKeyRange");
        let bounds = [LATEST, kind, ("x-ms-start-epk", min), ("x-ms-end-epk", max)];
        shop.read(&[&bounds[..], more].concat()).await.status
    };
    assert_eq!(read("20", "10", &[]).await, 400);
    assert_eq!(read("20", "20", &[]).await, 400);
    assert_eq!(read("", "10", &[]).await, 304, "an empty start is the beginning");
    shop.split(0).await;
    let left = ("x-ms-documentdb-partitionkeyrangeid", "1");
    assert_eq!(read("30", "38", &[left]).await, 410, "it lies in the other partition");
}

#[tokio::test]
async fn a_token_decides_over_a_start_time_and_may_come_without_quotes() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 1).await;
    let token = shop.read(&[LATEST]).await.token().to_owned();
    shop.create("a", "2", 2).await;
    let future = shop.http_date(3600);
    for token in [token.as_str(), token.trim_matches('"')] {
        let headers = [LATEST, ("if-none-match", token), ("if-modified-since", &future)];
        assert_eq!(ids(&shop.read(&headers).await.changes()), ["2"]);
        let both = [
            headers[0],
            headers[1],
            headers[2],
            ("x-ms-cosmos-sdk-supportedcapabilities", "3"),
        ];
        assert_eq!(shop.read(&both).await.status, 304, "a client that says so wants both");
    }
}

#[tokio::test]
async fn a_change_is_enveloped_if_and_only_if_the_header_asks_for_it() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 1).await;
    let bare = &shop.read(&[LATEST]).await.changes()[0];
    assert!(bare["_lsn"].is_u64() && bare.get("current").is_none());
    let enveloped = &shop.read(&[("a-im", "incremental feed"), ENVELOPED]).await.changes()[0];
    assert_eq!(enveloped["current"]["id"], "1");
    assert_eq!(enveloped["metadata"]["lsn"], bare["_lsn"]);
    assert_eq!(enveloped["metadata"]["crts"], bare["_ts"]);
    assert!(enveloped["metadata"].get("operationType").is_none());
}

#[tokio::test]
async fn a_logical_key_shows_its_own_changes_in_order_also_after_a_split() {
    let shop = Shop::open(json!({})).await;
    let key = [LATEST, ("x-ms-documentdb-partitionkey", "[\"k3\"]")];
    let write = async |round: i64| {
        for n in 0..8 {
            shop.upsert(&format!("k{n}"), &format!("{round}"), n).await;
        }
    };
    write(0).await;
    write(1).await;
    let page = shop.read(&key).await;
    assert_eq!(ids(&page.changes()), ["0", "1"]);
    shop.split(0).await;
    write(2).await;
    let resumed = [key[0], key[1], ("if-none-match", page.token())];
    assert_eq!(ids(&shop.read(&resumed).await.changes()), ["2"]);
    assert_eq!(ids(&shop.drain(&key).await.0), ["0", "1", "2"]);
}

#[tokio::test]
async fn a_replace_with_equal_content_is_an_entry() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 1).await;
    let token = shop.read(&[LATEST]).await.token().to_owned();
    shop.upsert("a", "1", 1).await;
    assert_eq!(shop.read(&[LATEST, ("if-none-match", &token)]).await.changes().len(), 1);
}

#[tokio::test]
async fn from_now_shows_only_what_comes_after_the_first_read() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 1).await;
    let now = shop.read(&[LATEST, NOW]).await;
    assert_eq!(now.status, 304);
    shop.create("a", "2", 2).await;
    let page = shop.read(&[LATEST, ("if-none-match", now.token())]).await;
    assert_eq!(ids(&page.changes()), ["2"]);
}

#[tokio::test]
async fn writers_and_a_reader_at_once_keep_the_order_of_every_key_and_lose_no_final_state() {
    let shop = std::sync::Arc::new(Shop::open(json!({})).await);
    // A thousand keys in a soak.
    let is_soak = std::env::var_os("ORRERY_SOAK").is_some();
    let (n_writers, n_keys, n_updates) = if is_soak { (20, 50, 100) } else { (8, 4, 25) };
    let writers: Vec<_> = (0..n_writers)
        .map(|writer| {
            let shop = std::sync::Arc::clone(&shop);
            tokio::spawn(async move {
                for n in 0..n_updates {
                    for key in 0..n_keys {
                        shop.upsert(&format!("w{writer}k{key}"), "1", n).await;
                    }
                }
            })
        })
        .collect();
    let (mut token, mut last) = (String::from("0"), std::collections::HashMap::new());
    loop {
        let done = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let page = shop
            .read(&[LATEST, ("if-none-match", &token), ("x-ms-max-item-count", "7")])
            .await;
        for change in page.changes() {
            let (key, n) = (change["pk"].as_str().unwrap().to_owned(), change["n"].as_i64().unwrap());
            let before = last.insert(key.clone(), n);
            assert!(before.is_none_or(|before| before < n), "{key}: {before:?} then {n}");
        }
        token = page.token().to_owned();
        if page.status == 304 && done {
            break;
        }
    }
    assert_eq!(last.len(), n_writers * n_keys);
    assert!(last.values().all(|n| *n == n_updates - 1), "{last:?}");
}
