//! Which properties of an item are indexed, decided once per definition so that a walk over an item asks one small
//! question per step.
//!
//! The more precise path wins: a longer one beats a shorter one, and at equal depth `/?` beats `/*`. Words of texts and places
//! of geometries are indexed where the policy says so, whatever it says about values. What the rules do not say: how a value
//! is written into the index.

use std::collections::BTreeMap;

use super::index_path::{IndexPath, IndexSegment, Reach};
use crate::id::ChainHash;
use crate::json::{self, Object, Value};

/// Properties the service writes that nobody searches by; only a path that names them indexes them.
const SYSTEM_UNINDEXED: [&str; 4] = ["_rid", "_self", "_attachments", "_etag"];
/// Properties that are always indexed where anything is.
const ALWAYS_INDEXED: [&str; 2] = ["id", "_ts"];
/// The language of a text where no policy names one.
const DEFAULT_LANGUAGE: &str = "en-US";

/// The indexing policy in a form to walk along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexRules {
    root: IndexRule,
    composites: Vec<CompositeIndex>,
    /// Computed properties that the policy names, in its included paths or in a composite index.
    computed: Vec<String>,
    enabled: bool,
    has_geometries: bool,
    /// Coordinates are planar instead of on the globe.
    planar: bool,
    /// Stands for any index there could be.
    boundless: bool,
    fingerprint: u64,
}

/// What holds at one place of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexRule {
    /// `/?` here.
    here: Option<bool>,
    /// `/*` here: this place and everything below.
    below: Option<bool>,
    /// The language whose words of a text here are indexed.
    language: Option<String>,
    /// A geometry here is indexed by its place, and with `geometries_below` every one below as well.
    geometry_here: bool,
    geometries_below: bool,
    names: BTreeMap<String, IndexRule>,
    elements: Option<Box<IndexRule>>,
}

/// Paths whose values are indexed together, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositeIndex {
    pub parts: Vec<CompositePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositePart {
    pub path: Vec<String>,
    pub descending: bool,
}

/// A place in an item, seen through the rules.
#[derive(Clone, Copy, Debug)]
pub struct IndexPlace<'a> {
    rule: Option<&'a IndexRule>,
    /// What the nearest `/*` above says.
    inherited: bool,
    /// Whether a spatial index above covers everything below it.
    geometries: bool,
}

impl IndexRules {
    /// Reads the policies of a container's definition.
    pub fn of_container(fields: &Object) -> IndexRules {
        let nothing = Object::new();
        let policy = fields.get("indexingPolicy").and_then(Value::as_object);
        let mut rules = IndexRules::read(policy.unwrap_or(&nothing), fields.get("fullTextPolicy"));
        let surface = fields.get("geospatialConfig").and_then(|config| config.get("type"));
        rules.planar = surface
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.eq_ignore_ascii_case("Geometry"));
        let computed = entries(fields.get("computedProperties"))
            .filter_map(|property| property.get("name")?.as_str())
            .filter(|name| rules.names_computed(name));
        rules.computed = computed.map(str::to_owned).collect();
        rules.fingerprint = rules.fingerprint_of(policy.unwrap_or(&nothing), fields);
        rules
    }

    /// Reads an indexing policy by itself. One without any paths includes everything.
    pub fn of(policy: &Object) -> IndexRules {
        IndexRules::read(policy, None)
    }

    /// Every index that a query could use.
    pub fn boundless(planar: bool) -> IndexRules {
        let mut rules = IndexRules::of(&Object::new());
        rules.root.geometries_below = true;
        IndexRules {
            has_geometries: true,
            planar,
            boundless: true,
            ..rules
        }
    }

    fn read(policy: &Object, full_text: Option<&Value>) -> IndexRules {
        if policy.get("indexingMode").and_then(Value::as_str) == Some("none") {
            return IndexRules::default();
        }
        let mut root = IndexRule::default();
        for (list, included) in [("excludedPaths", false), ("includedPaths", true)] {
            for path in paths(policy.get(list)) {
                root.add(&path, included);
            }
        }
        if root == IndexRule::default() {
            root.below = Some(true);
        }
        for name in SYSTEM_UNINDEXED {
            let rule = root.names.entry(name.to_owned()).or_default();
            rule.below = rule.below.or(Some(false));
        }
        for name in ALWAYS_INDEXED {
            root.names.entry(name.to_owned()).or_default().here = Some(true);
        }
        for path in paths(policy.get("fullTextIndexes")) {
            let language = language(full_text, &path);
            if let Some(rule) = root.at(&path) {
                rule.language = Some(language);
            }
        }
        let mut has_geometries = false;
        for path in paths(policy.get("spatialIndexes")) {
            if let Some(rule) = root.at(&path) {
                rule.geometry_here = true;
                rule.geometries_below |= path.reach == Reach::Everything;
                has_geometries = true;
            }
        }
        IndexRules {
            root,
            composites: composites(policy),
            computed: Vec::new(),
            enabled: true,
            has_geometries,
            planar: false,
            boundless: false,
            fingerprint: 0,
        }
    }

    /// Names what index entries depend on; of rules made from a whole definition.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// False in mode `none`: there is no index at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub fn composites(&self) -> &[CompositeIndex] {
        &self.composites
    }

    /// The computed properties that index entries depend on.
    pub fn computed(&self) -> &[String] {
        &self.computed
    }

    /// Whether the policy names a computed property. What is said of everything says nothing of those.
    fn names_computed(&self, name: &str) -> bool {
        let in_composite = |index: &CompositeIndex| {
            index
                .parts
                .iter()
                .any(|part| part.path.first().is_some_and(|first| first == name))
        };
        self.enabled && (self.computed_property(name).reaches_anything() || self.composites.iter().any(in_composite))
    }

    /// Names what index entries are made by. Words depend on the language of their text, cells on the surface, and computed
    /// values on their queries and on whatever functions in them look up.
    fn fingerprint_of(&self, policy: &Object, fields: &Object) -> u64 {
        let mut text = Vec::new();
        json::print(&Value::Object(policy.clone()), &mut text);
        let computes = !self.computed.is_empty();
        let depends_on = [
            ("fullTextPolicy", computes || policy.get("fullTextIndexes").is_some()),
            ("geospatialConfig", computes || policy.get("spatialIndexes").is_some()),
            ("computedProperties", computes),
            ("vectorEmbeddingPolicy", computes),
        ];
        for (field, depends) in depends_on {
            if let Some(other) = fields.get(field).filter(|_| depends) {
                json::print(other, &mut text);
            }
        }
        let hash = ChainHash::ZERO.chain(&text).0;
        u64::from_le_bytes(*hash.first_chunk().expect("the hash has 16 bytes"))
    }

    /// Whether geometries are indexed by their places, anywhere.
    pub fn has_geometries(&self) -> bool {
        self.has_geometries
    }

    /// Whether coordinates are planar instead of on the globe.
    pub fn is_planar(&self) -> bool {
        self.planar
    }

    /// Whether the words of a text at this place are indexed in a language.
    pub fn has_words(&self, place: IndexPlace<'_>, language: &str) -> bool {
        self.boundless || place.language() == Some(language)
    }

    /// Whether a property of the item is one that the service writes and nobody asked to index.
    pub fn is_system_property(name: &str) -> bool {
        SYSTEM_UNINDEXED.contains(&name)
    }

    /// The item itself.
    pub fn root(&self) -> IndexPlace<'_> {
        IndexPlace {
            rule: Some(&self.root),
            inherited: self.enabled && self.root.below.unwrap_or(false),
            geometries: self.root.geometries_below,
        }
    }

    /// The value of a computed property, which is indexed only as far as the policy names it.
    pub fn computed_property(&self, name: &str) -> IndexPlace<'_> {
        let rule = self.root.names.get(name);
        IndexPlace {
            rule: rule.filter(|rule| rule.includes_anything()),
            inherited: self.boundless || (self.enabled && rule.and_then(|rule| rule.below) == Some(true)),
            geometries: false,
        }
    }
}

impl IndexRule {
    /// Whether a value here or below is indexed.
    fn includes_anything(&self) -> bool {
        let elements = self.elements.as_deref().is_some_and(IndexRule::includes_anything);
        let here = self.here == Some(true) || self.below == Some(true) || self.language.is_some() || self.geometry_here;
        here || elements || self.names.values().any(IndexRule::includes_anything)
    }

    fn add(&mut self, path: &IndexPath, included: bool) {
        let mut rule = self;
        for segment in &path.segments {
            rule = match segment {
                IndexSegment::Name(name) => rule.names.entry(name.clone()).or_default(),
                IndexSegment::Elements => rule.elements.get_or_insert_default(),
                // Filters over members of one element are answered by the paths of the members.
                IndexSegment::Tuple(members) => {
                    for member in members {
                        rule.names.entry(member.clone()).or_default().here = Some(included);
                    }
                    return;
                }
            };
        }
        match path.reach {
            Reach::Everything => rule.below = Some(included),
            Reach::Scalar | Reach::Exact => rule.here = Some(included),
        }
    }

    /// The rule of a path; `None` for a path that stands for several.
    fn at(&mut self, path: &IndexPath) -> Option<&mut IndexRule> {
        path.segments.iter().try_fold(self, |rule, segment| match segment {
            IndexSegment::Name(name) => Some(rule.names.entry(name.clone()).or_default()),
            IndexSegment::Elements => Some(&mut **rule.elements.get_or_insert_default()),
            IndexSegment::Tuple(_) => None,
        })
    }
}

impl<'a> IndexPlace<'a> {
    /// Whether a value at this place is indexed.
    pub fn is_indexed(self) -> bool {
        self.rule.and_then(|rule| rule.here).unwrap_or(self.inherited)
    }

    /// The language whose words of a text at this place are indexed.
    pub fn language(self) -> Option<&'a str> {
        self.rule.and_then(|rule| rule.language.as_deref())
    }

    /// Whether a geometry at this place is indexed by where it lies.
    pub fn has_geometry(self) -> bool {
        self.geometries || self.rule.is_some_and(|rule| rule.geometry_here)
    }

    /// Whether anything at or below this place can be indexed.
    pub fn reaches_anything(self) -> bool {
        self.inherited || self.geometries || self.rule.is_some()
    }

    /// The member of that name.
    pub fn member(self, name: &str) -> IndexPlace<'a> {
        self.step(self.rule.and_then(|rule| rule.names.get(name)))
    }

    /// Any element of the array here.
    pub fn element(self) -> IndexPlace<'a> {
        self.step(self.rule.and_then(|rule| rule.elements.as_deref()))
    }

    fn step(self, rule: Option<&'a IndexRule>) -> IndexPlace<'a> {
        IndexPlace {
            rule,
            inherited: rule.and_then(|rule| rule.below).unwrap_or(self.inherited),
            geometries: self.geometries || rule.is_some_and(|rule| rule.geometries_below),
        }
    }
}

fn entries(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).unwrap_or_default().iter()
}

fn paths(list: Option<&Value>) -> impl Iterator<Item = IndexPath> {
    entries(list).filter_map(|entry| IndexPath::parse(entry.get("path")?.as_str()?).ok())
}

/// The language that a full-text policy gives the texts at a path.
fn language(full_text: Option<&Value>, path: &IndexPath) -> String {
    let policy = |name| full_text.and_then(|policy| policy.get(name));
    let is_same = |entry: &&Value| {
        let own = entry.get("path").and_then(Value::as_str);
        own.and_then(|own| IndexPath::parse(own).ok())
            .is_some_and(|own| own.segments == path.segments)
    };
    entries(policy("fullTextPaths"))
        .find(is_same)
        .and_then(|entry| entry.get("language"))
        .or_else(|| policy("defaultLanguage"))
        .and_then(Value::as_str)
        .unwrap_or(DEFAULT_LANGUAGE)
        .to_owned()
}

/// The composite indexes. One whose paths lead through arrays can hold nothing and is left out.
fn composites(policy: &Object) -> Vec<CompositeIndex> {
    let part = |entry: &Value| {
        let path = IndexPath::parse(entry.get("path")?.as_str()?).ok()?;
        Some(CompositePart {
            path: path.names()?.into_iter().map(str::to_owned).collect(),
            descending: entry.get("order").and_then(Value::as_str) == Some("descending"),
        })
    };
    let index = |index: &Value| {
        let parts = entries(Some(index)).map(part).collect::<Option<Vec<_>>>()?;
        Some(CompositeIndex { parts })
    };
    entries(policy.get("compositeIndexes")).filter_map(index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse_value;

    fn rules(policy: &str) -> IndexRules {
        let policy = parse_value(policy.as_bytes()).unwrap();
        IndexRules::of(policy.as_object().unwrap())
    }

    /// `[]` is an element, anything else a name.
    fn is_indexed(rules: &IndexRules, path: &[&str]) -> bool {
        let mut place = rules.root();
        for step in path {
            place = if *step == "[]" {
                place.element()
            } else {
                place.member(step)
            };
        }
        place.is_indexed()
    }

    #[test]
    fn by_default_everything_is_indexed_but_what_only_the_service_writes() {
        let rules = rules(r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#);
        for path in [&["a"][..], &["a", "b"], &["a", "[]", "b"], &["id"], &["_ts"]] {
            assert!(is_indexed(&rules, path), "{path:?}");
        }
        for path in [["_etag"], ["_rid"], ["_self"], ["_attachments"]] {
            assert!(!is_indexed(&rules, &path), "{path:?}");
        }
    }

    #[test]
    fn the_more_precise_path_wins() {
        let rules = rules(
            r#"{"includedPaths":[{"path":"/*"},{"path":"/a/b/?"},{"path":"/x/?"}],
                "excludedPaths":[{"path":"/a/*"},{"path":"/a/b/c/*"},{"path":"/x/*"},{"path":"/list/[]/?"}]}"#,
        );
        let cases: [(&[&str], bool); 8] = [
            (&["a"], false),
            (&["a", "z"], false),
            (&["a", "b"], true),
            (&["a", "b", "c"], false),
            (&["x"], true),
            (&["x", "y"], false),
            (&["list"], true),
            (&["list", "[]"], false),
        ];
        for (path, expected) in cases {
            assert_eq!(is_indexed(&rules, path), expected, "{path:?}");
        }
    }

    #[test]
    fn only_the_named_paths_the_id_and_the_time_are_indexed_when_the_root_is_excluded() {
        let rules = rules(r#"{"includedPaths":[{"path":"/tags/[]/?"}],"excludedPaths":[{"path":"/*"}]}"#);
        for path in [&["id"][..], &["_ts"], &["tags", "[]"]] {
            assert!(is_indexed(&rules, path), "{path:?}");
        }
        for path in [&["pk"][..], &["tags"], &["tags", "[]", "x"]] {
            assert!(!is_indexed(&rules, path), "{path:?}");
        }
    }

    #[test]
    fn mode_none_indexes_nothing_at_all() {
        let rules = rules(r#"{"indexingMode":"none"}"#);
        assert!(!rules.is_enabled() && !is_indexed(&rules, &["id"]));
    }

    #[test]
    fn texts_have_the_language_of_their_path_or_of_the_container() {
        let fields = parse_value(
            br#"{"indexingPolicy":{"includedPaths":[],"excludedPaths":[{"path":"/*"}],
                  "fullTextIndexes":[{"path":"/a"},{"path":"/b/c"}]},
                "fullTextPolicy":{"defaultLanguage":"fr-FR","fullTextPaths":[{"path":"/a"},{"path":"/b/c","language":"de-DE"}]}}"#,
        );
        let rules = IndexRules::of_container(fields.unwrap().as_object().unwrap());
        assert_eq!(rules.root().member("a").language(), Some("fr-FR"));
        assert_eq!(rules.root().member("b").member("c").language(), Some("de-DE"));
        assert!(!is_indexed(&rules, &["a"]), "the values have nothing to do with it");
        assert_eq!(rules.root().member("z").language(), None);
    }

    #[test]
    fn geometries_are_indexed_at_their_path_or_everywhere_below_it() {
        let rules = rules(
            r#"{"includedPaths":[{"path":"/*"}],"spatialIndexes":[{"path":"/at/?"},{"path":"/places/*"},{"path":"/list/[]/at/?"}]}"#,
        );
        let root = rules.root();
        assert!(root.member("at").has_geometry() && !root.member("at").member("x").has_geometry());
        assert!(root.member("places").has_geometry() && root.member("places").member("x").element().has_geometry());
        assert!(root.member("list").element().member("at").has_geometry());
        assert!(!root.has_geometry() && !root.member("other").has_geometry() && rules.has_geometries());
    }

    #[test]
    fn computed_properties_are_indexed_only_where_the_policy_names_them() {
        let rules = |policy: &str, query: &str| {
            let fields = format!(
                r#"{{"indexingPolicy":{policy},"computedProperties":[{{"name":"low","query":"{query}"}},{{"name":"other","query":"x"}}]}}"#
            );
            IndexRules::of_container(parse_value(fields.as_bytes()).unwrap().as_object().unwrap())
        };
        let everything = rules(r#"{"includedPaths":[{"path":"/*"}]}"#, "q");
        assert!(everything.computed().is_empty() && !everything.computed_property("low").is_indexed());
        let named = |query| rules(r#"{"includedPaths":[{"path":"/*"},{"path":"/low/?"}]}"#, query);
        assert_eq!(named("q").computed(), ["low"]);
        assert!(named("q").computed_property("low").is_indexed());
        assert!(!named("q").computed_property("low").member("x").is_indexed());
        let below = rules(
            r#"{"includedPaths":[{"path":"/low/*"}],"excludedPaths":[{"path":"/*"}]}"#,
            "q",
        );
        assert!(below.computed_property("low").member("x").is_indexed());
        let excluded = rules(
            r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/low/?"}]}"#,
            "q",
        );
        assert!(excluded.computed().is_empty());
        let composite = r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/other"}]]}"#;
        assert_eq!(rules(composite, "q").computed(), ["other"]);
        assert!(rules(r#"{"indexingMode":"none"}"#, "q").computed().is_empty());
        assert_ne!(
            named("q").fingerprint(),
            named("p").fingerprint(),
            "entries depend on the query"
        );
    }

    #[test]
    fn composites_keep_their_order_and_directions() {
        let rules = rules(
            r#"{"compositeIndexes":[[{"path":"/a","order":"ascending"},{"path":"/b/c","order":"descending"}],
                [{"path":"/a/[]/b"},{"path":"/b"}]]}"#,
        );
        let [index] = rules.composites() else {
            panic!("one index can be used");
        };
        assert_eq!(index.parts[1].path, ["b", "c"]);
        assert_eq!([index.parts[0].descending, index.parts[1].descending], [false, true]);
    }
}
