//! What becomes of a lease when the partitions below it split or merge.
//!
//! The rule is to intersect, never to widen: children cover exactly what their parent covered, at the parent's last
//! *checkpointed* position. Parents are marked as retired before their children exist and deleted after all of them do, so
//! that whoever finds a half-done cut can finish it and nobody reads the parent again. Invariant: before, during and after
//! a cut every key is covered.

use crate::lease::Lease;
use crate::names::UnitNames;
use crate::range::EpkRange;

/// A physical partition as the feed source reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub range: EpkRange,
    /// Its id, where the source can tell.
    pub id: Option<String>,
}

/// What to do with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reshard {
    /// The lease lies within one partition: read on.
    Keep,
    /// Create these, then delete the lease.
    Cut { children: Vec<Lease> },
    /// The partitions do not cover the lease: ask again later.
    Unknown,
}

/// Plans for `lease`, whose range is `range`, over the partitions as they are now.
pub fn plan(lease: &Lease, range: &EpkRange, partitions: &[Partition], names: &UnitNames) -> Reshard {
    let mut below: Vec<(&Partition, EpkRange)> = partitions
        .iter()
        .filter_map(|partition| Some((partition, partition.range.intersection(range)?)))
        .collect();
    below.sort_by(|one, other| one.1.cmp(&other.1));
    if below.is_empty() || !range.without(below.iter().map(|(_, part)| part)).is_empty() {
        return Reshard::Unknown;
    }
    match (lease.version, below.as_slice()) {
        (1.., [_]) => Reshard::Keep,
        // The partition is still the one the lease names.
        (0, [(partition, _)]) if partition.id.as_deref() == Some(lease.token.as_str()) => Reshard::Keep,
        // Merged: the lease goes on by its old range.
        (0, [_]) => cut(vec![epk_child(lease, range.clone(), names)], lease),
        (0, parts) => cut(split_of_version_0(lease, parts, names), lease),
        (_, parts) => {
            let children = parts.iter().map(|(_, part)| epk_child(lease, part.clone(), names));
            cut(children.collect(), lease)
        }
    }
}

fn cut(children: Vec<Lease>, lease: &Lease) -> Reshard {
    // A child that is the lease itself must not be deleted as its own parent.
    if children.iter().any(|child| child.id == lease.id) {
        return Reshard::Keep;
    }
    Reshard::Cut { children }
}

/// As .NET does where it is possible: one version 0 lease per child id. Where ids are unknown, or a child reaches beyond
/// the parent, EPK leases say the same without widening.
fn split_of_version_0(lease: &Lease, parts: &[(&Partition, EpkRange)], names: &UnitNames) -> Vec<Lease> {
    let whole = |(partition, part): &(&Partition, EpkRange)| partition.id.is_some() && partition.range == *part;
    if !parts.iter().all(whole) {
        return parts
            .iter()
            .map(|(_, part)| epk_child(lease, part.clone(), names))
            .collect();
    }
    let child = |(partition, part): &(&Partition, EpkRange)| {
        let id = partition.id.clone().unwrap_or_default();
        lease.child(names.lease(&id), id, 0, part.clone())
    };
    parts.iter().map(child).collect()
}

/// Leases in place of `orphans`, which name partitions that are gone and not their ranges. Which of them covered what, nobody
/// can say any more; together they covered `holes`, which no other lease does. So every part of those begins at the earliest
/// of their positions: changes may come again, and none is left out. Nothing if the positions cannot be compared.
pub fn replace_orphans<'a>(
    orphans: &[Lease],
    holes: &[EpkRange],
    partitions: &'a [Partition],
    names: &UnitNames,
) -> Option<Vec<Lease>> {
    let [first, rest @ ..] = orphans else { return None };
    let mut earliest = first.clone();
    for orphan in rest {
        earliest = match (&earliest.continuation, &orphan.continuation) {
            (Some(one), Some(other)) if other.lsn()? < one.lsn()? => orphan.clone(),
            (Some(_), Some(_)) => earliest,
            // One of them has read nothing yet.
            _ => earliest.unread(),
        };
    }
    let mut parts: Vec<(&Partition, EpkRange)> = Vec::new();
    for hole in holes {
        let part = |partition: &'a Partition| Some((partition, partition.range.intersection(hole)?));
        parts.extend(partitions.iter().filter_map(part));
    }
    Some(split_of_version_0(&earliest, &parts, names))
}

/// A lease for a part of another one.
pub(crate) fn epk_child(lease: &Lease, range: EpkRange, names: &UnitNames) -> Lease {
    let token = range.to_string();
    lease.child(names.lease(&token), token, 1, range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::FeedMode;
    use crate::names::SourceIdentity;
    use crate::range::Tiling;
    use crate::start::{Position, StartFrom};
    use crate::token::FeedToken;

    fn names() -> UnitNames {
        let source = SourceIdentity {
            host: "h".into(),
            database_rid: "d".into(),
            container_rid: "c".into(),
        };
        UnitNames::new("u", &source)
    }

    fn lease(version: u8, token: &str, range: &str) -> Lease {
        let range: EpkRange = range.parse().unwrap();
        let base = Lease::for_range(names().lease(token), range, FeedMode::LatestVersion);
        let lease = Lease {
            version,
            token: token.into(),
            continuation: Some(FeedToken::at(7)),
            ..base
        };
        let mut lease = lease
            .acquired(&crate::lease::some_host(1), crate::lease::Takeover::Clean, "t")
            .retired("t");
        lease.properties.insert("team".into(), "orders".into());
        lease
    }

    /// `id@min-max`, or `@min-max` where the source does not tell the id.
    fn partition(text: &str) -> Partition {
        let (id, range) = text.split_once('@').unwrap();
        Partition {
            range: range.parse().unwrap(),
            id: Some(id.to_owned()).filter(|id| !id.is_empty()),
        }
    }

    fn check(lease: &Lease, partitions: &[&str], expected: Option<&[(u8, &str)]>) {
        let partitions: Vec<_> = partitions.iter().map(|text| partition(text)).collect();
        let range = lease.range.clone().unwrap();
        match (plan(lease, &range, &partitions, &names()), expected) {
            (Reshard::Keep, None) => {}
            (Reshard::Cut { children }, Some(expected)) => {
                let found: Vec<_> = children
                    .iter()
                    .map(|child| (child.version, child.token.as_str()))
                    .collect();
                assert_eq!(found, expected);
                for child in &children {
                    assert_eq!(child.id, names().lease(&child.token));
                    assert_eq!(
                        child.continuation,
                        Some(FeedToken::at(7)),
                        "children stand where the parent stood"
                    );
                    assert_eq!(child.properties["team"], "orders");
                    assert!(child.owner.is_none() && !child.is_retired() && child.etag.is_none());
                }
                let ranges: Vec<_> = children.iter().filter_map(|child| child.range.clone()).collect();
                assert!(range.without(&ranges).is_empty() && Tiling::of(&ranges).overlaps.is_empty());
                assert!(ranges.iter().all(|part| range.contains(part)));
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn an_epk_lease_is_cut_at_the_partition_boundaries_and_keeps_its_ends() {
        check(
            &lease(1, "-FF", "-FF"),
            &["1@-20", "2@20-FF"],
            Some(&[(1, "-20"), (1, "20-FF")]),
        );
        check(
            &lease(1, "10-30", "10-30"),
            &["1@-20", "2@20-FF"],
            Some(&[(1, "10-20"), (1, "20-30")]),
        );
        check(
            &lease(1, "-FF", "-FF"),
            &["@-10", "@10-20", "@20-FF"],
            Some(&[(1, "-10"), (1, "10-20"), (1, "20-FF")]),
        );
    }

    #[test]
    fn an_epk_lease_within_one_partition_is_kept_after_a_merge() {
        check(&lease(1, "-20", "-20"), &["3@-FF"], None);
        check(&lease(1, "20-FF", "20-FF"), &["3@-FF"], None);
    }

    #[test]
    fn a_partition_lease_becomes_one_per_child_id_after_a_split() {
        check(
            &lease(0, "0", "-FF"),
            &["1@-20", "2@20-FF"],
            Some(&[(0, "1"), (0, "2")]),
        );
        check(&lease(0, "0", "-FF"), &["0@-FF"], None);
    }

    #[test]
    fn a_partition_lease_becomes_an_epk_lease_of_its_old_range_after_a_merge() {
        check(&lease(0, "0", "-20"), &["3@-FF"], Some(&[(1, "-20")]));
    }

    #[test]
    fn a_partition_lease_is_never_widened_when_children_reach_beyond_it() {
        check(
            &lease(0, "0", "-20"),
            &["5@-10", "6@10-FF"],
            Some(&[(1, "-10"), (1, "10-20")]),
        );
        check(
            &lease(0, "0", "-20"),
            &["@-10", "@10-20", "@20-FF"],
            Some(&[(1, "-10"), (1, "10-20")]),
        );
    }

    #[test]
    fn leases_of_partitions_that_are_gone_give_way_to_their_children_at_the_earliest_position() {
        let orphan = |token: &str, continuation: Option<u64>| Lease {
            range: None,
            continuation: continuation.map(FeedToken::at),
            ..lease(0, token, "-FF")
        };
        let partitions = ["3@-10", "4@10-20", "5@20-30", "6@30-FF"].map(partition);
        let replaced = |orphans: &[Lease], holes: &[&str]| {
            let holes: Vec<EpkRange> = holes.iter().map(|hole| hole.parse().unwrap()).collect();
            let children = replace_orphans(orphans, &holes, &partitions, &names()).unwrap();
            let place = |lease: Lease| {
                assert!(!lease.is_retired() && lease.id == names().lease(&lease.token));
                (lease.version, lease.token.clone(), lease.position().unwrap())
            };
            children.into_iter().map(place).collect::<Vec<_>>()
        };
        let at = |lsn| Position::After(FeedToken::at(lsn));
        let whole = [(0, "3".to_owned(), at(7)), (0, "4".to_owned(), at(7))];
        assert_eq!(replaced(&[orphan("0", Some(7))], &["-20"]), whole);
        let both = [orphan("0", Some(9)), orphan("1", Some(7))];
        let everywhere: Vec<_> = ["3", "4", "5", "6"].map(|id| (0, id.to_owned(), at(7))).into();
        assert_eq!(replaced(&both, &["-FF"]), everywhere);
        let part = [(1, "10-15".to_owned(), at(7))];
        assert_eq!(replaced(&[orphan("0", Some(7))], &["10-15"]), part);
        let unread = replaced(&[orphan("0", Some(9)), orphan("1", None)], &["-10"]);
        assert_eq!(unread, [(0, "3".to_owned(), Position::From(StartFrom::Beginning))]);
    }

    #[test]
    fn partitions_that_do_not_cover_the_lease_decide_nothing() {
        let lease = lease(1, "-FF", "-FF");
        for partitions in [vec![], vec![partition("1@-20")]] {
            assert_eq!(plan(&lease, &EpkRange::full(), &partitions, &names()), Reshard::Unknown);
        }
    }
}
