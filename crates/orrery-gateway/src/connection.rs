//! One connection, from its first byte to its last: TLS or not, HTTP/1.1 or HTTP/2, told apart by what the client sends.
//!
//! An idle connection is small: until its first byte it has no buffer, and the state of what it does not speak, or of
//! requests that are over, is not part of it (hence the boxes below). Every wait has a limit.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::account::authority;
use crate::answer_body::AnswerBody;
use crate::dormant::Dormant;
use crate::guard::{Guard, Patience, Traffic};
use crate::names::{Called, Directory};
use crate::pipeline::Pipeline;
use crate::tasks::Tasks;

/// First byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// How soon to look again when the first packet was too short to tell the protocols apart.
const PEEK_AGAIN: Duration = Duration::from_millis(5);
/// A client that does not answer an HTTP/2 ping is gone.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(60);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How much of a body an HTTP/2 client may send before it is read: per request, and per connection.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
const HTTP2_SEND_BUFFER_BYTES: usize = 256 * 1024;

/// What requests know about the connection they came by.
#[derive(Debug)]
pub struct Peer {
    pub address: SocketAddr,
    pub tls: bool,
    pub traffic: Arc<Traffic>,
    /// Ends the connection at once, without an answer.
    pub drop_connection: CancellationToken,
    /// Does the request come from another node, to be executed here or nowhere?
    pub relayed: bool,
}

impl Peer {
    /// What stands for the connection of a request that another node passes on.
    pub(crate) fn relayed(tls: bool) -> Peer {
        Peer {
            address: SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, 0)),
            tls,
            traffic: Arc::default(),
            drop_connection: CancellationToken::new(),
            relayed: true,
        }
    }
}

/// Who answers the requests of a connection.
#[derive(Clone)]
pub(crate) struct Answerers {
    /// Whoever listens where the connection arrived.
    pub listener: Arc<Pipeline>,
    pub names: Option<Arc<Directory>>,
}

impl Answerers {
    /// Every request of a connection may call another name: clients share connections over HTTP/2 where a certificate allows it.
    async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> Response<AnswerBody> {
        let called = match &self.names {
            Some(names) => names.find(&authority(request.uri(), request.headers())),
            None => Called::Listener,
        };
        match called {
            Called::Listener => self.listener.answer(peer, request).await,
            Called::Named(pipeline) => pipeline.answer(peer, request).await,
            Called::Nobody => self.listener.refuse_stray(peer, request),
        }
    }
}

/// What serving HTTP needs besides the stream.
struct Served {
    protocol: Protocol,
    peer: Arc<Peer>,
    answerers: Answerers,
    tasks: Tasks,
    /// The connection's own, so that connections do not contend for the lock inside the server's.
    stopping: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    Tls,
}

/// Serves one connection until the client leaves, a limit is reached or the server stops.
pub(crate) async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    answerers: Answerers,
    tls: Option<TlsAcceptor>,
    tasks: Tasks,
) {
    let pipeline = Arc::clone(&answerers.listener);
    let settings = pipeline.settings();
    // Answers are written whole; waiting to fill a packet would only delay them.
    let _ = stream.set_nodelay(true);
    let stopping = tasks.stopping.child_token();
    let protocol = tokio::select! {
        // Both are cancel-safe: nothing has been taken from the socket yet.
        protocol = timeout(settings.first_byte_timeout, sniff(&stream)) => protocol,
        () = stopping.cancelled() => return,
    };
    let Ok(Ok(protocol)) = protocol else { return };
    let drop_connection = tasks.aborting.child_token();
    let served = |protocol, tls| Served {
        protocol,
        peer: Arc::new(Peer {
            address,
            tls,
            traffic: Arc::default(),
            drop_connection,
            relayed: false,
        }),
        answerers,
        tasks,
        stopping: stopping.clone(),
    };
    match (protocol, tls) {
        (Protocol::Tls, Some(acceptor)) => {
            let stream = tokio::select! {
                // A handshake that is dropped half way is of use to nobody.
                accepted = timeout(settings.tls_handshake_timeout, acceptor.accept(stream)) => accepted,
                () = stopping.cancelled() => return,
            };
            let Ok(Ok(stream)) = stream else { return };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
            Box::pin(serve_http(stream, served(protocol, true))).await;
        }
        (Protocol::Tls, None) => tracing::debug!(%address, "tls refused: no certificate configured"),
        // Even a refusal would have to be answered in the clear, after the client has sent its key's signature in the clear.
        _ if !settings.plain_http => tracing::debug!(%address, "plain http refused"),
        (protocol, _) => Box::pin(serve_http(stream, served(protocol, false))).await,
    }
}

/// Looks at the first bytes without taking them.
async fn sniff(stream: &TcpStream) -> io::Result<Protocol> {
    loop {
        let mut first = [0; HTTP2_PREFACE.len()];
        let n_bytes = stream.peek(&mut first).await?;
        match &first[..n_bytes] {
            [] => return Err(io::ErrorKind::UnexpectedEof.into()),
            [TLS_HANDSHAKE, ..] => return Ok(Protocol::Tls),
            HTTP2_PREFACE => return Ok(Protocol::Http2),
            part if HTTP2_PREFACE.starts_with(part) => tokio::time::sleep(PEEK_AGAIN).await,
            _ => return Ok(Protocol::Http1),
        }
    }
}

async fn serve_http<S>(stream: S, served: Served)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let settings = served.answerers.listener.settings();
    let patience = Patience {
        head: (served.protocol == Protocol::Http1).then_some(settings.head_timeout),
        idle: settings.idle_timeout,
        write: settings.write_timeout,
    };
    let refuser = Arc::clone(&served.answerers.listener);
    let guard = Guard::new(stream, Arc::clone(&served.peer.traffic), patience, refuser);
    let io = TokioIo::new(guard);
    let peer = Arc::clone(&served.peer);
    let conversation = async {
        match served.protocol {
            Protocol::Http2 => Box::pin(serve_http2(io, served)).await,
            Protocol::Http1 | Protocol::Tls => Box::pin(serve_http1(io, served)).await,
        }
    };
    let dropped = pin!(peer.drop_connection.cancelled());
    tokio::select! {
        // Dropping the connection is what the second branch means.
        biased;
        () = conversation => {}
        () = Dormant::new(dropped) => {}
    }
}

async fn serve_http1<I>(io: I, served: Served)
where
    I: Read + Write + Unpin + Send + 'static,
{
    let Served {
        peer,
        answerers,
        stopping,
        ..
    } = served;
    let mut builder = hyper::server::conn::http1::Builder::new();
    // The guard has a finer idea of this timeout, and sets no timer per request.
    builder
        .header_read_timeout(None)
        .max_buf_size(answerers.listener.settings().head_bytes_max);
    let service = service_fn(move |request| answer(answerers.clone(), Arc::clone(&peer), request));
    let mut connection = pin!(builder.serve_connection(io, service));
    let stopped = pin!(stopping.cancelled());
    let ended = tokio::select! {
        // The connection is kept, whichever branch is first.
        biased;
        ended = connection.as_mut() => ended,
        () = Dormant::new(stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    note_end(ended);
}

async fn serve_http2<I>(io: I, served: Served)
where
    I: Read + Write + Unpin + Send + 'static,
{
    let Served {
        peer,
        answerers,
        tasks,
        stopping,
        ..
    } = served;
    let settings = answerers.listener.settings();
    // One on this machine cannot vanish without its socket telling.
    let is_far = !peer.address.ip().to_canonical().is_loopback();
    let mut builder = hyper::server::conn::http2::Builder::new(tasks);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.streams_max)
        .max_header_list_size(u32::try_from(settings.head_bytes_max).unwrap_or(u32::MAX))
        .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES)
        .keep_alive_interval(is_far.then_some(HTTP2_PING_INTERVAL))
        .keep_alive_timeout(HTTP2_PING_TIMEOUT);
    let service = service_fn(move |request| answer(answerers.clone(), Arc::clone(&peer), request));
    let mut connection = pin!(builder.serve_connection(io, service));
    let stopped = pin!(stopping.cancelled());
    let ended = tokio::select! {
        // The connection is kept, whichever branch is first.
        biased;
        ended = connection.as_mut() => ended,
        () = Dormant::new(stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    note_end(ended);
}

/// The client's mistakes and departures are ordinary.
fn note_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Answers one request. It counts as begun when it is handed over, not when it first runs, so that the guard never takes
/// a request under way for an idle connection.
fn answer(
    answerers: Answerers,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<AnswerBody>, Infallible>> + Send {
    let in_request = peer.traffic.request();
    async move {
        let response = Box::pin(answerers.answer(&peer, request)).await;
        drop(in_request);
        Ok(response)
    }
}
