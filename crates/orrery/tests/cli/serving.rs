//! Starting and stopping.

use std::net::TcpListener;

use serde_json::json;

use crate::support::{Server, export, fail, import};

#[test]
fn the_ready_line_says_where_each_account_is_and_with_which_key() {
    let server = Server::start(&[]);
    let port = server
        .endpoint()
        .trim_start_matches("http://localhost:")
        .trim_end_matches('/');
    assert!(port.parse::<u16>().is_ok_and(|port| port > 0), "{}", server.ready);
    let expected = json!({
        "event": "ready",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": server.pid(),
        "accounts": [{
            "id": "orrery",
            "key": "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==",
            "endpoint": server.endpoint(),
            "regions": [{ "name": "West US", "endpoint": server.endpoint(), "role": "write" }],
        }],
    });
    assert_eq!(server.ready, expected);
}

#[test]
fn on_sigterm_the_server_ends_by_itself_and_keeps_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::durable(directory.path(), &[]);
    import(&server, "{\"id\":\"1\",\"pk\":\"a\"}\n{\"id\":\"2\",\"pk\":\"b\"}\n");
    let (status, rest) = server.terminate();
    assert!(status.success(), "{status}");
    assert_eq!(rest, "", "stdout is for the ready line");
    let again = Server::durable(directory.path(), &[]);
    assert_eq!(
        export(&again, "db", "c"),
        [json!({"id": "1", "pk": "a"}), json!({"id": "2", "pk": "b"})]
    );
}

#[test]
fn a_taken_port_is_one_line_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = fail(&["emulator", "--memory", "--port", &port]);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("orrery: ") && error.contains(&port), "{error}");
}

#[test]
fn a_directory_in_use_is_one_line_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let _server = Server::durable(directory.path(), &[]);
    let path = directory.path().to_str().unwrap();
    let error = fail(&["emulator", "--port", "0", "--data-dir", path]);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(path), "{error}");
}
