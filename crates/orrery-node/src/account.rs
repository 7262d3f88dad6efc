//! The account as clients see it: its name, keys, regions and default consistency.

use std::fmt;

use crate::api::Consistency;
use crate::geo::bounds::Staleness;

/// An account key. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The keys of an account. The second of each pair exists so that keys can be rotated without a pause.
#[derive(Clone, Debug)]
pub struct AccountKeys {
    pub primary: Secret,
    pub secondary: Secret,
    pub primary_read_only: Secret,
    pub secondary_read_only: Secret,
    /// Signs resource tokens and continuations; never leaves the server.
    pub internal: Secret,
}

/// Which key to replace by a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Primary,
    Secondary,
    PrimaryReadOnly,
    SecondaryReadOnly,
}

/// What an account is.
#[derive(Clone, Debug)]
pub struct Account {
    pub id: String,
    pub consistency: Consistency,
    /// Of bounded staleness.
    pub staleness: Staleness,
    /// Display names; the first takes writes.
    pub regions: Vec<String>,
}
