//! The server where there is little of something: a disk that is full, and more connections than most servers get.
//!
//! What this machine does not allow is said, and that test ends there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../kill_loop/client.rs"]
mod client;
mod connections;
mod full_disk;

/// The port in a ready line.
fn port_of(ready: &serde_json::Value) -> u16 {
    let endpoint = ready["accounts"][0]["endpoint"].as_str().expect("an endpoint");
    let port = endpoint.trim_end_matches('/').rsplit(':').next();
    port.and_then(|port| port.parse().ok()).expect("a port")
}

/// Makes the database and the container that the client's requests are about.
fn make_container(client: &mut client::Client) {
    let database = client.post("/dbs", "dbs", "", None, "{\"id\":\"db\"}").unwrap();
    assert_eq!(database.status, 201, "{database:?}");
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let container = client.post("/dbs/db/colls", "colls", "dbs/db", None, body).unwrap();
    assert_eq!(container.status, 201, "{container:?}");
}
