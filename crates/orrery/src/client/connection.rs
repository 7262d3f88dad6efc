//! One connection: opened when needed, opened again after it broke, and the rule for asking again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Answer, Call, Client};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Pages are far smaller; a server that sends more is not one of ours.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long a request is sent again and again.
const PATIENCE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Connection {
    client: Arc<Client>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    /// Moves the bytes; ends when this is dropped.
    _driver: JoinSet<()>,
}

impl Connection {
    pub(super) fn new(client: Arc<Client>) -> Connection {
        Connection { client, open: None }
    }

    /// Sends a request once.
    pub async fn call(&mut self, call: &Call) -> Result<Answer> {
        let result = timeout(CALL_TIMEOUT, self.exchange(call)).await;
        let result = result.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {} s", CALL_TIMEOUT.as_secs())));
        if result.is_err() {
            self.open = None;
        }
        result.with_context(|| format!("cannot talk to {}", self.client.authority))
    }

    /// Sends a request that does no harm when it happens twice: again after a pause when the server asks for patience, does
    /// not know what became of it, or was lost on the way. Gives the last answer when patience runs out.
    pub async fn call_until_answered(&mut self, call: &Call) -> Result<Answer> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let result = self.call(call).await;
            let wished = match &result {
                Ok(answer) if is_transient(answer.status) => retry_after(answer),
                // A server that is not there is not worth waiting for.
                Err(error) if !is_refused(error) => Duration::ZERO,
                _ => return result,
            };
            // Never sooner than the server wishes; later when many ask it at the same time.
            let until = Instant::now() + wished.max(pause);
            if until > deadline {
                return result;
            }
            sleep_until(until).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sends a request whose answer goes on and on; gives its body, or the refusal. The connection lives as long as this.
    pub async fn listen(&mut self, call: &Call) -> Result<Result<Incoming, Answer>> {
        let response = timeout(CALL_TIMEOUT, self.send(call))
            .await
            .context("no answer in time")?
            .with_context(|| format!("cannot talk to {}", self.client.authority))?;
        if response.status().is_success() {
            return Ok(Ok(response.into_body()));
        }
        Ok(Err(whole(response).await?))
    }

    async fn exchange(&mut self, call: &Call) -> Result<Answer> {
        let response = self.send(call).await?;
        whole(response).await
    }

    async fn send(&mut self, call: &Call) -> Result<Response<Incoming>> {
        let request = self.request(call)?;
        let open = match self.open.take().filter(|open| !open.sender.is_closed()) {
            Some(open) => open,
            None => self.connect().await?,
        };
        let open = self.open.insert(open);
        open.sender.ready().await?;
        Ok(open.sender.send_request(request).await?)
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>> {
        let (date, token) = self
            .client
            .signer
            .sign(call.method.as_str(), call.resource_type, &call.link);
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path_and_query)
            .header("host", &self.client.authority)
            .header("x-ms-date", date)
            .header("authorization", token)
            .header("x-ms-version", "2020-07-15");
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        Ok(request.body(Full::new(call.body.clone()))?)
    }

    async fn connect(&self) -> Result<Open> {
        let Client { host, port, .. } = &*self.client;
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect((host.as_str(), *port))).await??;
        stream.set_nodelay(true)?;
        match &self.client.tls {
            None => open(stream).await,
            Some(tls) => open(tls.connector.connect(tls.name.clone(), stream).await?).await,
        }
    }
}

async fn whole(response: Response<Incoming>) -> Result<Answer> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(anyhow::Error::from_boxed)?;
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body: body.to_bytes(),
    })
}

async fn open(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Open> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // The sender sees the failure too, and that is where it is handled.
        let _ = connection.await;
    });
    Ok(Open {
        sender,
        _driver: driver,
    })
}

/// Throttled, a conflict with a concurrent write, an unknown outcome, a partition on the move, or overload.
fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 410 | 429 | 449 | 503)
}

fn retry_after(answer: &Answer) -> Duration {
    let milliseconds = answer.header("x-ms-retry-after-ms").and_then(|text| text.parse().ok());
    milliseconds.map_or(Duration::ZERO, Duration::from_millis)
}

fn is_refused(error: &anyhow::Error) -> bool {
    let refused = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::ConnectionRefused;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(refused)
}
