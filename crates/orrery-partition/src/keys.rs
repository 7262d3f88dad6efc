//! Keys of a partition's view, as `docs/formats/view-keys.md` describes them. Byte order is the order readers want:
//! items by EPK and then by number, changes by LSN, expiries by time.

use bytes::Bytes;
use orrery_model::{Epk, EpkRange, Lsn, PartitionKeyDefinition};

use crate::index;

const STATE: u8 = 0x01;
const DEFINITION: u8 = 0x02;
const RECORD: u8 = 0x03;
const ITEM: u8 = 0x10;
const ID: u8 = 0x11;
const CHANGE: u8 = 0x12;
const EXPIRY: u8 = 0x13;
const UNIQUE: u8 = 0x14;
const HISTORY: u8 = 0x30;
const HISTORY_FLOOR: u8 = 0x31;
const TERM: u8 = 0x20;
const SHAPE: u8 = 0x21;
const POSTING: u8 = 0x22;
const COMPOSITE: u8 = 0x23;

/// What a key is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySpace {
    State,
    Definition,
    Record,
    Item,
    Id,
    Change,
    Expiry,
    Unique,
    History,
    HistoryFloor,
    /// Index: items by a value.
    Term,
    /// Index: the paths of a shape.
    Shape,
    /// Index: items by their shape.
    Posting,
    /// Index: items by several values.
    Composite,
}

impl KeySpace {
    pub fn of(key: &[u8]) -> Option<KeySpace> {
        Some(match *key.first()? {
            STATE => KeySpace::State,
            DEFINITION => KeySpace::Definition,
            RECORD => KeySpace::Record,
            ITEM => KeySpace::Item,
            ID => KeySpace::Id,
            CHANGE => KeySpace::Change,
            EXPIRY => KeySpace::Expiry,
            UNIQUE => KeySpace::Unique,
            HISTORY => KeySpace::History,
            HISTORY_FLOOR => KeySpace::HistoryFloor,
            TERM => KeySpace::Term,
            SHAPE => KeySpace::Shape,
            POSTING => KeySpace::Posting,
            COMPOSITE => KeySpace::Composite,
            _ => return None,
        })
    }
}

/// How EPKs are written inside keys: as they are when all have one length, else escaped with an end mark, so that no EPK
/// runs into what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpkForm {
    Fixed(usize),
    Escaped,
}

impl EpkForm {
    pub fn of(definition: &PartitionKeyDefinition) -> EpkForm {
        definition.epk_bytes().map_or(EpkForm::Escaped, EpkForm::Fixed)
    }

    /// An EPK as part of a key. In the fixed form a shorter EPK (the bound of a range) stays short and sorts first.
    pub fn write(self, epk: &Epk, out: &mut Vec<u8>) {
        match self {
            EpkForm::Fixed(_) => out.extend_from_slice(epk.as_bytes()),
            EpkForm::Escaped => {
                self.write_bound(epk, out);
                out.extend_from_slice(&[0, 0]);
            }
        }
    }

    /// The part of [`EpkForm::write`] that every key at or after `epk` sorts at or after.
    pub fn write_bound(self, epk: &Epk, out: &mut Vec<u8>) {
        match self {
            EpkForm::Fixed(_) => out.extend_from_slice(epk.as_bytes()),
            EpkForm::Escaped => {
                for &byte in epk.as_bytes() {
                    out.push(byte);
                    if byte == 0 {
                        out.push(0xFF);
                    }
                }
            }
        }
    }

    /// Splits an EPK off the front of `bytes`.
    pub fn read(self, bytes: &[u8]) -> Option<(Epk, &[u8])> {
        match self {
            EpkForm::Fixed(length) => {
                let (epk, rest) = bytes.split_at_checked(length)?;
                Some((Epk::from_bytes(epk), rest))
            }
            EpkForm::Escaped => {
                let mut epk = Vec::new();
                let mut at = 0;
                loop {
                    match (*bytes.get(at)?, bytes.get(at + 1)) {
                        (0, Some(0xFF)) => {
                            epk.push(0);
                            at += 2;
                        }
                        (0, Some(0)) => return Some((Epk::from_bytes(epk), &bytes[at + 2..])),
                        (0, _) => return None,
                        (byte, _) => {
                            epk.push(byte);
                            at += 1;
                        }
                    }
                }
            }
        }
    }
}

pub fn state() -> Bytes {
    Bytes::from_static(&[STATE])
}

pub fn definition() -> Bytes {
    Bytes::from_static(&[DEFINITION])
}

/// A record of the system log.
pub fn record(key: &[u8]) -> Bytes {
    Bytes::from([&[RECORD], key].concat())
}

pub fn item(form: EpkForm, epk: &Epk, number: u64) -> Bytes {
    let mut key = vec![ITEM];
    form.write(epk, &mut key);
    key.extend_from_slice(&number.to_be_bytes());
    Bytes::from(key)
}

pub fn id(form: EpkForm, epk: &Epk, id: &str) -> Bytes {
    let mut key = vec![ID];
    form.write(epk, &mut key);
    key.extend_from_slice(id.as_bytes());
    Bytes::from(key)
}

pub fn change(lsn: Lsn, index: u16, number: u64) -> Bytes {
    let mut key = vec![CHANGE];
    key.extend_from_slice(&lsn.0.to_be_bytes());
    key.extend_from_slice(&index.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    Bytes::from(key)
}

/// Where changes after `lsn` begin.
pub fn changes_after(lsn: Lsn) -> Bytes {
    after(CHANGE, lsn)
}

fn after(space: u8, lsn: Lsn) -> Bytes {
    let mut key = vec![space];
    key.extend_from_slice(&(lsn.0 + 1).to_be_bytes());
    Bytes::from(key)
}

/// A version that was kept.
pub fn history(lsn: Lsn, index: u16, number: u64) -> Bytes {
    let mut key = change(lsn, index, number).to_vec();
    key[0] = HISTORY;
    Bytes::from(key)
}

/// Where versions after `lsn` begin.
pub fn history_after(lsn: Lsn) -> Bytes {
    after(HISTORY, lsn)
}

/// Up to where versions of the whole partition are not kept.
pub fn history_floor() -> Bytes {
    Bytes::from_static(&[HISTORY_FLOOR])
}

/// Up to where versions are not kept in a part of the partition that another partition once was.
pub fn history_floor_of(part: &EpkRange) -> Bytes {
    let mut key = vec![HISTORY_FLOOR];
    key.extend_from_slice(&(part.min.as_bytes().len() as u16).to_be_bytes());
    key.extend_from_slice(part.min.as_bytes());
    key.extend_from_slice(part.max.as_bytes());
    Bytes::from(key)
}

/// The part of a key made by [`history_floor_of`].
pub fn read_history_floor(key: &[u8]) -> Option<EpkRange> {
    let (length, rest) = key.strip_prefix(&[HISTORY_FLOOR])?.split_first_chunk::<2>()?;
    let (min, max) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some(EpkRange::new(Epk::from_bytes(min), Epk::from_bytes(max)))
}

/// The LSN, place and item number of a key made by [`change`] or [`history`].
pub fn read_change(key: &[u8]) -> Option<(Lsn, u16, u64)> {
    let rest = key.strip_prefix(&[CHANGE]).or_else(|| key.strip_prefix(&[HISTORY]))?;
    let lsn = u64::from_be_bytes(rest.get(..8)?.try_into().ok()?);
    let index = u16::from_be_bytes(rest.get(8..10)?.try_into().ok()?);
    let number = u64::from_be_bytes(rest.get(10..18)?.try_into().ok()?);
    Some((Lsn(lsn), index, number))
}

pub fn expiry(at_seconds: u64, number: u64) -> Bytes {
    let mut key = vec![EXPIRY];
    key.extend_from_slice(&at_seconds.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    Bytes::from(key)
}

/// The time and item number of a key made by [`expiry`].
pub fn read_expiry(key: &[u8]) -> Option<(u64, u64)> {
    let rest = key.strip_prefix(&[EXPIRY])?;
    let at = u64::from_be_bytes(rest.get(..8)?.try_into().ok()?);
    let number = u64::from_be_bytes(rest.get(8..16)?.try_into().ok()?);
    Some((at, number))
}

pub fn unique(form: EpkForm, epk: &Epk, constraint: u8, values: [u8; 16]) -> Bytes {
    let mut key = vec![UNIQUE];
    form.write(epk, &mut key);
    key.push(constraint);
    key.extend_from_slice(&values);
    Bytes::from(key)
}

/// The byte that keys of a space begin with.
pub(crate) fn byte(space: KeySpace) -> u8 {
    match space {
        KeySpace::State => STATE,
        KeySpace::Definition => DEFINITION,
        KeySpace::Record => RECORD,
        KeySpace::Item => ITEM,
        KeySpace::Id => ID,
        KeySpace::Change => CHANGE,
        KeySpace::Expiry => EXPIRY,
        KeySpace::Unique => UNIQUE,
        KeySpace::History => HISTORY,
        KeySpace::HistoryFloor => HISTORY_FLOOR,
        KeySpace::Term => TERM,
        KeySpace::Shape => SHAPE,
        KeySpace::Posting => POSTING,
        KeySpace::Composite => COMPOSITE,
    }
}

/// The first key of a space, and the first after it.
pub fn bounds(space: KeySpace) -> (Bytes, Bytes) {
    let byte = byte(space);
    (Bytes::copy_from_slice(&[byte]), Bytes::copy_from_slice(&[byte + 1]))
}

/// Where the items at or after `epk` begin.
pub fn items_from(form: EpkForm, epk: &Epk) -> Bytes {
    let mut key = vec![ITEM];
    form.write_bound(epk, &mut key);
    Bytes::from(key)
}

/// The EPK and number of a key made by [`item`].
pub fn read_item(form: EpkForm, key: &[u8]) -> Option<(Epk, u64)> {
    let (epk, number) = form.read(key.strip_prefix(&[ITEM])?)?;
    Some((epk, u64::from_be_bytes(number.try_into().ok()?)))
}

/// The number of the item that a key made by [`item`] is of; `None` for a key of another space.
pub fn number_of_item(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&[ITEM])?.last_chunk()?;
    Some(u64::from_be_bytes(*number))
}

/// The EPK an entry belongs to, for every space that belongs to one.
pub fn epk_of(form: EpkForm, key: &[u8], value: &[u8]) -> Option<Epk> {
    let bytes = match KeySpace::of(key)? {
        KeySpace::Item | KeySpace::Id | KeySpace::Unique => &key[1..],
        KeySpace::Change | KeySpace::Expiry | KeySpace::History => value,
        space @ (KeySpace::Term | KeySpace::Shape | KeySpace::Posting | KeySpace::Composite) => {
            return index::epk_of(form, space, key, value);
        }
        KeySpace::State | KeySpace::Definition | KeySpace::Record | KeySpace::HistoryFloor => return None,
    };
    form.read(bytes).map(|(epk, _)| epk)
}

/// The value of change entries: as [`pointer`], followed by the time of the change.
pub fn change_pointer(form: EpkForm, epk: &Epk, ts: u64) -> Bytes {
    let mut value = Vec::with_capacity(epk.as_bytes().len() + 8);
    form.write(epk, &mut value);
    value.extend_from_slice(&ts.to_be_bytes());
    Bytes::from(value)
}

/// The EPK and the time of a value made by [`change_pointer`].
pub fn read_change_pointer(form: EpkForm, value: &[u8]) -> Option<(Epk, u64)> {
    let (epk, ts) = form.read(value)?;
    Some((epk, u64::from_be_bytes(ts.try_into().ok()?)))
}

/// The value of expiry entries: the EPK that, with the number in the key, leads to the item.
pub fn pointer(form: EpkForm, epk: &Epk) -> Bytes {
    let mut value = Vec::new();
    form.write(epk, &mut value);
    Bytes::from(value)
}
