//! Resource ids (`_rid`): the byte strings by which the service knows a resource, and their text.
//!
//! Text is standard base64 with `-` for `/`. A database's id is the first four bytes of its containers', a container's the
//! first eight of its items'; clients rely on being able to slice them.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A resource id of any kind. Every request carries some around, so its bytes are kept in place.
#[derive(Clone)]
pub struct ResourceId {
    bytes: [u8; BYTES_MAX],
    n_bytes: u8,
}

/// What the deepest resources have: items, scripts, permissions.
const BYTES_MAX: usize = 16;
const DATABASE_BYTES: usize = 4;
const OWNER_BYTES: usize = 8;

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
    /// `None` when there are more bytes than any resource has.
    pub fn from_bytes(bytes: &[u8]) -> Option<ResourceId> {
        (bytes.len() <= BYTES_MAX).then(|| ResourceId::of(&[bytes]))
    }

    /// These parts, one after the other; together they fit.
    fn of(parts: &[&[u8]]) -> ResourceId {
        let (mut bytes, mut n_bytes) = ([0; BYTES_MAX], 0);
        for part in parts {
            bytes[n_bytes..n_bytes + part.len()].copy_from_slice(part);
            n_bytes += part.len();
        }
        ResourceId {
            bytes,
            n_bytes: n_bytes as u8,
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.n_bytes)]
    }

    /// The database that a container, or anything in one, belongs to; a database's own.
    pub fn database_part(&self) -> ResourceId {
        self.first(DATABASE_BYTES)
    }

    /// The container or user that an item, script or permission belongs to; a container's or user's own.
    pub fn owner_part(&self) -> ResourceId {
        self.first(OWNER_BYTES)
    }

    fn first(&self, n_bytes: usize) -> ResourceId {
        let bytes = self.as_bytes();
        ResourceId::of(&[&bytes[..bytes.len().min(n_bytes)]])
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Option<ResourceId> {
        if !text.len().is_multiple_of(4) || text.is_empty() || text.contains('/') {
            return None;
        }
        ResourceId::from_bytes(&STANDARD.decode(text.replace('-', "/")).ok()?)
    }

    /// The `n`-th database of an account.
    pub fn database(n: u32) -> ResourceId {
        ResourceId::of(&[&scatter(n).to_be_bytes()])
    }

    /// The `n`-th container of a database: the top bit of its own four bytes tells it from a user.
    pub fn container(database: &ResourceId, n: u32) -> ResourceId {
        database.child((scatter(n) | 0x8000_0000).to_be_bytes())
    }

    /// The `n`-th user of a database.
    pub fn user(database: &ResourceId, n: u32) -> ResourceId {
        database.child(scatter(n).to_be_bytes())
    }

    /// The `n`-th permission of a user. Counted from one in the bytes, because no part of an id is zero.
    pub fn permission(user: &ResourceId, n: u64) -> ResourceId {
        user.child((n + 1).to_le_bytes())
    }

    /// A child of a container. `number` stays below 2^60; the kind sits above it.
    pub fn child_of_container(container: &ResourceId, kind: ChildKind, number: u64) -> ResourceId {
        debug_assert!(number < 1 << 60);
        container.child((number | (kind as u64) << 60).to_le_bytes())
    }

    /// The `n`-th offer: three bytes, different and never zero for numbers below 2^24 - 1.
    pub fn offer(n: u32) -> ResourceId {
        let scattered = n.wrapping_add(1).wrapping_mul(0x9E_3779) & 0xFF_FFFF;
        ResourceId::of(&[&scattered.to_be_bytes()[1..]])
    }

    fn child<const N: usize>(&self, own: [u8; N]) -> ResourceId {
        ResourceId::of(&[self.as_bytes(), &own])
    }

    /// The four bytes of a container that are its own.
    pub fn own_bytes(&self) -> [u8; 4] {
        self.as_bytes()
            .get(4..8)
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or_default()
    }
}

/// Spreads small numbers over the four bytes, one to one, so that ids of different containers look different. Zero is
/// never produced for a number below 2^31 - 1.
fn scatter(n: u32) -> u32 {
    n.wrapping_add(1).wrapping_mul(0x9E37_79B1) & 0x7FFF_FFFF
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &ResourceId) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for ResourceId {}

impl PartialOrd for ResourceId {
    fn partial_cmp(&self, other: &ResourceId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceId {
    fn cmp(&self, other: &ResourceId) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for ResourceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; BYTES_MAX.div_ceil(3) * 4];
        let n_characters = STANDARD
            .encode_slice(self.as_bytes(), &mut text)
            .map_err(|_| fmt::Error)?;
        let text = &mut text[..n_characters];
        text.iter_mut()
            .filter(|character| **character == b'/')
            .for_each(|slash| *slash = b'-');
        f.write_str(str::from_utf8(text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceId({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_item_id_begins_with_its_containers_and_that_with_its_databases() {
        let database = ResourceId::database(3);
        let container = ResourceId::container(&database, 7);
        let item = ResourceId::child_of_container(&container, ChildKind::Item, 42);
        assert_eq!(
            [
                database.as_bytes().len(),
                container.as_bytes().len(),
                item.as_bytes().len()
            ],
            [4, 8, 16]
        );
        assert!(container.as_bytes().starts_with(database.as_bytes()));
        assert!(item.as_bytes().starts_with(container.as_bytes()));
        assert_eq!(item.as_bytes()[8..], 42u64.to_le_bytes());
        assert_eq!(item.to_string().len(), 24);
        assert_eq!(container.own_bytes(), container.as_bytes()[4..]);
    }

    #[test]
    fn the_top_bit_tells_containers_from_users_and_the_last_nibble_names_the_kind() {
        let database = ResourceId::database(0);
        let container = ResourceId::container(&database, 0);
        let user = ResourceId::user(&database, 0);
        assert_eq!(container.as_bytes()[4] & 0x80, 0x80);
        assert_eq!(user.as_bytes()[4] & 0x80, 0);
        assert_eq!(ResourceId::permission(&user, 0).as_bytes().len(), 16);
        for kind in [
            ChildKind::Conflict,
            ChildKind::PartitionKeyRange,
            ChildKind::StoredProcedure,
        ] {
            let child = ResourceId::child_of_container(&container, kind, (1 << 60) - 1);
            assert_eq!(child.as_bytes()[15] >> 4, kind as u8);
        }
    }

    #[test]
    fn texts_the_service_writes_are_read() {
        for (text, n_bytes) in [
            ("Lx1BAA==", 4),
            ("Lx1BALxJyZ8=", 8),
            ("d9RzAJRFKgwBAAAAAAAAAA==", 16),
            ("ab-+", 3),
        ] {
            let rid = ResourceId::parse(text).unwrap();
            assert_eq!((rid.as_bytes().len(), rid.to_string().as_str()), (n_bytes, text));
        }
        for text in ["", "Lx1BAA", "Lx1BAA=", "Lx/BAA==", "Lx_BAA==", "========", "Lx1BAB=="] {
            assert_eq!(ResourceId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn no_part_of_an_id_is_zero() {
        let database = ResourceId::database(0);
        let user = ResourceId::user(&database, 0);
        for part in [
            database.as_bytes(),
            &ResourceId::container(&database, 0).as_bytes()[4..],
            &user.as_bytes()[4..],
            &ResourceId::permission(&user, 0).as_bytes()[8..],
            ResourceId::offer(0).as_bytes(),
        ] {
            assert!(part.iter().any(|byte| *byte != 0), "{part:?}");
        }
    }

    proptest! {
        #[test]
        fn different_numbers_give_different_ids(a in 0u32..0x7FFF_FFFE, b in 0u32..0x7FFF_FFFE) {
            let database = ResourceId::database(a);
            prop_assert_eq!(a == b, database == ResourceId::database(b));
            prop_assert_eq!(a == b, ResourceId::container(&database, a) == ResourceId::container(&database, b));
            prop_assert_eq!(a == b, ResourceId::user(&database, a) == ResourceId::user(&database, b));
            let (a, b) = (a & 0xFF_FFFE, b & 0xFF_FFFE);
            prop_assert_eq!(a == b, ResourceId::offer(a) == ResourceId::offer(b));
        }

        #[test]
        fn every_id_reads_back(bytes in prop::collection::vec(any::<u8>(), 1..20), text in "\\PC{0,12}") {
            let rid = ResourceId::from_bytes(&bytes);
            prop_assert_eq!(rid.is_some(), bytes.len() <= BYTES_MAX);
            if let Some(rid) = rid {
                prop_assert_eq!(rid.as_bytes(), bytes);
                prop_assert_eq!(ResourceId::parse(&rid.to_string()), Some(rid));
            }
            if let Some(rid) = ResourceId::parse(&text) {
                prop_assert_eq!(rid.to_string(), text);
            }
        }
    }
}
