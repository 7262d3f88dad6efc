//! The terms of an item under an indexing policy.
//!
//! Every indexed value gives a term, arrays and objects one that tells their type, so that searches for what exists need
//! nothing else; a text gives one per word and a geometry one per cell where the policy asks for them. All terms of an item lie in one buffer. An item with too many is *overfull*: it has none, and searches
//! must consider it always.

use orrery_model::Value;
use orrery_model::container::index_rules::{CompositeIndex, IndexPlace, IndexRules};
use orrery_model::json::{JsonError, Met, Walk, parse_value, walk};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::encode::{encode, encode_met};
use super::path::PathHash;
use super::{places, words};

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
        if !rules.is_enabled() {
            return Terms::default();
        }
        let mut gather = Gather::new(rules);
        gather.parts(item, gather.root());
        let mut terms = gather.terms;
        for index in rules.composites() {
            terms.composite(index, item);
        }
        terms.finish()
    }

    /// The terms of an item by its text.
    pub fn of_text(rules: &IndexRules, text: &[u8]) -> Result<Terms, JsonError> {
        // Composites and geometries take several values at once, so they need a tree.
        if rules.is_enabled() && rules.composites().is_empty() && !rules.has_geometries() {
            let mut gather = Gather::new(rules);
            let root = gather.root();
            if walk(text, &mut gather, root) {
                return Ok(gather.terms.finish());
            }
        }
        Ok(Terms::of(rules, &parse_value(text)?))
    }

    /// Of an item that is not to be indexed: searches always consider it, like one that is overfull.
    pub fn unindexed() -> Terms {
        Terms {
            overfull: true,
            ..Terms::default()
        }
    }

    /// Room for what most items have.
    fn with_room() -> Terms {
        Terms {
            bytes: Vec::with_capacity(1024),
            singles: Vec::with_capacity(32),
            paths: Vec::with_capacity(32),
            ..Terms::default()
        }
    }

    /// Puts what was gathered in order.
    fn finish(mut self) -> Terms {
        if self.overfull {
            return Terms::unindexed();
        }
        let Terms { bytes, singles, .. } = &mut self;
        let content = |term: &(u32, u32)| &bytes[term.0 as usize..term.1 as usize];
        singles.sort_unstable_by(|a, b| content(a).cmp(content(b)));
        singles.dedup_by(|a, b| content(a) == content(b));
        self.paths.sort_unstable();
        self.paths.dedup();
        self
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

    /// The item has no terms: it is too large, or not to be indexed.
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

/// A place of an item, and what is to be done with a value there.
#[derive(Clone, Copy)]
struct Place<'r> {
    rules: IndexPlace<'r>,
    path: PathHash,
    /// Every item has at most one value here.
    is_single: bool,
}

impl<'r> Place<'r> {
    fn of_interest(self) -> Option<Place<'r>> {
        self.rules.reaches_anything().then_some(self)
    }
}

/// Gathers the terms of what it is shown. Trees and texts are walked by the same steps.
struct Gather<'r> {
    rules: &'r IndexRules,
    terms: Terms,
}

impl<'r> Gather<'r> {
    fn term(&mut self, path: PathHash, value: Met<'_>) {
        if self.terms.overfull {
            return;
        }
        let Terms { bytes, singles, .. } = &mut self.terms;
        let start = bytes.len() as u32;
        bytes.extend_from_slice(&path.to_bytes());
        encode_met(value, bytes);
        singles.push((start, bytes.len() as u32));
        self.terms.overfull = singles.len() > TERMS_MAX;
    }

    fn new(rules: &'r IndexRules) -> Gather<'r> {
        Gather {
            rules,
            terms: Terms::with_room(),
        }
    }

    fn root(&self) -> Place<'r> {
        Place {
            rules: self.rules.root(),
            path: PathHash::ROOT,
            is_single: true,
        }
    }

    /// The terms of a value and of what lies below it.
    fn tree(&mut self, value: &Value, place: Place<'r>) {
        self.value(place, value.into());
        self.parts(value, place);
    }

    fn parts(&mut self, value: &Value, place: Place<'r>) {
        match value {
            Value::Object(object) => {
                if place.rules.has_geometry() {
                    for cell in places::of_value(value, self.rules.is_planar()) {
                        self.term(place.path.cells(), Met::String(&cell));
                    }
                }
                for (name, member) in object.iter() {
                    if let Some(place) = self.member(place, name) {
                        self.tree(member, place);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(place) = self.element(place) {
                    items.iter().for_each(|item| self.tree(item, place));
                }
            }
            _ => {}
        }
    }
}

impl<'r> Walk for Gather<'r> {
    type Place = Place<'r>;

    fn member(&mut self, parent: Place<'r>, name: &str) -> Option<Place<'r>> {
        let place = Place {
            rules: parent.rules.member(name),
            path: parent.path.member(name),
            is_single: parent.is_single,
        };
        place.of_interest().filter(|_| !self.terms.overfull)
    }

    fn element(&mut self, parent: Place<'r>) -> Option<Place<'r>> {
        let place = Place {
            rules: parent.rules.element(),
            path: parent.path.element(),
            is_single: false,
        };
        place.of_interest().filter(|_| !self.terms.overfull)
    }

    fn value(&mut self, place: Place<'r>, value: Met<'_>) {
        if let (Some(language), Met::String(text)) = (place.rules.language(), value) {
            let path = place.path.words(language);
            for word in words::of_text(language, text) {
                self.term(path, Met::String(&word));
            }
        }
        if place.rules.is_indexed() {
            self.term(place.path, value);
            if place.is_single {
                self.terms.paths.push(place.path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::ContainerDefinition;
    use proptest::prelude::*;

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

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(|int| Value::Number(int.into())),
            any::<f64>()
                .prop_filter("stored numbers are finite", |double| double.is_finite())
                .prop_map(|double| Value::Number(orrery_model::Number::from_f64(double))),
            "[a-c\"\\\\\n\u{1}é]{0,6}".prop_map(Value::String),
            "[ab]{118,124}".prop_map(Value::String),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let object = prop::collection::btree_map("[a-d\"]{1,2}", inner.clone(), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::Array),
                object.prop_map(|members| {
                    let mut object = orrery_model::json::Object::new();
                    members.into_iter().for_each(|(name, value)| object.insert(name, value));
                    Value::Object(object)
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_text_has_the_terms_of_its_value(item in value(), nth in 0usize..3) {
            let policy = [
                EVERYTHING,
                r#"{"includedPaths":[{"path":"/a/b/?"},{"path":"/b/[]/*"}],"excludedPaths":[{"path":"/*"}]}"#,
                r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/a/*"}],"compositeIndexes":[[{"path":"/a"},{"path":"/b"}]]}"#,
            ][nth];
            let rules = rules(policy);
            let mut text = Vec::new();
            orrery_model::json::print(&item, &mut text);
            let (by_value, by_text) = (Terms::of(&rules, &item), Terms::of_text(&rules, &text).unwrap());
            prop_assert_eq!(by_value.singles().collect::<Vec<_>>(), by_text.singles().collect::<Vec<_>>());
            prop_assert_eq!(by_value.composites().collect::<Vec<_>>(), by_text.composites().collect::<Vec<_>>());
            prop_assert_eq!((by_value.paths(), by_value.shape()), (by_text.paths(), by_text.shape()));
        }
    }

    #[test]
    fn a_text_that_is_not_canonical_has_the_terms_of_its_value_too() {
        let rules = rules(EVERYTHING);
        let terms = |text: &str| Terms::of_text(&rules, text.as_bytes()).map(|terms| terms.shape());
        assert_eq!(terms(r#"{ "a" : [ 1 ] }"#), terms(r#"{"a":[2]}"#));
        assert!(terms(r#"{"a":"#).is_err());
    }

    #[test]
    fn nothing_is_indexed_in_mode_none() {
        assert_eq!(
            terms(r#"{"indexingMode":"none","automatic":false}"#, r#"{"id":"a"}"#).n_terms(),
            0
        );
    }
}
