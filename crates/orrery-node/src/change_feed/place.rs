//! Where a reader stands: one place per part of the key space it reads.
//!
//! Over one partition a place is a plain position, the LSN in quotes, because clients read it as a number. Over several it is
//! a list of parts with a position each, signed, so that what we did not issue, or issued for another container or mode, is
//! refused. Neither names a partition: after a split a place goes on in each child, after a merge two places go on side by
//! side in one partition.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_model::{Epk, EpkRange, Error, Lsn, ResourceId, Result};

use crate::account::Secret;
use crate::api::FeedMode;
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::continuation::mac;
use crate::items::gone;

/// What a tag over several parts begins with.
const PREFIX: &str = "f1.";
const MAC_BYTES: usize = 12;
/// LSNs stay below this, so that every client can hold them as a number.
const LSN_MAX: u64 = 1 << 53;
/// Parts of one tag; more than a container has partitions.
const PARTS_MAX: usize = 16_384;

/// A part of the key space and where its reader stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub range: EpkRange,
    pub from: From,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Beginning,
    Now,
    /// After this many seconds since 1970.
    Time(u64),
    After(Lsn),
    /// After a position, without what is not newer than so many seconds since 1970: positions of partitions that were merged say
    /// nothing about each other's time.
    AfterSince(Lsn, u64),
}

impl From {
    /// Behind what was looked at.
    pub fn moved_to(self, lsn: Lsn) -> From {
        match self {
            From::Time(seconds) | From::AfterSince(_, seconds) => From::AfterSince(lsn, seconds),
            From::Beginning | From::Now | From::After(_) => From::After(lsn),
        }
    }

    /// The same for a reader that says the time it began at.
    pub fn since(self, seconds: Option<u64>) -> From {
        match (self, seconds) {
            (From::After(lsn), Some(seconds)) => From::AfterSince(lsn, seconds),
            (From::AfterSince(lsn, kept), Some(said)) => From::AfterSince(lsn, kept.max(said)),
            _ => self,
        }
    }

    /// The position, once something was looked at.
    pub fn lsn(self) -> Option<Lsn> {
        match self {
            From::After(lsn) | From::AfterSince(lsn, _) => Some(lsn),
            From::Beginning | From::Now | From::Time(_) => None,
        }
    }
}

/// A place within one partition.
#[derive(Clone, Debug)]
pub struct Part {
    pub entry: RangeEntry,
    pub place: Place,
}

/// The tag of a position.
pub fn position(lsn: Lsn) -> String {
    format!("\"{lsn}\"")
}

/// The position in a tag, with or without its quotes.
pub fn read_position(tag: &str) -> Option<Lsn> {
    let digits = unquoted(tag);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let lsn = is_number.then(|| digits.parse::<u64>().ok()).flatten()?;
    (lsn < LSN_MAX).then_some(Lsn(lsn))
}

fn unquoted(tag: &str) -> &str {
    tag.strip_prefix('"')
        .and_then(|tag| tag.strip_suffix('"'))
        .unwrap_or(tag)
}

/// Cuts places at the partitions that serve now. Together they must cover `range`.
pub fn parts(container: &ContainerEntry, places: &[Place], range: &EpkRange) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for place in places {
        let Some(wanted) = place.range.intersection(range) else {
            continue;
        };
        for entry in container.overlapping(&wanted) {
            let cut = entry.range.intersection(&wanted);
            parts.extend(cut.map(|range| Part {
                entry: entry.clone(),
                place: Place {
                    range,
                    from: place.from,
                },
            }));
        }
    }
    if parts.is_empty() { Err(gone()) } else { Ok(parts) }
}

/// The places within `range`, all of which they must cover: what a tag does not speak of has no place to go on from.
pub fn cut_to(places: Vec<Place>, range: &EpkRange) -> Result<Vec<Place>> {
    let cut = |place: Place| {
        let range = place.range.intersection(range)?;
        Some(Place { range, ..place })
    };
    let places: Vec<Place> = places.into_iter().filter_map(cut).collect();
    let mut covered: Vec<&EpkRange> = places.iter().map(|place| &place.range).collect();
    covered.sort_by(|a, b| a.min.cmp(&b.min));
    let mut reached = &range.min;
    for part in covered {
        if part.min > *reached {
            return Err(not_ours());
        }
        reached = reached.max(&part.max);
    }
    if *reached < range.max {
        Err(not_ours())
    } else {
        Ok(places)
    }
}

/// The tag of several places.
pub fn encode(places: &[Place], container: &ResourceId, mode: FeedMode, secret: &Secret) -> String {
    let mut bytes = vec![mode_byte(mode), container.as_bytes().len() as u8];
    bytes.extend_from_slice(container.as_bytes());
    for place in places {
        put_epk(&mut bytes, &place.range.min);
        put_epk(&mut bytes, &place.range.max);
        let (tag, number) = match place.from {
            From::Beginning => (0, 0),
            From::Now => (1, 0),
            From::Time(seconds) => (2, seconds),
            From::After(lsn) => (3, lsn.0),
            From::AfterSince(lsn, _) => (4, lsn.0),
        };
        bytes.push(tag);
        bytes.extend_from_slice(&number.to_be_bytes());
        if let From::AfterSince(_, seconds) = place.from {
            bytes.extend_from_slice(&seconds.to_be_bytes());
        }
    }
    let signature = mac(secret, &bytes);
    bytes.extend_from_slice(&signature);
    format!("\"{PREFIX}{}\"", URL_SAFE_NO_PAD.encode(bytes))
}

/// The places of a tag that this account issued for this container and mode.
pub fn decode(tag: &str, container: &ResourceId, mode: FeedMode, secret: &Secret) -> Result<Vec<Place>> {
    let text = unquoted(tag).strip_prefix(PREFIX).ok_or_else(not_ours)?;
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| not_ours())?;
    let content = bytes.len().checked_sub(MAC_BYTES).and_then(|length| {
        let (content, signature) = bytes.split_at_checked(length)?;
        (mac(secret, content) == signature).then_some(content)
    });
    let (issued_mode, issued_for, places) = content.and_then(decode_content).ok_or_else(not_ours)?;
    if issued_for != container.as_bytes() {
        return Err(Error::bad_request(
            "The continuation was issued for another container, or for one of this name that has been deleted since.",
        ));
    }
    if issued_mode != mode_byte(mode) {
        return Err(Error::bad_request(
            "The continuation was issued for the other change feed mode.",
        ));
    }
    Ok(places)
}

fn decode_content(content: &[u8]) -> Option<(u8, &[u8], Vec<Place>)> {
    let (&[mode, length], rest) = content.split_first_chunk::<2>()?;
    let (container, mut rest) = rest.split_at_checked(usize::from(length))?;
    let mut places = Vec::new();
    while !rest.is_empty() && places.len() < PARTS_MAX {
        let (min, after) = take_epk(rest)?;
        let (max, after) = take_epk(after)?;
        let (&tag, after) = after.split_first()?;
        let (number, mut after) = take_number(after)?;
        let from = match tag {
            0 => From::Beginning,
            1 => From::Now,
            2 => From::Time(number),
            3 => From::After(Lsn(number)),
            4 => {
                let (seconds, rest) = take_number(after)?;
                after = rest;
                From::AfterSince(Lsn(number), seconds)
            }
            _ => return None,
        };
        places.push(Place {
            range: EpkRange::new(min, max),
            from,
        });
        rest = after;
    }
    Some((mode, container, places))
}

fn mode_byte(mode: FeedMode) -> u8 {
    match mode {
        FeedMode::LatestVersions => 1,
        FeedMode::AllVersions => 2,
    }
}

fn put_epk(out: &mut Vec<u8>, epk: &Epk) {
    out.extend_from_slice(&(epk.as_bytes().len() as u16).to_be_bytes());
    out.extend_from_slice(epk.as_bytes());
}

fn take_epk(bytes: &[u8]) -> Option<(Epk, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (epk, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((Epk::from_bytes(epk), rest))
}

fn take_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), rest))
}

fn not_ours() -> Error {
    Error::bad_request("The continuation is not one that this change feed issued.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: u8, max: u8) -> EpkRange {
        EpkRange::new(Epk::from_bytes([min]), Epk::from_bytes([max]))
    }

    fn places() -> Vec<Place> {
        let place = |min, max, from| Place {
            range: range(min, max),
            from,
        };
        vec![
            place(0x10, 0x20, From::After(Lsn(7))),
            place(0x20, 0x30, From::Beginning),
            place(0x30, 0x40, From::Time(9)),
            place(0x40, 0x50, From::AfterSince(Lsn(8), 9)),
        ]
    }

    fn container(number: u32) -> ResourceId {
        ResourceId::container(&ResourceId::database(1), number)
    }

    const MODE: FeedMode = FeedMode::AllVersions;

    #[test]
    fn a_tag_of_several_places_comes_back_as_it_was() {
        let secret = Secret(vec![7; 64]);
        let tag = encode(&places(), &container(1), MODE, &secret);
        assert_eq!(decode(&tag, &container(1), MODE, &secret).unwrap(), places());
        assert_eq!(read_position(&tag), None);
    }

    #[test]
    fn a_changed_or_foreign_tag_is_refused() {
        let secret = Secret(vec![7; 64]);
        let tag = encode(&places(), &container(1), MODE, &secret);
        assert!(decode(&tag, &container(2), MODE, &secret).is_err());
        assert!(decode(&tag, &container(1), FeedMode::LatestVersions, &secret).is_err());
        assert!(decode(&tag, &container(1), MODE, &Secret(vec![8; 64])).is_err());
        let mut changed = tag.clone().into_bytes();
        changed[10] ^= 1;
        for bad in [
            String::from_utf8(changed).unwrap(),
            String::new(),
            "\"f1.\"".into(),
            "x".repeat(9_000),
        ] {
            assert!(decode(&bad, &container(1), MODE, &secret).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_position_is_a_number_with_or_without_quotes() {
        assert_eq!(read_position("\"48213\""), Some(Lsn(48213)));
        assert_eq!(read_position("0"), Some(Lsn(0)));
        for bad in [
            "",
            "\"\"",
            "-1",
            "+1",
            "1.0",
            "\"1",
            "9007199254740992",
            "99999999999999999999",
            "abc",
        ] {
            assert_eq!(read_position(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_time_of_a_start_stays_with_its_reader() {
        let reached = From::Time(9).moved_to(Lsn(5)).moved_to(Lsn(7));
        assert_eq!(reached, From::AfterSince(Lsn(7), 9));
        assert_eq!(From::Beginning.moved_to(Lsn(5)), From::After(Lsn(5)));
        assert_eq!(From::After(Lsn(5)).since(Some(9)).moved_to(Lsn(7)), reached);
        assert_eq!(reached.since(None), reached);
    }

    #[test]
    fn places_must_cover_what_is_asked_for() {
        assert_eq!(cut_to(places(), &range(0x18, 0x28)).unwrap().len(), 2);
        assert!(cut_to(places(), &range(0x08, 0x28)).is_err());
        assert!(cut_to(places(), &range(0x18, 0x58)).is_err());
        let mut with_hole = places();
        with_hole.remove(1);
        assert!(cut_to(with_hole, &range(0x18, 0x38)).is_err());
    }
}
