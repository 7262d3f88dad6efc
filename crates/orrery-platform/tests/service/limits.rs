//! What is refused, and how.

use std::time::Duration;

use http::StatusCode;
use orrery_platform::PlatformSettings;
use orrery_platform::limit::Rate;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

use crate::client::Client;
use crate::world::{World, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_wrong_is_refused_in_one_shape() {
    let world = World::new().await;
    let (stranger, ann) = (
        Client::stranger(world.ports[0]),
        Client::named(world.ports[0], "ann").await,
    );
    let forged = Client {
        token: Some("e30.AAAA".into()),
        ..stranger.clone()
    };
    for client in [&stranger, &forged] {
        let refused = client.get("/v1/notifications").await;
        assert_eq!(
            (refused.status, refused.code()),
            (StatusCode::UNAUTHORIZED, "unauthenticated")
        );
        assert_eq!(refused.header("www-authenticate"), "Bearer");
    }
    for (path, status, code) in [
        ("/v1/nothing", StatusCode::NOT_FOUND, "not-found"),
        (
            "/v1/articles/usa.01HF7YAT000W3GE1R70W3GE1R7",
            StatusCode::NOT_FOUND,
            "not-found",
        ),
        ("/v1/articles/%ff", StatusCode::BAD_REQUEST, "invalid"),
        ("/v1/articles", StatusCode::BAD_REQUEST, "invalid"),
        ("/v1/articles?author=a&tag=b", StatusCode::BAD_REQUEST, "invalid"),
        ("/v1/notifications?pageSize=0", StatusCode::BAD_REQUEST, "invalid"),
        ("/v1/notifications?pageSize=x", StatusCode::BAD_REQUEST, "invalid"),
        ("/v1/notifications?continuation=x", StatusCode::BAD_REQUEST, "invalid"),
        ("/v1/notifications?complete=maybe", StatusCode::BAD_REQUEST, "invalid"),
    ] {
        let refused = ann.get(path).await;
        assert_eq!(
            (refused.status, refused.code()),
            (status, code),
            "{path}: {}",
            refused.text
        );
    }
    let other = ann.send("PATCH", "/v1/articles", &[], Vec::new()).await;
    assert_eq!(
        (other.status, other.code(), other.header("allow")),
        (StatusCode::METHOD_NOT_ALLOWED, "method", "POST, GET")
    );
    for body in [
        "",
        "{",
        "[]",
        r#"{"category":"a"}"#,
        r#"{"category":"a","title":"b","more":1}"#,
        r#"{"category":"a#b","title":"b"}"#,
        r#"{"category":"a","title":""}"#,
    ] {
        let refused = ann.send("POST", "/v1/articles", &[], body.into()).await;
        assert_eq!(
            (refused.status, refused.code()),
            (StatusCode::BAD_REQUEST, "invalid"),
            "{body}: {}",
            refused.text
        );
    }
    let large = ann.send("POST", "/v1/articles", &[], vec![b'x'; (1 << 20) + 1]).await;
    assert_eq!(
        (large.status, large.code()),
        (StatusCode::PAYLOAD_TOO_LARGE, "too-large")
    );
    let rated = ann.put("/v1/articles/usa.x/review", &[], &json!({"rating": 6})).await;
    assert_eq!((rated.status, rated.code()), (StatusCode::BAD_REQUEST, "invalid"));
    let update = ann
        .put("/v1/articles/usa.x", &[], &json!({"category": "a", "title": "b"}))
        .await;
    assert_eq!(update.code(), "invalid", "a change must say of which version");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_have_ids_and_pages_of_this_machine_may_call() {
    let world = World::new().await;
    let stranger = Client::stranger(world.ports[0]);
    let named = stranger
        .send("GET", "/v1/nothing", &[("x-request-id", "my-request.1")], Vec::new())
        .await;
    assert_eq!(
        (named.header("x-request-id"), &named.body["error"]["requestId"]),
        ("my-request.1", &json!("my-request.1"))
    );
    let drawn = stranger
        .send("GET", "/healthz", &[("x-request-id", "not fine")], Vec::new())
        .await;
    assert_eq!(drawn.header("x-request-id").len(), 24);
    let origin = ("origin", "http://localhost:5173");
    let asked = stranger.send("OPTIONS", "/v1/articles", &[origin], Vec::new()).await;
    assert_eq!(
        (asked.status, asked.header("access-control-allow-origin")),
        (StatusCode::NO_CONTENT, "http://localhost:5173")
    );
    assert!(asked.header("access-control-allow-headers").contains("if-match"));
    let other = stranger
        .send("GET", "/healthz", &[("origin", "https://example.org")], Vec::new())
        .await;
    assert_eq!(other.header("access-control-allow-origin"), "");
    // The name of the scheme is the same in any case.
    let ann = Client::named(world.ports[0], "ann").await;
    let token = ann.token.unwrap_or_default();
    for scheme in ["bearer", "BEARER", "Bearer"] {
        let authorization = format!("{scheme} {token}");
        let headers = [("authorization", authorization.as_str())];
        let me = stranger.send("GET", "/v1/me", &headers, Vec::new()).await;
        assert_eq!(me.body["user"], "ann", "{scheme}: {}", me.text);
    }
    assert_eq!(stranger.get("/openapi.json").await.body["openapi"], "3.1.0");
    let metrics = stranger.get("/metrics").await.text;
    assert!(
        metrics.contains("orrery_platform_requests_total{route=\"health\",status=\"200\"}"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_origins_pull_no_levers() {
    let world = World::new().await;
    let stranger = Client::stranger(world.ports[0]);
    for (method, origin, status) in [
        ("POST", Some("https://example.org"), StatusCode::FORBIDDEN),
        ("PUT", Some("null"), StatusCode::FORBIDDEN),
        ("GET", Some("https://example.org"), StatusCode::OK),
        ("POST", Some("http://localhost:5173"), StatusCode::OK),
        ("POST", None, StatusCode::OK),
    ] {
        let headers: Vec<(&str, &str)> = origin.map(|origin| ("origin", origin)).into_iter().collect();
        let answer = stranger.send(method, "/v1/lever", &headers, Vec::new()).await;
        assert_eq!(answer.status, status, "{method} from {origin:?}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_region_end_when_it_closes_and_begin_again_when_it_opens() {
    let world = World::new().await;
    let ann = Client::named(world.ports[0], "ann").await;
    let events = ann.listen().await;
    world.platforms[0].set_closed(true);
    let ended = tokio::time::timeout(Duration::from_secs(10), events.ended());
    assert!(ended.await.is_ok(), "the stream stays open");
    assert_eq!(ann.get("/v1/me").await.status, StatusCode::SERVICE_UNAVAILABLE);
    world.platforms[0].set_closed(false);
    drop(ann.listen().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_after_its_time_so_that_its_token_is_asked_for_again() {
    let brief = |settings| PlatformSettings {
        stream_max: Duration::from_millis(300),
        ..settings
    };
    let world = World::with(brief).await;
    let ann = Client::named(world.ports[0], "ann").await;
    let events = ann.listen().await;
    let ended = tokio::time::timeout(Duration::from_secs(10), events.ended());
    assert!(ended.await.is_ok(), "the stream stays open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_listens_a_few_times_only_and_leaves_room_for_others() {
    let few = |settings| PlatformSettings {
        listeners_per_user_max: 2,
        ..settings
    };
    let world = World::with(few).await;
    let (ann, bob) = (
        Client::named(world.ports[0], "ann").await,
        Client::named(world.ports[0], "bob").await,
    );
    let (first, _second) = (ann.listen().await, ann.listen().await);
    assert!(!ann.is_let_in().await);
    let refused = ann.get("/v1/notifications/stream").await;
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::TOO_MANY_REQUESTS, "busy")
    );
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    drop(bob.listen().await);
    // Whoever leaves makes room.
    drop(first);
    until("there is room again", async || ann.is_let_in().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stops_reading_loses_the_connection() {
    let impatient = |settings| PlatformSettings {
        write_patience: Duration::from_millis(300),
        rate: Rate {
            per_second: 1e6,
            burst: 1e6,
        },
        ..settings
    };
    let world = World::with(impatient).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(([127, 0, 0, 1], world.ports[0]).into()).await.unwrap();
    // Asks on and on and reads nothing, until answers fill the way back.
    let asking = async {
        while stream
            .write_all(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .is_ok()
        {}
    };
    let closed = tokio::time::timeout(Duration::from_secs(30), asking).await;
    assert!(closed.is_ok(), "the connection stays open");
    assert_eq!(
        Client::stranger(world.ports[0]).get("/healthz").await.status,
        StatusCode::OK
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_got_may_be_asked_for_without_its_body() {
    let world = World::new().await;
    let stranger = Client::stranger(world.ports[0]);
    for path in ["/healthz", "/openapi.json", "/v1/regions"] {
        let (got, asked) = (
            stranger.get(path).await,
            stranger.send("HEAD", path, &[], Vec::new()).await,
        );
        assert_eq!((asked.status, asked.text.as_str()), (StatusCode::OK, ""), "{path}");
        assert_eq!(asked.header("content-length"), got.text.len().to_string(), "{path}");
        assert_eq!(asked.header("content-type"), got.header("content-type"), "{path}");
    }
    let missing = stranger.send("HEAD", "/v1/nothing", &[], Vec::new()).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_proxy_passes_on_is_not_of_this_machine() {
    let world = World::new().await;
    let stranger = Client::stranger(world.ports[0]);
    for path in ["/metrics", "/v1/status"] {
        assert_eq!(stranger.get(path).await.status, StatusCode::OK, "{path}");
        for header in [
            ("x-forwarded-for", "203.0.113.7"),
            ("forwarded", "for=203.0.113.7"),
            ("x-real-ip", "203.0.113.7"),
            ("via", "1.1 proxy"),
        ] {
            let refused = stranger.send("GET", path, &[header], Vec::new()).await;
            assert_eq!(
                refused.status,
                StatusCode::FORBIDDEN,
                "{path} {header:?}: {}",
                refused.text
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guessing_tokens_is_limited_like_every_request_of_nobody() {
    let strict = |settings| PlatformSettings {
        rate: Rate {
            per_second: 0.01,
            burst: 3.0,
        },
        ..settings
    };
    let world = World::with(strict).await;
    let ann = Client::named(world.ports[0], "ann").await;
    let guess = Client {
        token: Some("e30.AAAA".into()),
        ..ann.clone()
    };
    for _ in 0..2 {
        assert_eq!(guess.get("/v1/me").await.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(guess.get("/v1/me").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        ann.get("/v1/me").await.status,
        StatusCode::OK,
        "whoever has a token is told apart"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_requests_of_one_user_are_refused_and_others_are_not() {
    let strict = |settings| PlatformSettings {
        rate: Rate {
            per_second: 0.01,
            burst: 3.0,
        },
        ..settings
    };
    let world = World::with(strict).await;
    // A token is a request of the address, so two of its three are spent on these.
    let (ann, bob) = (
        Client::named(world.ports[0], "ann").await,
        Client::named(world.ports[0], "bob").await,
    );
    for _ in 0..3 {
        assert_eq!(ann.get("/v1/me").await.status, StatusCode::OK);
    }
    let refused = ann.get("/v1/me").await;
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::TOO_MANY_REQUESTS, "busy")
    );
    assert!(refused.header("retry-after").parse::<u64>().unwrap() > 1);
    assert_eq!(bob.get("/v1/me").await.status, StatusCode::OK);
    assert_eq!(
        ann.get("/healthz").await.status,
        StatusCode::OK,
        "health is always answered"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outside_development_nobody_is_given_a_token() {
    let closed = |settings| PlatformSettings {
        development: false,
        ..settings
    };
    let world = World::with(closed).await;
    let refused = Client::stranger(world.ports[0])
        .post("/v1/dev/tokens", &json!({"user": "ann"}))
        .await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
}
