//! A reader of an export: one connection, one range at a time, page by page.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::Method;
use tokio::sync::{Mutex, mpsc};

use super::RangePosition;
use crate::client::{Call, Client, Connection};

/// A page of the feed, and where its range goes on after it.
#[derive(Debug)]
pub struct PageRead {
    pub range_idx: usize,
    /// The envelope as the server sent it.
    pub body: Bytes,
    /// `None`: the range ends here.
    pub continuation: Option<String>,
}

#[derive(Debug)]
pub struct Reader {
    connection: Connection,
    call: Call,
}

type RangesLeft = Arc<Mutex<std::vec::IntoIter<(usize, RangePosition)>>>;

impl Reader {
    pub fn new(client: &Arc<Client>, database: &str, container: &str, page_size: u16) -> Reader {
        let call = Call::children(Method::GET, &["dbs", database, "colls", container], "docs")
            .header("x-ms-max-item-count", page_size.to_string());
        Reader {
            connection: client.connection(),
            call,
        }
    }

    /// Reads ranges until none is left, or nobody listens.
    pub async fn run(mut self, left: RangesLeft, pages: mpsc::Sender<Result<PageRead>>) {
        loop {
            let Some((range_idx, mut range)) = left.lock().await.next() else {
                return;
            };
            loop {
                let page = self.read(range_idx, &range).await;
                range.continuation = page.as_ref().ok().and_then(|page| page.continuation.clone());
                let is_last = range.continuation.is_none();
                if pages.send(page).await.is_err() {
                    return;
                }
                if is_last {
                    break;
                }
            }
        }
    }

    async fn read(&mut self, range_idx: usize, range: &RangePosition) -> Result<PageRead> {
        let mut call = self
            .call
            .clone()
            .header("x-ms-start-epk", &range.min)
            .header("x-ms-end-epk", &range.max);
        call = call.header("x-ms-read-key-type", "EffectivePartitionKeyRange");
        if let Some(continuation) = &range.continuation {
            call = call.header("x-ms-continuation", continuation);
        }
        let answer = self
            .connection
            .call_until_answered(&call)
            .await?
            .success()
            .context("cannot read items")?;
        let continuation = answer.header("x-ms-continuation").map(str::to_owned);
        Ok(PageRead {
            range_idx,
            body: answer.body,
            continuation,
        })
    }
}
