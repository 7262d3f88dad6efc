use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_gateway::Settings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::{Connection, PATIENCE, create_item, raw_head, read_item, read_to_close, send, send_raw};
use crate::server::{Script, Server, found};

const SHORT: Duration = Duration::from_millis(200);

/// A server that is patient in every way but those the test changes.
fn server(settings: Settings) -> Server {
    Server::start(Script::finds(r#"{"id":"x"}"#), settings)
}

async fn closes_soon(stream: &mut TcpStream) -> String {
    let started = Instant::now();
    let text = read_to_close(stream).await;
    assert!(started.elapsed() >= SHORT / 2, "closed at once: {text}");
    text
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let server = server(Settings {
        first_byte_timeout: SHORT,
        ..Settings::default()
    });
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(closes_soon(&mut stream).await, "");
}

#[tokio::test]
async fn a_head_that_trickles_in_is_cut_off() {
    let server = server(Settings {
        head_timeout: SHORT,
        ..Settings::default()
    });
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let trickle = async {
        writer.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        // A byte now and then must not buy more time.
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(SHORT / 20).await;
        }
    };
    let close = async {
        let mut rest = Vec::new();
        let _ = reader.read_to_end(&mut rest).await;
    };
    tokio::select! {
        () = trickle => {}
        closed = tokio::time::timeout(PATIENCE, close) => closed.expect("the server closes the connection"),
    }
}

#[tokio::test]
async fn a_preface_that_trickles_in_is_cut_off() {
    let server = server(Settings {
        first_byte_timeout: SHORT,
        ..Settings::default()
    });
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"PRI * HT").await.unwrap();
    closes_soon(&mut stream).await;
}

#[tokio::test]
async fn a_tls_handshake_that_stalls_is_cut_off() {
    use orrery_node::Clock as _;
    let clock = std::sync::Arc::new(orrery_node::SystemClock::default());
    let authority = std::sync::Arc::new(orrery_gateway::tls::Authority::in_memory(clock.now()).unwrap());
    let settings = Settings {
        tls_handshake_timeout: SHORT,
        ..Settings::default()
    };
    let parts = orrery_gateway::Parts::new(std::sync::Arc::new(Script::finds("{}")), settings);
    let server = Server::assemble(parts, Some(orrery_gateway::tls::acceptor(authority, clock).unwrap()));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
    closes_soon(&mut stream).await;
}

#[tokio::test]
async fn a_connection_between_requests_outlives_the_patience_for_heads() {
    let server = server(Settings {
        head_timeout: SHORT,
        body_timeout: SHORT,
        ..Settings::default()
    });
    let mut http1 = Connection::http1(TcpStream::connect(server.address).await.unwrap()).await;
    let mut http2 = Connection::http2(TcpStream::connect(server.address).await.unwrap()).await;
    for _ in 0..2 {
        assert_eq!(http1.send(read_item()).await.status, 200);
        assert_eq!(http2.send(read_item()).await.status, 200);
        tokio::time::sleep(SHORT * 2).await;
    }
}

#[tokio::test]
async fn a_connection_without_requests_is_closed_in_the_end() {
    let server = server(Settings {
        idle_timeout: SHORT,
        ..Settings::default()
    });
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(format!("{}\r\n", raw_head(&read_item())).as_bytes())
        .await
        .unwrap();
    assert!(closes_soon(&mut stream).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_body_that_stalls_is_answered_with_408() {
    let server = server(Settings {
        body_timeout: SHORT,
        ..Settings::default()
    });
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("{}content-length: 100\r\n\r\n{{", raw_head(&create_item("")));
    stream.write_all(head.as_bytes()).await.unwrap();
    let text = closes_soon(&mut stream).await;
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
}

#[tokio::test]
async fn a_client_that_takes_no_answer_is_cut_off() {
    const ANSWER_BYTES: usize = 64 * 1024 * 1024;
    let script = Script::new(|_| async { Ok(found(Bytes::from(vec![b' '; ANSWER_BYTES]))) });
    let server = Server::start(
        script,
        Settings {
            write_timeout: SHORT,
            ..Settings::default()
        },
    );
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(format!("{}\r\n", raw_head(&read_item())).as_bytes())
        .await
        .unwrap();
    // The connection is gone when the server no longer counts it.
    let gone = async {
        while !server
            .pipeline
            .metrics()
            .render()
            .contains("orrery_connections_open 0\n")
        {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    tokio::time::sleep(SHORT / 2).await;
    tokio::time::timeout(PATIENCE, gone).await.expect("the server gives up");
    assert!(read_to_close(&mut stream).await.len() < ANSWER_BYTES);
}

#[tokio::test]
async fn a_body_announced_too_large_is_refused_before_it_is_sent() {
    let server = server(Settings {
        body_bytes_max: 1000,
        ..Settings::default()
    });
    let head = format!("{}content-length: 1001\r\n\r\n", raw_head(&create_item("")));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut first))
        .await
        .expect("an answer in time")
        .unwrap();
    assert_eq!(&first, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_body_that_grows_too_large_is_refused_while_it_is_sent() {
    let server = server(Settings {
        body_bytes_max: 1000,
        ..Settings::default()
    });
    let head = format!("{}transfer-encoding: chunked\r\n\r\n", raw_head(&create_item("")));
    let chunk = format!("200\r\n{}\r\n", "x".repeat(0x200));
    let text = send_raw(server.address, format!("{head}{chunk}{chunk}").as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");
    assert!(text.contains("RequestEntityTooLarge"), "{text}");
}

#[tokio::test]
async fn a_client_that_sends_its_large_body_before_reading_still_sees_why_it_was_refused() {
    let server = server(Settings::default());
    for http2 in [false, true] {
        let stream = TcpStream::connect(server.address).await.unwrap();
        if http2 {
            let answer = Connection::http2(stream)
                .await
                .send(create_item(vec![b' '; 6 * 1024 * 1024]))
                .await;
            assert_eq!(answer.status, 413);
        } else {
            let mut stream = stream;
            let head = format!("{}content-length: 6291456\r\n\r\n", raw_head(&create_item("")));
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&vec![b' '; 6 * 1024 * 1024]).await.unwrap();
            assert!(read_to_close(&mut stream).await.starts_with("HTTP/1.1 413"));
        }
    }
}

#[tokio::test]
async fn the_largest_allowed_body_is_taken() {
    let server = server(Settings::default());
    // An item may not be as large as that.
    let mut body = br#"{"query":"SELECT 1""#.to_vec();
    body.resize(Settings::default().body_bytes_max - 1, b' ');
    body.push(b'}');
    let mut query = create_item(body);
    query
        .headers_mut()
        .insert("x-ms-documentdb-isquery", "True".parse().unwrap());
    assert_eq!(send(server.address, query).await.status, 200);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_with_431() {
    let server = server(Settings {
        head_bytes_max: 16 * 1024,
        ..Settings::default()
    });
    let head = format!("{}x-long: {}\r\n\r\n", raw_head(&read_item()), "x".repeat(20_000));
    let text = send_raw(server.address, head.as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 431"), "{text}");
    assert_refused(&text, "RequestHeaderFieldsTooLarge");
}

/// The last answer is an error in the shape of the API, with a length and an activity id.
fn assert_refused(text: &str, code: &str) {
    let answer = &text[text.rfind("HTTP/1.1 ").expect("an answer")..];
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole head");
    let body_json: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(body_json["code"], code, "{text}");
    for header in [
        format!("content-length: {}", body.len()),
        "content-type: application/json".to_owned(),
        "x-ms-activity-id: ".to_owned(),
    ] {
        assert!(
            head.to_ascii_lowercase().contains(&header),
            "{header} missing in {text}"
        );
    }
}

#[tokio::test]
async fn a_body_shorter_than_announced_is_never_executed() {
    let script = Script::new(|_| async { panic!("half a body was executed") });
    let server = Server::start(script, Settings::default());
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "{}content-length: 100\r\n\r\n{{\"id\":\"x\"}}",
        raw_head(&create_item(""))
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let text = read_to_close(&mut stream).await;
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    assert!(server.pipeline.metrics().render().contains("orrery_panics_total 0"));
}

#[tokio::test]
async fn bytes_beyond_the_announced_length_are_not_part_of_the_body() {
    let server = server(Settings::default());
    let body = r#"{"id":"x"}"#;
    let request = format!(
        "{}content-length: {}\r\n\r\n{body}garbage\r\n\r\n",
        raw_head(&create_item("")),
        body.len()
    );
    let text = send_raw(server.address, request.as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(text.contains("HTTP/1.1 400"), "the rest is no request: {text}");
    assert_refused(&text, "BadRequest");
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let server = server(Settings::default());
    for bytes in [
        b"\0\0\0\0\r\n\r\n".as_slice(),
        b"HELLO\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
    ] {
        let text = send_raw(server.address, bytes).await;
        assert!(text.starts_with("HTTP/1.1 400"), "{text}");
        assert_refused(&text, "BadRequest");
    }
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused_with_400() {
    let server = server(Settings::default());
    for body in [
        b"{\"id\":".as_slice(),
        b"{\"id\":\"\xFF\xFE\"}",
        b"[1]",
        b"",
        b"nul",
        b"\"id\"",
    ] {
        let answer = send(server.address, create_item(body)).await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str().unwrap()),
            (400, "BadRequest"),
            "{body:?}"
        );
    }
}

#[tokio::test]
async fn thousands_of_idle_connections_do_not_keep_others_from_being_served() {
    let server = server(Settings::default());
    let mut idle = Vec::new();
    for n in 0..2_200 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        if n % 2 == 0 {
            stream.write_all(b"GET / HT").await.unwrap();
        }
        idle.push(stream);
    }
    for _ in 0..20 {
        assert_eq!(send(server.address, read_item()).await.status, 200);
    }
    drop(idle);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_free_place() {
    let server = server(Settings {
        connections_max: 2,
        ..Settings::default()
    });
    let first = TcpStream::connect(server.address).await.unwrap();
    let second = TcpStream::connect(server.address).await.unwrap();
    let mut waiting = Connection::http1(TcpStream::connect(server.address).await.unwrap()).await;
    let request = tokio::spawn(async move { waiting.send(read_item()).await.status });
    tokio::time::sleep(SHORT).await;
    assert!(!request.is_finished());
    drop(first);
    assert_eq!(request.await.unwrap(), 200);
    drop(second);
}

#[tokio::test]
async fn a_panic_answers_500_and_the_server_goes_on() {
    let script = Script::new(|request| async move {
        assert!(
            !matches!(request.operation, orrery_node::api::Operation::ReadFeed { .. }),
            "on purpose"
        );
        Ok(found("{}"))
    });
    let server = Server::start(script, Settings::default());
    for http2 in [false, true] {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let mut connection = if http2 {
            Connection::http2(stream).await
        } else {
            Connection::http1(stream).await
        };
        let feed = crate::client::signed("GET", "/dbs/d/colls/c/docs", "docs", "dbs/d/colls/c", "");
        let answer = connection.send(feed).await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str().unwrap()),
            (500, "InternalServerError")
        );
        assert_eq!(connection.send(read_item()).await.status, 200);
    }
}

/// Says when a request has come, and answers it when it is told to.
fn holding() -> (
    Script,
    tokio::sync::mpsc::Receiver<()>,
    std::sync::Arc<tokio::sync::Semaphore>,
) {
    let (came, coming) = tokio::sync::mpsc::channel(16);
    let answers = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let may_answer = std::sync::Arc::clone(&answers);
    let script = Script::new(move |_| {
        let (came, may_answer) = (came.clone(), std::sync::Arc::clone(&may_answer));
        async move {
            let _ = came.send(()).await;
            may_answer.acquire().await.unwrap().forget();
            Ok(found(r#"{"id":"x"}"#))
        }
    });
    (script, coming, answers)
}

fn item_of(n_bytes: usize) -> String {
    let frame = r#"{"id":"x","pk":"a","text":""}"#.len();
    format!(r#"{{"id":"x","pk":"a","text":"{}"}}"#, "y".repeat(n_bytes - frame))
}

#[tokio::test]
async fn a_body_waits_for_room_among_those_of_requests_under_way() {
    let (script, mut coming, answers) = holding();
    let settings = Settings {
        bodies_bytes_max: 1_000,
        ..Settings::default()
    };
    let server = Server::start(script, settings);
    let address = server.address;
    let first = tokio::spawn(async move { send(address, create_item(item_of(800))).await.status });
    coming.recv().await.unwrap();
    // What fits beside the first is not kept waiting, nor is what holds no body.
    let small = tokio::spawn(async move { send(address, create_item(item_of(100))).await.status });
    coming.recv().await.unwrap();
    let second = tokio::spawn(async move { send(address, create_item(item_of(800))).await.status });
    let bare = tokio::spawn(async move { send(address, read_item()).await.status });
    coming.recv().await.unwrap();
    assert!(coming.try_recv().is_err(), "the second large body has no room yet");
    answers.add_permits(3);
    assert_eq!(first.await.unwrap(), 200);
    coming.recv().await.unwrap();
    answers.add_permits(1);
    assert_eq!(
        [second.await.unwrap(), small.await.unwrap(), bare.await.unwrap()],
        [200; 3]
    );
}

#[tokio::test]
async fn a_body_that_finds_no_room_is_sent_away_for_a_while() {
    let (script, mut coming, answers) = holding();
    let settings = Settings {
        bodies_bytes_max: 1_000,
        bodies_wait: SHORT,
        ..Settings::default()
    };
    let server = Server::start(script, settings);
    let address = server.address;
    let first = tokio::spawn(async move { send(address, create_item(item_of(800))).await.status });
    coming.recv().await.unwrap();
    let refused = send(address, create_item(item_of(800))).await;
    assert_eq!((refused.status, refused.header("x-ms-substatus")), (429, "3092"));
    assert!(!refused.header("x-ms-retry-after-ms").is_empty());
    answers.add_permits(2);
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(
        send(address, create_item(item_of(800))).await.status,
        200,
        "the room was given back"
    );
}

#[tokio::test]
async fn a_body_that_stops_arriving_gives_its_room_to_those_who_wait_for_it() {
    let settings = Settings {
        bodies_bytes_max: 1_000_000,
        ..Settings::default()
    };
    let server = server(settings);
    let head = raw_head(&create_item(""));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let begun = format!("{head}content-length: 1000000\r\n\r\n{{");
    stream.write_all(begun.as_bytes()).await.unwrap();
    // It may take its time while nobody minds.
    let mut byte = [0];
    let quiet = tokio::time::timeout(Duration::from_millis(1_500), stream.read(&mut byte)).await;
    assert!(quiet.is_err(), "nobody waits");
    let waited = Instant::now();
    assert_eq!(send(server.address, create_item(item_of(1_000))).await.status, 200);
    assert!(waited.elapsed() < Settings::default().bodies_wait);
    let answer = read_to_close(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test]
async fn headers_that_contradict_each_other_are_refused_and_repeated_ones_are_not() {
    let server = server(Settings::default());
    for (values, status) in [(["[\"a\"]", "[\"b\"]"], 400), (["[\"a\"]", "[\"a\"]"], 200)] {
        let mut request = read_item();
        request.headers_mut().remove("x-ms-documentdb-partitionkey");
        for value in values {
            let headers = request.headers_mut();
            headers.append("x-ms-documentdb-partitionkey", value.parse().unwrap());
        }
        assert_eq!(send(server.address, request).await.status, status, "{values:?}");
    }
    let mut request = read_item();
    for value in ["text/plain", "application/json"] {
        request.headers_mut().append("accept", value.parse().unwrap());
    }
    assert_eq!(send(server.address, request).await.status, 200, "a list may go on");
}
