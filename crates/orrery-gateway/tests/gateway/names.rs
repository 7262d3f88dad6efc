//! Accounts and regions told apart by name on one port.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use orrery_gateway::names::{Directory, Suffix};
use orrery_gateway::{Parts, Pipeline, Settings};
use tokio::net::TcpStream;

use crate::client::{Answer, Connection, create_item, read_item, send};
use crate::server::{Script, Server};

/// A server that nobody calls by name, and two others on the same port.
fn server() -> Server {
    let directory = Arc::new(Directory::new(Suffix::new("orrery.test").unwrap()));
    let pipeline = |body| Arc::new(Pipeline::new(parts(body)));
    directory.set_account("db", pipeline(r#"{"id":"account"}"#));
    directory.set_region("db", "North Europe", pipeline(r#"{"id":"region"}"#));
    Server::assemble_named(parts(r#"{"id":"listener"}"#), None, Some(directory))
}

fn parts(body: &'static str) -> Parts {
    Parts::new(Arc::new(Script::finds(body)), Settings::default())
}

async fn ask(server: &Server, host: &str, mut request: Request<Full<Bytes>>) -> Answer {
    request.headers_mut().insert("host", host.parse().unwrap());
    send(server.address, request).await
}

#[tokio::test]
async fn a_request_is_answered_by_whom_it_calls() {
    let server = server();
    for (host, answered_by) in [
        ("localhost:8081", "listener"),
        ("127.0.0.1:8081", "listener"),
        ("orrery.test", "listener"),
        ("db.orrery.test:8081", "account"),
        ("DB.Orrery.Test", "account"),
        ("db-northeurope.orrery.test:8081", "region"),
        ("db-NorthEurope.orrery.test", "region"),
        ("db-north-europe.orrery.test", "region"),
    ] {
        let answer = ask(&server, host, read_item()).await;
        assert_eq!(answer.json()["id"], answered_by, "{host}");
    }
}

#[tokio::test]
async fn requests_on_one_connection_may_call_different_names() {
    let server = server();
    let stream = || TcpStream::connect(server.address);
    for mut connection in [
        Connection::http1(stream().await.unwrap()).await,
        Connection::http2(stream().await.unwrap()).await,
    ] {
        for (host, answered_by) in [
            ("db.orrery.test", "account"),
            ("db-northeurope.orrery.test", "region"),
            ("localhost", "listener"),
        ] {
            let mut request = read_item();
            request.headers_mut().insert("host", host.parse().unwrap());
            assert_eq!(connection.send(request).await.json()["id"], answered_by, "{host}");
        }
    }
}

#[tokio::test]
async fn who_calls_a_name_that_nobody_has_is_sent_away_in_the_way_that_makes_clients_look_elsewhere() {
    let server = server();
    for host in [
        "db-westus.orrery.test",
        "db-.orrery.test",
        "x.db.orrery.test",
        "-.orrery.test",
    ] {
        let read = ask(&server, host, read_item()).await;
        assert_eq!((read.status, read.header("x-ms-substatus")), (403, "1008"), "{host}");
        let write = ask(&server, host, create_item(r#"{"id":"x"}"#)).await;
        assert_eq!((write.status, write.header("x-ms-substatus")), (403, "3"), "{host}");
    }
}
