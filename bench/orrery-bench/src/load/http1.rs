//! HTTP/1.1 written by hand: a request is bytes, an answer is a status and a length.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::{Buf as _, Bytes, BytesMut};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Worker;
use crate::documents::Random;

/// Where to connect, and how.
#[derive(Clone)]
pub struct Target {
    pub port: u16,
    pub tls: Option<TlsConnector>,
}

impl Target {
    pub fn plain(port: u16) -> Target {
        Target { port, tls: None }
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({}, tls: {})", self.port, self.tls.is_some())
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection that is kept alive.
pub struct Connection {
    stream: Box<dyn Stream>,
    received: BytesMut,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

/// Where an answer lies in what was received.
struct Frame {
    status: u16,
    head_bytes: usize,
    body_bytes: usize,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: Bytes,
    pub body: Bytes,
}

impl Answer {
    /// The text of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let head = std::str::from_utf8(&self.head).ok()?;
        head.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Connection {
    pub async fn open(target: &Target) -> Result<Connection> {
        let stream = TcpStream::connect(target.address()).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &target.tls {
            None => Box::new(stream),
            Some(connector) => {
                let name = ServerName::try_from("localhost").context("a valid name")?;
                Box::new(
                    connector
                        .connect(name, stream)
                        .await
                        .context("the TLS handshake failed")?,
                )
            }
        };
        Ok(Connection {
            stream,
            received: BytesMut::with_capacity(16 * 1024),
        })
    }

    /// Sends a request and keeps the whole answer.
    pub async fn call(&mut self, request: &[u8]) -> Result<Answer> {
        let Frame {
            status,
            head_bytes,
            body_bytes,
        } = self.exchange(request).await?;
        let head = self.received.split_to(head_bytes).freeze();
        let body = self.received.split_to(body_bytes).freeze();
        Ok(Answer { status, head, body })
    }

    /// Sends a request and drops the answer once it is complete; tells its status.
    async fn ask(&mut self, request: &[u8]) -> Result<u16> {
        let Frame {
            status,
            head_bytes,
            body_bytes,
        } = self.exchange(request).await?;
        self.received.advance(head_bytes + body_bytes);
        Ok(status)
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Frame> {
        self.stream.write_all(request).await?;
        loop {
            if let Some(frame) = frame(&self.received)?
                && self.received.len() >= frame.head_bytes + frame.body_bytes
            {
                return Ok(frame);
            }
            self.received.reserve(4096);
            ensure!(
                self.stream.read_buf(&mut self.received).await? > 0,
                "the server closed the connection"
            );
        }
    }
}

/// `None` while the head is incomplete.
fn frame(received: &[u8]) -> Result<Option<Frame>> {
    let Some(end) = find(received, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = &received[..end];
    let status = std::str::from_utf8(head.get(9..12).context("a status line")?)?.parse()?;
    const LENGTH: &[u8] = b"\r\ncontent-length: ";
    let body_bytes = match find(head, LENGTH) {
        None => 0,
        Some(at) => {
            let digits = head[at + LENGTH.len()..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit());
            digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'))
        }
    };
    Ok(Some(Frame {
        status,
        head_bytes: end + 4,
        body_bytes,
    }))
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Writes the next request.
pub type Fill = Arc<dyn Fn(&mut Random, &mut Vec<u8>) + Send + Sync>;

/// One connection with one request in flight.
pub struct Http1Worker {
    connection: Connection,
    fill: Fill,
    request: Vec<u8>,
    expected: u16,
}

impl fmt::Debug for Http1Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http1Worker")
    }
}

/// As many connections, each waiting for the first request.
pub async fn workers(target: &Target, n: usize, fill: &Fill, expected: u16) -> Result<Vec<Http1Worker>> {
    let mut workers = Vec::with_capacity(n);
    for _ in 0..n {
        let connection = Connection::open(target).await?;
        workers.push(Http1Worker {
            connection,
            fill: Arc::clone(fill),
            request: Vec::new(),
            expected,
        });
    }
    Ok(workers)
}

impl Worker for Http1Worker {
    async fn step(&mut self, random: &mut Random) -> Result<()> {
        self.request.clear();
        (self.fill)(random, &mut self.request);
        let status = self.connection.ask(&self.request).await?;
        ensure!(
            status == self.expected,
            "expected status {}, got {status}",
            self.expected
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_framed_by_its_content_length() {
        let text = b"HTTP/1.1 201 Created\r\ncontent-length: 12\r\nx: y\r\n\r\nbody";
        let frame = frame(text).unwrap().unwrap();
        assert_eq!(
            (frame.status, frame.head_bytes, frame.body_bytes),
            (201, text.len() - 4, 12)
        );
    }

    #[test]
    fn an_unfinished_head_is_no_answer_yet() {
        assert!(frame(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n").unwrap().is_none());
    }
}
