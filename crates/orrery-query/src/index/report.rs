//! Which indexes a query uses, and which it would use if they existed.

use std::fmt;

use orrery_model::container::index_rules::IndexRules;

use super::condition::Condition;
use super::order::{IndexOrder, OrderSource};
use super::path::{Aspect, Segment, TermPath};
use crate::plan::Plan;

/// Indexes as their paths: `/a/b/?` for one path, `/a/b/*` for a spatial and `/a/b` for a full-text index, `/a ASC` for each of
/// a composite index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexUse {
    pub used: Vec<String>,
    pub missing: Vec<String>,
    pub used_composites: Vec<Vec<String>>,
    pub missing_composites: Vec<Vec<String>>,
}

impl IndexUse {
    pub fn of(plan: &Plan, rules: &IndexRules) -> IndexUse {
        let everything = IndexRules::boundless(plan.planar);
        let order = IndexOrder::of(plan, rules);
        let sorted_path = order.as_ref().and_then(IndexOrder::path).cloned();
        let mut used = paths(&Condition::of(plan, rules));
        used.extend(sorted_path);
        used.sort();
        used.dedup();
        let could = Condition::of(plan, &everything);
        let mut missing = paths(&could);
        missing.retain(|path| !used.contains(path));
        let used_composites = match &order {
            Some(order) if matches!(order.source, OrderSource::Composite(_)) => vec![order.specs()],
            _ => Vec::new(),
        };
        let missing_composites = match used_composites.is_empty() && order.is_none() {
            true => composite_for(&could, rules),
            false => Vec::new(),
        };
        let text = |paths: Vec<TermPath>| paths.iter().map(spec).collect();
        IndexUse {
            used: text(used),
            missing: text(missing),
            used_composites,
            missing_composites,
        }
    }
}

/// An index of one path, as a policy writes it.
fn spec(path: &TermPath) -> String {
    match path.aspect {
        Aspect::Value => format!("{path}/?"),
        Aspect::Words(_) => path.to_string(),
        Aspect::Cells => format!("{path}/*"),
    }
}

/// The paths that a condition looks at, each once.
fn paths(condition: &Condition) -> Vec<TermPath> {
    let mut paths: Vec<TermPath> = match condition {
        Condition::Any | Condition::Never => Vec::new(),
        Condition::Range(range) => vec![range.path.clone()],
        Condition::Lacks(path) => vec![path.clone()],
        Condition::All(parts) | Condition::OneOf(parts) => parts.iter().flat_map(paths).collect(),
    };
    paths.sort();
    paths.dedup();
    paths
}

/// A filter on several paths at once could use them together: those compared for equality, then one range.
fn composite_for(condition: &Condition, rules: &IndexRules) -> Vec<Vec<String>> {
    let Condition::All(parts) = condition else {
        return Vec::new();
    };
    let single = |wanted: bool| {
        parts.iter().filter_map(move |part| match part {
            Condition::Range(range) if range.is_exact == wanted && range.path.is_single() => Some(&range.path),
            _ => None,
        })
    };
    let together: Vec<&TermPath> = single(true).chain(single(false).take(1)).collect();
    let exists = rules.composites().iter().any(|index| {
        let begins: Vec<Vec<&str>> = together.iter().filter_map(|path| path.names()).collect();
        index.parts.len() >= begins.len()
            && index
                .parts
                .iter()
                .zip(&begins)
                .all(|(part, names)| part.path.iter().eq(names.iter()))
    });
    match together.len() < 2 || exists {
        true => Vec::new(),
        false => vec![together.iter().map(|path| format!("{path} ASC")).collect()],
    }
}

/// As an indexing policy writes it, without its end: names are quoted where they must be.
impl fmt::Display for TermPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Elements => f.write_str("/[]")?,
                Segment::Name(name) | Segment::Computed(name) => {
                    let plain = name
                        .chars()
                        .all(|character| character.is_alphanumeric() || character == '_');
                    match plain {
                        true => write!(f, "/{name}")?,
                        false => write!(f, "/\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))?,
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::json::parse_value;

    use super::*;
    use crate::{Definition, Parameters, Query};

    fn index_use(query: &str, policy: &str) -> IndexUse {
        let policy = parse_value(policy.as_bytes()).unwrap();
        let query = Query::parse(query).unwrap();
        let plan = crate::plan::plan(&query, &Definition::plain(), &Parameters::none()).unwrap();
        IndexUse::of(&plan, &IndexRules::of(policy.as_object().unwrap()))
    }

    #[test]
    fn filters_and_sorting_use_the_paths_they_name() {
        let report = index_use(
            r#"SELECT VALUE c FROM c JOIN t IN c.tags WHERE c["a-b"] = 1 AND t.x > 2 ORDER BY c.z"#,
            r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"a-b\"/?"}]}"#,
        );
        assert_eq!(report.used, ["/tags/[]/x/?", "/z/?"]);
        assert_eq!(report.missing, [r#"/"a-b"/?"#]);
    }

    #[test]
    fn words_and_places_use_indexes_of_their_own() {
        let query = r#"SELECT * FROM c WHERE FullTextContains(c.text, "mountain") AND
            ST_DISTANCE(c.at, {"type":"Point","coordinates":[7,46]}) < 100"#;
        let report = index_use(
            query,
            r#"{"includedPaths":[{"path":"/*"}],"fullTextIndexes":[{"path":"/text"}],"spatialIndexes":[{"path":"/at/?"}]}"#,
        );
        assert_eq!(report.used, ["/at/*", "/text"]);
        assert!(report.missing.is_empty() && report.missing_composites.is_empty());
        let without = index_use(query, r#"{"includedPaths":[{"path":"/*"}]}"#);
        assert!(without.used.is_empty());
        assert_eq!(without.missing, ["/at/*", "/text"]);
    }

    #[test]
    fn a_filter_on_two_paths_could_use_a_composite_index_with_the_range_last() {
        let query = "SELECT * FROM c WHERE c.n > 1 AND c.a = 1";
        let report = index_use(query, r#"{"includedPaths":[{"path":"/*"}]}"#);
        assert_eq!(report.missing_composites, [["/a ASC", "/n ASC"]]);
        let composite = r#"{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/a"},{"path":"/n"}]]}"#;
        assert!(index_use(query, composite).missing_composites.is_empty());
        let sorted = index_use("SELECT * FROM c ORDER BY c.a DESC, c.n DESC", composite);
        assert_eq!(sorted.used_composites, [["/a ASC", "/n ASC"]]);
    }
}
