//! Session tokens: what a client has seen of each physical partition, as `{partition}:{version}#{lsn}` pairs.
//!
//! The version changes only with topology: a new epoch or a merge. Region entries (`#1=42`) and the older forms
//! (`0:-1#42`, `0:42`) are read and, where they carry nothing we need, dropped.

use std::fmt;

use crate::id::{Lsn, PartitionId};

/// Progress in one physical partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionProgress {
    pub version: i64,
    pub lsn: Lsn,
}

impl SessionProgress {
    /// Has a replica at `self` seen everything that `wanted` has seen?
    pub fn reaches(self, wanted: SessionProgress) -> bool {
        // A newer version starts at LSNs above every older one, so the pair compares as one number.
        (self.version, self.lsn) >= (wanted.version, wanted.lsn)
    }

    /// The one of two that has seen more.
    pub fn merge(self, other: SessionProgress) -> SessionProgress {
        if self.reaches(other) { self } else { other }
    }
}

/// What a client has seen: at most one progress per partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionToken {
    pairs: Vec<(PartitionId, SessionProgress)>,
}

/// More pairs than any client of ours can know; a longer token is refused.
const PAIRS_MAX: usize = 10_000;

impl SessionToken {
    pub fn single(partition: PartitionId, progress: SessionProgress) -> SessionToken {
        SessionToken {
            pairs: vec![(partition, progress)],
        }
    }

    /// Reads `0:0#42,1:0#17#1=17`. `None` when any pair is malformed.
    pub fn parse(text: &str) -> Option<SessionToken> {
        let mut token = SessionToken::default();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (partition, progress) = parse_pair(pair.trim())?;
            token.observe(partition, progress);
            if token.pairs.len() > PAIRS_MAX {
                return None;
            }
        }
        Some(token)
    }

    /// The progress known for a partition.
    pub fn get(&self, partition: PartitionId) -> Option<SessionProgress> {
        self.pairs
            .iter()
            .find(|(id, _)| *id == partition)
            .map(|(_, progress)| *progress)
    }

    /// What is known of partitions from this number on.
    pub fn beyond(&self, n_partitions: u32) -> impl Iterator<Item = SessionProgress> {
        let beyond = self.pairs.iter().filter(move |(id, _)| id.0 >= n_partitions);
        beyond.map(|(_, progress)| *progress)
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Adds progress in one partition.
    pub fn observe(&mut self, partition: PartitionId, progress: SessionProgress) {
        match self.pairs.iter_mut().find(|(id, _)| *id == partition) {
            Some((_, known)) => *known = known.merge(progress),
            None => self.pairs.push((partition, progress)),
        }
    }

    /// Everything either has seen.
    pub fn merge(&mut self, other: &SessionToken) {
        other
            .pairs
            .iter()
            .for_each(|(partition, progress)| self.observe(*partition, *progress));
    }
}

fn parse_pair(pair: &str) -> Option<(PartitionId, SessionProgress)> {
    let (partition, progress) = pair.split_once(':')?;
    let partition = PartitionId(partition.parse().ok()?);
    let mut parts = progress.split('#');
    let first = parts.next()?;
    let Some(lsn) = parts.next() else {
        return Some((
            partition,
            SessionProgress {
                version: 0,
                lsn: Lsn(first.parse().ok()?),
            },
        ));
    };
    let version: i64 = first.parse().ok()?;
    let lsn = Lsn(lsn.parse().ok()?);
    let regions_are_well_formed = parts.all(|region| {
        region
            .split_once('=')
            .is_some_and(|(id, lsn)| id.parse::<i64>().is_ok() && lsn.parse::<i64>().is_ok())
    });
    regions_are_well_formed.then_some((
        partition,
        SessionProgress {
            version: version.max(0),
            lsn,
        },
    ))
}

impl fmt::Display for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (partition, progress)) in self.pairs.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{partition}:{}#{}", progress.version, progress.lsn)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(version: i64, lsn: u64) -> SessionProgress {
        SessionProgress { version, lsn: Lsn(lsn) }
    }

    #[test]
    fn every_form_clients_send_is_read() {
        for (text, expected) in [
            ("0:0#42", progress(0, 42)),
            ("0:1#42#1=40#2=41", progress(1, 42)),
            ("0:-1#42", progress(0, 42)),
            ("0:42", progress(0, 42)),
        ] {
            assert_eq!(
                SessionToken::parse(text).unwrap().get(PartitionId(0)),
                Some(expected),
                "{text}"
            );
        }
        let token = SessionToken::parse("0:0#1,3:0#7").unwrap();
        assert_eq!(token.get(PartitionId(3)), Some(progress(0, 7)));
        assert_eq!(token.to_string(), "0:0#1,3:0#7");
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for text in ["x", "0", "0:", "0:a#1", "0:0#x", "0:0#1#2", "a:0#1", "0:0#-1"] {
            assert_eq!(SessionToken::parse(text), None, "{text}");
        }
    }

    #[test]
    fn merging_is_commutative_associative_and_idempotent() {
        let token = |text| SessionToken::parse(text).unwrap();
        let merged = |a: &SessionToken, b: &SessionToken| {
            let mut merged = a.clone();
            merged.merge(b);
            merged
        };
        let tokens = ["0:0#1,1:0#5", "0:1#0", "1:0#9,0:0#3", ""].map(token);
        for a in &tokens {
            assert_eq!(merged(a, a), *a);
            for b in &tokens {
                let (ab, ba) = (merged(a, b), merged(b, a));
                for partition in [PartitionId(0), PartitionId(1)] {
                    assert_eq!(ab.get(partition), ba.get(partition));
                }
            }
        }
    }
}
