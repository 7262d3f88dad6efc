//! HTTP/2 with prior knowledge through hyper's client: few connections, many requests on each, as SDKs use it.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::Worker;
use super::http1::Target;
use crate::documents::Random;

/// Connections the workers share.
const CONNECTIONS: usize = 4;

/// One request in flight on a shared connection.
#[derive(Debug)]
pub struct Http2Worker {
    sender: SendRequest<Empty<Bytes>>,
    requests: Arc<Vec<Request<Empty<Bytes>>>>,
}

pub async fn workers(
    target: &Target,
    n: usize,
    requests: &Arc<Vec<Request<Empty<Bytes>>>>,
) -> Result<Vec<Http2Worker>> {
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(target.address()).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await?;
        // It ends when the last sender is dropped.
        tokio::spawn(connection);
        senders.push(sender);
    }
    let worker = |sender: &SendRequest<_>| Http2Worker {
        sender: sender.clone(),
        requests: Arc::clone(requests),
    };
    Ok(senders.iter().cycle().take(n).map(worker).collect())
}

impl Worker for Http2Worker {
    async fn step(&mut self, random: &mut Random) -> Result<()> {
        let request = self.requests[random.below(self.requests.len() as u64) as usize].clone();
        let answer = self.sender.send_request(request).await?;
        ensure!(answer.status() == 200, "expected status 200, got {}", answer.status());
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok(())
    }
}
