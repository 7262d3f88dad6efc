//! Resource ids (`_rid`): the byte strings by which the service knows a resource, and their text.
//!
//! Text is standard base64 with `-` for `/`. A database's id is the first four bytes of its containers', a container's the
//! first eight of its items'; clients rely on being able to slice them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A resource id of any kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(Vec<u8>);

/// What the high nibble of the last byte of a container's child says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildKind {
    Item = 0x0,
    Conflict = 0x4,
    PartitionKeyRange = 0x5,
    UserDefinedFunction = 0x6,
    Trigger = 0x7,
    StoredProcedure = 0x8,
}

impl ResourceId {
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> ResourceId {
        ResourceId(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Option<ResourceId> {
        if !text.len().is_multiple_of(4) || text.is_empty() || text.contains('/') {
            return None;
        }
        STANDARD.decode(text.replace('-', "/")).ok().map(ResourceId)
    }

    /// The `n`-th database of an account.
    pub fn database(n: u32) -> ResourceId {
        ResourceId(scatter(n).to_be_bytes().to_vec())
    }

    /// The `n`-th container of a database: the top bit of its own four bytes tells it from a user.
    pub fn container(database: &ResourceId, n: u32) -> ResourceId {
        database.child((scatter(n) | 0x8000_0000).to_be_bytes())
    }

    /// The `n`-th user of a database.
    pub fn user(database: &ResourceId, n: u32) -> ResourceId {
        database.child((n & 0x7FFF_FFFF).to_be_bytes())
    }

    /// The `n`-th permission of a user.
    pub fn permission(user: &ResourceId, n: u64) -> ResourceId {
        user.child(n.to_le_bytes())
    }

    /// A child of a container. `number` stays below 2^60; the kind sits above it.
    pub fn child_of_container(container: &ResourceId, kind: ChildKind, number: u64) -> ResourceId {
        debug_assert!(number < 1 << 60);
        container.child((number | (kind as u64) << 60).to_le_bytes())
    }

    /// The `n`-th offer: three bytes, never zero.
    pub fn offer(n: u32) -> ResourceId {
        ResourceId((n.wrapping_mul(0x9E_3779) & 0xFF_FFFF).to_be_bytes()[1..].to_vec())
    }

    fn child<const N: usize>(&self, own: [u8; N]) -> ResourceId {
        ResourceId([self.0.as_slice(), &own].concat())
    }

    /// The four bytes of a container that are its own.
    pub fn own_bytes(&self) -> [u8; 4] {
        self.0.get(4..8).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
    }
}

/// Spreads small numbers over the four bytes, one to one, so that ids of different containers look different. Zero is
/// never produced for a number below 2^31.
fn scatter(n: u32) -> u32 {
    n.wrapping_add(1).wrapping_mul(0x9E37_79B1) & 0x7FFF_FFFF
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(&self.0).replace('/', "-"))
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceId({self})")
    }
}
