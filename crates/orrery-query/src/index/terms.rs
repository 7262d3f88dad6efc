//! The terms of an item under an indexing policy.
//!
//! Every indexed value gives a term, arrays and objects one that tells their type, so that searches for what exists need
//! nothing else. All terms of an item lie in one buffer. An item with too many is *overfull*: it has none, and searches
//! must consider it always.

use orrery_model::Value;
use orrery_model::container::index_rules::{CompositeIndex, IndexPlace, IndexRules};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::encode::encode;
use super::path::PathHash;

/// Terms of one item, all kinds together.
const TERMS_MAX: usize = 8_192;

/// What an item is found by.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    bytes: Vec<u8>,
    /// Where each term lies in `bytes`; ascending by content, each once.
    singles: Vec<(u32, u32)>,
    composites: Vec<(u32, u32)>,
    /// Paths without arrays that have a value, ascending.
    paths: Vec<PathHash>,
    overfull: bool,
}

/// Names a composite index by its paths and directions.
pub fn composite_hash(index: &CompositeIndex) -> PathHash {
    let hash = index.parts.iter().fold(1, |hash, part| {
        let path = part.path.iter().fold(PathHash::ROOT, |path, name| path.member(name));
        xxh3_64_with_seed(&path.to_bytes(), hash ^ u64::from(part.descending))
    });
    PathHash(hash)
}

impl Terms {
    pub fn of(rules: &IndexRules, item: &Value) -> Terms {
        let mut terms = Terms::default();
        if !rules.is_enabled() {
            return terms;
        }
        terms.members(item, rules.root(), PathHash::ROOT, true);
        for index in rules.composites() {
            terms.composite(index, item);
        }
        if terms.overfull {
            return Terms {
                overfull: true,
                ..Terms::default()
            };
        }
        let Terms { bytes, singles, .. } = &mut terms;
        let content = |term: &(u32, u32)| &bytes[term.0 as usize..term.1 as usize];
        singles.sort_unstable_by(|a, b| content(a).cmp(content(b)));
        singles.dedup_by(|a, b| content(a) == content(b));
        terms.paths.sort_unstable();
        terms.paths.dedup();
        terms
    }

    /// Path hash and value, ascending, each once.
    pub fn singles(&self) -> impl Iterator<Item = &[u8]> {
        self.singles.iter().map(|term| self.content(term))
    }

    /// Hash of a composite index and its values.
    pub fn composites(&self) -> impl Iterator<Item = &[u8]> {
        self.composites.iter().map(|term| self.content(term))
    }

    pub fn paths(&self) -> &[PathHash] {
        &self.paths
    }

    /// The item is so large that it has no terms.
    pub fn is_overfull(&self) -> bool {
        self.overfull
    }

    /// Names the set of paths. Items alike in their structure share it.
    pub fn shape(&self) -> u64 {
        if self.overfull {
            return u64::MAX;
        }
        let mut bytes = Vec::with_capacity(8 * self.paths.len());
        self.paths
            .iter()
            .for_each(|path| bytes.extend_from_slice(&path.to_bytes()));
        // The greatest number is taken.
        xxh3_64(&bytes) >> 1
    }

    pub fn n_terms(&self) -> usize {
        self.singles.len() + self.composites.len()
    }

    fn content(&self, term: &(u32, u32)) -> &[u8] {
        &self.bytes[term.0 as usize..term.1 as usize]
    }

    /// The terms of a value and of what lies below it.
    fn value(&mut self, value: &Value, place: IndexPlace<'_>, path: PathHash, is_single: bool) {
        if !place.reaches_anything() || self.overfull {
            return;
        }
        if place.is_indexed() {
            self.single(value, path);
            if is_single {
                self.paths.push(path);
            }
        }
        self.members(value, place, path, is_single);
    }

    fn members(&mut self, value: &Value, place: IndexPlace<'_>, path: PathHash, is_single: bool) {
        match value {
            Value::Object(object) => {
                for (name, member) in object.iter() {
                    self.value(member, place.member(name), path.member(name), is_single);
                }
            }
            Value::Array(items) => {
                let (place, path) = (place.element(), path.element());
                for item in items {
                    self.value(item, place, path, false);
                }
            }
            _ => {}
        }
    }

    fn single(&mut self, value: &Value, path: PathHash) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&path.to_bytes());
        encode(Some(value), &mut self.bytes);
        self.singles.push((start, self.bytes.len() as u32));
        self.overfull |= self.singles.len() > TERMS_MAX;
    }

    fn composite(&mut self, index: &CompositeIndex, item: &Value) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&composite_hash(index).to_bytes());
        for part in &index.parts {
            let from = self.bytes.len();
            let value = part.path.iter().try_fold(item, |value, name| value.get(name));
            encode(value, &mut self.bytes);
            if part.descending {
                self.bytes[from..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        self.composites.push((start as u32, self.bytes.len() as u32));
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::ContainerDefinition;
    use orrery_model::json::parse_value;

    use super::*;

    fn rules(policy: &str) -> IndexRules {
        let text =
            format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash"}},"indexingPolicy":{policy}}}"#);
        let definition = ContainerDefinition::create(&parse_value(text.as_bytes()).unwrap()).unwrap();
        definition.index_rules().clone()
    }

    fn terms(policy: &str, item: &str) -> Terms {
        Terms::of(&rules(policy), &parse_value(item.as_bytes()).unwrap())
    }

    const EVERYTHING: &str = r#"{"includedPaths":[{"path":"/*"}]}"#;

    #[test]
    fn every_value_array_and_object_has_a_term_and_equal_elements_share_one() {
        let terms = terms(EVERYTHING, r#"{"id":"a","tags":["x","x","y"],"o":{"n":1}}"#);
        // id, tags, two tags, o, o.n
        assert_eq!(terms.singles().count(), 6);
        assert_eq!(terms.paths().len(), 4, "elements are no path of the shape");
        assert!(terms.singles().is_sorted());
    }

    #[test]
    fn items_with_the_same_properties_have_the_same_shape_in_any_order() {
        let shape = |item: &str| terms(EVERYTHING, item).shape();
        assert_eq!(shape(r#"{"id":"a","x":1}"#), shape(r#"{"x":"other","id":"b"}"#));
        assert_ne!(shape(r#"{"id":"a","x":1}"#), shape(r#"{"id":"a","y":1}"#));
    }

    #[test]
    fn composite_values_sort_in_their_directions() {
        let policy = r#"{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}]]}"#;
        let term = |item: &str| terms(policy, item).composites().next().unwrap().to_vec();
        assert!(term(r#"{"a":1,"b":1}"#) < term(r#"{"a":2,"b":1}"#));
        assert!(term(r#"{"a":1,"b":2}"#) < term(r#"{"a":1,"b":1}"#));
        assert!(term(r#"{"a":1,"b":"x"}"#) < term(r#"{"a":1}"#), "undefined comes last");
    }

    #[test]
    fn an_item_with_too_many_values_has_no_terms() {
        let numbers: Vec<String> = (0..=TERMS_MAX).map(|number| number.to_string()).collect();
        let terms = terms(EVERYTHING, &format!(r#"{{"id":"a","n":[{}]}}"#, numbers.join(",")));
        assert!(terms.is_overfull());
        assert_eq!(terms.n_terms(), 0);
        assert_eq!(terms.shape(), u64::MAX);
    }

    #[test]
    fn nothing_is_indexed_in_mode_none() {
        assert_eq!(
            terms(r#"{"indexingMode":"none","automatic":false}"#, r#"{"id":"a"}"#).n_terms(),
            0
        );
    }
}
