//! LIKE patterns.

/// A pattern taken apart: what each character of a text may be, and where any run may stand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LikePattern {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// `%`
    AnyRun,
    /// `_`
    AnyOne,
    One(u16),
    /// `[…]` or `[^…]`
    OneOf {
        ranges: Vec<(u16, u16)>,
        negated: bool,
    },
}

const PERCENT: u16 = b'%' as u16;
const UNDERSCORE: u16 = b'_' as u16;
const OPEN: u16 = b'[' as u16;
const CLOSE: u16 = b']' as u16;
const CARET: u16 = b'^' as u16;
const DASH: u16 = b'-' as u16;

impl LikePattern {
    pub fn new(pattern: &str, escape: Option<u16>) -> LikePattern {
        let units: Vec<u16> = pattern.encode_utf16().collect();
        let mut parts = Vec::new();
        let mut at = 0;
        // Brackets after the last closing one are not worth looking for one.
        let last_close = units.iter().rposition(|unit| *unit == CLOSE).unwrap_or(0);
        while let Some(&unit) = units.get(at) {
            at += 1;
            let part = match unit {
                _ if Some(unit) == escape && at < units.len() => {
                    at += 1;
                    Part::One(units[at - 1])
                }
                PERCENT => Part::AnyRun,
                UNDERSCORE => Part::AnyOne,
                OPEN if at > last_close => Part::One(unit),
                OPEN => match units[at..].iter().position(|unit| *unit == CLOSE).filter(|n| *n > 0) {
                    Some(n) => {
                        at += n + 1;
                        class(&units[at - n - 1..at - 1])
                    }
                    None => Part::One(unit),
                },
                _ => Part::One(unit),
            };
            parts.push(part);
        }
        LikePattern { parts }
    }

    /// The one text that matches, if the pattern has no wildcards.
    pub fn exact(&self) -> Option<String> {
        let units: Option<Vec<u16>> = self
            .parts
            .iter()
            .map(|part| match part {
                Part::One(unit) => Some(*unit),
                _ => None,
            })
            .collect();
        String::from_utf16(&units?).ok()
    }

    /// What every text that matches begins with.
    pub fn start(&self) -> String {
        let literal = self.parts.iter().map_while(|part| match part {
            Part::One(unit) => Some(*unit),
            _ => None,
        });
        // Half a character at the end is left out.
        char::decode_utf16(literal).map_while(Result::ok).collect()
    }

    /// Steps that each character of a text may take.
    pub fn work(&self) -> usize {
        let part = |part: &Part| match part {
            Part::OneOf { ranges, .. } => ranges.len(),
            _ => 1,
        };
        self.parts.iter().map(part).sum()
    }

    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<u16> = text.encode_utf16().collect();
        let (mut at, mut part) = (0, 0);
        // Where to go on after a mismatch: the last run swallows one character more.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match self.parts.get(part) {
                Some(Part::AnyRun) => {
                    retry = Some((at, part + 1));
                    part += 1;
                    continue;
                }
                Some(wanted) if at < text.len() && wanted.fits(text[at]) => {
                    at += 1;
                    part += 1;
                    continue;
                }
                None if at == text.len() => return true,
                _ => {}
            }
            match retry {
                Some((start, after)) if start < text.len() => {
                    retry = Some((start + 1, after));
                    (at, part) = (start + 1, after);
                }
                _ => return false,
            }
        }
    }
}

/// What stands between brackets.
fn class(units: &[u16]) -> Part {
    let (negated, units) = match units.split_first() {
        Some((&CARET, rest)) if !rest.is_empty() => (true, rest),
        _ => (false, units),
    };
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < units.len() {
        if at + 2 < units.len() && units[at + 1] == DASH {
            ranges.push((units[at], units[at + 2]));
            at += 3;
        } else {
            ranges.push((units[at], units[at]));
            at += 1;
        }
    }
    Part::OneOf { ranges, negated }
}

impl Part {
    fn fits(&self, unit: u16) -> bool {
        match self {
            Part::AnyRun => false,
            Part::AnyOne => true,
            Part::One(wanted) => *wanted == unit,
            Part::OneOf { ranges, negated } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&unit)) != *negated
            }
        }
    }
}
