//! Which items are written, and up to where without a hole.

use std::collections::BTreeMap;

/// Items end in any order; the position moves only over those without an unfinished one before them. Those finished ahead
/// of a slow one cost two numbers each.
#[derive(Debug)]
pub struct Finished {
    next: u64,
    bytes: u64,
    ahead: BTreeMap<u64, u64>,
}

impl Finished {
    pub fn new(bytes: u64) -> Finished {
        Finished {
            next: 0,
            bytes,
            ahead: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, sequence: u64, end: u64) {
        self.ahead.insert(sequence, end);
    }

    /// Moves on as far as possible: the number of items passed, and the byte after the last.
    pub fn advance(&mut self) -> (u64, u64) {
        let before = self.next;
        while let Some(end) = self.ahead.remove(&self.next) {
            self.next += 1;
            self.bytes = end;
        }
        (self.next - before, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_waits_for_the_slowest_item() {
        let mut finished = Finished::new(100);
        finished.add(1, 120);
        finished.add(2, 130);
        assert_eq!(finished.advance(), (0, 100));
        finished.add(0, 110);
        assert_eq!(finished.advance(), (3, 130));
        assert_eq!(finished.advance(), (0, 130));
    }
}
