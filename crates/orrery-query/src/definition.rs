//! What planning needs to know about a container beyond its items.

use std::sync::Arc;

use orrery_model::Value;
use orrery_model::container::index_rules::IndexRules;
use orrery_model::json::Object;
use orrery_model::key::PropertyPath;

use crate::computed::{self, ComputedProperty};
use crate::functions::vector::Distance;
use crate::parse::ast::Direction;

/// The parts of a container's definition that queries depend on.
#[derive(Clone, Debug, Default)]
pub struct Definition {
    pub(crate) computed: Vec<Arc<ComputedProperty>>,
    /// Coordinates are planar instead of on the globe.
    pub(crate) planar: bool,
    pub(crate) vectors: Vec<(Vec<String>, Distance)>,
    pub(crate) default_language: Option<String>,
    pub(crate) languages: Vec<(Vec<String>, String)>,
    /// `None` where ORDER BY needs no index, as on metadata feeds.
    pub(crate) composite_indexes: Option<Vec<CompositeIndex>>,
    /// What is indexed; `None` where that does not matter.
    pub(crate) index_rules: Option<IndexRules>,
}

/// The paths of a composite index and their directions.
pub(crate) type CompositeIndex = Vec<(Vec<String>, Direction)>;

impl Definition {
    /// For lists that are no containers: nothing is special and no index is needed.
    pub fn plain() -> Definition {
        Definition::default()
    }

    /// Reads the fields of a container as clients see them.
    pub fn of_container(fields: &Object) -> Definition {
        let planar = fields
            .get("geospatialConfig")
            .and_then(|config| config.get("type"))
            .and_then(Value::as_str);
        let full_text = fields.get("fullTextPolicy");
        let definition = Definition {
            computed: Vec::new(),
            planar: planar.is_some_and(|kind| kind.eq_ignore_ascii_case("Geometry")),
            vectors: entries(
                fields
                    .get("vectorEmbeddingPolicy")
                    .and_then(|policy| policy.get("vectorEmbeddings")),
            )
            .filter_map(vector)
            .collect(),
            default_language: full_text
                .and_then(|policy| policy.get("defaultLanguage"))
                .and_then(text),
            languages: entries(full_text.and_then(|policy| policy.get("fullTextPaths")))
                .filter_map(language)
                .collect(),
            index_rules: Some(IndexRules::of_container(fields)),
            composite_indexes: Some(
                entries(
                    fields
                        .get("indexingPolicy")
                        .and_then(|policy| policy.get("compositeIndexes")),
                )
                .map(|index| entries(Some(index)).filter_map(composite).collect())
                .collect(),
            ),
        };
        Definition {
            computed: computed::of_container(fields, &definition),
            ..definition
        }
    }

    /// The same definition with ORDER BY on any combination of paths allowed.
    pub fn without_index_requirements(mut self) -> Definition {
        self.composite_indexes = None;
        self.index_rules = None;
        self
    }
}

fn entries(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).unwrap_or_default().iter()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn path(entry: &Value) -> Option<Vec<String>> {
    let path = entry.get("path")?.as_str()?;
    Some(
        PropertyPath::parse(path.strip_suffix("/?").unwrap_or(path))?
            .segments()
            .to_vec(),
    )
}

fn vector(entry: &Value) -> Option<(Vec<String>, Distance)> {
    let distance = entry
        .get("distanceFunction")
        .and_then(Value::as_str)
        .and_then(Distance::parse);
    Some((path(entry)?, distance.unwrap_or(Distance::Cosine)))
}

fn language(entry: &Value) -> Option<(Vec<String>, String)> {
    Some((path(entry)?, entry.get("language").and_then(text)?))
}

fn composite(entry: &Value) -> Option<(Vec<String>, Direction)> {
    let order = entry.get("order").and_then(Value::as_str).unwrap_or("ascending");
    let descending = order.eq_ignore_ascii_case("descending");
    Some((
        path(entry)?,
        if descending {
            Direction::Descending
        } else {
            Direction::Ascending
        },
    ))
}
