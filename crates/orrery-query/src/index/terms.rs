//! The terms of an item under an indexing policy.
//!
//! Every indexed value gives a term, arrays and objects one that tells their type, so that searches for what exists need
//! nothing else; a text gives one per word and a geometry one per cell where the policy asks for them. Computed properties that
//! the policy names give theirs beside. All terms of an item lie in one buffer. An item with too many, or with a computed value
//! that no index can hold, is *overfull*: it has none, and searches must consider it always.

use std::cell::Cell;
use std::sync::Arc;

use orrery_model::Value;
use orrery_model::container::index_rules::{CompositeIndex, IndexPlace, IndexRules};
use orrery_model::json::{JsonError, Met, Object, Walk, parse_value, walk};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::encode::{encode, encode_met};
use super::path::PathHash;
use super::{places, words};
use crate::Definition;
use crate::computed::{COMPUTING_WORK_MAX, ComputedProperty, Indexable};

/// Terms of one item, all kinds together.
const TERMS_MAX: usize = 8_192;

/// What an item is found by.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    bytes: Vec<u8>,
    /// Where each term lies in `bytes`; ascending by content, each once, and so are the composites.
    singles: Vec<(u32, u32)>,
    composites: Vec<(u32, u32)>,
    /// Paths without arrays that have a value, ascending.
    paths: Vec<PathHash>,
    overfull: bool,
}

/// What the terms of a container's items are made by.
#[derive(Clone, Debug, Default)]
pub struct Indexing {
    rules: IndexRules,
    /// Those that the rules name.
    computed: Vec<Arc<ComputedProperty>>,
}

impl Indexing {
    /// What the fields of a container's definition, and the rules that were read from them, say.
    pub fn of_container(fields: &Object, rules: &IndexRules) -> Indexing {
        let is_named = |property: &Arc<ComputedProperty>| rules.computed().iter().any(|name| name == property.name());
        let mut computed = match rules.computed().is_empty() {
            true => Vec::new(),
            false => Definition::of_container(fields).computed,
        };
        computed.retain(is_named);
        Indexing {
            rules: rules.clone(),
            computed,
        }
    }

    pub fn rules(&self) -> &IndexRules {
        &self.rules
    }

    /// The computed values of an item; `None` when an index cannot hold one of them, or all together take too much.
    fn compute(&self, item: &Value) -> Option<Vec<ComputedValue<'_>>> {
        let mut values = Vec::with_capacity(self.computed.len());
        let work_left = Cell::new(COMPUTING_WORK_MAX);
        for property in &self.computed {
            let value = match property.of(item, &work_left) {
                Indexable::Value(value) => Some(value),
                Indexable::Undefined => None,
                Indexable::Unknown => return None,
            };
            values.push((property.name(), value));
        }
        Some(values)
    }
}

/// The name of a computed property and its value.
type ComputedValue<'p> = (&'p str, Option<Value>);

/// Names a composite index by its paths and directions.
pub fn composite_hash(index: &CompositeIndex) -> PathHash {
    let hash = index.parts.iter().fold(1, |hash, part| {
        let path = part.path.iter().fold(PathHash::ROOT, |path, name| path.member(name));
        xxh3_64_with_seed(&path.to_bytes(), hash ^ u64::from(part.descending))
    });
    PathHash(hash)
}

impl Terms {
    pub fn of(indexing: &Indexing, item: &Value) -> Terms {
        let rules = &indexing.rules;
        if !rules.is_enabled() {
            return Terms::default();
        }
        let Some(computed) = indexing.compute(item) else {
            return Terms::unindexed();
        };
        let mut gather = Gather::new(rules);
        gather.parts(item, gather.root());
        for (name, value) in &computed {
            if let Some(value) = value {
                gather.computed(name, value);
            }
        }
        let mut terms = gather.terms;
        for index in rules.composites() {
            terms.composite(index, item, &computed);
        }
        terms.finish()
    }

    /// The terms of an item by its text.
    pub fn of_text(indexing: &Indexing, text: &[u8]) -> Result<Terms, JsonError> {
        let rules = &indexing.rules;
        // Composites, geometries and computed properties take several values at once, so they need a tree.
        let needs_tree = !rules.composites().is_empty() || rules.has_geometries() || !indexing.computed.is_empty();
        if rules.is_enabled() && !needs_tree {
            let mut gather = Gather::new(rules);
            let root = gather.root();
            if walk(text, &mut gather, root) {
                return Ok(gather.terms.finish());
            }
        }
        Ok(Terms::of(indexing, &parse_value(text)?))
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
        let Terms {
            bytes,
            singles,
            composites,
            ..
        } = &mut self;
        let content = |term: &(u32, u32)| &bytes[term.0 as usize..term.1 as usize];
        for terms in [singles, composites] {
            terms.sort_unstable_by(|a, b| content(a).cmp(content(b)));
            terms.dedup_by(|a, b| content(a) == content(b));
        }
        self.paths.sort_unstable();
        self.paths.dedup();
        self
    }

    /// Path hash and value, ascending, each once.
    pub fn singles(&self) -> impl Iterator<Item = &[u8]> {
        self.singles.iter().map(|term| self.content(term))
    }

    /// Hash of a composite index and its values, ascending, each once.
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

    fn composite(&mut self, index: &CompositeIndex, item: &Value, computed: &[ComputedValue<'_>]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&composite_hash(index).to_bytes());
        for part in &index.parts {
            let from = self.bytes.len();
            let first = part.path.first();
            let (begins_with, rest) = match computed
                .iter()
                .find(|(name, _)| first.is_some_and(|first| first == name))
            {
                Some((_, value)) => (value.as_ref(), &part.path[1..]),
                None => (Some(item), part.path.as_slice()),
            };
            let value = begins_with.and_then(|value| rest.iter().try_fold(value, |value, name| value.get(name)));
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

    /// The terms of a computed property. Nothing is said of what the policy does not name.
    fn computed(&mut self, name: &str, value: &Value) {
        let place = Place {
            rules: self.rules.computed_property(name),
            path: PathHash::ROOT.computed(name),
            is_single: true,
        };
        if let Some(place) = place.of_interest() {
            self.tree(value, place);
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

    fn rules(policy: &str) -> Indexing {
        let text =
            format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash"}},"indexingPolicy":{policy}}}"#);
        let definition = ContainerDefinition::create(&parse_value(text.as_bytes()).unwrap()).unwrap();
        Indexing::of_container(definition.fields(), definition.index_rules())
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

    /// Everything is indexed, and the computed properties `low` and `part`, which stands for an object.
    fn computed(policy: &str) -> Indexing {
        let text = format!(
            r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash"}},"indexingPolicy":{policy},"computedProperties":[
                {{"name":"low","query":"SELECT VALUE LOWER(c.name) FROM c"}},
                {{"name":"part","query":"SELECT VALUE {{n: c.n / 2, l: c.l}} FROM c"}},
                {{"name":"hidden","query":"SELECT VALUE c.n + 1 FROM c"}}]}}"#
        );
        let definition = ContainerDefinition::create(&parse_value(text.as_bytes()).unwrap()).unwrap();
        Indexing::of_container(definition.fields(), definition.index_rules())
    }

    #[test]
    fn computed_properties_have_terms_where_the_policy_names_them() {
        let policy = |paths: &str| format!(r#"{{"includedPaths":[{paths}],"excludedPaths":[{{"path":"/*"}}]}}"#);
        let item = parse_value(br#"{"id":"a","name":"X","n":3,"l":[1,2]}"#).unwrap();
        let n_terms = |paths: &str| Terms::of(&computed(&policy(paths)), &item).n_terms();
        assert_eq!(n_terms(""), 1, "the id alone");
        assert_eq!(n_terms(r#"{"path":"/low/?"}"#), 2);
        assert_eq!(n_terms(r#"{"path":"/part/n/?"}"#), 2);
        assert_eq!(
            n_terms(r#"{"path":"/part/*"}"#),
            6,
            "the object, its number, its array and two elements"
        );
        let everything = computed(EVERYTHING);
        assert_eq!(
            Terms::of(&everything, &item).n_terms(),
            6,
            "what is said of everything says nothing of them"
        );
    }

    #[test]
    fn a_computed_property_is_told_from_a_stored_one_of_its_name() {
        let indexing = computed(r#"{"includedPaths":[{"path":"/*"},{"path":"/low/?"}]}"#);
        let terms = |item: &str| Terms::of(&indexing, &parse_value(item.as_bytes()).unwrap());
        let (computed, stored) = (terms(r#"{"id":"a","name":"X"}"#), terms(r#"{"id":"a","low":"x"}"#));
        assert_eq!(computed.n_terms(), 3);
        assert_eq!(stored.n_terms(), 2);
        assert!(computed.paths().contains(&PathHash::ROOT.computed("low")));
        assert!(
            !stored.paths().contains(&PathHash::ROOT.computed("low")),
            "nothing is computed of it"
        );
    }

    #[test]
    fn an_item_with_a_computed_value_that_no_index_can_hold_is_always_searched() {
        let indexing = computed(r#"{"includedPaths":[{"path":"/*"},{"path":"/part/n/?"}]}"#);
        let terms = |item: &str| Terms::of(&indexing, &parse_value(item.as_bytes()).unwrap());
        assert!(!terms(r#"{"id":"a","n":1e308}"#).is_overfull());
        let infinite = indexing_of("SELECT VALUE c.n / 0 FROM c");
        let terms = |item: &str| Terms::of(&infinite, &parse_value(item.as_bytes()).unwrap());
        assert!(terms(r#"{"id":"a","n":1}"#).is_overfull());
        assert!(!terms(r#"{"id":"a"}"#).is_overfull());
    }

    #[test]
    fn composites_come_in_the_order_of_their_content_whatever_the_policy_names_first() {
        let of = |composites: &str| {
            let policy = format!(r#"{{"includedPaths":[{{"path":"/*"}}],"compositeIndexes":[{composites}]}}"#);
            let terms = terms(&policy, r#"{"id":"a","a":1,"b":2,"c":3}"#);
            let composites: Vec<Vec<u8>> = terms.composites().map(<[u8]>::to_vec).collect();
            composites
        };
        let (first, second) = (r#"[{"path":"/a"},{"path":"/b"}]"#, r#"[{"path":"/c"},{"path":"/b"}]"#);
        let (one, other) = (of(&format!("{first},{second}")), of(&format!("{second},{first}")));
        assert!(one.is_sorted());
        assert_eq!(one, other);
        assert_eq!(one.len(), 2);
    }

    /// One computed property `x`, indexed with all else.
    fn indexing_of(query: &str) -> Indexing {
        let text = format!(
            r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash"}},
                "indexingPolicy":{{"includedPaths":[{{"path":"/*"}},{{"path":"/x/?"}}]}},
                "computedProperties":[{{"name":"x","query":"{query}"}}]}}"#
        );
        let definition = ContainerDefinition::create(&parse_value(text.as_bytes()).unwrap()).unwrap();
        Indexing::of_container(definition.fields(), definition.index_rules())
    }

    #[test]
    fn computing_what_takes_too_long_is_given_up() {
        let indexing = indexing_of(r"SELECT VALUE LENGTH(REPLACE(UPPER(c.s), 'A', 'b')) FROM c");
        let item = |n: usize| parse_value(format!(r#"{{"id":"a","s":"{}"}}"#, "a".repeat(n)).as_bytes()).unwrap();
        assert!(!Terms::of(&indexing, &item(2)).is_overfull());
        assert!(Terms::of(&indexing, &item(1_500_000)).is_overfull());
    }

    #[test]
    fn both_zeros_have_one_term() {
        let code = |number: f64| {
            let mut bytes = Vec::new();
            encode(Some(&Value::Number(orrery_model::Number::Double(number))), &mut bytes);
            bytes
        };
        assert_eq!(code(0.0), code(-0.0));
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
                    let mut object = Object::new();
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
