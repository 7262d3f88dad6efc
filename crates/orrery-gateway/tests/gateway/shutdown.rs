use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_gateway::Settings;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};

use crate::client::{Connection, read_item};
use crate::server::{Script, Server, found};

/// A script whose requests say when they have begun and wait until they may go on.
fn held() -> (Script, Arc<Notify>, Arc<Semaphore>) {
    let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (notify, wait) = (Arc::clone(&begun), Arc::clone(&gate));
    let script = Script::new(move |_| {
        let (notify, wait) = (Arc::clone(&notify), Arc::clone(&wait));
        async move {
            notify.notify_one();
            let _permit = wait.acquire().await;
            Ok(found(r#"{"id":"late"}"#))
        }
    });
    (script, begun, gate)
}

#[tokio::test]
async fn requests_under_way_finish_and_new_connections_are_refused() {
    for http2 in [false, true] {
        let (script, begun, gate) = held();
        let mut server = Server::start(script, Settings::default());
        let address = server.address;
        let stream = TcpStream::connect(address).await.unwrap();
        let mut connection = if http2 {
            Connection::http2(stream).await
        } else {
            Connection::http1(stream).await
        };
        let request = tokio::spawn(async move { connection.send(read_item()).await });
        begun.notified().await;
        server.begin_stop();
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        gate.add_permits(1);
        let answer = request.await.unwrap();
        assert_eq!(
            (answer.status, answer.body.as_ref()),
            (200, br#"{"id":"late"}"#.as_slice())
        );
        server.stopped().await;
    }
}

#[tokio::test]
async fn idle_connections_do_not_delay_the_end() {
    let server = Server::start(Script::finds("{}"), Settings::default());
    let silent = TcpStream::connect(server.address).await.unwrap();
    let mut used = Connection::http1(TcpStream::connect(server.address).await.unwrap()).await;
    let mut used2 = Connection::http2(TcpStream::connect(server.address).await.unwrap()).await;
    assert_eq!(used.send(read_item()).await.status, 200);
    assert_eq!(used2.send(read_item()).await.status, 200);
    let started = Instant::now();
    server.stopped().await;
    assert!(
        started.elapsed() < Settings::default().shutdown_deadline / 2,
        "{:?}",
        started.elapsed()
    );
    drop(silent);
}

#[tokio::test]
async fn a_request_that_never_ends_is_dropped_at_the_deadline() {
    for http2 in [false, true] {
        let (script, begun, gate) = held();
        let settings = Settings {
            shutdown_deadline: Duration::from_millis(100),
            ..Settings::default()
        };
        let server = Server::start(script, settings);
        let stream = TcpStream::connect(server.address).await.unwrap();
        let mut connection = if http2 {
            Connection::http2(stream).await
        } else {
            Connection::http1(stream).await
        };
        let request = tokio::spawn(async move { connection.try_send(read_item()).await });
        begun.notified().await;
        server.stopped().await;
        assert!(request.await.unwrap().is_err());
        assert_eq!(Arc::strong_count(&gate), 1, "nothing of the request is left behind");
    }
}
