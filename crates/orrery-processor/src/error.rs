//! What can go wrong, by what the caller can do about it.

use std::time::Duration;

use crate::lease::FeedMode;
use crate::pull::BadCursor;

/// Boxed cause of an error.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A processor that cannot be built as described. Found before any request is sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error("`{0}` is no processor name: it needs 1 to 128 bytes without quotes, slashes, `?` and `#`")]
    ProcessorName(String),
    #[error("`{0}` is no instance name: it needs 1 to 256 bytes without control characters")]
    InstanceName(String),
    #[error("a processor needs {0}")]
    Missing(&'static str),
    #[error(
        "the renew interval ({renew:?}) must be shorter than the lease expiry ({expiry:?}) and both longer than zero"
    )]
    LeaseTiming { renew: Duration, expiry: Duration },
    #[error("all versions and deletes can be read from now on or from a token, not from {0}")]
    StartOfAllVersions(&'static str),
    #[error("at most {max} leases cannot be reconciled with at least {min}")]
    LeaseLimits { min: usize, max: usize },
    #[error("a batch holds between 1 and {0} items")]
    BatchItems(u32),
    #[error("a lease can have between 1 and {0} calls of the delegate at the same time")]
    Concurrency(usize),
    #[error("with several calls at the same time none of them knows what is done; let the processor save the position")]
    ManualConcurrency,
}

/// A processor that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Source(#[from] FeedError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the lease container is keyed by `{0}`; it must be `/id` or `/partitionKey`")]
    LeaseKeyPath(String),
    #[error("this unit's leases read {stored:?}, and {wanted:?} was asked for; use another processor name")]
    ModeDiffers { stored: FeedMode, wanted: FeedMode },
    #[error(
        "the leases of this unit were written by the Java processor; both would corrupt each other. Import them under \
         another processor name"
    )]
    JavaLeases,
    #[error(
        "the document `{id}` has the id of a lease and cannot be read as one: {error}. Its keys would not be read; mend or delete it"
    )]
    UnreadableLease { id: String, error: String },
    #[error("an instance named `{0}` is running; names that differ only in case are taken for the same by other hosts")]
    NameDiffersInCase(String),
    #[error("the leases could not be initialised in time; `{0}` is held by another host")]
    Locked(String),
    #[error("the leases cover the key space badly: {0}")]
    Tiling(String),
    #[error("the lease `{0}` does not say where it stands: nothing was read from it yet. Say where it should begin")]
    NoPosition(String),
    #[error("the unit cannot start at this cursor")]
    Cursor(#[from] BadCursor),
}

/// A feed read that failed, by what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The range is no longer one partition: cut the lease.
    #[error("the range was split or merged")]
    Gone,
    #[error("throttled")]
    Throttled { retry_after: Option<Duration> },
    /// All versions: the position is older than what the container keeps.
    #[error("the position is older than the retention window: {0}")]
    WindowExceeded(String),
    /// The container is not there, or is another one of the same name.
    #[error("the monitored container does not exist: {0}")]
    NotFound(String),
    /// Worth trying again.
    #[error("the feed could not be read")]
    Transient(#[source] Cause),
    /// Trying again will not help.
    #[error("the feed cannot be read")]
    Fatal(#[source] Cause),
}

/// A lease store that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The document changed since it was read.
    #[error("the document has changed")]
    Changed,
    #[error("the document does not exist")]
    NotFound,
    #[error("the lease store is throttled")]
    Throttled { retry_after: Option<Duration> },
    #[error("the lease store could not be reached")]
    Unavailable(#[source] Cause),
    /// Trying again will not help: forbidden, malformed.
    #[error("the lease store refused")]
    Refused(#[source] Cause),
}

/// For readers that have a store beside their feed.
impl From<StoreError> for FeedError {
    fn from(error: StoreError) -> FeedError {
        FeedError::Transient(error.into())
    }
}
