//! Small clients: signed requests over hyper, and raw bytes over a socket.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use orrery_node::{Clock as _, SystemClock};
use ring::hmac;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::server::KEY;

/// Longer than anything here should take, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn now_text() -> String {
    date_text(0)
}

/// The date this many seconds from now.
pub fn date_text(offset_seconds: i64) -> String {
    let seconds = SystemClock::default()
        .now()
        .seconds()
        .saturating_add_signed(offset_seconds);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The header a holder of this key sends.
pub fn authorization(key: &[u8], verb: &str, resource_type: &str, link: &str, date: &str) -> String {
    let payload = format!(
        "{}\n{resource_type}\n{link}\n{}\n\n",
        verb.to_lowercase(),
        date.to_lowercase()
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    format!(
        "type=master&ver=1.0&sig={}",
        STANDARD.encode(hmac::sign(&key, payload.as_bytes()))
    )
}

pub fn key() -> Vec<u8> {
    STANDARD.decode(KEY).unwrap()
}

/// A signed request.
pub fn signed(verb: &str, path: &str, resource_type: &str, link: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let date = now_text();
    Request::builder()
        .method(verb)
        .uri(path)
        .header("host", "localhost:8081")
        .header("x-ms-date", &date)
        .header("authorization", authorization(&key(), verb, resource_type, link, &date))
        .header("x-ms-documentdb-partitionkey", "[\"a\"]")
        .body(Full::new(body.into()))
        .unwrap()
}

/// A signed read of one item.
pub fn read_item() -> Request<Full<Bytes>> {
    signed("GET", "/dbs/d/colls/c/docs/x", "docs", "dbs/d/colls/c/docs/x", "")
}

/// A signed creation of an item with this body.
pub fn create_item(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    signed("POST", "/dbs/d/colls/c/docs", "docs", "dbs/d/colls/c", body)
}

/// A signed administration request.
pub fn administer(verb: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let link = path.trim_start_matches('/').split('?').next().unwrap();
    signed(verb, path, "", link, body)
}

/// An answer with its body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn answer<B>(response: Response<B>) -> Answer
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
    }
}

/// A connection that speaks one of the two protocols.
pub enum Connection {
    Http1(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Http2(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub async fn http1(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Connection {
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Connection::Http1(sender)
    }

    pub async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Connection {
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        Connection::Http2(sender)
    }

    /// The answer, or what became of the connection instead.
    pub async fn try_send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
        let response = match self {
            Connection::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Connection::Http2(sender) => sender.send_request(absolute(request)).await?,
        };
        Ok(answer(response).await)
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Answer {
        tokio::time::timeout(PATIENCE, self.try_send(request))
            .await
            .expect("an answer in time")
            .expect("an answer")
    }
}

/// HTTP/2 carries scheme and host in the URL.
fn absolute(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let host = request.headers_mut().remove("host").expect("a host");
    let uri = format!("http://{}{}", host.to_str().unwrap(), request.uri());
    *request.uri_mut() = uri.parse().unwrap();
    request
}

/// One request on a connection of its own.
pub async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    Connection::http1(TcpStream::connect(address).await.unwrap())
        .await
        .send(request)
        .await
}

/// An answer whose body is read as it comes.
pub async fn open(address: SocketAddr, request: Request<Full<Bytes>>) -> Response<hyper::body::Incoming> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request);
    tokio::time::timeout(PATIENCE, response)
        .await
        .expect("an answer in time")
        .expect("an answer")
}

/// The head of a signed HTTP/1.1 request as text, without the blank line that ends it.
pub fn raw_head(request: &Request<Full<Bytes>>) -> String {
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    head
}

/// Sends these bytes and gives back everything the server sends until it closes.
pub async fn send_raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    read_to_close(&mut stream).await
}

/// Everything the server sends until it closes or resets the connection.
pub async fn read_to_close(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    let read = async {
        let mut buffer = [0; 4096];
        while let Ok(n_bytes @ 1..) = stream.read(&mut buffer).await {
            received.extend_from_slice(&buffer[..n_bytes]);
        }
    };
    tokio::time::timeout(PATIENCE, read)
        .await
        .expect("the server closes the connection");
    String::from_utf8_lossy(&received).into_owned()
}
