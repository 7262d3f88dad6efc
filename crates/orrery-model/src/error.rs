//! The one error a client ever sees, and the statuses it can carry.
//!
//! Status and sub-status are one value, because 1002 means one thing under 404 and another under 410. Lower layers have
//! small enums of their own that say what really happened; they convert here once, at their crate's edge.

use std::fmt;

/// HTTP status and Cosmos sub-status together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    pub code: u16,
    pub sub: u32,
}

impl Status {
    const fn new(code: u16, sub: u32) -> Status {
        Status { code, sub }
    }

    pub const BAD_REQUEST: Status = Status::new(400, 0);
    /// The partition key of the header and of the item differ.
    pub const PARTITION_KEY_MISMATCH: Status = Status::new(400, 1001);
    /// The query needs a feature, or a fan-out, that the server leaves to the client.
    pub const CROSS_PARTITION_QUERY: Status = Status::new(400, 1004);
    /// The container named by the client's cached RID has been recreated.
    pub const STALE_CONTAINER_RID: Status = Status::new(400, 1024);
    /// A number in a query result is not finite.
    pub const NON_FINITE_NUMBER: Status = Status::new(400, 4001);
    pub const UNAUTHORIZED: Status = Status::new(401, 0);
    pub const FORBIDDEN: Status = Status::new(403, 0);
    /// This region does not take writes.
    pub const WRITE_FORBIDDEN: Status = Status::new(403, 3);
    /// This region does not, or no longer, serve the account.
    pub const ACCOUNT_NOT_HERE: Status = Status::new(403, 1008);
    /// A logical partition is over its storage quota.
    pub const LOGICAL_PARTITION_FULL: Status = Status::new(403, 1014);
    pub const NOT_FOUND: Status = Status::new(404, 0);
    /// The session token is ahead of this replica.
    pub const READ_SESSION_NOT_AVAILABLE: Status = Status::new(404, 1002);
    /// The database or container around the resource is missing.
    pub const PARENT_NOT_FOUND: Status = Status::new(404, 1003);
    /// The container is being created.
    pub const CONTAINER_CREATING: Status = Status::new(404, 1013);
    pub const METHOD_NOT_ALLOWED: Status = Status::new(405, 0);
    pub const REQUEST_TIMEOUT: Status = Status::new(408, 0);
    pub const CONFLICT: Status = Status::new(409, 0);
    /// The physical partition has been split or merged.
    pub const PARTITION_GONE: Status = Status::new(410, 1002);
    /// A split or merge is finishing.
    pub const PARTITION_SPLITTING: Status = Status::new(410, 1007);
    pub const PRECONDITION_FAILED: Status = Status::new(412, 0);
    pub const TOO_LARGE: Status = Status::new(413, 0);
    pub const LOCKED: Status = Status::new(423, 0);
    /// Another operation of the same batch failed.
    pub const FAILED_DEPENDENCY: Status = Status::new(424, 0);
    /// Request units used up.
    pub const THROTTLED: Status = Status::new(429, 3200);
    /// The server has no room for more at the moment.
    pub const RESOURCE_LIMIT: Status = Status::new(429, 3092);
    /// Other regions lag behind by as much as they may.
    pub const REPLICATION_QUEUE_FULL: Status = Status::new(429, 3075);
    pub const RETRY_WITH: Status = Status::new(449, 0);
    pub const INTERNAL: Status = Status::new(500, 0);
    pub const NOT_IMPLEMENTED: Status = Status::new(501, 0);
    pub const UNAVAILABLE: Status = Status::new(503, 0);

    /// The status' name in an error body: the HTTP reason without blanks.
    pub fn name(self) -> &'static str {
        match self.code {
            304 => "NotModified",
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            408 => "RequestTimeout",
            409 => "Conflict",
            410 => "Gone",
            412 => "PreconditionFailed",
            413 => "RequestEntityTooLarge",
            414 => "RequestUriTooLong",
            423 => "Locked",
            424 => "FailedDependency",
            429 => "TooManyRequests",
            431 => "RequestHeaderFieldsTooLarge",
            449 => "RetryWith",
            501 => "NotImplemented",
            503 => "ServiceUnavailable",
            _ => "InternalServerError",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.code, self.sub)
    }
}

/// What `?` carries upward.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    status: Status,
    message: String,
    retry_after_ms: Option<u64>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(status: Status, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            status,
            message: message.into(),
            retry_after_ms: None,
            source: None,
        }))
    }

    pub fn bad_request(message: impl Into<String>) -> Error {
        Error::new(Status::BAD_REQUEST, message)
    }

    pub fn with_retry_after_ms(mut self, milliseconds: u64) -> Error {
        self.0.retry_after_ms = Some(milliseconds);
        self
    }

    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    pub fn status(&self) -> Status {
        self.0.status
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn retry_after_ms(&self) -> Option<u64> {
        self.0.retry_after_ms
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.status, self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
