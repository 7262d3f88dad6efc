use std::sync::Arc;

use orrery_gateway::tls::{self, Authority};
use orrery_gateway::{Parts, Settings};
use orrery_node::{Clock as _, SystemClock};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::{Connection, read_item, send, signed};
use crate::server::{Script, Server};

fn tls_server() -> (Server, String) {
    let clock = Arc::new(SystemClock::default());
    let authority = Arc::new(Authority::in_memory(clock.now()).unwrap());
    let pem = authority.pem().to_owned();
    let mut parts = Parts::new(Arc::new(Script::finds(r#"{"id":"x"}"#)), Settings::default());
    parts.ca_pem = Some(pem.clone().into());
    (
        Server::assemble(parts, Some(tls::acceptor(authority, clock).unwrap())),
        pem,
    )
}

async fn connect_tls(server: &Server, pem: &str, name: &str, alpn: &[&str]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .expect("a trusted handshake")
}

#[tokio::test]
async fn one_port_speaks_both_protocols_with_and_without_tls() {
    let (server, pem) = tls_server();
    let plain = || TcpStream::connect(server.address);
    let mut connections = [
        Connection::http1(plain().await.unwrap()).await,
        Connection::http2(plain().await.unwrap()).await,
        Connection::http1(connect_tls(&server, &pem, "localhost", &[]).await).await,
        Connection::http1(connect_tls(&server, &pem, "127.0.0.1", &["http/1.1"]).await).await,
        Connection::http2(connect_tls(&server, &pem, "db.example", &["h2"]).await).await,
        Connection::http2(connect_tls(&server, &pem, "localhost", &["h2", "http/1.1"]).await).await,
    ];
    for connection in &mut connections {
        // Twice, because a connection is kept for the next request.
        for _ in 0..2 {
            let answer = connection.send(read_item()).await;
            assert_eq!(
                (answer.status, answer.body.as_ref()),
                (200, br#"{"id":"x"}"#.as_slice())
            );
            assert_eq!(answer.header("x-ms-request-charge"), "1");
        }
    }
}

#[tokio::test]
async fn the_certificate_authority_can_be_fetched_without_a_key() {
    let (server, pem) = tls_server();
    let request = http::Request::get("/_orrery/ca.pem")
        .header("host", "localhost")
        .body(Default::default())
        .unwrap();
    let answer = send(server.address, request).await;
    assert_eq!((answer.status, answer.body.as_ref()), (200, pem.as_bytes()));
}

#[tokio::test]
async fn the_account_document_names_the_address_the_client_called() {
    let (server, pem) = tls_server();
    let plain = TcpStream::connect(server.address).await.unwrap();
    for (mut connection, endpoint) in [
        (Connection::http1(plain).await, "http://localhost:8081/"),
        (
            Connection::http2(connect_tls(&server, &pem, "localhost", &["h2"]).await).await,
            "https://localhost:8081/",
        ),
    ] {
        let document = connection.send(signed("GET", "/", "", "", "")).await.json();
        assert_eq!(document["id"], "orrery");
        assert_eq!(document["writableLocations"][0]["databaseAccountEndpoint"], endpoint);
        assert_eq!(document["readableLocations"][0]["name"], "West US");
    }
}

#[tokio::test]
async fn an_activity_id_is_echoed_or_made_up() {
    let (server, _) = tls_server();
    let id = "8f14e45f-ceea-467f-a0e6-1b4c4b5a9c2d";
    let mut request = read_item();
    request.headers_mut().insert("x-ms-activity-id", id.parse().unwrap());
    assert_eq!(send(server.address, request).await.header("x-ms-activity-id"), id);
    assert_eq!(
        send(server.address, read_item()).await.header("x-ms-activity-id").len(),
        36
    );
}

#[tokio::test]
async fn requests_on_one_http2_connection_run_at_the_same_time() {
    let barrier = Arc::new(tokio::sync::Barrier::new(20));
    let script = Script::new(move |_| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok(crate::server::found("{}"))
        }
    });
    let server = Server::start(script, Settings::default());
    let stream = TcpStream::connect(server.address).await.unwrap();
    let Connection::Http2(sender) = Connection::http2(stream).await else {
        unreachable!()
    };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut connection = Connection::Http2(sender.clone());
        tasks.spawn(async move { connection.send(read_item()).await.status });
    }
    assert!(tasks.join_all().await.iter().all(|status| *status == 200));
}
