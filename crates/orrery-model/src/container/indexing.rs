//! The `indexingPolicy` of a definition: defaults, casing, and the rules its paths must follow.

use super::index_path::{IndexPath, Reach};
use super::read;
use crate::error::{Error, Result};
use crate::json::{Object, Value};

const ETAG_PATH: &str = "/\"_etag\"/?";
const COMPOSITE_INDEXES_MAX: usize = 100;
const COMPOSITE_PATHS_MAX: usize = 8;

/// The policy in the service's form.
pub(super) fn normalise(given: Option<&Object>) -> Result<Object> {
    let given = given.map(read::present).unwrap_or_default();
    let indexed = mode(&given)?;
    let mut policy = Object::new();
    policy.insert("indexingMode", Value::from(if indexed { "consistent" } else { "none" }));
    check_automatic(&given, indexed)?;
    policy.insert("automatic", Value::Bool(indexed));
    let (included, excluded) = paths(&given, indexed)?;
    policy.insert("includedPaths", included);
    policy.insert("excludedPaths", excluded);
    for (name, value) in given.into_members() {
        if !policy.contains(&name) {
            policy.insert(name, value);
        }
    }
    normalise_composites(&mut policy)?;
    normalise_spatial(&mut policy)?;
    Ok(policy)
}

/// False for mode `none`.
fn mode(given: &Object) -> Result<bool> {
    let text = read::text(given, "indexingMode")?.unwrap_or("consistent");
    match read::choice(&["consistent", "none", "lazy"], text) {
        Some("consistent") => Ok(true),
        Some("none") => Ok(false),
        Some(_) => Err(Error::bad_request(
            "Lazy indexing mode is not supported. Use consistent or none.",
        )),
        None => Err(Error::bad_request(format!("The indexing mode '{text}' is invalid."))),
    }
}

/// The mode decides whether items are indexed by themselves; a policy that says otherwise of mode `consistent` is not believed.
fn check_automatic(given: &Object, indexed: bool) -> Result<()> {
    match read::boolean(given, "automatic")? {
        Some(true) if !indexed => Err(Error::bad_request(
            "The indexing policy cannot be automatic when the indexing mode is none.",
        )),
        _ => Ok(()),
    }
}

/// Included and excluded paths. The whole item is indexed unless the policy says otherwise, tags are not.
fn paths(given: &Object, indexed: bool) -> Result<(Value, Value)> {
    let included = path_entries(given, "includedPaths")?;
    let mut excluded = path_entries(given, "excludedPaths")?;
    let array =
        |entries: Vec<Entry>| Value::Array(entries.into_iter().map(|entry| Value::Object(entry.shown)).collect());
    if !indexed {
        if !included.is_empty() || !excluded.is_empty() {
            return Err(Error::bad_request(
                "The indexing policy cannot have paths when the indexing mode is none.",
            ));
        }
        return Ok((array(included), array(excluded)));
    }
    let (mut included, roots) = match (included.is_empty(), excluded.is_empty()) {
        (true, true) => (vec![Entry::new("/*")], 1),
        _ => {
            let roots = included
                .iter()
                .chain(&excluded)
                .filter(|entry| entry.path.is_root())
                .count();
            (included, roots)
        }
    };
    match roots {
        1 => {}
        0 => {
            return Err(mandatory_root(
                "is not provided in any of the path type sets. Please provide this path in one of the sets.",
            ));
        }
        _ => {
            return Err(mandatory_root(
                "is provided more than once. Please provide this path in one of the sets.",
            ));
        }
    }
    included.iter_mut().chain(&mut excluded).for_each(Entry::show_root);
    if !included.iter().chain(&excluded).any(Entry::is_etag) {
        excluded.push(Entry::new(ETAG_PATH));
    }
    Ok((array(included), array(excluded)))
}

fn mandatory_root(what: &str) -> Error {
    Error::bad_request(format!("The special mandatory indexing path \"/\" {what}"))
}

/// One element of the included or excluded paths.
struct Entry {
    path: IndexPath,
    shown: Object,
}

impl Entry {
    fn new(text: &str) -> Entry {
        let path = IndexPath::parse(text).expect("the policy's own paths are valid");
        Entry {
            path,
            shown: [("path".to_owned(), Value::from(text))].into_iter().collect(),
        }
    }

    /// `/` is an old spelling of `/*`.
    fn show_root(&mut self) {
        if self.path.is_root() {
            self.shown.insert("path", Value::from("/*"));
        }
    }

    fn is_etag(&self) -> bool {
        self.path.names().is_some_and(|names| names == ["_etag"])
    }
}

fn path_entries(given: &Object, name: &str) -> Result<Vec<Entry>> {
    let entries = read::objects(given, name)?.unwrap_or_default();
    let entry = |entry: &Object| {
        let text = read::required_text(entry, "path")?;
        let path = parse(text)?;
        if path.reach == Reach::Exact {
            return Err(rejected(text, text.len()));
        }
        read::objects(entry, "indexes")?;
        let mut shown = read::present(entry);
        // What clients of long ago say about the kind of index has no meaning any more and is not shown.
        shown.retain(|name| name != "indexes");
        Ok(Entry { path, shown })
    };
    entries.into_iter().map(entry).collect()
}

pub(super) fn parse(text: &str) -> Result<IndexPath> {
    IndexPath::parse(text).map_err(|position| rejected(text, position))
}

pub(super) fn rejected(text: &str, position: usize) -> Error {
    Error::bad_request(format!(
        "The indexing path '{text}' could not be accepted, failed near position '{position}'. Please ensure that the path is \
         a valid path. Common errors include invalid characters or absence of quotes around labels."
    ))
}

fn normalise_composites(policy: &mut Object) -> Result<()> {
    let Some(indexes) = read::list(policy, "compositeIndexes")? else {
        return Ok(());
    };
    if indexes.len() > COMPOSITE_INDEXES_MAX {
        return Err(Error::bad_request(format!(
            "The indexing policy has more than {COMPOSITE_INDEXES_MAX} composite indexes."
        )));
    }
    let indexes = indexes.iter().map(composite).collect::<Result<Vec<_>>>()?;
    policy.insert("compositeIndexes", Value::Array(indexes));
    Ok(())
}

fn composite(index: &Value) -> Result<Value> {
    let paths = index
        .as_array()
        .ok_or_else(|| Error::bad_request("A composite index must be an array of paths."))?;
    if !(2..=COMPOSITE_PATHS_MAX).contains(&paths.len()) {
        return Err(Error::bad_request(format!(
            "A composite index must have between 2 and {COMPOSITE_PATHS_MAX} paths, not {}.",
            paths.len()
        )));
    }
    let path = |path: &Value| {
        let given = path
            .as_object()
            .ok_or_else(|| Error::bad_request("A path of a composite index must be an object."))?;
        let text = read::required_text(given, "path")?;
        if parse(text)?.reach == Reach::Everything {
            return Err(Error::bad_request(format!(
                "The composite index path '{text}' cannot have a wildcard."
            )));
        }
        let mut shown = read::present(given);
        if !shown.contains("order") {
            shown.insert("order", Value::from("ascending"));
        }
        read::normalise_choice(&mut shown, "order", &["ascending", "descending"])?;
        Ok(Value::Object(shown))
    };
    paths.iter().map(path).collect::<Result<Vec<_>>>().map(Value::Array)
}

fn normalise_spatial(policy: &mut Object) -> Result<()> {
    const TYPES: [&str; 4] = ["Point", "LineString", "Polygon", "MultiPolygon"];
    let Some(indexes) = read::objects(policy, "spatialIndexes")? else {
        return Ok(());
    };
    let index = |given: &Object| {
        parse(read::required_text(given, "path")?)?;
        let mut shown = read::present(given);
        let types = read::list(given, "types")?.unwrap_or_default().iter().map(|given| {
            let known = given.as_str().and_then(|text| read::choice(&TYPES, text));
            known
                .map(Value::from)
                .ok_or_else(|| Error::bad_request(format!("The spatial type {} is invalid.", given.to_text())))
        });
        shown.insert("types", Value::Array(types.collect::<Result<_>>()?));
        read::object(given, "boundingBox")?;
        Ok(Value::Object(shown))
    };
    let indexes = indexes.into_iter().map(index).collect::<Result<Vec<_>>>()?;
    policy.insert("spatialIndexes", Value::Array(indexes));
    Ok(())
}
