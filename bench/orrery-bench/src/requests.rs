//! Requests as an SDK would send them, signed, ready to be written to a socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;

use crate::documents::{DOCUMENT_BYTES, document, id, partition_key};
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
    let signer = Signer::now();
    let requests: Vec<Vec<u8>> = (0..n_items).map(|number| signer.read(number)).collect();
    Arc::new(move |random, out| out.extend_from_slice(&requests[random.below(n_items) as usize]))
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
        out.extend(signer.whole("POST", "/dbs/bench/colls", &container_body(&name)));
    })
}

fn container_body(name: &str) -> String {
    format!("{{\"id\":\"{name}\",\"partitionKey\":{{\"paths\":[\"/pk\"],\"kind\":\"Hash\",\"version\":2}}}}")
}

/// Makes the database and the container that items go to.
pub async fn make_container(port: u16) -> Result<()> {
    let signer = Signer::now();
    call(port, 201, &signer.whole("POST", "/dbs", "{\"id\":\"bench\"}")).await?;
    call(
        port,
        201,
        &signer.whole("POST", "/dbs/bench/colls", &container_body("items")),
    )
    .await?;
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
    let head = Signer::now().head("POST", &format!("{CONTAINER}/docs"));
    let body = serde_json::json!({ "query": sql }).to_string();
    let request = format!(
        "{head}x-ms-documentdb-isquery: True\r\nx-ms-documentdb-query-enablecrosspartition: True\r\n\
         content-type: application/query+json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    call(port, 200, request.as_bytes()).await
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
