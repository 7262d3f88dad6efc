//! Paths of an index, known by a hash. All elements of an array share one path. What is found at a path by its words, or by the
//! cells it lies in, has paths of its own, and so has a computed property, whatever stored one has its name.

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
/// Begins what stands for a computed property, followed by its name.
const COMPUTED: u8 = 0xFC;

impl PathHash {
    /// The item itself.
    pub const ROOT: PathHash = PathHash(0);

    pub fn member(self, name: &str) -> PathHash {
        PathHash(xxh3_64_with_seed(name.as_bytes(), self.0))
    }

    pub fn element(self) -> PathHash {
        PathHash(xxh3_64_with_seed(ELEMENTS, self.0))
    }

    /// The value of a computed property of the item here.
    pub fn computed(self, name: &str) -> PathHash {
        PathHash(xxh3_64_with_seed(&[&[COMPUTED], name.as_bytes()].concat(), self.0))
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
    /// Only the first can be one.
    Computed(String),
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
                Segment::Computed(name) => hash.computed(name),
            });
        match &self.aspect {
            Aspect::Value => place,
            Aspect::Words(language) => place.words(language),
            Aspect::Cells => place.cells(),
        }
    }

    /// The value of a computed property.
    pub(super) fn computed(name: &str) -> TermPath {
        TermPath {
            segments: vec![Segment::Computed(name.to_owned())],
            aspect: Aspect::Value,
        }
    }

    /// The same path, of which another aspect is looked at.
    pub(super) fn seen_as(self, aspect: Aspect) -> TermPath {
        TermPath { aspect, ..self }
    }

    pub(super) fn is_computed(&self) -> bool {
        matches!(self.segments.first(), Some(Segment::Computed(_)))
    }

    /// Whether every item has at most one term at this path.
    pub fn is_single(&self) -> bool {
        self.aspect == Aspect::Value && !self.segments.contains(&Segment::Elements)
    }

    /// The names as a policy writes them, when the path leads through no array.
    pub fn names(&self) -> Option<Vec<&str>> {
        let names = self.segments.iter().map(|segment| match segment {
            Segment::Name(name) | Segment::Computed(name) => Some(name.as_str()),
            Segment::Elements => None,
        });
        names.collect()
    }
}
