//! Chance, from a seed: the same seed rolls the same numbers on every machine.

/// A small generator (SplitMix64), good enough to decide what happens next.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice { state: seed }
    }

    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.draw() % sides
    }

    /// True `n` times of a hundred.
    pub fn percent(&mut self, n: u64) -> bool {
        self.roll(100) < n
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u64) as usize]
    }
}
