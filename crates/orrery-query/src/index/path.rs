//! Paths of an index, known by a hash. All elements of an array share one path. What is found at a path by its words, or by the
//! cells it lies in, has paths of its own.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hash of a path from the item's root. Two paths may share one; readers verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathHash(pub u64);

/// Stands for any element of an array. A name is valid UTF-8 and never equals it.
const ELEMENTS: &[u8] = &[0xFF];
/// Begins what stands for the words of a text, followed by their language.
const WORDS: u8 = 0xFE;
/// Stands for the cells of a geometry.
const CELLS: &[u8] = &[0xFD];

impl PathHash {
    /// The item itself.
    pub const ROOT: PathHash = PathHash(0);

    pub fn member(self, name: &str) -> PathHash {
        PathHash(xxh3_64_with_seed(name.as_bytes(), self.0))
    }

    pub fn element(self) -> PathHash {
        PathHash(xxh3_64_with_seed(ELEMENTS, self.0))
    }

    /// The words of the text here, in a language.
    pub fn words(self, language: &str) -> PathHash {
        PathHash(xxh3_64_with_seed(&[&[WORDS], language.as_bytes()].concat(), self.0))
    }

    /// The cells that the geometry here lies in.
    pub fn cells(self) -> PathHash {
        PathHash(xxh3_64_with_seed(CELLS, self.0))
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

/// What of a value is indexed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aspect {
    /// The value itself.
    #[default]
    Value,
    /// The words of a text, in a language.
    Words(String),
    /// The cells that a geometry lies in.
    Cells,
}

/// A path as a search names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TermPath {
    pub segments: Vec<Segment>,
    pub aspect: Aspect,
}

impl TermPath {
    pub fn hash(&self) -> PathHash {
        let place = self
            .segments
            .iter()
            .fold(PathHash::ROOT, |hash, segment| match segment {
                Segment::Name(name) => hash.member(name),
                Segment::Elements => hash.element(),
            });
        match &self.aspect {
            Aspect::Value => place,
            Aspect::Words(language) => place.words(language),
            Aspect::Cells => place.cells(),
        }
    }

    /// The same path, of which another aspect is looked at.
    pub(super) fn seen_as(self, aspect: Aspect) -> TermPath {
        TermPath { aspect, ..self }
    }

    /// Whether every item has at most one term at this path.
    pub fn is_single(&self) -> bool {
        self.aspect == Aspect::Value && !self.segments.contains(&Segment::Elements)
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
