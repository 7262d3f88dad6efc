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
    query_with(text, &json!([]))
}

fn query_with(text: &str, parameters: &Value) -> Request<Full<Bytes>> {
    let body = json!({ "query": text, "parameters": parameters }).to_string();
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
        (blown_up(9), &[400, 408]),
        (format!("SELECT VALUE [{everything}] FROM c"), &[400, 408]),
        (
            format!("SELECT VALUE ARRAY_CONCAT([{everything}], [{everything}]) FROM c"),
            &[400, 408],
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
        (format!("SELECT VALUE c{} FROM c", ".a".repeat(15_000)), &[400]),
        (format!("SELECT VALUE c{} FROM c", "[c.x]".repeat(5_000)), &[400]),
        (format!("SELECT * FROM c{}", ".a".repeat(200_000)), &[400]),
        (format!("SELECT * FROM c ORDER BY c{}", ".a".repeat(200_000)), &[400]),
        (
            format!("SELECT VALUE {}1{}", "(SELECT 1 ORDER BY ".repeat(60), ")".repeat(60)),
            &[400],
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
            &[400],
        ),
        (
            "SELECT VALUE REGEXMATCH(c.text, '^(?=(a+)+$)(?!b)(a|aa)+$') FROM c".into(),
            &[400],
        ),
        ("SELECT VALUE REGEXMATCH(c.text, '^(a+)+b$') FROM c".into(), &[200]),
        (
            "SELECT VALUE REGEXMATCH(c.text, '(a{1,200}){1,20}b') FROM c".into(),
            &[400],
        ),
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

/// Short texts whose parameters make them long: nothing of an item is needed to see that they are, and planning must not try.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_cannot_make_planning_long() {
    let server = Arc::new(server().await);
    let like = ["@a LIKE @p"; 10].join(" OR ");
    let pattern = format!("%{}b", "a".repeat(15_000));
    let parameters = json!([{"name": "@a", "value": "a".repeat(30_000)}, {"name": "@p", "value": pattern}]);
    let list: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
    let many = json!([{"name": "@a", "value": list}]);
    let brackets = json!([{"name": "@a", "value": "a"}, {"name": "@p", "value": "[".repeat(500_000)}]);
    let bombs: [(String, &Value, &[u16]); 4] = [
        (format!("SELECT * FROM c WHERE {like}"), &parameters, &[200, 408, 429]),
        (
            format!("SELECT * FROM c WHERE c.id = '1' AND ({like})"),
            &parameters,
            &[200, 408, 429],
        ),
        (format!("SELECT VALUE [{}]", vec!["@a"; 2_000].join(",")), &many, &[400]),
        ("SELECT VALUE @a LIKE @p".to_owned(), &brackets, &[200]),
    ];
    let mut thrown = Vec::new();
    for (text, parameters, allowed) in bombs.iter().cycle().take(12) {
        let (server, request) = (Arc::clone(&server), query_with(text, parameters));
        let (text, allowed) = (text[..20].to_owned(), *allowed);
        thrown.push(tokio::spawn(async move {
            let answer = send(server.address, request).await;
            assert!(allowed.contains(&answer.status), "{text}: {answer:?}");
        }));
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let started = Instant::now();
        assert_eq!(send(server.address, read()).await.status, 200);
        slowest = slowest.max(started.elapsed());
    }
    assert!(slowest < Duration::from_secs(2), "a read took {slowest:?}");
    for bomb in thrown {
        bomb.await.unwrap();
    }
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

/// A patch of the item that happens only under a condition.
fn patch(condition: &str) -> Request<Full<Bytes>> {
    let link = format!("{CONTAINER}/docs/1");
    let body = json!({"condition": condition, "operations": [{"op": "set", "path": "/seen", "value": true}]});
    signed("PATCH", &format!("/{link}"), "docs", &link, body.to_string())
}

fn query_databases(text: &str) -> Request<Full<Bytes>> {
    let list: Vec<u32> = (0..1_000).collect();
    let body = json!({"query": text, "parameters": [{"name": "@list", "value": list}]}).to_string();
    let mut request = signed("POST", "/dbs", "dbs", "", body);
    let headers = request.headers_mut();
    headers.insert("content-type", "application/query+json".parse().unwrap());
    headers.insert("x-ms-documentdb-isquery", "True".parse().unwrap());
    request
}

fn filtered_changes(filter: &str) -> Request<Full<Bytes>> {
    let mut request = signed("GET", &format!("/{CONTAINER}/docs"), "docs", CONTAINER, "");
    let headers = request.headers_mut();
    headers.remove("x-ms-documentdb-partitionkey");
    headers.insert("a-im", "Incremental Feed".parse().unwrap());
    headers.insert("x-orrery-feed-filter", filter.parse().unwrap());
    request
}

/// Where no page can end and nobody else should wait: conditions of patches and feeds, and queries over resources.
fn requests_that_take_long() -> Vec<(Request<Full<Bytes>>, &'static [u16])> {
    let product = "JOIN x IN c.list JOIN y IN c.list JOIN z IN c.list JOIN w IN c.list";
    let of_many_terms = format!("FROM c WHERE NOT ({})", vec!["c.text = c.text"; 2_000].join(" AND "));
    vec![
        (patch(&format!("FROM c {product} WHERE x + y + z + w < 0")), &[400]),
        (
            patch("FROM c WHERE (SELECT VALUE COUNT(1) FROM a IN c.list JOIN b IN c.list JOIN d IN c.list) = 0"),
            &[400],
        ),
        (
            patch("FROM c WHERE ARRAY_LENGTH(ARRAY(SELECT VALUE c FROM a IN c.list JOIN b IN c.list)) = 0"),
            &[400],
        ),
        (patch(&of_many_terms), &[400]),
        // One row tells, however many there are.
        (patch(&format!("FROM c {product}")), &[200]),
        (
            query_databases(
                "SELECT VALUE 1 FROM c JOIN a IN @list JOIN b IN @list JOIN d IN @list JOIN e IN @list WHERE a + b + d + e < 0",
            ),
            &[408],
        ),
        (
            query_databases(
                "SELECT VALUE COUNT(1) FROM c JOIN a IN @list JOIN b IN @list JOIN d IN @list JOIN e IN @list",
            ),
            &[408],
        ),
        (
            query_databases("SELECT DISTINCT VALUE [@list, a, b] FROM c JOIN a IN @list JOIN b IN @list"),
            &[400, 408],
        ),
        // As many rows as a page holds.
        (
            query_databases("SELECT VALUE [a, b, d] FROM c JOIN a IN @list JOIN b IN @list JOIN d IN @list"),
            &[200],
        ),
        (
            filtered_changes(
                "FROM c JOIN x IN c.current.list JOIN y IN c.current.list JOIN z IN c.current.list WHERE x + y + z < 0",
            ),
            &[400],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_and_queries_over_resources_stop_nobody_else() {
    let server = Arc::new(server().await);
    let done = Arc::new(AtomicBool::new(false));
    let others = tokio::spawn({
        let (server, done) = (Arc::clone(&server), Arc::clone(&done));
        async move {
            let (mut n, mut slowest) = (0, Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                let started = Instant::now();
                let item = json!({"id": format!("other {n}"), "pk": "a"});
                post(&server, CONTAINER, "docs", &item).await;
                assert_eq!(send(server.address, read()).await.status, 200);
                let health = Request::get("/healthz")
                    .header("host", "localhost")
                    .body(Full::default());
                assert_eq!(send(server.address, health.unwrap()).await.status, 200);
                (n, slowest) = (n + 1, slowest.max(started.elapsed()));
            }
            (n, slowest)
        }
    });
    let sent = requests_that_take_long().into_iter().map(|(request, allowed)| {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let text = format!("{:?}", request.body()).chars().take(160).collect::<String>();
            let answer = send(server.address, request).await;
            let allowed = answer.status == 429 || allowed.contains(&answer.status);
            assert!(
                allowed,
                "{text}: {} {:?}",
                answer.status,
                answer.body.slice(..answer.body.len().min(300))
            );
            assert!(answer.body.len() < 8 << 20, "{text}: {} bytes", answer.body.len());
        })
    });
    for one in sent.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let (n, slowest) = others.await.unwrap();
    assert!(
        n > 0 && slowest < Duration::from_secs(20),
        "{n} rounds, the slowest in {slowest:?}"
    );
}

#[tokio::test]
async fn pages_of_a_query_over_resources_are_its_rows() {
    let server = server().await;
    for name in ["e", "f", "g"] {
        post(&server, "", "dbs", &json!({ "id": name })).await;
    }
    let (mut continuation, mut pages): (Option<String>, _) = (None, Vec::new());
    loop {
        let mut request = query_databases("SELECT VALUE r.id FROM root r WHERE r.id != @list");
        let headers = request.headers_mut();
        headers.insert("x-ms-max-item-count", "2".parse().unwrap());
        if let Some(continuation) = &continuation {
            headers.insert("x-ms-continuation", continuation.parse().unwrap());
        }
        let answer = send(server.address, request).await;
        pages.push(answer.json()["Databases"].clone());
        continuation = Some(answer.header("x-ms-continuation").to_owned()).filter(|text| !text.is_empty());
        if continuation.is_none() {
            break;
        }
    }
    assert_eq!(pages, [json!(["d", "e"]), json!(["f", "g"])]);
}
