//! A story told through HTTP, from publishing to retracting.

use http::StatusCode;
use serde_json::json;

use crate::client::Client;
use crate::world::{World, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_article_goes_from_its_author_to_a_reader_in_another_region_and_back() {
    let world = World::new().await;
    let [usa, europe] = world.ports;
    let (ann, bob) = (Client::named(usa, "ann").await, Client::named(europe, "bob").await);
    let me = bob.get("/v1/me").await.body;
    assert_eq!(
        me,
        json!({"user": "bob", "region": "North Europe", "account": "europe"})
    );
    let regions = bob.get("/v1/regions").await.body;
    assert_eq!(
        regions["regions"][0],
        json!({
            "name": "West US", "account": "usa", "local": false, "url": format!("http://localhost:{usa}/"),
        })
    );

    let subscribed = bob.post("/v1/subscriptions", &json!({"filter": "author:ann"})).await;
    assert_eq!(
        (subscribed.status, &subscribed.body["filter"]),
        (StatusCode::CREATED, &json!("author:ann"))
    );
    assert_eq!(
        bob.get("/v1/subscriptions").await.body["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let mut events = bob.listen().await;

    let draft = json!({"category": "sports", "tags": ["ski"], "title": "Snow", "body": "It snows."});
    let named = [("idempotency-key", "draft 1")];
    let published = ann
        .send("POST", "/v1/articles", &named, draft.to_string().into_bytes())
        .await;
    assert_eq!(
        (published.status, published.header("etag")),
        (StatusCode::CREATED, published.body["etag"].as_str().unwrap())
    );
    let again = ann
        .send("POST", "/v1/articles", &named, draft.to_string().into_bytes())
        .await;
    assert_eq!(
        (again.status, &again.body["id"]),
        (StatusCode::OK, &published.body["id"])
    );
    let id = published.body["id"].as_str().unwrap();

    // The hub may have begun to listen after the notification was written; then the feed has it.
    until("bob is notified", async || {
        !bob.get("/v1/notifications").await.body["items"]
            .as_array()
            .unwrap()
            .is_empty()
    })
    .await;
    let item = bob.get("/v1/notifications").await.body["items"][0].clone();
    assert_eq!(
        (&item["title"], &item["filter"], &item["account"]),
        (&json!("Snow"), &json!("author:ann"), &json!("europe"))
    );
    let token = item["articleToken"].as_str().unwrap().replace('#', "%23");
    let article = bob.get(&format!("/v1/articles/{id}?token={token}")).await;
    assert_eq!(
        (article.status, &article.body["body"]),
        (StatusCode::OK, &json!("It snows."))
    );

    let review = format!("/v1/articles/{id}/review");
    assert_eq!(
        bob.put(&review, &[], &json!({"text": "Fine.", "rating": 4}))
            .await
            .status,
        StatusCode::CREATED
    );
    assert_eq!(
        bob.put(&review, &[], &json!({"text": "Good.", "rating": 5}))
            .await
            .status,
        StatusCode::OK
    );
    until("ann sees the review", async || {
        let reviews = ann.get(&format!("/v1/articles/{id}/reviews")).await.body;
        reviews["items"][0]["text"] == "Good."
    })
    .await;
    let summary = Client::stranger(usa)
        .get(&format!("/v1/articles/{id}/summary"))
        .await
        .body;
    assert_eq!(
        (&summary["count"], &summary["average"], &summary["histogram"]),
        (&json!(1), &json!(5.0), &json!([0, 0, 0, 0, 1]))
    );

    let read = bob
        .post(
            &format!("/v1/notifications/{}/read", item["id"].as_str().unwrap()),
            &json!({}),
        )
        .await;
    assert_eq!(
        bob.get("/v1/notifications").await.body["items"][0]["readAt"],
        read.body["readAt"]
    );
    let listed = bob.get("/v1/articles?author=ann").await.body;
    assert_eq!(
        (
            listed["items"].as_array().unwrap().len(),
            listed["items"][0].get("body")
        ),
        (1, None)
    );

    // Now the hub surely listens.
    let second = ann
        .post("/v1/articles", &json!({"category": "art", "title": "Ice"}))
        .await
        .body;
    loop {
        let told = events.event("notification").await;
        if told["articleId"] == second["id"] {
            break;
        }
    }
    let edited = ann
        .put(
            &format!("/v1/articles/{id}"),
            &[("if-match", published.header("etag"))],
            &draft,
        )
        .await;
    assert_eq!(
        (edited.status, &edited.body["revision"]),
        (StatusCode::OK, &json!(2)),
        "{}",
        edited.text
    );
    let stale = ann
        .put(
            &format!("/v1/articles/{id}"),
            &[("if-match", "\"old\"")],
            &json!({"category": "a", "title": "b"}),
        )
        .await;
    assert_eq!(
        (stale.status, stale.code()),
        (StatusCode::PRECONDITION_FAILED, "changed")
    );
    assert_eq!(bob.delete(&format!("/v1/articles/{id}")).await.code(), "forbidden");
    assert_eq!(
        ann.delete(&format!("/v1/articles/{id}")).await.body["state"],
        "retracted"
    );
    assert_eq!(events.event("withdrawn").await["id"], item["id"]);
    let gone = bob.delete("/v1/subscriptions/author%3Aann").await;
    assert_eq!(gone.body, json!({"filter": "author:ann", "queued": []}));
    assert_eq!(bob.get("/v1/subscriptions").await.body["items"], json!([]));
    let eve = Client::named(europe, "eve").await;
    let late = eve
        .post("/v1/subscriptions", &json!({"filter": "category:art", "backfill": 5}))
        .await;
    assert_eq!(
        (late.status, &late.body["backfilled"], &late.body["missing"]),
        (StatusCode::CREATED, &json!(1), &json!([])),
        "{}",
        late.text
    );
    assert_eq!(
        eve.get("/v1/notifications").await.body["items"][0]["articleId"],
        second["id"]
    );
    let status = bob.get("/v1/status").await.body;
    assert_eq!(
        (&status["region"], status["fanout"].as_array().unwrap().len()),
        (&json!("North Europe"), 2)
    );
    assert!(
        status["fanout"]
            .as_array()
            .unwrap()
            .iter()
            .all(|source| source["running"] == true),
        "{status}"
    );
}

/// As many as are sent at the same time.
const N_AT_ONCE: usize = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_without_a_condition_never_fail_one_however_many_come_at_once() {
    let world = World::without_limits().await;
    let ann = Client::named(world.ports[0], "ann").await;
    let draft = |title: &str| json!({"category": "sports", "title": title});
    let published = ann.post("/v1/articles", &draft("Snow")).await;
    let path = format!("/v1/articles/{}", published.body["id"].as_str().unwrap());
    let review_path = format!("{path}/review");
    let (ann, path, review_path) = (&ann, &path, &review_path);
    let reviews = (0..N_AT_ONCE).map(|number| async move {
        let review = json!({"text": number.to_string(), "rating": 1 + number % 5});
        ann.put(review_path, &[], &review).await
    });
    let updates = (0..N_AT_ONCE).map(|number| async move {
        let any_version = [("if-match", "*")];
        ann.put(path, &any_version, &draft(&number.to_string())).await
    });
    let (reviewed, updated) = futures::join!(futures::future::join_all(reviews), futures::future::join_all(updates));
    for reply in reviewed.iter().chain(&updated) {
        // Whoever comes too late too often is asked to come again.
        let is_asked_again = reply.status == StatusCode::TOO_MANY_REQUESTS && !reply.header("retry-after").is_empty();
        assert!(
            reply.status.is_success() || is_asked_again,
            "{} {}",
            reply.status,
            reply.text
        );
    }
    let n_done = |replies: &[crate::client::Reply]| replies.iter().filter(|reply| reply.status.is_success()).count();
    assert!(n_done(&reviewed) > N_AT_ONCE / 2 && n_done(&updated) > N_AT_ONCE / 2);
    assert_eq!(ann.get(path).await.body["revision"], 1 + n_done(&updated));
}
