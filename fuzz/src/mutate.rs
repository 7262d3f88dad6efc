//! Inputs that are almost right: small changes to inputs that are.

/// Chance from a seed (SplitMix64), so that a failure can be run again.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `sides`; 0 for no sides.
    pub fn roll(&mut self, sides: usize) -> usize {
        (self.draw() % sides.max(1) as u64) as usize
    }
}

/// Longest input tried. Bounds are checked with sizes, not with megabytes.
const INPUT_BYTES_MAX: usize = 1 << 16;

/// Values at which lengths and offsets go wrong.
const EDGES: [u64; 8] = [
    0,
    0x7F,
    0x80,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    i64::MAX as u64,
    u64::MAX,
];

/// One of the inputs, changed in a few places.
pub fn mutate(dice: &mut Dice, inputs: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = inputs[dice.roll(inputs.len())].clone();
    for _ in 0..=dice.roll(6) {
        change(dice, &mut input, inputs, words);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(dice: &mut Dice, input: &mut Vec<u8>, inputs: &[Vec<u8>], words: &[&str]) {
    let at = dice.roll(input.len() + 1);
    let end = (at + 1 + dice.roll(16)).min(input.len());
    match dice.roll(10) {
        0 => drop(input.drain(at.min(end)..end)),
        1 => insert(input, at, &[dice.draw() as u8]),
        2 if at < input.len() => input[at] ^= 1 << dice.roll(8),
        3 => {
            let part = input[at.min(end)..end].to_vec();
            (0..1 + dice.roll(40)).for_each(|_| insert(input, at, &part));
        }
        4 => {
            let other = &inputs[dice.roll(inputs.len())];
            let from = dice.roll(other.len() + 1);
            let to = (from + dice.roll(64)).min(other.len());
            insert(input, at, &other[from..to]);
        }
        5 => input.truncate(at),
        6 => {
            let width = [1, 2, 4, 8][dice.roll(4)];
            let edge = EDGES[dice.roll(EDGES.len())].to_le_bytes();
            let end = (at + width).min(input.len());
            drop(input.splice(at.min(end)..end, edge[..width].iter().copied()));
        }
        7 => {
            let digits = EDGES[dice.roll(EDGES.len())].to_string();
            insert(input, at, digits.as_bytes());
        }
        _ if !words.is_empty() => insert(input, at, words[dice.roll(words.len())].as_bytes()),
        _ => insert(input, at, &dice.draw().to_le_bytes()),
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if input.len() + bytes.len() <= INPUT_BYTES_MAX {
        drop(input.splice(at..at, bytes.iter().copied()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_inputs_again_and_another_seed_gives_others() {
        let inputs = [b"SELECT 1".to_vec(), b"FROM c".to_vec()];
        let made = |seed| -> Vec<Vec<u8>> {
            let mut dice = Dice::new(seed);
            (0..50).map(|_| mutate(&mut dice, &inputs, &["WHERE"])).collect()
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
    }
}
