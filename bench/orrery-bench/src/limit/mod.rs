//! The limits: bare hyper that checks the same signature and gives the same answer, doing only what no server could
//! avoid. Each runs as a process of its own, so that its CPU time is its own too.

mod store;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::{BufMut as _, Bytes, BytesMut};
use clap::{Args, ValueEnum};
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::sign::Key;
use crate::tls::Certificate;
use store::Store;

#[derive(Args, Clone, Debug)]
pub struct LimitFlags {
    /// File with the answer to give, as it came from the server
    #[arg(long)]
    answer: PathBuf,
    #[arg(long, value_enum, default_value = "http1")]
    protocol: Protocol,
    /// Certificate chain and key, for the protocol tls
    #[arg(long, num_args = 2)]
    certificate: Vec<PathBuf>,
    /// Store what is posted in this directory before answering
    #[arg(long)]
    store: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    Http1,
    Tls,
    Http2,
}

struct Limit {
    key: Key,
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    store: Option<Store>,
}

pub fn run(flags: &LimitFlags) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(flags))
}

async fn serve(flags: &LimitFlags) -> Result<()> {
    let mut limit = Limit::answering(&std::fs::read(&flags.answer)?)?;
    limit.store = flags.store.as_deref().map(Store::open).transpose()?;
    let limit = Arc::new(limit);
    let acceptor = match (flags.protocol, flags.certificate.as_slice()) {
        (Protocol::Tls, [chain, key]) => Some(
            Certificate {
                chain: chain.clone(),
                key: key.clone(),
            }
            .acceptor()?,
        ),
        _ => None,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{{\"port\":{}}}", listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream, flags.protocol, acceptor.clone(), Arc::clone(&limit)));
    }
}

/// A connection that breaks is the client's affair.
async fn connection(stream: TcpStream, protocol: Protocol, acceptor: Option<TlsAcceptor>, limit: Arc<Limit>) {
    match acceptor {
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                talk(stream, protocol, limit).await;
            }
        }
        None => talk(stream, protocol, limit).await,
    }
}

async fn talk<S>(stream: S, protocol: Protocol, limit: Arc<Limit>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    let service = service_fn(move |request| answer(Arc::clone(&limit), request));
    let ended = match protocol {
        Protocol::Http2 => {
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(io, service)
                .await
        }
        Protocol::Http1 | Protocol::Tls => http1::Builder::new().serve_connection(io, service).await,
    };
    drop(ended);
}

async fn answer(limit: Arc<Limit>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    if !limit.admits(&request) {
        return Ok(response);
    }
    let request_token = request
        .headers()
        .get("if-none-match")
        .and_then(|value| value.to_str().ok());
    let request_token = request_token.map(str::to_owned);
    if let (Some(store), &Method::POST) = (&limit.store, request.method()) {
        let stored = match request.into_body().collect().await {
            Ok(body) => store.put(body.to_bytes()).await,
            Err(_) => false,
        };
        if !stored {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return Ok(response);
        }
    }
    if let (Some(store), Some(token)) = (&limit.store, request_token) {
        return Ok(store_page(store, &token).unwrap_or(response));
    }
    *response.status_mut() = limit.status;
    *response.headers_mut() = limit.headers.clone();
    *response.body_mut() = Full::new(limit.body.clone());
    Ok(response)
}

/// Documents of a page of the feed.
const PAGE_DOCUMENTS: usize = 1_000;

/// A page of documents as a feed would give it, after the key that the token spells; nothing is known about them.
fn store_page(store: &Store, token: &str) -> Result<Response<Full<Bytes>>> {
    let digits = token.trim_matches('"').trim_start_matches('k');
    let after: Option<Vec<u8>> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    let page = store.page(&after.context("a token")?, PAGE_DOCUMENTS)?;
    let mut response = Response::new(Full::new(Bytes::new()));
    let Some(last) = page.last else {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    };
    let last: String = last.iter().map(|byte| format!("{byte:02x}")).collect();
    let headers = response.headers_mut();
    headers.insert("etag", HeaderValue::from_str(&format!("\"k{last}\""))?);
    headers.insert("x-ms-item-count", HeaderValue::from(page.documents.len()));
    let mut body = BytesMut::with_capacity(page.documents.iter().map(|one| one.len() + 1).sum::<usize>() + 2);
    body.put_u8(b'[');
    for document in &page.documents {
        body.put_slice(document);
        body.put_u8(b',');
    }
    body.put_u8(b']');
    *response.body_mut() = Full::new(body.freeze());
    Ok(response)
}

impl Limit {
    /// Gives an answer that was recorded as it came over HTTP/1.1.
    fn answering(recorded: &[u8]) -> Result<Limit> {
        let end = recorded
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .context("the answer has a head")?;
        let head = std::str::from_utf8(&recorded[..end])?;
        let status = head.get(9..12).context("the answer has a status")?;
        let mut headers = HeaderMap::new();
        for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(": ")) {
            // Hyper writes these itself.
            if !matches!(name, "content-length" | "date" | "connection") {
                headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
            }
        }
        let body = Bytes::copy_from_slice(&recorded[end + 4..]);
        Ok(Limit {
            key: Key::development(),
            status: status.parse()?,
            headers,
            body,
            store: None,
        })
    }

    fn admits(&self, request: &Request<Incoming>) -> bool {
        let header = |name: &HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
        let (Some(date), Some(authorization)) = (header(&HeaderName::from_static("x-ms-date")), header(&AUTHORIZATION))
        else {
            return false;
        };
        self.key
            .admits(request.method().as_str(), request.uri().path(), date, authorization)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_answer_is_given_again_without_what_hyper_adds() {
        let recorded = b"HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: 2\r\ndate: now\r\n\r\n{}";
        let limit = Limit::answering(recorded).unwrap();
        assert_eq!((limit.status, &*limit.body), (StatusCode::OK, b"{}".as_slice()));
        assert_eq!(limit.headers.len(), 1);
        assert_eq!(limit.headers["etag"], "\"1\"");
    }
}
