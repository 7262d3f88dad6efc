//! A container's definition: its partition key, policies and limits, as clients send and read them.
//!
//! Known fields are checked and put into the service's casing; unknown ones are kept and given back, because newer SDKs
//! add policies often. Normalising is idempotent, so what is stored reads back as itself.

use crate::error::{Error, Result, Status};
use crate::json::{self, Object, Value};
use crate::key::{PartitionKeyDefinition, PropertyPath};
use crate::limits::DEFINITION_MEMBERS_MAX;
use crate::name::{NameKind, validate_name};

use index_rules::IndexRules;

pub mod directive;
pub mod index_path;
pub mod index_rules;
mod indexing;
mod partition_key;
mod policies;
mod read;
mod search;

/// Properties of a container that only the service writes.
const SYSTEM_PROPERTIES: [&str; 9] = [
    "_rid",
    "_self",
    "_etag",
    "_ts",
    "_docs",
    "_sprocs",
    "_triggers",
    "_udfs",
    "_conflicts",
];

/// A valid definition.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerDefinition {
    /// All fields but the system properties, normalised.
    fields: Object,
    partition_key: PartitionKeyDefinition,
    unique_keys: Vec<UniqueKey>,
    default_ttl: Option<i32>,
    index_rules: IndexRules,
}

/// Paths whose values together must differ within a logical partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    pub paths: Vec<PropertyPath>,
}

impl ContainerDefinition {
    /// Reads the body of a create request and fills in the defaults.
    pub fn create(body: &Value) -> Result<ContainerDefinition> {
        let definition = ContainerDefinition::read(body)?;
        search::check_sent(&definition.fields)?;
        Ok(definition)
    }

    fn read(body: &Value) -> Result<ContainerDefinition> {
        check_breadth(body)?;
        let body = body
            .as_object()
            .ok_or_else(|| Error::bad_request("The request payload must be a JSON object."))?;
        let id = read::text(body, "id")?.ok_or_else(|| read::missing("id"))?;
        validate_name(NameKind::Container, id)?;
        let given_key = read::object(body, "partitionKey")?.ok_or_else(|| read::missing("partitionKey"))?;
        let (shown_key, partition_key) = partition_key::normalise(given_key)?;

        let mut fields = Object::new();
        fields.insert("id", Value::from(id));
        let indexing_policy = indexing::normalise(read::object(body, "indexingPolicy")?)?;
        fields.insert("indexingPolicy", Value::Object(indexing_policy));
        fields.insert("partitionKey", shown_key);
        let conflicts = policies::normalise_conflicts(read::object(body, "conflictResolutionPolicy")?)?;
        fields.insert("conflictResolutionPolicy", Value::Object(conflicts));
        let geospatial = policies::normalise_geospatial(read::object(body, "geospatialConfig")?)?;
        fields.insert("geospatialConfig", Value::Object(geospatial));
        for (name, value) in body.iter() {
            if *value != Value::Null && !SYSTEM_PROPERTIES.contains(&name) && !fields.contains(name) {
                fields.insert(name, value.clone());
            }
        }
        check_kept(&fields)?;
        normalise_search(&mut fields)?;
        let unique_keys = read::object(&fields, "uniqueKeyPolicy")?
            .map(policies::unique_keys)
            .transpose()?;
        let default_ttl = policies::default_ttl(&fields)?;
        Ok(ContainerDefinition {
            index_rules: IndexRules::of_container(&fields),
            fields,
            partition_key,
            unique_keys: unique_keys.unwrap_or_default(),
            default_ttl,
        })
    }

    /// Reads the body of a replace request; what may not change must not differ. Clients send the whole definition: a
    /// partition key or unique keys left out count as removed, as they do in the service.
    pub fn replace(&self, body: &Value) -> Result<ContainerDefinition> {
        let mut body = body.clone();
        if let Value::Object(fields) = &mut body {
            self.carry_over(fields);
        }
        let mut next = ContainerDefinition::create(&body)?;
        if next.id() != self.id() {
            return Err(Error::bad_request("The id of a container cannot be changed."));
        }
        let key = |definition: &ContainerDefinition| {
            let key = &definition.partition_key;
            let paths: Vec<Vec<String>> = key.paths().iter().map(|path| path.segments().to_vec()).collect();
            (paths, key.kind(), key.version())
        };
        if key(&next) != key(self) {
            return Err(Error::bad_request(
                "Document collection partition key cannot be changed.",
            ));
        }
        next.keep_partition_key_of(self);
        if next.unique_keys != self.unique_keys {
            return Err(Error::new(
                Status::FORBIDDEN,
                "The unique index cannot be modified. To change the unique index, remove the collection and re-create a new one.",
            ));
        }
        for name in ["conflictResolutionPolicy", "clientEncryptionPolicy"] {
            if next.fields.get(name) != self.fields.get(name) {
                return Err(Error::bad_request(format!(
                    "The '{name}' of a container cannot be changed."
                )));
            }
        }
        self.check_embeddings_kept(&next)?;
        self.check_vector_indexes_kept(&next)?;
        Ok(next)
    }

    /// Policies fixed at creation stay when a replace does not name them. Whoever names vector indexes names their
    /// embeddings too.
    fn carry_over(&self, body: &mut Object) {
        let names_vectors = search::has_vector_indexes(body);
        for name in [
            "conflictResolutionPolicy",
            "clientEncryptionPolicy",
            "vectorEmbeddingPolicy",
        ] {
            if name == "vectorEmbeddingPolicy" && names_vectors {
                continue;
            }
            if let (None, Some(value)) = (read::member(body, name), self.fields.get(name)) {
                body.insert(name, value.clone());
            }
        }
    }

    /// The key is the same, but the client may have written it differently.
    fn keep_partition_key_of(&mut self, earlier: &ContainerDefinition) {
        self.partition_key = earlier.partition_key.clone();
        if let Some(shown) = earlier.fields.get("partitionKey") {
            self.fields.insert("partitionKey", shown.clone());
        }
    }

    /// Embeddings may be added, not changed.
    fn check_embeddings_kept(&self, next: &ContainerDefinition) -> Result<()> {
        let embeddings = |definition: &ContainerDefinition| {
            let policy = definition.fields.get("vectorEmbeddingPolicy");
            policy
                .and_then(|policy| policy.get("vectorEmbeddings"))
                .and_then(Value::as_array)
                .unwrap_or_default()
                .to_vec()
        };
        let next = embeddings(next);
        if embeddings(self).iter().all(|embedding| next.contains(embedding)) {
            return Ok(());
        }
        Err(Error::bad_request(
            "Paths in existing embedding policy cannot be modified in Collection Replace",
        ))
    }

    /// Vector indexes may be added and dropped, not changed.
    fn check_vector_indexes_kept(&self, next: &ContainerDefinition) -> Result<()> {
        let indexes = |definition: &ContainerDefinition| {
            let indexes = definition.indexing_policy().get("vectorIndexes");
            indexes.and_then(Value::as_array).unwrap_or_default().to_vec()
        };
        let kept = indexes(self);
        let is_changed = |index: &Value| {
            let same_path = |other: &&Value| other.get("path") == index.get("path");
            kept.iter().find(same_path).is_some_and(|other| other != index)
        };
        match indexes(next).iter().any(is_changed) {
            true => Err(Error::bad_request(
                "Paths in existing vector indexing policy cannot be modified in Collection Replace",
            )),
            false => Ok(()),
        }
    }

    /// Reads what [`ContainerDefinition::to_stored`] wrote.
    pub fn from_stored(text: &[u8]) -> Result<ContainerDefinition> {
        let corrupt = |reason: String| {
            Error::new(
                Status::INTERNAL,
                format!("a stored container definition is invalid: {reason}"),
            )
        };
        let body = json::parse_value(text).map_err(|error| corrupt(error.to_string()))?;
        ContainerDefinition::read(&body).map_err(|error| corrupt(error.message().to_owned()))
    }

    /// The definition as JSON text, without system properties.
    pub fn to_stored(&self) -> Vec<u8> {
        let mut text = Vec::new();
        json::print(&Value::Object(self.fields.clone()), &mut text);
        text
    }

    /// All fields but the system properties.
    pub fn fields(&self) -> &Object {
        &self.fields
    }

    pub fn id(&self) -> &str {
        self.fields.get("id").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn partition_key(&self) -> &PartitionKeyDefinition {
        &self.partition_key
    }

    pub fn unique_keys(&self) -> &[UniqueKey] {
        &self.unique_keys
    }

    /// `None`: items never expire. `Some(-1)`: only items that say so. `Some(n)`: after n seconds unless they say otherwise.
    pub fn default_ttl(&self) -> Option<i32> {
        self.default_ttl
    }

    /// The normalised indexing policy.
    pub fn indexing_policy(&self) -> &Object {
        self.fields
            .get("indexingPolicy")
            .and_then(Value::as_object)
            .expect("every definition has an indexing policy")
    }

    /// The indexing policy, ready to be applied to items.
    pub fn index_rules(&self) -> &IndexRules {
        &self.index_rules
    }

    /// How long all versions of an item are kept, in minutes. `None`: only the latest version is.
    pub fn change_feed_retention_minutes(&self) -> Option<u32> {
        let minutes = self
            .fields
            .get("changeFeedPolicy")?
            .get("retentionDuration")?
            .as_number()?
            .as_i64()?;
        u32::try_from(minutes).ok().filter(|&minutes| minutes > 0)
    }
}

/// Members are searched one by one here, which a stranger could make expensive with an object of very many.
fn check_breadth(value: &Value) -> Result<()> {
    match value {
        Value::Array(items) => items.iter().try_for_each(check_breadth),
        Value::Object(object) if object.len() > DEFINITION_MEMBERS_MAX => Err(Error::bad_request(format!(
            "An object of a container definition cannot have more than {DEFINITION_MEMBERS_MAX} members."
        ))),
        Value::Object(object) => object.iter().try_for_each(|(_, member)| check_breadth(member)),
        _ => Ok(()),
    }
}

/// Checks the policies that are kept as they came.
fn check_kept(fields: &Object) -> Result<()> {
    if let Some(policy) = read::object(fields, "changeFeedPolicy")? {
        policies::check_change_feed(policy)?;
    }
    if let Some(properties) = read::list(fields, "computedProperties")? {
        policies::check_computed(properties)?;
    }
    if let Some(policy) = read::object(fields, "clientEncryptionPolicy")? {
        policies::check_client_encryption(policy)?;
    }
    if let Some(policy) = read::object(fields, "fullTextPolicy")? {
        search::check_full_text(policy)?;
    }
    read::text(fields, "ttlPropertyPath")?;
    read::integer_within(fields, "analyticalStorageTtl", -1..=i64::from(i32::MAX)).map(drop)
}

/// Normalises the embedding policy and the indexes that refer to it or to the full-text policy.
fn normalise_search(fields: &mut Object) -> Result<()> {
    let embeddings = read::object(fields, "vectorEmbeddingPolicy")?
        .map(search::normalise_embeddings)
        .transpose()?;
    let full_text = read::object(fields, "fullTextPolicy")?.cloned();
    if let Some(Value::Object(policy)) = fields.get_mut("indexingPolicy") {
        search::normalise_vector_indexes(policy, embeddings.as_ref())?;
        search::check_full_text_indexes(policy, full_text.as_ref())?;
    }
    if let Some(embeddings) = embeddings {
        fields.insert("vectorEmbeddingPolicy", Value::Object(embeddings));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
