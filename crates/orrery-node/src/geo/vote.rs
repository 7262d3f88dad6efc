//! Who takes over by itself from a region that writes and cannot be reached. Pure: what is known of the regions goes in, the heir
//! comes out.
//!
//! Nobody takes over from a region that some other one still reaches, and nobody who is not in touch with a majority of the
//! account's regions, counting those that are out: else two parts of a divided account could both decide.

use std::collections::BTreeSet;

use super::topology::RegionId;

/// What is known of an account's regions.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Every region that has a vote, in the order of failover, the one that writes first.
    pub members: Vec<RegionId>,
    /// Those of them that serve, answer and can write.
    pub up: BTreeSet<RegionId>,
    /// Pairs that cannot reach each other, whichever way is cut.
    pub parted: BTreeSet<(RegionId, RegionId)>,
}

impl Sight {
    /// Who takes over, if somebody must and may.
    pub fn heir(&self) -> Option<RegionId> {
        let writer = *self.members.first()?;
        let others = || {
            self.members
                .iter()
                .copied()
                .filter(|id| *id != writer && self.up.contains(id))
        };
        if self.up.contains(&writer) && others().any(|other| self.reaches(other, writer)) {
            return None;
        }
        // Alone it has nobody to take over from it, and nobody who can tell.
        others().find(|candidate| {
            let votes = others().filter(|other| self.reaches(*candidate, *other)).count();
            votes * 2 > self.members.len()
        })
    }

    fn reaches(&self, one: RegionId, other: RegionId) -> bool {
        !self.parted.contains(&(one, other)) && !self.parted.contains(&(other, one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: RegionId = RegionId(0);

    /// All of so many regions are well and in touch.
    fn well(n_regions: u32) -> Sight {
        Sight {
            members: (0..n_regions).map(RegionId).collect(),
            up: (0..n_regions).map(RegionId).collect(),
            parted: BTreeSet::new(),
        }
    }

    fn without(mut sight: Sight, down: &[u32]) -> Sight {
        sight.up.retain(|region| !down.contains(&region.0));
        sight
    }

    fn parted(mut sight: Sight, pairs: &[(u32, u32)]) -> Sight {
        sight
            .parted
            .extend(pairs.iter().map(|(one, other)| (RegionId(*one), RegionId(*other))));
        sight
    }

    #[test]
    fn the_next_in_line_takes_over_from_one_that_is_down() {
        assert_eq!(well(3).heir(), None);
        assert_eq!(without(well(3), &[0]).heir(), Some(RegionId(1)));
    }

    #[test]
    fn one_that_is_down_itself_is_passed_over() {
        assert_eq!(without(well(5), &[0, 1]).heir(), Some(RegionId(2)));
    }

    #[test]
    fn without_a_majority_nobody_takes_over() {
        assert_eq!(without(well(2), &[0]).heir(), None, "of two neither can tell");
        assert_eq!(without(well(3), &[0, 1]).heir(), None, "one of three");
        assert_eq!(without(well(4), &[0, 1]).heir(), None, "two of four");
        assert_eq!(without(well(1), &[0]).heir(), None);
    }

    #[test]
    fn regions_that_are_cut_from_each_other_do_not_count_together() {
        let sight = without(well(3), &[0]);
        assert_eq!(parted(sight, &[(1, 2)]).heir(), None);
        // The third is in touch with the fourth and the fifth, the second with nobody.
        let sight = without(well(5), &[0]);
        assert_eq!(
            parted(sight, &[(1, 2), (3, 1), (1, 4)]).heir(),
            Some(RegionId(2)),
            "the first that has a majority"
        );
    }

    #[test]
    fn one_that_writes_and_is_reached_by_anybody_goes_on() {
        assert_eq!(parted(well(3), &[(0, 1)]).heir(), None);
        assert_eq!(parted(well(3), &[(0, 1), (2, 0)]).heir(), Some(RegionId(1)));
        // Who is down does not reach it.
        assert_eq!(
            without(parted(well(4), &[(0, 1), (0, 2)]), &[3]).heir(),
            None,
            "two of four"
        );
        assert_eq!(
            without(parted(well(5), &[(0, 1), (0, 2), (0, 3)]), &[4]).heir(),
            Some(RegionId(1))
        );
        assert!(well(3).up.contains(&WRITER));
    }
}
