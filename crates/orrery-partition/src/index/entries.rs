//! Keys and values of index entries.
//!
//! A *pointer* is what follows the space byte in an item's key: EPK and number. Entries of one term end in it, so they come
//! in the order of the items themselves. Shapes and composites are walked in the order of creation instead: their keys
//! end in the number, and their values are the EPK.

use bytes::Bytes;
use orrery_model::Epk;
use orrery_query::index::{PathHash, read_code};

use crate::keys::{self, EpkForm, KeySpace};

/// Space and hash.
pub(super) const HEAD_BYTES: usize = 9;
const NUMBER_BYTES: usize = 8;

/// The pointer of an item.
pub(super) fn pointer(form: EpkForm, epk: &Epk, number: u64) -> Vec<u8> {
    let mut pointer = Vec::with_capacity(epk.as_bytes().len() + NUMBER_BYTES);
    form.write(epk, &mut pointer);
    pointer.extend_from_slice(&number.to_be_bytes());
    pointer
}

/// The first key of a space that belongs to `hash`.
pub(super) fn head(space: KeySpace, hash: u64) -> Vec<u8> {
    let mut key = vec![keys::byte(space)];
    key.extend_from_slice(&hash.to_be_bytes());
    key
}

/// Where the paths of a shape are.
pub(super) fn shape(shape: u64) -> Bytes {
    Bytes::from(head(KeySpace::Shape, shape))
}

/// That an item has a shape.
pub(super) fn posting(shape: u64, number: u64) -> Bytes {
    let mut key = head(KeySpace::Posting, shape);
    key.extend_from_slice(&number.to_be_bytes());
    Bytes::from(key)
}

/// The key of the shape that a posting belongs to; `None` for any other key.
pub(crate) fn shape_of_posting(key: &[u8]) -> Option<Bytes> {
    let shape = key.strip_prefix(&[keys::byte(KeySpace::Posting)])?.first_chunk::<8>()?;
    Some(self::shape(u64::from_be_bytes(*shape)))
}

/// The paths of a shape: format, then their hashes, ascending.
pub(super) fn write_paths(paths: &[PathHash]) -> Bytes {
    let mut value = Vec::with_capacity(1 + 8 * paths.len());
    value.push(1);
    paths.iter().for_each(|path| value.extend_from_slice(&path.to_bytes()));
    Bytes::from(value)
}

/// The EPK that an index entry belongs to. Shapes belong to none.
pub(crate) fn epk_of(form: EpkForm, space: KeySpace, key: &[u8], value: &[u8]) -> Option<Epk> {
    let bytes = match space {
        KeySpace::Term => {
            let rest = key.get(HEAD_BYTES..)?;
            &rest[read_code(rest, false)?.length..]
        }
        KeySpace::Posting | KeySpace::Composite => value,
        _ => return None,
    };
    form.read(bytes).map(|(epk, _)| epk)
}

/// The key of the item with this pointer.
pub(super) fn item_key(pointer: &[u8]) -> Bytes {
    Bytes::from([&[keys::byte(KeySpace::Item)], pointer].concat())
}
