use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::client::{administer, open, send, signed};
use crate::server::{Script, Server};
use orrery_gateway::Settings;

/// Events as a listener gets them.
struct Listener {
    body: hyper::body::Incoming,
    text: String,
}

impl Listener {
    /// Listens; returns once everything that happens from now on will be heard.
    async fn start(server: &Server) -> Listener {
        let request = administer("GET", "/_orrery/v1/events", "");
        let response = open(server.address, request).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut listener = Listener {
            body: response.into_body(),
            text: String::new(),
        };
        assert_eq!(listener.block().await.as_deref(), Some(": listening"));
        listener
    }

    /// The next block of lines; `None` when the server has ended the stream.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.body.frame())
                .await
                .expect("something happens in time")?;
            let data = frame.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    /// Name and data of the next event.
    async fn event(&mut self) -> (String, Value) {
        let block = self.block().await.expect("the stream goes on");
        let line = |name: &str| {
            block
                .lines()
                .find_map(|line| line.strip_prefix(name).map(str::to_owned))
        };
        let data = serde_json::from_str(&line("data: ").expect("data")).unwrap();
        (line("event: ").expect("a name"), data)
    }
}

async fn create(server: &Server, parent: &str, kind: &str, body: Value) {
    let path = format!("/{parent}/{kind}").replace("//", "/");
    let answer = send(server.address, signed("POST", &path, kind, parent, body.to_string())).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

#[tokio::test]
async fn a_listener_hears_what_happens_to_databases_containers_and_partitions() {
    let server = Server::with_node().await;
    let mut listener = Listener::start(&server).await;
    create(&server, "", "dbs", json!({"id": "shop"})).await;
    let container = json!({"id": "orders", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    create(&server, "dbs/shop", "colls", container).await;
    let split = json!({"database": "shop", "container": "orders", "partition": 0}).to_string();
    let answer = send(
        server.address,
        administer("POST", "/_orrery/v1/partitions/split", split),
    )
    .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let delete = signed("DELETE", "/dbs/shop/colls/orders", "colls", "dbs/shop/colls/orders", "");
    assert_eq!(send(server.address, delete).await.status, 204);

    let (name, data) = listener.event().await;
    assert_eq!((name.as_str(), &data["database"]), ("database-created", &json!("shop")));
    let (name, data) = listener.event().await;
    assert_eq!(
        (name.as_str(), &data["container"]),
        ("container-created", &json!("orders"))
    );
    let (name, data) = listener.event().await;
    assert_eq!((name.as_str(), &data["parents"]), ("split-started", &json!([0])));
    let (name, data) = listener.event().await;
    assert_eq!((name.as_str(), &data["children"]), ("split-finished", &json!([1, 2])));
    let (name, data) = listener.event().await;
    assert_eq!(
        (name.as_str(), &data["database"]),
        ("container-deleted", &json!("shop"))
    );
}

#[tokio::test]
async fn a_fault_that_is_applied_is_told() {
    let server = Server::start(Script::finds("{}"), Settings::default());
    let mut listener = Listener::start(&server).await;
    let rule = json!({"operation": "read_database", "status": 503}).to_string();
    let added = send(server.address, administer("POST", "/_orrery/v1/faults", rule)).await;
    assert_eq!(added.status, 201, "{added:?}");
    let read = signed("GET", "/dbs/shop", "dbs", "dbs/shop", "");
    assert_eq!(send(server.address, read).await.status, 503);
    let (name, data) = listener.event().await;
    assert_eq!(name, "fault-applied");
    assert_eq!(
        (&data["fault"], &data["operation"]),
        (&added.json()["id"], &json!("read_database"))
    );
}

#[tokio::test]
async fn a_stopping_server_does_not_wait_for_listeners() {
    let server = Server::start(Script::finds("{}"), Settings::default());
    let mut listener = Listener::start(&server).await;
    tokio::time::timeout(Duration::from_secs(5), server.stopped())
        .await
        .expect("well before the deadline for requests");
    assert_eq!(listener.block().await, None);
}

#[tokio::test]
async fn events_need_a_key() {
    let server = Server::start(Script::finds("{}"), Settings::default());
    let request = Request::get("/_orrery/v1/events").header("host", "localhost");
    let answer = send(server.address, request.body(Default::default()).unwrap()).await;
    assert_eq!(answer.status, 401);
}
