//! Effective partition keys: the hash that routes a partition key, and intervals of it.
//!
//! An EPK is a byte string, shown as upper-case hex. The whole space is `""` to `"FF"`, intervals include their lower and
//! exclude their upper bound. Byte order is EPK order: a prefix (one level of a hierarchical key, say) sorts before
//! everything it begins.

use std::fmt;

use crate::key::{KeyComponent, KeyKind, KeyVersion, PartitionKey, PartitionKeyDefinition};

mod murmur;

/// The hash of a partition key.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epk(Vec<u8>);

/// Room for what most keys become before they are hashed.
const HASHED_BYTES_USUAL: usize = 64;

/// Strings longer than this are cut before version 1 hashes them.
const V1_STRING_BYTES: usize = 100;

impl Epk {
    /// The lower end of the whole space.
    pub fn min() -> Epk {
        Epk(Vec::new())
    }

    /// The upper end of the whole space, itself outside.
    pub fn max() -> Epk {
        Epk(vec![0xFF])
    }

    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Epk {
        Epk(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads hex of either case. An odd digit at the end counts as followed by zero.
    pub fn parse(hex: &str) -> Option<Epk> {
        let digits: Option<Vec<u8>> = hex
            .chars()
            .map(|digit| digit.to_digit(16).map(|digit| digit as u8))
            .collect();
        let pairs = digits?
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0))
            .collect();
        Some(Epk(pairs))
    }

    /// Routes a partition key. With fewer components than the definition has paths (a prefix of a hierarchical key, or no
    /// key at all) the result is the lower end of the prefix's range.
    pub fn of(definition: &PartitionKeyDefinition, key: &PartitionKey) -> Epk {
        let components = key.components();
        if components.is_empty() {
            return Epk::min();
        }
        match (definition.kind(), definition.version()) {
            (KeyKind::MultiHash, _) => Epk(components
                .iter()
                .flat_map(|one| hash_v2(std::slice::from_ref(one)))
                .collect()),
            (_, KeyVersion::V2) => Epk(hash_v2(components).to_vec()),
            (_, KeyVersion::V1) => Epk(hash_v1(components)),
        }
    }

    /// The first EPK after every one that begins with this.
    fn after_prefix(&self) -> Epk {
        let mut bytes = self.0.clone();
        bytes.push(0xFF);
        Epk(bytes)
    }
}

fn hash_v2(components: &[KeyComponent]) -> [u8; 16] {
    let mut bytes = Vec::with_capacity(HASHED_BYTES_USUAL);
    components
        .iter()
        .for_each(|component| component_bytes(component, 0xFF, &mut bytes));
    let mut hash = murmur::x64_128(&bytes);
    hash.reverse();
    hash[0] &= 0x3F;
    hash
}

fn hash_v1(components: &[KeyComponent]) -> Vec<u8> {
    let cut: Vec<KeyComponent> = components.iter().map(cut_v1).collect();
    let mut bytes = Vec::new();
    cut.iter()
        .for_each(|component| component_bytes(component, 0x00, &mut bytes));
    let mut epk = encode_v1_hash(murmur::x86_32(&bytes));
    cut.iter().for_each(|component| encode_v1(component, &mut epk));
    epk
}

fn cut_v1(component: &KeyComponent) -> KeyComponent {
    match component {
        KeyComponent::String(text) if text.len() > V1_STRING_BYTES => {
            KeyComponent::Bytes(text.as_bytes()[..V1_STRING_BYTES].to_vec())
        }
        other => other.clone(),
    }
}

fn component_bytes(component: &KeyComponent, string_end: u8, out: &mut Vec<u8>) {
    match component {
        KeyComponent::Undefined => out.push(0x00),
        KeyComponent::Null => out.push(0x01),
        KeyComponent::Bool(false) => out.push(0x02),
        KeyComponent::Bool(true) => out.push(0x03),
        KeyComponent::Number(number) => {
            out.push(0x05);
            out.extend_from_slice(&number.to_le_bytes());
        }
        KeyComponent::String(text) => string_bytes(text.as_bytes(), string_end, out),
        KeyComponent::Bytes(bytes) => string_bytes(bytes, string_end, out),
    }
}

fn string_bytes(bytes: &[u8], end: u8, out: &mut Vec<u8>) {
    out.push(0x08);
    out.extend_from_slice(bytes);
    out.push(end);
}

fn encode_v1(component: &KeyComponent, out: &mut Vec<u8>) {
    match component {
        KeyComponent::Undefined => out.push(0x00),
        KeyComponent::Null => out.push(0x01),
        KeyComponent::Bool(false) => out.push(0x02),
        KeyComponent::Bool(true) => out.push(0x03),
        KeyComponent::Number(number) => encode_v1_number(*number, out),
        KeyComponent::String(text) => encode_v1_string(text.as_bytes(), out),
        KeyComponent::Bytes(bytes) => encode_v1_string(bytes, out),
    }
}

fn encode_v1_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(0x08);
    out.extend(bytes.iter().map(|byte| byte.wrapping_add(1)));
    out.push(0x00);
}

fn encode_v1_hash(hash: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_v1_number(f64::from(hash), &mut bytes);
    bytes
}

/// Order-preserving: eight bits, then groups of seven, each but the last marked by its low bit.
fn encode_v1_number(number: f64, out: &mut Vec<u8>) {
    const SIGN: u64 = 1 << 63;
    let bits = number.to_bits();
    let mut rest = if bits & SIGN == 0 {
        bits ^ SIGN
    } else {
        bits.wrapping_neg()
    };
    out.push(0x05);
    out.push((rest >> 56) as u8);
    rest <<= 8;
    let mut previous = None;
    loop {
        if let Some(byte) = previous {
            out.push(byte);
        }
        previous = Some((rest >> 56) as u8 | 1);
        rest <<= 7;
        if rest == 0 {
            break;
        }
    }
    out.extend(previous.map(|byte| byte & 0xFE));
}

fn decode_v1_hash(epk: &[u8]) -> Option<f64> {
    let (&first, groups) = epk.strip_prefix(&[0x05])?.split_first()?;
    let mut bits = u64::from(first) << 56;
    let mut shift = 49;
    for &group in groups {
        bits |= u64::from(group >> 1) << shift;
        if group & 1 == 0 || shift < 7 {
            break;
        }
        shift -= 7;
    }
    const SIGN: u64 = 1 << 63;
    Some(f64::from_bits(if bits & SIGN != 0 {
        bits ^ SIGN
    } else {
        bits.wrapping_neg()
    }))
}

impl fmt::Display for Epk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

impl fmt::Debug for Epk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epk({self})")
    }
}

/// An interval of EPKs, lower bound inside, upper bound outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EpkRange {
    pub min: Epk,
    pub max: Epk,
}

impl EpkRange {
    pub fn full() -> EpkRange {
        EpkRange {
            min: Epk::min(),
            max: Epk::max(),
        }
    }

    pub fn new(min: Epk, max: Epk) -> EpkRange {
        EpkRange { min, max }
    }

    /// Everything under one key, or under one prefix of a hierarchical key.
    pub fn of_key(definition: &PartitionKeyDefinition, key: &PartitionKey) -> EpkRange {
        EpkRange::of_epk(Epk::of(definition, key))
    }

    /// What has this EPK, or one that it begins.
    pub fn of_epk(epk: Epk) -> EpkRange {
        EpkRange {
            max: epk.after_prefix(),
            min: epk,
        }
    }

    /// The one EPK in it, as far as EPKs of this many bytes go.
    pub fn only(&self, epk_bytes: usize) -> Option<&Epk> {
        let min = self.min.as_bytes();
        let is_only = min.len() == epk_bytes && self.max.as_bytes().strip_prefix(min) == Some(&[0xFF]);
        is_only.then_some(&self.min)
    }

    pub fn contains(&self, epk: &Epk) -> bool {
        self.min <= *epk && *epk < self.max
    }

    pub fn contains_bytes(&self, epk: &[u8]) -> bool {
        self.min.as_bytes() <= epk && epk < self.max.as_bytes()
    }

    pub fn covers(&self, other: &EpkRange) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    pub fn overlaps(&self, other: &EpkRange) -> bool {
        self.min < other.max && other.min < self.max
    }

    pub fn intersection(&self, other: &EpkRange) -> Option<EpkRange> {
        let range = EpkRange {
            min: self.min.clone().max(other.min.clone()),
            max: self.max.clone().min(other.max.clone()),
        };
        (range.min < range.max).then_some(range)
    }

    /// The ranges of a new container with `n` physical partitions.
    pub fn initial(definition: &PartitionKeyDefinition, n: u32) -> Vec<EpkRange> {
        EpkRange::full()
            .divide(definition, n)
            .expect("the whole space divides into any number of ranges")
    }

    /// Cuts this range into `n` of about equal width. `None` when it is too narrow.
    pub fn divide(&self, definition: &PartitionKeyDefinition, n: u32) -> Option<Vec<EpkRange>> {
        let cut = match (definition.kind(), definition.version()) {
            (KeyKind::MultiHash, _) | (_, KeyVersion::V2) => cut_v2,
            (_, KeyVersion::V1) => cut_v1_range,
        };
        let mut bounds = vec![self.min.clone()];
        bounds.extend((1..n).map(|index| cut(self, index, n)));
        bounds.push(self.max.clone());
        let ascending = bounds.windows(2).all(|pair| pair[0] < pair[1]);
        ascending.then(|| {
            bounds
                .windows(2)
                .map(|pair| EpkRange::new(pair[0].clone(), pair[1].clone()))
                .collect()
        })
    }
}

const V2_LAST: u128 = (1 << 126) - 1;

fn cut_v2(range: &EpkRange, index: u32, n: u32) -> Epk {
    let number = |epk: &Epk| {
        let mut bytes = [0; 16];
        let n_bytes = epk.0.len().min(16);
        bytes[..n_bytes].copy_from_slice(&epk.0[..n_bytes]);
        u128::from_be_bytes(bytes).min(V2_LAST)
    };
    let (low, high) = (number(&range.min), number(&range.max));
    let width = high - low;
    let (index, n) = (u128::from(index), u128::from(n));
    // Divided first where the product could overflow.
    let offset = width / n * index + width % n * index / n;
    Epk((low + offset).to_be_bytes().to_vec())
}

fn cut_v1_range(range: &EpkRange, index: u32, n: u32) -> Epk {
    const END: f64 = 4_294_967_296.0;
    let low = decode_v1_hash(&range.min.0).unwrap_or(0.0);
    let high = decode_v1_hash(&range.max.0).unwrap_or(END);
    let cut = low + (high - low) * f64::from(index) / f64::from(n);
    Epk(encode_v1_hash(cut.floor() as u32))
}

impl fmt::Display for EpkRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.min, self.max)
    }
}

#[cfg(test)]
mod tests;
