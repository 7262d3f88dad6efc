//! Request units: what an operation costs.
//!
//! The charge grows with the work done, in the proportions the service documents: a point read of 1 KB costs 1, a write
//! of 1 KB with few indexed paths about 5 to 6. Kept in hundredths so that sums are exact.

use std::fmt;
use std::ops::AddAssign;

/// Request units in hundredths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Charge(u64);

impl Charge {
    pub const ZERO: Charge = Charge(0);

    pub const fn hundredths(hundredths: u64) -> Charge {
        Charge(hundredths)
    }

    pub fn as_hundredths(self) -> u64 {
        self.0
    }

    /// A point read of a stored item.
    pub fn read(size_bytes: usize) -> Charge {
        Charge(100 + 5 * (kib(size_bytes) - 1))
    }

    /// A read that found nothing, or nothing new.
    pub fn read_nothing() -> Charge {
        Charge(100)
    }

    /// A write: creating is one write, replacing removes the old version's terms as well.
    pub fn write(size_bytes: usize, n_indexed_terms: usize, n_versions: u64) -> Charge {
        Charge(400 + 57 * kib(size_bytes) + 5 * n_indexed_terms as u64 * n_versions + 100 * n_versions)
    }

    /// Removing an item.
    pub fn delete(size_bytes: usize) -> Charge {
        Charge(500 + 57 * kib(size_bytes))
    }

    /// A page of a feed.
    pub fn page(size_bytes: usize, n_items: usize) -> Charge {
        Charge(200 + 5 * kib(size_bytes) + 2 * n_items as u64)
    }

    /// A page of a query: what it read counts more than what it gave, and what it had to work out counts too. `n_steps` are
    /// bindings and calls, some tens of nanoseconds each.
    pub fn query(bytes_read: usize, n_items_read: u64, n_rows: usize, n_steps: u64) -> Charge {
        Charge(228 + 4 * (bytes_read as u64 / 1024) + n_items_read + 2 * n_rows as u64 + n_steps / 256)
    }

    /// The same for a read that asks two copies instead of one.
    pub fn of_two_copies(self) -> Charge {
        Charge(self.0 * 2)
    }

    /// Reading or changing a database, container or other metadata.
    pub fn metadata(write: bool) -> Charge {
        Charge(if write { 495 } else { 100 })
    }
}

fn kib(size_bytes: usize) -> u64 {
    (size_bytes as u64).div_ceil(1024).max(1)
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Charge) {
        self.0 += other.0;
    }
}

/// Decimal with a point and without trailing zeros: `1`, `5.71`.
impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 100, self.0 % 100);
        match rest {
            0 => write!(f, "{whole}"),
            _ if rest % 10 == 0 => write!(f, "{whole}.{}", rest / 10),
            _ => write!(f, "{whole}.{rest:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_print_as_the_service_prints_them() {
        for (hundredths, text) in [(100, "1"), (571, "5.71"), (550, "5.5"), (1_005, "10.05")] {
            assert_eq!(Charge::hundredths(hundredths).to_string(), text);
        }
    }

    #[test]
    fn a_query_that_works_more_on_the_same_items_costs_more() {
        let counted_pairs = Charge::query(4096, 1, 1, 100_000_000);
        assert!(counted_pairs > Charge::query(4096, 1, 1, 1_000_000));
        assert!(counted_pairs > Charge::hundredths(100_000), "{counted_pairs}");
        assert_eq!(Charge::query(0, 0, 0, 10), Charge::hundredths(228));
    }

    #[test]
    fn a_larger_item_costs_more_to_read_and_to_write() {
        assert_eq!(Charge::read(1000), Charge::hundredths(100));
        assert!(Charge::read(100_000) > Charge::read(1000));
        assert!(Charge::write(100_000, 10, 1) > Charge::write(1000, 10, 1));
        assert!(Charge::write(1000, 10, 2) > Charge::write(1000, 10, 1));
    }
}
