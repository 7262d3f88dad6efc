//! Intervals of effective partition keys, and the proof that a set of them covers the key space exactly once.
//!
//! An EPK is upper-case hexadecimal text; the whole space is `["", "FF")`. Text order is key order, also where keys have
//! different lengths, which is how hierarchical keys look. Invariant: a range is never empty or reversed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The end of the key space.
const MAX: &str = "FF";

/// `[min, max)` in effective partition keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpkRange {
    min: String,
    max: String,
}

/// Text that is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{min}`-`{max}` is not a range of effective partition keys")]
pub struct BadRange {
    min: String,
    max: String,
}

impl EpkRange {
    pub fn new(min: impl Into<String>, max: impl Into<String>) -> Result<EpkRange, BadRange> {
        let (min, max) = (min.into().to_ascii_uppercase(), max.into().to_ascii_uppercase());
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex(&min) || !is_hex(&max) || min >= max || max.as_str() > MAX {
            return Err(BadRange { min, max });
        }
        Ok(EpkRange { min, max })
    }

    /// The whole key space.
    pub fn full() -> EpkRange {
        EpkRange {
            min: String::new(),
            max: MAX.to_owned(),
        }
    }

    pub fn start(&self) -> &str {
        &self.min
    }

    pub fn end(&self) -> &str {
        &self.max
    }

    pub fn overlaps(&self, other: &EpkRange) -> bool {
        self.min < other.max && other.min < self.max
    }

    pub fn contains(&self, other: &EpkRange) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    pub fn intersection(&self, other: &EpkRange) -> Option<EpkRange> {
        self.overlaps(other).then(|| EpkRange {
            min: self.min.clone().max(other.min.clone()),
            max: self.max.clone().min(other.max.clone()),
        })
    }

    /// The parts of this range that `others` leave free, from left to right.
    pub fn without<'a>(&self, others: impl IntoIterator<Item = &'a EpkRange>) -> Vec<EpkRange> {
        let mut covered: Vec<EpkRange> = others
            .into_iter()
            .filter_map(|other| self.intersection(other))
            .collect();
        covered.sort();
        let mut free = Vec::new();
        let mut from = self.min.clone();
        for range in covered {
            if from < range.min {
                free.push(EpkRange {
                    min: from.clone(),
                    max: range.min.clone(),
                });
            }
            from = from.max(range.max);
        }
        if from < self.max {
            free.push(EpkRange {
                min: from,
                max: self.max.clone(),
            });
        }
        free
    }

    /// A measure of how many hashes fall into the range.
    pub fn width(&self) -> u128 {
        number(&self.max).saturating_sub(number(&self.min))
    }

    /// The range of both; they must be neighbours.
    pub(crate) fn joined(&self, right: &EpkRange) -> EpkRange {
        debug_assert_eq!(self.max, right.min);
        EpkRange {
            min: self.min.clone(),
            max: right.max.clone(),
        }
    }

    /// Cuts the range into `n` parts of about equal width, at the bounds that partitions get when they split evenly: a lease that
    /// ends where a partition will is not cut when it does. Fewer come out where the range is too narrow to cut.
    pub fn split_evenly(&self, n: usize) -> Vec<EpkRange> {
        let (from, to) = (number(&self.min), number(&self.max));
        let (width, parts) = (to.saturating_sub(from), n.max(1) as u128);
        let (whole, rest) = (width / parts, width % parts);
        let cuts = (1..parts).map(|part| text(from + whole * part + rest * part / parts));
        let mut parts = Vec::new();
        let mut min = self.min.clone();
        for cut in cuts.filter(|cut| self.min < *cut && *cut < self.max) {
            if min < cut {
                parts.push(EpkRange { min, max: cut.clone() });
                min = cut;
            }
        }
        parts.push(EpkRange {
            min,
            max: self.max.clone(),
        });
        parts
    }
}

/// The highest hash: the two highest bits are never set.
const LAST_HASH: u128 = u128::MAX >> 2;

/// The first sixteen bytes of an EPK as a number, padded with zeroes. `FF` is the end of the space that hashes fill.
fn number(epk: &str) -> u128 {
    if epk == MAX {
        return LAST_HASH;
    }
    let padded = format!("{epk:0<32}");
    u128::from_str_radix(&padded[..32], 16).unwrap_or(0)
}

fn text(number: u128) -> String {
    format!("{number:032X}")
}

/// `min-max`, as in the lease token of an EPK lease.
impl fmt::Display for EpkRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.min, self.max)
    }
}

impl std::str::FromStr for EpkRange {
    type Err = BadRange;

    fn from_str(text: &str) -> Result<EpkRange, BadRange> {
        let (min, max) = text.split_once('-').ok_or_else(|| BadRange {
            min: text.to_owned(),
            max: String::new(),
        })?;
        EpkRange::new(min, max)
    }
}

#[derive(Serialize, Deserialize)]
struct Bounds {
    min: String,
    max: String,
}

/// `{"min": …, "max": …}`; the inclusivity flags other writers add are always the default ones.
impl Serialize for EpkRange {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Bounds {
            min: self.min.clone(),
            max: self.max.clone(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EpkRange {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<EpkRange, D::Error> {
        let Bounds { min, max } = Bounds::deserialize(deserializer)?;
        EpkRange::new(min, max).map_err(serde::de::Error::custom)
    }
}

/// How a set of ranges covers the key space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tiling {
    /// What nobody covers, from left to right.
    pub holes: Vec<EpkRange>,
    /// What is covered more than once.
    pub overlaps: Vec<EpkRange>,
}

impl Tiling {
    pub fn of<'a>(ranges: impl IntoIterator<Item = &'a EpkRange>) -> Tiling {
        let mut sorted: Vec<&EpkRange> = ranges.into_iter().collect();
        sorted.sort();
        let holes = EpkRange::full().without(sorted.iter().copied());
        let mut overlaps = Vec::new();
        let mut reached = String::new();
        for range in sorted {
            if range.min < reached {
                overlaps.push(EpkRange {
                    min: range.min.clone(),
                    max: reached.clone().min(range.max.clone()),
                });
            }
            reached = reached.max(range.max.clone());
        }
        Tiling { holes, overlaps }
    }

    /// Every key is covered exactly once.
    pub fn is_exact(&self) -> bool {
        self.holes.is_empty() && self.overlaps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(text: &str) -> EpkRange {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_is_read_from_its_lease_token() {
        for text in ["-FF", "-05C1DFFFFFFFFC", "05C1DFFFFFFFFC-FF"] {
            assert_eq!(range(text).to_string(), text);
        }
        for text in ["", "0", "FF-", "20-10", "10-10", "xy-FF", "10-FFFF"] {
            assert!(text.parse::<EpkRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn tiling_names_holes_and_overlaps() {
        let check = |ranges: &[&str], holes: &[&str], overlaps: &[&str]| {
            let ranges: Vec<_> = ranges.iter().map(|text| range(text)).collect();
            let found = Tiling::of(&ranges);
            let texts = |ranges: &[EpkRange]| ranges.iter().map(EpkRange::to_string).collect::<Vec<_>>();
            assert_eq!(texts(&found.holes), holes, "{ranges:?}");
            assert_eq!(texts(&found.overlaps), overlaps, "{ranges:?}");
            assert_eq!(found.is_exact(), holes.is_empty() && overlaps.is_empty());
        };
        check(&["-FF"], &[], &[]);
        check(&["-10", "10-20", "20-FF"], &[], &[]);
        check(&[], &["-FF"], &[]);
        check(&["10-20"], &["-10", "20-FF"], &[]);
        check(&["-20", "10-FF"], &[], &["10-20"]);
        check(&["-FF", "10-20", "15-30"], &[], &["10-20", "15-30"]);
        check(&["-10", "20-FF", "-10"], &["10-20"], &["-10"]);
    }

    #[test]
    fn a_range_without_others_is_what_they_leave() {
        let left = range("10-30").without([&range("-12"), &range("15-18"), &range("2A-40")]);
        assert_eq!(left, [range("12-15"), range("18-2A")]);
        assert_eq!(range("10-30").without([&range("-FF")]), []);
    }

    #[test]
    fn an_even_cut_of_the_whole_space_follows_the_hashes() {
        let parts = EpkRange::full().split_evenly(4);
        let mins: Vec<_> = parts.iter().map(|part| part.start().get(..2).unwrap_or("")).collect();
        assert_eq!(mins, ["", "0F", "1F", "2F"]);
    }

    #[test]
    fn cutting_in_two_and_again_in_two_is_cutting_in_four() {
        let halves = EpkRange::full().split_evenly(2);
        assert_eq!(halves[0].end(), "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF");
        let quarters: Vec<EpkRange> = halves.iter().flat_map(|half| half.split_evenly(2)).collect();
        assert_eq!(quarters, EpkRange::full().split_evenly(4));
    }

    proptest! {
        #[test]
        fn an_even_cut_tiles_its_range(n in 1usize..40, a in "[0-3][0-9A-F]{0,33}", b in "[0-3][0-9A-F]{0,33}") {
            prop_assume!(a != b);
            let whole = EpkRange::new(a.clone().min(b.clone()), a.max(b)).unwrap();
            let parts = whole.split_evenly(n);
            prop_assert!(parts.len() <= n);
            prop_assert_eq!(parts[0].start(), whole.start());
            prop_assert_eq!(parts.last().unwrap().end(), whole.end());
            prop_assert!(parts.windows(2).all(|pair| pair[0].end() == pair[1].start()));
            prop_assert!(whole.without(&parts).is_empty());
        }
    }
}
