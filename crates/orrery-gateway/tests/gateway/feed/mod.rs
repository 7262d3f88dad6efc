//! The change feed as clients see it. `latest`: the feed of latest versions. `versions`: all versions and deletes. `pull`:
//! tokens, splits and merges. `beyond`: what the service does not offer.

mod beyond;
mod latest;
mod pull;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::HeaderName;
use http_body_util::Full;
use orrery_model::Timestamp;
use orrery_node::{Clock as _, ManualClock};
use serde_json::{Value, json};

use crate::client::{Answer, administer, send, signed};
use crate::server::Server;

const CONTAINER: &str = "dbs/shop/colls/orders";
const LATEST: (&str, &str) = ("a-im", "Incremental Feed");
const ALL: (&str, &str) = ("a-im", "Full-Fidelity Feed");
const ENVELOPED: (&str, &str) = ("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15");
const NOW: (&str, &str) = ("if-none-match", "*");
/// Beyond any retention that containers here have.
const RETENTION: &str = r#"{"retentionDuration":10}"#;

/// A server with one container, and a clock that stands still until told to move.
struct Shop {
    server: Server,
    clock: Arc<ManualClock>,
}

/// A page of changes, or the news that there is none.
struct Page {
    status: u16,
    answer: Answer,
}

impl Page {
    fn changes(&self) -> Vec<Value> {
        match self.status {
            200 => self.answer.json()["Documents"].as_array().unwrap().clone(),
            304 => Vec::new(),
            _ => panic!("{:?}", self.answer),
        }
    }

    fn token(&self) -> &str {
        self.answer.header("etag")
    }

    /// Request units.
    fn charge(&self) -> f64 {
        self.answer.header("x-ms-request-charge").parse().unwrap()
    }

    /// A field of every change.
    fn field(&self, name: &str) -> Vec<Value> {
        self.changes().iter().map(|change| change[name].clone()).collect()
    }
}

impl Shop {
    /// A container keyed by `/pk`, with more of its definition as JSON members.
    async fn open(more: Value) -> Shop {
        Shop::open_keyed(json!({"paths": ["/pk"], "kind": "Hash", "version": 2}), more).await
    }

    async fn open_keyed(key: Value, more: Value) -> Shop {
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let server = Server::with_node_at(clock.clone(), Duration::from_millis(10)).await;
        let shop = Shop { server, clock };
        assert_eq!(shop.post("", "dbs", &json!({"id": "shop"}), &[]).await.status, 201);
        let mut container = json!({"id": "orders", "partitionKey": key});
        container
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let created = shop.post("dbs/shop", "colls", &container, &[]).await;
        assert_eq!(created.status, 201, "{created:?}");
        shop
    }

    /// A container that keeps all versions.
    async fn keeping() -> Shop {
        Shop::open(json!({"changeFeedPolicy": serde_json::from_str::<Value>(RETENTION).unwrap()})).await
    }

    async fn post(&self, parent: &str, kind: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
        let path = format!("/{parent}/{kind}").replace("//", "/");
        let request = signed("POST", &path, kind, parent, body.to_string());
        send(self.server.address, with(request, headers)).await
    }

    async fn create(&self, key: &str, id: &str, n: i64) -> Value {
        self.write(key, &json!({"id": id, "pk": key, "n": n}), false).await
    }

    async fn upsert(&self, key: &str, id: &str, n: i64) -> Value {
        self.write(key, &json!({"id": id, "pk": key, "n": n}), true).await
    }

    async fn write(&self, key: &str, item: &Value, upsert: bool) -> Value {
        let key = json!([key]).to_string();
        let upsert = if upsert { "true" } else { "false" };
        let headers = [
            ("x-ms-documentdb-partitionkey", key.as_str()),
            ("x-ms-documentdb-is-upsert", upsert),
        ];
        let answer = self.post(CONTAINER, "docs", item, &headers).await;
        assert!(answer.status < 300, "{answer:?}");
        answer.json()
    }

    async fn on_item(&self, verb: &str, key: &str, id: &str, body: &Value) -> Answer {
        let link = format!("{CONTAINER}/docs/{id}");
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = signed(verb, &format!("/{link}"), "docs", &link, body);
        let key = json!([key]).to_string();
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        let answer = send(self.server.address, with(request, &headers)).await;
        assert!(answer.status < 300, "{answer:?}");
        answer
    }

    async fn delete(&self, key: &str, id: &str) {
        self.on_item("DELETE", key, id, &Value::Null).await;
    }

    /// A transactional batch; answers its status.
    async fn batch(&self, key: &str, operations: &Value) -> u16 {
        let key = json!([key]).to_string();
        let headers = [
            ("x-ms-documentdb-partitionkey", key.as_str()),
            ("x-ms-cosmos-is-batch-request", "True"),
            ("x-ms-cosmos-batch-atomic", "True"),
        ];
        self.post(CONTAINER, "docs", operations, &headers).await.status
    }

    async fn read(&self, headers: &[(&str, &str)]) -> Page {
        let request = signed("GET", &format!("/{CONTAINER}/docs"), "docs", CONTAINER, "");
        let mut request = request;
        request.headers_mut().remove("x-ms-documentdb-partitionkey");
        let answer = send(self.server.address, with(request, headers)).await;
        Page {
            status: answer.status,
            answer,
        }
    }

    /// Reads page after page until there is nothing new; answers the changes and the last token.
    async fn drain(&self, headers: &[(&str, &str)]) -> (Vec<Value>, String) {
        let (mut found, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut headers = headers.to_vec();
            if let Some(token) = &token {
                headers.retain(|(name, _)| *name != "if-none-match");
                headers.push(("if-none-match", token));
            }
            let page = self.read(&headers).await;
            found.extend(page.changes());
            token = Some(page.token().to_owned());
            if page.status == 304 {
                return (found, page.token().to_owned());
            }
        }
    }

    async fn administer(&self, path: &str, body: &Value) -> Value {
        let answer = send(
            self.server.address,
            administer("POST", &format!("/_orrery/v1/{path}"), body.to_string()),
        )
        .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Splits a partition; answers the children's numbers.
    async fn split(&self, partition: u64) -> Vec<u64> {
        let form = json!({"database": "shop", "container": "orders", "partition": partition});
        partitions(&self.administer("partitions/split", &form).await)
    }

    /// Keys that have items in a partition.
    async fn keys_in(&self, partition: u64) -> Vec<String> {
        let id = partition.to_string();
        let within = [LATEST, ("x-ms-documentdb-partitionkeyrangeid", id.as_str())];
        let (changes, _) = self.drain(&within).await;
        changes
            .iter()
            .map(|change| change["pk"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn merge(&self, first: u64, second: u64) -> u64 {
        let form = json!({"database": "shop", "container": "orders", "partitions": [first, second]});
        partitions(&self.administer("partitions/merge", &form).await)[0]
    }

    /// The container's definition, changed.
    async fn redefine(&self, name: &str, value: Value) {
        let read = signed("GET", &format!("/{CONTAINER}"), "colls", CONTAINER, "");
        let mut definition = send(self.server.address, read).await.json();
        definition[name] = value;
        let replace = signed(
            "PUT",
            &format!("/{CONTAINER}"),
            "colls",
            CONTAINER,
            definition.to_string(),
        );
        let answer = send(self.server.address, replace).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    fn http_date(&self, offset_seconds: i64) -> String {
        let seconds = self.clock.now().seconds().saturating_add_signed(offset_seconds);
        httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(seconds))
    }
}

fn partitions(answer: &Value) -> Vec<u64> {
    let list = answer["partitions"].as_array().unwrap();
    list.iter()
        .map(|partition| partition["partition"].as_u64().unwrap())
        .collect()
}

fn with(mut request: Request<Full<bytes::Bytes>>, headers: &[(&str, &str)]) -> Request<Full<bytes::Bytes>> {
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

fn ids(changes: &[Value]) -> Vec<&str> {
    changes.iter().map(|change| change["id"].as_str().unwrap()).collect()
}

fn lsn(change: &Value) -> u64 {
    change["_lsn"]
        .as_u64()
        .or_else(|| change["metadata"]["lsn"].as_u64())
        .unwrap_or_else(|| panic!("no position: {change}"))
}
