use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_node::Clock as _;
use serde_json::{Value, json};

use super::{ALL, ENVELOPED, LATEST, NOW, Shop, ids};
use http_body_util::BodyExt as _;

const HISTORY: (&str, &str) = ("x-orrery-feed-from-history", "true");

#[tokio::test]
async fn all_versions_can_be_read_from_the_oldest_kept_and_from_a_time() {
    let shop = Shop::keeping().await;
    shop.create("a", "1", 0).await;
    shop.clock.advance_ms(60_000);
    shop.upsert("a", "1", 1).await;
    shop.delete("a", "1").await;
    assert_eq!(shop.drain(&[ALL, ENVELOPED, HISTORY]).await.0.len(), 3);
    let date = shop.http_date(-30);
    assert_eq!(
        shop.drain(&[ALL, ENVELOPED, HISTORY, ("if-modified-since", &date)])
            .await
            .0
            .len(),
        2
    );
    let long_ago = shop.http_date(-3600);
    let since = [ALL, ENVELOPED, HISTORY, ("if-modified-since", long_ago.as_str())];
    assert_eq!(
        shop.drain(&since).await.0.len(),
        3,
        "the container is younger than that, and nothing of it is lost"
    );
    shop.clock.advance_ms(9 * 60_000 + 30_000);
    assert_eq!(
        shop.drain(&[ALL, ENVELOPED, HISTORY]).await.0.len(),
        2,
        "the first has left the window"
    );
    assert_eq!(shop.read(&since).await.status, 400, "not all of it is kept");
    let within = shop.http_date(-9 * 60 - 45);
    let since = [ALL, ENVELOPED, HISTORY, ("if-modified-since", within.as_str())];
    assert_eq!(shop.drain(&since).await.0.len(), 2, "all of that is kept");
}

#[tokio::test]
async fn a_reader_whose_versions_are_gone_may_go_on_at_the_oldest_that_is_kept() {
    let shop = Shop::keeping().await;
    let start = shop.read(&[ALL, ENVELOPED, NOW]).await.token().to_owned();
    shop.create("a", "1", 0).await;
    shop.clock.advance_ms(11 * 60_000);
    shop.create("a", "2", 0).await;
    shop.delete("a", "1").await;
    let from = ("if-none-match", start.as_str());
    for told in ["true", "false"] {
        let refused = shop
            .read(&[ALL, ENVELOPED, from, ("x-orrery-feed-from-history", told)])
            .await;
        assert_eq!(refused.status, 400, "nothing is skipped unless the reader says so");
    }
    let oldest = ("x-orrery-feed-from-history", "oldest");
    let (changes, token) = shop.drain(&[ALL, ENVELOPED, from, oldest]).await;
    let kinds: Vec<_> = changes
        .iter()
        .map(|change| &change["metadata"]["operationType"])
        .collect();
    assert_eq!(kinds, ["create", "delete"], "what is kept comes, in order");
    let rest = shop.read(&[ALL, ENVELOPED, ("if-none-match", &token)]).await;
    assert_eq!(rest.status, 304, "from there it goes on as ever");
    let nonsense = shop
        .read(&[ALL, ENVELOPED, from, ("x-orrery-feed-from-history", "perhaps")])
        .await;
    assert_eq!(nonsense.status, 400);
}

#[tokio::test]
async fn a_probe_is_told_of_changes_without_their_items() {
    let facts = ("x-orrery-feed-facts-only", "true");
    let shop = Shop::keeping().await;
    let start = shop.read(&[ALL, ENVELOPED, NOW]).await.token().to_owned();
    shop.create("a", "1", 0).await;
    shop.upsert("a", "1", 1).await;
    let latest = shop.read(&[LATEST, ENVELOPED, facts]).await;
    let change = &latest.changes()[0];
    assert_eq!(
        change["current"],
        json!({"_lsn": change["metadata"]["lsn"]}),
        "only its place"
    );
    assert!(change["metadata"]["crts"].as_u64().unwrap() > 0);
    let bare = shop.read(&[LATEST, facts]).await;
    assert_eq!(bare.changes()[0], change["current"]);
    let from = ("if-none-match", start.as_str());
    let versions = shop.read(&[ALL, ENVELOPED, from, facts]).await.changes();
    assert_eq!(versions.len(), 2);
    for version in &versions {
        assert_eq!((&version["current"], version.get("previous")), (&json!({}), None));
    }
    let whole = shop.read(&[LATEST, ENVELOPED]).await;
    let (cheap, dear) = (latest.charge(), whole.charge());
    assert!(cheap <= dear, "{cheap} against {dear}");
    assert_eq!(latest.token(), whole.token());
}

#[tokio::test]
async fn a_probe_does_not_tell_of_what_has_expired() {
    let facts = ("x-orrery-feed-facts-only", "true");
    let shop = Shop::open(json!({"defaultTtl": 10})).await;
    shop.create("a", "1", 0).await;
    assert_eq!(shop.read(&[LATEST, facts]).await.changes().len(), 1);
    shop.clock.advance_ms(11_000);
    assert_eq!(shop.read(&[LATEST, facts]).await.status, 304);
}

#[tokio::test]
async fn a_condition_leaves_out_what_it_does_not_hold_for() {
    let shop = Shop::keeping().await;
    let start = shop.read(&[ALL, ENVELOPED, NOW]).await.token().to_owned();
    for n in 0..10 {
        shop.create("a", &n.to_string(), n).await;
    }
    shop.delete("a", "3").await;
    let filter = |text: &'static str| ("x-orrery-feed-filter", text);
    let (changes, token) = shop.drain(&[LATEST, filter("c.current.n >= 7")]).await;
    assert_eq!(ids(&changes), ["7", "8", "9"]);
    assert_eq!(
        shop.drain(&[LATEST, ("if-none-match", &token)]).await.0.len(),
        0,
        "the rest counts as read"
    );
    let deletes = filter("FROM c WHERE c.metadata.operationType = 'delete' AND c.previous.n = 3");
    let (changes, _) = shop.drain(&[ALL, ENVELOPED, ("if-none-match", &start), deletes]).await;
    assert_eq!((changes.len(), &changes[0]["metadata"]["id"]), (1, &json!("3")));
    for bad in ["c.current.n >", "NOSUCH(c.current)", "d.n = 1"] {
        let refused = shop.read(&[LATEST, filter(bad)]).await;
        assert_eq!(
            (refused.status, refused.answer.json()["code"].as_str().unwrap()),
            (400, "BadRequest"),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn a_reader_that_waits_learns_of_a_change_when_it_happens() {
    let shop = Arc::new(Shop::open(json!({})).await);
    let token = shop.read(&[LATEST, NOW]).await.token().to_owned();
    let waiting = {
        let (shop, token) = (Arc::clone(&shop), token.clone());
        tokio::spawn(async move {
            let headers = [
                LATEST,
                ("if-none-match", token.as_str()),
                ("x-orrery-feed-wait-ms", "30000"),
            ];
            let page = shop.read(&headers).await;
            (page.changes(), Instant::now())
        })
    };
    // Elsewhere first: what the reader does not want wakes it and does not end its wait.
    shop.create("a", "1", 1).await;
    let written = Instant::now();
    let (changes, learned) = waiting.await.unwrap();
    assert_eq!(ids(&changes), ["1"]);
    assert!(learned.saturating_duration_since(written) < Duration::from_secs(5));
    let nothing = shop.read(&[LATEST, NOW, ("x-orrery-feed-wait-ms", "50")]).await;
    assert_eq!(nothing.status, 304, "the wait has an end");
}

#[tokio::test]
async fn a_wait_goes_on_through_changes_that_are_not_wanted_and_through_a_split() {
    let shop = Arc::new(Shop::open(json!({})).await);
    let start = shop.read(&[LATEST, NOW]).await.token().to_owned();
    let waiting = {
        let shop = Arc::clone(&shop);
        tokio::spawn(async move {
            let headers = [
                LATEST,
                ("if-none-match", start.as_str()),
                ("x-ms-documentdb-partitionkey", "[\"b\"]"),
                ("x-orrery-feed-wait-ms", "30000"),
            ];
            shop.read(&headers).await.changes()
        })
    };
    shop.create("a", "1", 1).await;
    shop.split(0).await;
    shop.create("a", "2", 1).await;
    shop.create("b", "3", 1).await;
    assert_eq!(ids(&waiting.await.unwrap()), ["3"]);
}

#[tokio::test]
async fn a_wait_on_a_partition_that_is_split_ends_with_the_news_of_it() {
    let shop = Arc::new(Shop::open(json!({})).await);
    let range = ("x-ms-documentdb-partitionkeyrangeid", "0");
    let start = shop.read(&[LATEST, NOW, range]).await.token().to_owned();
    let waiting = {
        let shop = Arc::clone(&shop);
        tokio::spawn(async move {
            let headers = [
                LATEST,
                ("if-none-match", start.as_str()),
                range,
                ("x-orrery-feed-wait-ms", "30000"),
            ];
            let page = shop.read(&headers).await;
            (page.status, page.answer.header("x-ms-substatus").to_owned())
        })
    };
    tokio::task::yield_now().await;
    shop.split(0).await;
    assert_eq!(waiting.await.unwrap(), (410, "1002".to_owned()));
}

#[tokio::test]
async fn the_head_of_the_log_is_told_without_reading_anything() {
    let shop = Shop::open(json!({})).await;
    shop.create("a", "1", 1).await;
    shop.clock.advance_ms(1_500);
    shop.delete("a", "1").await;
    let page = shop.read(&[LATEST, NOW]).await;
    assert_eq!(page.status, 304);
    let head: u64 = page.answer.header("x-orrery-head-lsn").parse().unwrap();
    assert_eq!(page.token(), format!("\"{head}\""));
    let at: u64 = page.answer.header("x-orrery-head-time-ms").parse().unwrap();
    assert_eq!(at, shop.clock.now().0);
}

/// A listener to a feed: its events and the last token.
struct Tail {
    body: hyper::body::Incoming,
    text: String,
    token: String,
}

impl Tail {
    async fn start(shop: &Shop, query: &str) -> Tail {
        let path = format!("/_orrery/v1/feed?database=shop&container=orders&{query}");
        let response = crate::client::open(shop.server.address, crate::client::administer("GET", &path, "")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Tail {
            body: response.into_body(),
            text: String::new(),
            token: String::new(),
        }
    }

    /// Reads on until the next line of data; remembers the tokens it meets.
    async fn event(&mut self) -> Value {
        loop {
            while let Some((line, rest)) = self.text.split_once('\n') {
                let (line, rest) = (line.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some(token) = line.strip_prefix("id: ") {
                    self.token = token.to_owned();
                }
                if let Some(data) = line.strip_prefix("data: ") {
                    return serde_json::from_str(data).unwrap();
                }
            }
            self.more().await;
        }
    }

    async fn more(&mut self) {
        let frame = tokio::time::timeout(Duration::from_secs(20), self.body.frame()).await;
        let data = frame
            .expect("something comes")
            .expect("the feed goes on")
            .unwrap()
            .into_data()
            .unwrap();
        self.text.push_str(std::str::from_utf8(&data).unwrap());
    }

    /// Waits until the listener has been told where it stands.
    async fn placed(mut self) -> Tail {
        while !self.text.contains("id: ") {
            self.more().await;
        }
        self
    }
}

#[tokio::test]
async fn a_listener_that_begins_at_a_time_hears_of_nothing_older_where_partitions_were_merged() {
    let shop = Shop::open(json!({})).await;
    let children = shop.split(0).await;
    for n in 0..40 {
        shop.create(&format!("k{n}"), &format!("old{n}"), n).await;
    }
    let (left, right) = (shop.keys_in(children[0]).await, shop.keys_in(children[1]).await);
    // The left partition is far ahead of the right one, with what is old.
    for n in 0..100 {
        shop.upsert(&left[0], &format!("left{n}"), n).await;
    }
    shop.clock.advance_ms(10_000);
    let time = shop.clock.now().seconds() - 5;
    for n in 0..4 {
        let text = "x".repeat(1_500_000);
        let item = json!({"id": format!("new{n}"), "pk": right[0], "text": text});
        shop.write(&right[0], &item, false).await;
    }
    shop.merge(children[0], children[1]).await;
    let mut tail = Tail::start(&shop, &format!("from={time}")).await;
    let mut heard = Vec::new();
    for _ in 0..2 {
        heard.push(tail.event().await["current"]["id"].clone());
    }
    // Two of them fill a page: what follows is told by its token, to this listener and to one that comes again with it.
    let mut again = Tail::start(&shop, &format!("from={}", tail.token)).await;
    shop.create(&left[0], "last", 0).await;
    for listener in [&mut tail, &mut again] {
        let mut heard = heard.clone();
        while heard.last().is_none_or(|id| id != "last") {
            heard.push(listener.event().await["current"]["id"].clone());
        }
        assert_eq!(heard, ["new0", "new1", "new2", "new3", "last"]);
    }
}

#[tokio::test]
async fn a_read_over_several_partitions_costs_what_was_read_in_each() {
    let shop = Shop::open(json!({})).await;
    let one = shop.read(&[LATEST]).await.charge();
    shop.split(0).await;
    assert_eq!(shop.read(&[LATEST]).await.charge(), 2.0 * one);
}

#[tokio::test]
async fn changes_come_as_server_sent_events_and_their_token_resumes() {
    let shop = Shop::keeping().await;
    shop.split(0).await;
    let mut tail = Tail::start(&shop, "from=now&mode=all").await.placed().await;
    shop.create("a", "1", 1).await;
    shop.delete("a", "1").await;
    assert_eq!(tail.event().await["metadata"]["operationType"], "create");
    assert_eq!(tail.event().await["metadata"]["operationType"], "delete");
    let token = tail.token.clone();
    drop(tail);
    shop.create("b", "2", 2).await;
    let mut resumed = Tail::start(&shop, &format!("mode=all&from={token}")).await;
    assert_eq!(resumed.event().await["current"]["id"], "2");
    let filter = "mode=latest&from=beginning&filter=c.current.n%20%3D%202";
    assert_eq!(Tail::start(&shop, filter).await.event().await["current"]["id"], "2");
    let mut refused = Tail::start(&shop, "from=beginning&filter=%28").await;
    assert_eq!(refused.event().await["code"], "BadRequest");
    for bad in ["from=never", "mode=some", "colour=red"] {
        let path = format!("/_orrery/v1/feed?database=shop&container=orders&{bad}");
        let answer = crate::client::send(shop.server.address, crate::client::administer("GET", &path, "")).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
}
