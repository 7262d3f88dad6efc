use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Request;
use orrery_gateway::handler::{Command, RegionCommand};
use orrery_gateway::{Parts, Settings};
use orrery_node::account::KeyKind;
use orrery_node::geo::fleet::{Outage, Place};
use orrery_node::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::client::{Answer, Connection, administer, create_item, read_item, send};
use crate::server::{Script, Server, found};

fn server() -> Server {
    Server::start(Script::finds("{}"), Settings::default())
}

async fn get(server: &Server, path: &str) -> Answer {
    send(
        server.address,
        Request::get(path)
            .header("host", "localhost")
            .body(Default::default())
            .unwrap(),
    )
    .await
}

async fn add_fault(server: &Server, rule: Value) -> Answer {
    let answer = send(
        server.address,
        administer("POST", "/_orrery/v1/faults", rule.to_string()),
    )
    .await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer
}

#[tokio::test]
async fn health_and_metrics_need_no_key_on_loopback() {
    let server = server();
    assert_eq!(get(&server, "/healthz").await.json(), json!({"status": "ok"}));
    assert_eq!(get(&server, "/readyz").await.json(), json!({"status": "ready"}));
    send(server.address, read_item()).await;
    let metrics = String::from_utf8(get(&server, "/metrics").await.body.to_vec()).unwrap();
    let line = "orrery_requests_total{operation=\"read_item\",status=\"200\"} 1";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

#[tokio::test]
async fn administration_needs_a_signature_over_its_path() {
    let server = server();
    let answer = get(&server, "/_orrery/v1/partitions").await;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str().unwrap()),
        (401, "Unauthorized")
    );
    let mut other_path = administer("GET", "/_orrery/v1/partitions", "");
    *other_path.uri_mut() = "/_orrery/v1/snapshots".parse().unwrap();
    assert_eq!(send(server.address, other_path).await.status, 401);
    let answer = send(server.address, administer("GET", "/_orrery/v1/partitions", "")).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"partitions": []})));
    assert_eq!(
        send(server.address, administer("GET", "/_orrery/v1/nothing", ""))
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn commands_reach_the_handler_as_they_were_asked() {
    let script = Arc::new(Script::finds("{}"));
    let server = Server::assemble(Parts::new(Arc::clone(&script) as _, Settings::default()), None);
    for (verb, path, body, status) in [
        ("GET", "/_orrery/v1/partitions?database=a%20b&container=c", "", 200),
        (
            "POST",
            "/_orrery/v1/partitions/split",
            r#"{"database":"d","container":"c","partition":3}"#,
            200,
        ),
        (
            "POST",
            "/_orrery/v1/partitions/merge",
            r#"{"database":"d","container":"c","partitions":[1,2]}"#,
            200,
        ),
        (
            "POST",
            "/_orrery/v1/regions/x/stop",
            r#"{"mode":"slow","delayMs":20}"#,
            200,
        ),
        (
            "POST",
            "/_orrery/v1/links/step",
            r#"{"from":"a","to":"b","transactions":4,"database":"d","container":"c","partition":1}"#,
            200,
        ),
        (
            "POST",
            "/_orrery/v1/partitions/split",
            r#"{"database":"d","container":"c","partition":3,"manual":true}"#,
            200,
        ),
        ("POST", "/_orrery/v1/snapshots", r#"{"name":"clean"}"#, 201),
        ("POST", "/_orrery/v1/snapshots/clean/restore", "", 404),
        ("DELETE", "/_orrery/v1/snapshots/clean", "", 200),
        ("POST", "/_orrery/v1/snapshots/reset", "", 200),
        ("POST", "/_orrery/v1/keys/primary/rotate", "", 200),
    ] {
        assert_eq!(
            send(server.address, administer(verb, path, body)).await.status,
            status,
            "{path}"
        );
    }
    let (database, container) = ("d".to_owned(), "c".to_owned());
    let expected = [
        Command::Partitions {
            container: Some(("a b".to_owned(), container.clone())),
        },
        Command::Split {
            database: database.clone(),
            container: container.clone(),
            partition: 3,
        },
        Command::Merge {
            database: database.clone(),
            container: container.clone(),
            partitions: (1, 2),
        },
        Command::Regions(RegionCommand::Outage {
            region: "x".to_owned(),
            outage: Some(Outage::Slow(Duration::from_millis(20))),
        }),
        Command::Regions(RegionCommand::Step {
            from: "a".to_owned(),
            to: "b".to_owned(),
            partition: Some(Place {
                database: database.clone(),
                container: container.clone(),
                partition: orrery_model::PartitionId(1),
            }),
            n_transactions: 4,
        }),
        Command::BeginByHand {
            database,
            container,
            partitions: vec![3],
        },
        Command::SaveSnapshot {
            name: "clean".to_owned(),
        },
        Command::RestoreSnapshot {
            name: "clean".to_owned(),
        },
        Command::DropSnapshot {
            name: "clean".to_owned(),
        },
        Command::Reset,
        Command::RotateKey(KeyKind::Primary),
    ];
    assert_eq!(*script.commands.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_body_or_name_that_makes_no_sense_is_refused_with_400() {
    let server = server();
    for (verb, path, body) in [
        ("POST", "/_orrery/v1/partitions/split", "{}"),
        ("POST", "/_orrery/v1/partitions/split", "not json"),
        ("GET", "/_orrery/v1/partitions?database=d", ""),
        ("POST", "/_orrery/v1/snapshots", r#"{"name":"../etc"}"#),
        ("POST", "/_orrery/v1/faults", r#"{"status":503,"unknown":1}"#),
        (
            "POST",
            "/_orrery/v1/faults",
            r#"{"status":503,"operation":"raed_item"}"#,
        ),
        ("POST", "/_orrery/v1/faults", r#"{"status":503,"region":"Atlantis"}"#),
        ("POST", "/_orrery/v1/keys/master/rotate", ""),
        ("POST", "/_orrery/v1/regions/x/stop", r#"{"mode":"nap"}"#),
        ("POST", "/_orrery/v1/regions/x/stop", r#"{"mode":"hang","delayMs":5}"#),
        ("POST", "/_orrery/v1/regions/x/clients", r#"{"roundTripMs":-1}"#),
        (
            "PUT",
            "/_orrery/v1/links",
            r#"{"from":"a","to":"b","distribution":"even"}"#,
        ),
        ("PUT", "/_orrery/v1/links", r#"{"from":"a","to":"b","queueBytes":0}"#),
        (
            "POST",
            "/_orrery/v1/links/step",
            r#"{"from":"a","to":"b","partition":1}"#,
        ),
    ] {
        let answer = send(server.address, administer(verb, path, body)).await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str().unwrap()),
            (400, "BadRequest"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_fault_rule_makes_matching_requests_fail_until_it_is_removed() {
    let server = server();
    let rule = json!({"operation": "read_item", "container": "c", "status": 429, "subStatus": 3200, "retryAfterMs": 5});
    let id = add_fault(&server, rule).await.json()["id"].clone();
    let answer = send(server.address, read_item()).await;
    assert_eq!((answer.status, answer.header("x-ms-substatus")), (429, "3200"));
    assert_eq!(answer.header("x-ms-retry-after-ms"), "5");
    assert_eq!(send(server.address, create_item(r#"{"id":"x"}"#)).await.status, 200);
    let list = send(server.address, administer("GET", "/_orrery/v1/faults", ""))
        .await
        .json();
    assert_eq!(list["faults"][0]["nApplied"], 1);
    let path = format!("/_orrery/v1/faults/{id}");
    assert_eq!(send(server.address, administer("DELETE", &path, "")).await.status, 200);
    assert_eq!(send(server.address, administer("DELETE", &path, "")).await.status, 404);
    assert_eq!(send(server.address, read_item()).await.status, 200);
}

#[tokio::test]
async fn a_fault_rule_for_a_region_is_about_requests_that_the_region_answers() {
    let server = server();
    let rule = json!({"operation": "read_item", "region": "westus", "count": 1, "status": 503});
    add_fault(&server, rule).await;
    assert_eq!(send(server.address, read_item()).await.status, 503);
    assert_eq!(send(server.address, read_item()).await.status, 200);
}

#[tokio::test]
async fn a_fault_rule_can_drop_the_connection_before_or_after_the_operation() {
    let executed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executed);
    let script = Script::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok(found("{}")) }
    });
    let server = Server::start(script, Settings::default());
    for (after, n_executed) in [(false, 0), (true, 2)] {
        add_fault(&server, json!({"dropConnection": true, "after": after, "count": 2})).await;
        let stream = || TcpStream::connect(server.address);
        let mut http1 = Connection::http1(stream().await.unwrap()).await;
        let mut http2 = Connection::http2(stream().await.unwrap()).await;
        for connection in [&mut http1, &mut http2] {
            let sent = tokio::time::timeout(crate::client::PATIENCE, connection.try_send(read_item())).await;
            assert!(sent.expect("dropped in time").is_err());
        }
        assert_eq!(executed.load(Ordering::SeqCst), n_executed);
    }
}

#[tokio::test]
async fn reading_the_account_can_fail_as_well() {
    let server = server();
    add_fault(&server, json!({"operation": "read_account", "status": 503, "count": 1})).await;
    let account = || crate::client::signed("GET", "/", "", "", "");
    assert_eq!(send(server.address, account()).await.status, 503);
    assert_eq!(send(server.address, account()).await.status, 200);
}

#[tokio::test]
async fn a_fault_rule_can_delay_and_nothing_else() {
    let server = server();
    add_fault(&server, json!({"delayMs": 150, "count": 1})).await;
    let started = Instant::now();
    assert_eq!(send(server.address, read_item()).await.status, 200);
    assert!(started.elapsed() >= Duration::from_millis(150));
}

#[tokio::test]
async fn the_clock_moves_in_development_only() {
    let body = json!({"offsetMs": 86_400_000}).to_string();
    let refused = send(server().address, administer("PUT", "/_orrery/v1/clock", body.clone())).await;
    assert_eq!(refused.status, 403);
    let clock = Arc::new(SystemClock::default());
    let mut parts = Parts::new(
        Arc::new(Script::finds("{}")),
        Settings {
            development: true,
            ..Settings::default()
        },
    );
    parts.movable_clock = Some(Arc::clone(&clock));
    let server = Server::assemble(parts, None);
    let before = clock.now().0;
    assert_eq!(
        send(server.address, administer("PUT", "/_orrery/v1/clock", body))
            .await
            .status,
        200
    );
    assert!(clock.now().0 >= before + 86_400_000);
    // Signatures are still checked against the real time.
    assert_eq!(send(server.address, read_item()).await.status, 200);
}

#[tokio::test]
async fn regions_are_killed_and_the_account_flaps_in_development_only() {
    let server = server();
    for (path, body) in [
        ("/_orrery/v1/regions/x/stop", r#"{"mode":"kill"}"#),
        ("/_orrery/v1/regions/flapping", r#"{"forMs":1000}"#),
    ] {
        let refused = send(server.address, administer("POST", path, body)).await;
        assert_eq!(refused.status, 403, "{path}");
    }
}

#[tokio::test]
async fn browsers_may_ask_from_anywhere_and_see_all_headers() {
    let server = server();
    let preflight = Request::options("/dbs/d")
        .header("host", "localhost")
        .header("origin", "http://app.example")
        .header("access-control-request-method", "GET")
        .header("access-control-request-headers", "authorization,x-ms-date")
        .body(Default::default())
        .unwrap();
    let answer = send(server.address, preflight).await;
    assert_eq!(
        (answer.status, answer.header("access-control-allow-origin")),
        (204, "*")
    );
    assert_eq!(answer.header("access-control-allow-headers"), "authorization,x-ms-date");
    let mut request = read_item();
    request
        .headers_mut()
        .insert("origin", "http://app.example".parse().unwrap());
    let answer = send(server.address, request).await;
    assert_eq!(
        (answer.status, answer.header("access-control-expose-headers")),
        (200, "*")
    );
    assert_eq!(
        send(server.address, read_item())
            .await
            .header("access-control-allow-origin"),
        ""
    );
}
