//! What can go wrong, by what the caller can do about it.

use std::time::Duration;

use crate::entity::EntityError;
use crate::filter::FilterError;
use crate::topology::TableError;
use crate::union::TokenError;

/// Boxed cause of an error.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// How a call to one account failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// The account says that it has no such document.
    NotFound,
    /// The region that was asked does not have what the session has seen elsewhere.
    Behind,
    /// There is a document with this id already.
    Exists,
    /// The document has changed since it was read.
    Changed,
    /// The account asks to be asked later.
    Busy { retry_after: Option<Duration> },
    /// No answer, or none that says whether it happened.
    Unreachable,
    /// Trying again will not help: forbidden, malformed, not set up.
    Refused,
}

/// A call to one account that failed.
#[derive(Debug, thiserror::Error)]
#[error("account `{account}`: {message}")]
pub struct CallError {
    pub account: String,
    pub kind: CallKind,
    pub message: String,
    #[source]
    pub source: Option<Cause>,
}

/// An operation of the platform that failed.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error(transparent)]
    Invalid(#[from] EntityError),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Continuation(#[from] TokenError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("a page holds 1 to {0} items")]
    PageSize(usize),
    #[error("a new subscription brings at most {0} articles")]
    Backfill(usize),
    #[error("a user has at most {0} subscriptions")]
    TooManySubscriptions(usize),
    /// Every account says so.
    #[error("it does not exist")]
    NotFound,
    /// Accounts that might have it did not answer.
    #[error("it was not found, but {} did not answer", .0.join(", "))]
    Unknown(Vec<String>),
    /// Completeness was asked for.
    #[error("{} did not answer", .0.join(", "))]
    Incomplete(Vec<String>),
    #[error("only the author may change an article")]
    Forbidden,
    #[error("the id is taken by another content")]
    Exists,
    #[error("it has changed since it was read")]
    Changed,
    #[error("an article that was retracted cannot be changed")]
    Retracted,
    #[error("the account is busy")]
    Busy { retry_after: Option<Duration> },
    /// A write that may or may not have happened; repeating it is safe.
    #[error("the account could not be reached")]
    Unavailable(#[source] CallError),
    #[error("the account refused")]
    Refused(#[source] CallError),
}

impl From<CallError> for PublishError {
    fn from(error: CallError) -> PublishError {
        match error.kind {
            CallKind::NotFound => PublishError::NotFound,
            CallKind::Exists => PublishError::Exists,
            CallKind::Changed => PublishError::Changed,
            CallKind::Busy { retry_after } => PublishError::Busy { retry_after },
            CallKind::Behind | CallKind::Unreachable => PublishError::Unavailable(error),
            CallKind::Refused => PublishError::Refused(error),
        }
    }
}
