//! A worker of an import: one connection, one item at a time.

use std::sync::Arc;

use anyhow::{Result, bail};
use bytes::Bytes;
use http::Method;
use tokio::sync::{Mutex, mpsc};

use super::IfExists;
use crate::client::{Call, Client, Connection};

/// An item of the input: its number in this run, its text, and where it ends.
#[derive(Clone, Debug)]
pub struct Item {
    pub sequence: u64,
    pub text: Bytes,
    pub end: u64,
}

/// An item that is in the container now.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub sequence: u64,
    pub end: u64,
}

#[derive(Debug)]
pub struct Failed {
    pub end: u64,
    pub error: anyhow::Error,
}

#[derive(Debug)]
pub struct Writer {
    connection: Connection,
    if_exists: IfExists,
    call: Call,
}

impl Writer {
    pub fn new(client: &Arc<Client>, database: &str, container: &str, if_exists: IfExists) -> Writer {
        let mut call = Call::children(Method::POST, &["dbs", database, "colls", container], "docs");
        call = call.header("prefer", "return=minimal").json(Bytes::new());
        if if_exists == IfExists::Replace {
            call = call.header("x-ms-documentdb-is-upsert", "True");
        }
        Writer {
            connection: client.connection(),
            if_exists,
            call,
        }
    }

    /// Writes items until there are no more, or nobody listens.
    pub async fn run(
        mut self,
        items: Arc<Mutex<mpsc::Receiver<Item>>>,
        results: mpsc::Sender<Result<Written, Failed>>,
    ) {
        loop {
            let Some(Item { sequence, text, end }) = items.lock().await.recv().await else {
                return;
            };
            let written = self.write(text).await;
            let result = written
                .map(|()| Written { sequence, end })
                .map_err(|error| Failed { end, error });
            if results.send(result).await.is_err() {
                return;
            }
        }
    }

    async fn write(&mut self, text: Bytes) -> Result<()> {
        self.call.body = text;
        let answer = self.connection.call_until_answered(&self.call).await?;
        match answer.status.as_u16() {
            409 if self.if_exists == IfExists::Skip => Ok(()),
            _ if answer.status.is_success() => Ok(()),
            _ => bail!("the server answered {}", answer.refusal()),
        }
    }
}
