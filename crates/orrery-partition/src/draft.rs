//! An item on its way in: checked, stripped of the client's system properties, and ready to receive ours. A clone shares
//! what was parsed.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::json::{self, Object, Parsed, Value};
use orrery_model::rid::ChildKind;
use orrery_model::{
    ContainerDefinition, Error, Etag, PartitionKey, ResourceId, Result, Status, Timestamp, limits, name,
};

/// Properties only the server sets. What a client sends under these names is dropped.
const SYSTEM_PROPERTIES: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/// A valid item without its system properties.
#[derive(Clone, Debug)]
pub struct ItemDraft {
    pub id: String,
    pub key: PartitionKey,
    pub ttl: Option<i32>,
    /// The item as a tree, without system properties.
    pub value: Arc<Value>,
    /// Canonical text of `value` without its closing brace.
    open_text: Bytes,
}

impl ItemDraft {
    /// Checks an item that came as text (empty when it came in another form) and was parsed.
    pub fn new(definition: &ContainerDefinition, text: &Bytes, parsed: Parsed) -> Result<ItemDraft> {
        let Value::Object(mut object) = parsed.value else {
            return Err(Error::bad_request(
                "The request payload is invalid. Ensure to provide a valid request payload.",
            ));
        };
        let untouched =
            parsed.canonical && !text.is_empty() && !SYSTEM_PROPERTIES.iter().any(|name| object.contains(name));
        if !untouched {
            object.retain(|name| !SYSTEM_PROPERTIES.contains(&name));
        }
        let id = read_id(&object)?;
        let ttl = read_ttl(&object)?;
        let value = Value::Object(object);
        let whole_text = match untouched {
            true => text.clone(),
            false => Bytes::from(printed(&value)),
        };
        if whole_text.len() > limits::ITEM_BYTES_MAX {
            return Err(Error::new(Status::TOO_LARGE, "Request size is too large"));
        }
        let open_text = whole_text.slice(..whole_text.len() - 1);
        let key = definition.partition_key().extract(&value);
        check_key_size(&key)?;
        Ok(ItemDraft {
            id,
            key,
            ttl,
            value: Arc::new(value),
            open_text,
        })
    }

    /// Checks an item made from a stored one, as a patch does.
    pub fn from_object(definition: &ContainerDefinition, object: Object) -> Result<ItemDraft> {
        ItemDraft::new(
            definition,
            &Bytes::new(),
            Parsed {
                value: Value::Object(object),
                canonical: false,
            },
        )
    }

    /// The stored text: the item followed by its system properties.
    pub fn finish(&self, identity: &Identity, number: u64, etag: Etag, at: Timestamp) -> Bytes {
        let rid = ResourceId::child_of_container(&identity.container, ChildKind::Item, number).to_string();
        let etag = etag.quoted();
        let mut text = Vec::with_capacity(self.open_text.len() + 200);
        text.extend_from_slice(&self.open_text);
        let seconds = at.seconds();
        let guid = etag.trim_matches('"');
        write!(
            text,
            r#","_rid":"{rid}","_self":"{}docs/{rid}/","_etag":"\"{guid}\"","_attachments":"attachments/","_ts":{seconds}}}"#,
            identity.self_link,
        )
        .expect("writing to a vector cannot fail");
        Bytes::from(text)
    }

    /// Bytes of the item's own text.
    pub fn size_bytes(&self) -> usize {
        self.open_text.len() + 1
    }
}

/// The container an item lives in, as its system properties name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub container: ResourceId,
    /// `dbs/{rid}/colls/{rid}/`
    pub self_link: String,
}

impl Identity {
    pub fn new(container: ResourceId) -> Identity {
        let database = container.database_part();
        let self_link = format!("dbs/{database}/colls/{container}/");
        Identity { container, self_link }
    }
}

/// A stored item without its system properties, as an object to change.
pub fn own_properties(stored: &[u8]) -> Result<Object> {
    match json::parse_value(stored) {
        Ok(Value::Object(mut object)) => {
            object.retain(|name| !SYSTEM_PROPERTIES.contains(&name));
            Ok(object)
        }
        _ => Err(Error::new(Status::INTERNAL, "a stored item is not a JSON object")),
    }
}

fn printed(value: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    json::print(value, &mut text);
    text
}

fn read_id(object: &Object) -> Result<String> {
    let id = object.get("id").ok_or_else(|| {
        Error::bad_request("The input content is invalid because the required properties - 'id; ' - are missing")
    })?;
    let id = id
        .as_str()
        .ok_or_else(|| Error::bad_request("The input content is invalid because 'id' is not a string"))?;
    name::validate_item_id(id)?;
    Ok(id.to_owned())
}

fn read_ttl(object: &Object) -> Result<Option<i32>> {
    let invalid = || {
        Error::bad_request(
            "The input ttl is invalid. Ensure to provide a nonzero positive integer less than or equal to 2147483647, or -1 for never expire.",
        )
    };
    match object.get("ttl") {
        None => Ok(None),
        Some(value) => {
            let seconds = value
                .as_number()
                .and_then(json::Number::as_i64)
                .and_then(|seconds| i32::try_from(seconds).ok());
            seconds
                .filter(|seconds| *seconds == -1 || *seconds > 0)
                .map(Some)
                .ok_or_else(invalid)
        }
    }
}

fn check_key_size(key: &PartitionKey) -> Result<()> {
    let too_long = |component: &orrery_model::key::KeyComponent| matches!(component, orrery_model::key::KeyComponent::String(text) if text.len() > limits::PARTITION_KEY_BYTES_MAX);
    if key.components().iter().any(too_long) {
        return Err(Error::bad_request(
            "Partition key value is too large: it may have at most 2048 bytes.",
        ));
    }
    Ok(())
}
