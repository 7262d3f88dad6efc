//! Where changes come from: one trait with raw-token semantics, implemented on the official SDK and by a scripted source.
//!
//! A source reads one page of one range after one token, and says so when the range is no longer a single partition. It
//! keeps no position: whoever reads owns the token. Invariant: a page's token stands for exactly the changes before it.

mod change;
pub mod resume;
pub mod sdk;

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

pub use change::{Change, ChangeMetadata, Operation};

use crate::error::FeedError;
use crate::lease::FeedMode;
use crate::names::SourceIdentity;
use crate::range::EpkRange;
use crate::reshard::Partition;
use crate::start::{Position, StartFrom};
use crate::token::FeedToken;

/// What a source says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDescription {
    pub identity: SourceIdentity,
    /// Paths of the partition key, such as `/customer`.
    pub key_paths: Vec<String>,
}

/// One read.
#[derive(Clone, Debug)]
pub struct FeedRead<'a> {
    pub range: &'a EpkRange,
    pub from: &'a Position,
    pub mode: FeedMode,
    /// A hint; transactions are never cut.
    pub items_max: Option<u32>,
    /// How long the server may hold an answer back until something changes.
    pub wait: Option<Duration>,
    /// Items may be left out, as far as the server can: only the facts about the changes are asked for.
    pub facts_only: bool,
    /// Go on at the oldest change that is kept, if the position is older than that and the server can.
    pub from_oldest: bool,
    /// Only the changes of one partition key: a value per path. The range does not matter then.
    pub key: Option<&'a [Value]>,
}

impl<'a> FeedRead<'a> {
    /// A read without further wishes.
    pub fn new(range: &'a EpkRange, from: &'a Position, mode: FeedMode) -> FeedRead<'a> {
        FeedRead {
            range,
            from,
            mode,
            items_max: None,
            wait: None,
            facts_only: false,
            from_oldest: false,
            key: None,
        }
    }
}

/// One answer.
#[derive(Clone, Debug)]
pub struct FeedPage {
    pub changes: Vec<Change>,
    /// Nothing more was there. A page may be empty before that, when a server has looked through much that is not for this
    /// reader.
    pub is_last: bool,
    /// Where to read on.
    pub token: FeedToken,
    /// Request units.
    pub charge: f64,
    /// The partition's newest LSN when it answered.
    pub head_lsn: Option<u64>,
    pub session: Option<String>,
    pub activity_id: Option<String>,
    /// Region that answered, where the account says so.
    pub region: Option<String>,
    /// Id of the partition that answered, where the server says so.
    pub partition_id: Option<String>,
}

/// The token of this moment: what changes later comes after it.
pub async fn token_now(source: &dyn FeedSource, range: &EpkRange, mode: FeedMode) -> Result<FeedToken, FeedError> {
    let now = Position::From(StartFrom::Now);
    Ok(source.read(FeedRead::new(range, &now, mode)).await?.token)
}

/// Whether the server can go back to the oldest change it keeps. Latest versions always can be read from the beginning; of all
/// versions, Azure has only now and tokens.
pub(crate) async fn reaches_back(source: &dyn FeedSource, range: &EpkRange, mode: FeedMode) -> Result<bool, FeedError> {
    let beginning = Position::From(StartFrom::Beginning);
    can_start(source, range, &beginning, mode).await
}

/// Whether the server takes a start.
pub(crate) async fn can_start(
    source: &dyn FeedSource,
    range: &EpkRange,
    from: &Position,
    mode: FeedMode,
) -> Result<bool, FeedError> {
    let read = FeedRead {
        items_max: Some(1),
        facts_only: true,
        ..FeedRead::new(range, from, mode)
    };
    match source.read(read).await {
        Ok(_) => Ok(true),
        Err(FeedError::WindowExceeded(_) | FeedError::Fatal(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A container's change feed.
pub trait FeedSource: Send + Sync + 'static {
    fn describe(&self) -> BoxFuture<'_, Result<SourceDescription, FeedError>>;

    /// The container's resource id now, asked of the server: another one means that it was dropped and made again.
    fn container_rid(&self) -> BoxFuture<'_, Result<String, FeedError>>;

    /// The physical partitions now, asked of the server.
    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, FeedError>>;

    /// The same with their ids, which may cost a request each. Only old leases are known by ids.
    fn named_partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, FeedError>> {
        self.partitions()
    }

    /// The range of the partition with this id, if it serves now.
    fn partition_of<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<EpkRange>, FeedError>> {
        let found = async move {
            let partitions = self.named_partitions().await?;
            let named = partitions
                .into_iter()
                .find(|partition| partition.id.as_deref() == Some(id));
            Ok(named.map(|partition| partition.range))
        };
        found.boxed()
    }

    fn read<'a>(&'a self, read: FeedRead<'a>) -> BoxFuture<'a, Result<FeedPage, FeedError>>;
}
