//! Queries made to use up time or memory: each gets a clear answer soon, and nobody else notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::client::{Answer, send, signed};
use crate::server::Server;

const CONTAINER: &str = "dbs/d/colls/c";

async fn post(server: &Server, parent: &str, kind: &str, body: &Value) -> Answer {
    let path = format!("/{parent}/{kind}").replace("//", "/");
    let answer = send(server.address, signed("POST", &path, kind, parent, body.to_string())).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer
}

/// One item with a long list, a long text and a small number, under the key `a`.
async fn server() -> Server {
    let server = Server::with_node().await;
    let container = json!({"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    post(&server, "", "dbs", &json!({"id": "d"})).await;
    post(&server, "dbs/d", "colls", &container).await;
    let list: Vec<u32> = (0..2_000).collect();
    let item = json!({"id": "1", "pk": "a", "n": 1, "list": list, "text": "a".repeat(200_000)});
    post(&server, CONTAINER, "docs", &item).await;
    let endless = json!({"id": "endless", "body": "function () { for (;;); }"});
    post(&server, CONTAINER, "udfs", &endless).await;
    server
}

fn query(text: &str) -> Request<Full<Bytes>> {
    let body = json!({ "query": text }).to_string();
    let mut request = signed("POST", &format!("/{CONTAINER}/docs"), "docs", CONTAINER, body);
    let headers = request.headers_mut();
    headers.insert("content-type", "application/query+json".parse().unwrap());
    headers.insert("x-ms-documentdb-isquery", "True".parse().unwrap());
    request
}

fn read() -> Request<Full<Bytes>> {
    let link = format!("{CONTAINER}/docs/1");
    signed("GET", &format!("/{link}"), "docs", &link, "")
}

/// Each with the statuses it may be answered with.
fn bombs() -> Vec<(String, &'static [u16])> {
    // Each name stands for fifty times the text of the one before.
    let blown_up = |n: usize| {
        let join = |n: usize| {
            let before = format!("t{}", n - 1);
            format!(" JOIN (SELECT VALUE CONCAT({})) t{n}", vec![before; 50].join(", "))
        };
        let joins: String = (1..n).map(join).collect();
        format!(
            "SELECT VALUE LENGTH(t{}) FROM c JOIN (SELECT VALUE c.text) t0{joins}",
            n - 1
        )
    };
    let everything = vec!["c"; 500].join(", ");
    vec![
        (
            "SELECT VALUE COUNT(1) FROM c JOIN a IN c.list JOIN b IN c.list JOIN d IN c.list JOIN e IN c.list".into(),
            &[408],
        ),
        (
            "SELECT VALUE 1 FROM c JOIN a IN c.list JOIN b IN c.list JOIN d IN c.list WHERE a + b + d < 0".into(),
            &[408],
        ),
        (
            "SELECT DISTINCT VALUE a * 10000 + b FROM c JOIN a IN c.list JOIN b IN c.list".into(),
            &[400, 408],
        ),
        (
            "SELECT a, b, COUNT(1) AS n FROM c JOIN a IN c.list JOIN b IN c.list GROUP BY a, b".into(),
            &[400, 408],
        ),
        (
            "SELECT VALUE [a, b, c.text] FROM c JOIN a IN c.list JOIN b IN c.list ORDER BY c.n".into(),
            &[400, 408],
        ),
        (
            "SELECT VALUE ARRAY(SELECT VALUE [a, b] FROM a IN c.list JOIN b IN c.list JOIN d IN c.list) FROM c".into(),
            &[400, 408],
        ),
        (
            "SELECT VALUE MAKELIST(c.text) FROM c JOIN a IN c.list JOIN b IN c.list".into(),
            &[400, 408],
        ),
        ("SELECT VALUE REPLACE(c.text, 'a', c.text) FROM c".into(), &[400]),
        (
            "SELECT VALUE STRINGJOIN(ARRAY(SELECT VALUE 'x' FROM a IN c.list), c.text) FROM c".into(),
            &[400],
        ),
        (blown_up(9), &[400]),
        (format!("SELECT VALUE [{everything}] FROM c"), &[400]),
        (
            format!("SELECT VALUE ARRAY_CONCAT([{everything}], [{everything}]) FROM c"),
            &[400],
        ),
        ("SELECT VALUE udf.endless(c.n) FROM c".into(), &[400]),
        (
            format!("SELECT VALUE {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
            &[200, 400],
        ),
        (format!("SELECT VALUE {}1", "NOT ".repeat(100_000)), &[200, 400]),
        (
            format!("SELECT VALUE {}1{}", "[".repeat(50_000), "]".repeat(50_000)),
            &[200, 400],
        ),
        (
            format!("SELECT * FROM c WHERE c.n IN ({}0)", "1,".repeat(300_000)),
            &[400],
        ),
        (
            format!("SELECT * FROM c WHERE c.n IN ({}0)", "1,".repeat(5_000_000)),
            &[413],
        ),
        // Not wrong, only large: answered, and soon.
        (
            format!("SELECT VALUE c.n IN ({}0) FROM c", "1,".repeat(200_000)),
            &[200],
        ),
        (
            "SELECT VALUE REGEXMATCH(c.text, '((a{1,500}){1,500}){1,500}$') FROM c".into(),
            &[200],
        ),
        ("SELECT VALUE REGEXMATCH(c.text, '^(a+)+b$') FROM c".into(), &[200]),
        ("SELECT VALUE LENGTH(REPLICATE(c.text, 1000000)) FROM c".into(), &[200]),
        ("SELECT VALUE c.text LIKE '%a%a%a%a%a%a%a%a%b' FROM c".into(), &[200]),
    ]
}

async fn throw(server: &Server, bomb: &str, allowed: &[u16]) {
    let started = Instant::now();
    let mut answer = send(server.address, query(bomb)).await;
    // Being sent away for a while is right when others are heavy too.
    while answer.status == 429 {
        assert!(!answer.header("x-ms-retry-after-ms").is_empty());
        tokio::time::sleep(Duration::from_millis(100)).await;
        answer = send(server.address, query(bomb)).await;
    }
    let text: String = bomb.chars().take(120).collect();
    assert!(
        allowed.contains(&answer.status),
        "{text}: {} {:?}",
        answer.status,
        answer.body.slice(..answer.body.len().min(300))
    );
    if answer.status != 200 {
        assert!(
            answer.json()["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty())
        );
    }
    assert!(started.elapsed() < Duration::from_secs(60), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bomb_is_answered_while_point_reads_stay_quick() {
    let server = Arc::new(server().await);
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (server, done) = (Arc::clone(&server), Arc::clone(&done));
        async move {
            let mut times = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let started = Instant::now();
                assert_eq!(send(server.address, read()).await.status, 200);
                times.push(started.elapsed());
            }
            times.sort();
            times
        }
    });
    let thrown = bombs().into_iter().map(|(bomb, allowed)| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { throw(&server, &bomb, allowed).await })
    });
    for bomb in thrown.collect::<Vec<_>>() {
        bomb.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let times = reader.await.unwrap();
    let median = times[times.len() / 2];
    assert!(
        median < Duration::from_millis(250),
        "{} reads, half of them slower than {median:?}",
        times.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_slow_queries_at_once_leave_room_for_a_quick_one() {
    let server = Arc::new(server().await);
    let slow = "SELECT VALUE COUNT(1) FROM c JOIN a IN c.list JOIN b IN c.list JOIN d IN c.list JOIN e IN c.list";
    let slow: Vec<_> = (0..40)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { send(server.address, query(slow)).await.status })
        })
        .collect();
    let quick = send(server.address, query("SELECT VALUE c.n FROM c")).await;
    assert_eq!(quick.json()["Documents"], json!([1]));
    let mut statuses = Vec::new();
    for one in slow {
        statuses.push(one.await.unwrap());
    }
    assert!(
        statuses.iter().all(|status| matches!(status, 408 | 429)),
        "{statuses:?}"
    );
    assert!(statuses.contains(&429), "{statuses:?}");
}
