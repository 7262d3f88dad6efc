//! Requests as an SDK would send them, signed, ready to be written to a socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;

use crate::documents::{DOCUMENT_BYTES, N_KEYS, document, id, partition_key, rank};
use crate::load::http1::{Answer, Connection, Fill, Target};
use crate::sign::{Key, date_now};

const CONTAINER: &str = "/dbs/bench/colls/items";

/// Signs requests as of one moment, which is good for a quarter of an hour.
#[derive(Debug)]
pub struct Signer {
    key: Key,
    date: String,
}

impl Signer {
    pub fn now() -> Signer {
        Signer {
            key: Key::development(),
            date: date_now(),
        }
    }

    fn headers(&self, verb: &str, path: &str) -> Vec<(&'static str, String)> {
        vec![
            ("x-ms-date", self.date.clone()),
            ("authorization", self.key.sign(verb, path, &self.date)),
            ("x-ms-version", "2020-07-15".to_owned()),
            ("accept", "application/json".to_owned()),
            ("user-agent", "orrery-bench".to_owned()),
        ]
    }

    /// The head of a request up to the empty line, which is left open for more headers.
    fn head(&self, verb: &str, path: &str) -> String {
        let mut head = format!("{verb} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in self.headers(verb, path) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head
    }

    fn whole(&self, verb: &str, path: &str, body: &str) -> Vec<u8> {
        let head = self.head(verb, path);
        format!(
            "{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    fn read(&self, number: u64) -> Vec<u8> {
        let head = self.head("GET", &item_path(number));
        format!("{head}{}: {}\r\n\r\n", KEY_HEADER, key_header(number)).into_bytes()
    }

    fn read_http2(&self, number: u64) -> Request<Empty<Bytes>> {
        let path = item_path(number);
        let mut request = Request::get(format!("http://localhost{path}"));
        for (name, value) in self.headers("GET", &path) {
            request = request.header(name, value);
        }
        let request = request.header(KEY_HEADER, key_header(number));
        request.body(Empty::new()).expect("the parts are valid")
    }
}

const KEY_HEADER: &str = "x-ms-documentdb-partitionkey";

fn key_header(number: u64) -> String {
    format!("[\"{}\"]", partition_key(number))
}

fn item_path(number: u64) -> String {
    format!("{CONTAINER}/docs/{}", id(number))
}

/// Point reads of the first `n_items` documents in random order.
pub fn reads(n_items: u64) -> Fill {
    reads_among(n_items, n_items)
}

/// The same at eventual consistency, which any node of a cluster may answer.
pub fn eventual_reads(n_items: u64) -> Fill {
    let signer = Signer::now();
    let eventual = |number: u64| {
        let mut request = signer.read(number);
        // Before the empty line.
        request.truncate(request.len() - 2);
        request.extend_from_slice(b"x-ms-consistency-level: Eventual\r\n\r\n");
        request
    };
    let requests: Vec<Vec<u8>> = (0..n_items).map(eventual).collect();
    Arc::new(move |random, out| out.extend_from_slice(&requests[random.below(n_items) as usize]))
}

/// Point reads of `n_read` documents spread over the first `n_items`, in random order.
pub fn reads_among(n_items: u64, n_read: u64) -> Fill {
    let signer = Signer::now();
    let requests: Vec<Vec<u8>> = (0..n_read).map(|nth| signer.read(nth * n_items / n_read)).collect();
    Arc::new(move |random, out| out.extend_from_slice(&requests[random.below(n_read) as usize]))
}

pub fn reads_http2(n_items: u64) -> Arc<Vec<Request<Empty<Bytes>>>> {
    let signer = Signer::now();
    Arc::new((0..n_items).map(|number| signer.read_http2(number)).collect())
}

/// Creates of new documents, numbered from `first` on.
pub fn creates(first: u64) -> Fill {
    let head = Signer::now().head("POST", &format!("{CONTAINER}/docs"));
    let next = AtomicU64::new(first);
    Arc::new(move |_, out| write_document(&head, next.fetch_add(1, Ordering::Relaxed), 0, out))
}

/// Documents created by one batch.
const BATCH_DOCUMENTS: u64 = 50;

/// Batches that create the first `n_items` documents, and how many there are: the quick way to fill a container.
pub fn batches(n_items: u64) -> (Fill, u64) {
    let head = Signer::now().head("POST", &format!("{CONTAINER}/docs"))
        + "x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: True\r\n";
    let next = AtomicU64::new(0);
    let fill: Fill = Arc::new(move |_, out| {
        let batch = next.fetch_add(1, Ordering::Relaxed);
        let (key, first) = (batch % N_KEYS, batch / N_KEYS * BATCH_DOCUMENTS);
        let numbers = (first..first + BATCH_DOCUMENTS).map(|nth| key + nth * N_KEYS);
        let creates: Vec<String> = numbers
            .filter(|number| *number < n_items)
            .map(|number| {
                format!(
                    "{{\"operationType\":\"Create\",\"resourceBody\":{}}}",
                    document(number, 0)
                )
            })
            .collect();
        let body = format!("[{}]", creates.join(","));
        let headers = format!(
            "{KEY_HEADER}: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            key_header(key),
            body.len()
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(headers.as_bytes());
        out.extend_from_slice(body.as_bytes());
    });
    (fill, n_items.div_ceil(N_KEYS * BATCH_DOCUMENTS) * N_KEYS.min(n_items))
}

/// Queries for one of the first `n_items` documents by its id, which the index finds.
pub fn equality_queries(n_items: u64) -> Fill {
    let head = query_head(&Signer::now());
    Arc::new(move |random, out| {
        let number = random.below(n_items);
        let sql = "SELECT * FROM c WHERE c.id = @id";
        let more = format!("{KEY_HEADER}: {}\r\n", key_header(number));
        write_query(&head, &more, sql, &[("@id", id(number).into())], out);
    })
}

/// Queries for one of the first `n_items` documents by a number that hardly another one of its key has: a plan, a look into the
/// index and a row.
pub fn property_queries(n_items: u64) -> Fill {
    let head = query_head(&Signer::now());
    Arc::new(move |random, out| {
        let number = random.below(n_items);
        let more = format!("{KEY_HEADER}: {}\r\n", key_header(number));
        let sql = "SELECT * FROM c WHERE c.rank = @rank";
        write_query(&head, &more, sql, &[("@rank", rank(number).into())], out);
    })
}

/// Queries for twenty documents in the order of a number: the first ones, or those from a random place on.
pub fn ordered_queries(from_anywhere: bool) -> Fill {
    let head = query_head(&Signer::now());
    Arc::new(move |random, out| {
        if from_anywhere {
            let sql = "SELECT * FROM c WHERE c.rank >= @from ORDER BY c.rank OFFSET 0 LIMIT 20";
            let from = random.below(crate::documents::N_RANKS * 9 / 10);
            write_query(&head, "", sql, &[("@from", from.into())], out);
        } else {
            write_query(&head, "", "SELECT * FROM c ORDER BY c.rank OFFSET 0 LIMIT 20", &[], out);
        }
    })
}

fn query_head(signer: &Signer) -> String {
    signer.head("POST", &format!("{CONTAINER}/docs"))
        + "x-ms-documentdb-isquery: True\r\nx-ms-documentdb-query-enablecrosspartition: True\r\n\
           content-type: application/query+json\r\n"
}

fn write_query(head: &str, more: &str, sql: &str, parameters: &[(&str, serde_json::Value)], out: &mut Vec<u8>) {
    let parameters: Vec<_> = parameters
        .iter()
        .map(|(name, value)| serde_json::json!({ "name": name, "value": value }))
        .collect();
    let body = serde_json::json!({ "query": sql, "parameters": parameters }).to_string();
    let rest = format!("{more}content-length: {}\r\n\r\n{body}", body.len());
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(rest.as_bytes());
}

/// Upserts of the first `n_items` documents in random order.
pub fn upserts(n_items: u64) -> Fill {
    let head = Signer::now().head("POST", &format!("{CONTAINER}/docs")) + "x-ms-documentdb-is-upsert: true\r\n";
    Arc::new(move |random, out| write_document(&head, random.below(n_items), 1 + random.below(1000), out))
}

fn write_document(head: &str, number: u64, revision: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(head.as_bytes());
    let headers = format!(
        "{KEY_HEADER}: {}\r\ncontent-type: application/json\r\ncontent-length: {DOCUMENT_BYTES}\r\n\r\n",
        key_header(number)
    );
    out.extend_from_slice(headers.as_bytes());
    out.extend_from_slice(document(number, revision).as_bytes());
}

/// A page of a thousand changes after a token; waits for one if asked to.
pub fn changes(signer: &Signer, token: &str, wait_ms: u32) -> Vec<u8> {
    let head = signer.head("GET", &format!("{CONTAINER}/docs"));
    format!(
        "{head}a-im: Incremental Feed\r\nx-ms-max-item-count: 1000\r\nif-none-match: {token}\r\n\
         x-orrery-feed-wait-ms: {wait_ms}\r\n\r\n"
    )
    .into_bytes()
}

/// Creates of containers, numbered from 0 on.
pub fn container_creates() -> Fill {
    let signer = Signer::now();
    let next = AtomicU64::new(0);
    Arc::new(move |_, out| {
        let name = format!("c{:04}", next.fetch_add(1, Ordering::Relaxed));
        out.extend(signer.whole("POST", "/dbs/bench/colls", &container_body(&name, "/pk")));
    })
}

fn container_body(name: &str, key: &str) -> String {
    format!("{{\"id\":\"{name}\",\"partitionKey\":{{\"paths\":[\"{key}\"],\"kind\":\"Hash\",\"version\":2}}}}")
}

/// Makes the database and the container that items go to.
pub async fn make_container(port: u16) -> Result<()> {
    let signer = Signer::now();
    call(port, 201, &signer.whole("POST", "/dbs", "{\"id\":\"bench\"}")).await?;
    make_container_named(port, "items", "/pk").await
}

/// Makes one more container, partitioned by `key`.
pub async fn make_container_named(port: u16, name: &str, key: &str) -> Result<()> {
    let request = Signer::now().whole("POST", "/dbs/bench/colls", &container_body(name, key));
    call(port, 201, &request).await?;
    Ok(())
}

/// A command of the administration API.
pub async fn administer(port: u16, command: &str, body: &str, expected: u16) -> Result<()> {
    let path = format!("/_orrery/v1/{command}");
    call(port, expected, &Signer::now().whole("POST", &path, body)).await?;
    Ok(())
}

/// The answer to a point read.
pub async fn read_once(port: u16, number: u64) -> Result<Answer> {
    call(port, 200, &Signer::now().read(number)).await
}

/// The answer to a create.
pub async fn create_once(port: u16, number: u64) -> Result<Answer> {
    let mut request = Vec::new();
    let head = Signer::now().head("POST", &format!("{CONTAINER}/docs"));
    write_document(&head, number, 0, &mut request);
    call(port, 201, &request).await
}

/// The answer to a query over all items.
pub async fn query_once(port: u16, sql: &str) -> Result<Answer> {
    let mut request = Vec::new();
    write_query(&query_head(&Signer::now()), "", sql, &[], &mut request);
    call(port, 200, &request).await
}

async fn call(port: u16, expected: u16, request: &[u8]) -> Result<Answer> {
    let answer = Connection::open(&Target::plain(port)).await?.call(request).await?;
    ensure!(
        answer.status == expected,
        "status {}: {}",
        answer.status,
        String::from_utf8_lossy(&answer.body)
    );
    Ok(answer)
}
