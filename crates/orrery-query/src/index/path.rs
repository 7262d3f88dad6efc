//! Paths of an index, known by a hash. All elements of an array share one path.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hash of a path from the item's root. Two paths may share one; readers verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathHash(pub u64);

/// Stands for any element of an array. A name is valid UTF-8 and never equals it.
const ELEMENTS: &[u8] = &[0xFF];

impl PathHash {
    /// The item itself.
    pub const ROOT: PathHash = PathHash(0);

    pub fn member(self, name: &str) -> PathHash {
        PathHash(xxh3_64_with_seed(name.as_bytes(), self.0))
    }

    pub fn element(self) -> PathHash {
        PathHash(xxh3_64_with_seed(ELEMENTS, self.0))
    }

    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    Name(String),
    Elements,
}

/// A path as a search names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TermPath {
    pub segments: Vec<Segment>,
}

impl TermPath {
    pub fn hash(&self) -> PathHash {
        self.segments
            .iter()
            .fold(PathHash::ROOT, |hash, segment| match segment {
                Segment::Name(name) => hash.member(name),
                Segment::Elements => hash.element(),
            })
    }

    /// Whether every item has at most one value at this path.
    pub fn is_single(&self) -> bool {
        !self.segments.contains(&Segment::Elements)
    }

    /// The names, when the path leads through no array.
    pub fn names(&self) -> Option<Vec<&str>> {
        let name = |segment: &'_ Segment| match segment {
            Segment::Name(_) => true,
            Segment::Elements => false,
        };
        self.segments.iter().all(name).then(|| {
            let names = self.segments.iter().filter_map(|segment| match segment {
                Segment::Name(name) => Some(name.as_str()),
                Segment::Elements => None,
            });
            names.collect()
        })
    }
}
