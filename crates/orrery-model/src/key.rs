//! Partition keys: the value a user chose, the definition that says where an item holds it, and the paths both use.

use std::borrow::Cow;
use std::fmt;

use crate::error::{Error, Result, Status};
use crate::json::{self, Value};

/// A path to a property, such as `/address/city`. Segments are names; a name with special characters may come quoted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PropertyPath {
    segments: Vec<String>,
    text: String,
}

/// Characters that mean something in paths, so that a name with them must be quoted.
const SPECIAL: [char; 9] = ['"', '\'', '*', '?', '[', ']', '{', '}', '\\'];

impl PropertyPath {
    /// Reads `/a/b` or `/"a b"/c`. `None` for anything else, also for the empty path and for wildcards.
    pub fn parse(text: &str) -> Option<PropertyPath> {
        let mut segments = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            rest = rest.strip_prefix('/')?;
            let (segment, after) = match rest.strip_prefix(['"', '\'']) {
                Some(quoted) => {
                    let quote = rest.chars().next()?;
                    let (name, after) = quoted.split_once(quote)?;
                    (name, after)
                }
                None => {
                    let (name, after) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                    if name.contains(SPECIAL) {
                        return None;
                    }
                    (name, after)
                }
            };
            if segment.is_empty() {
                return None;
            }
            segments.push(segment.to_owned());
            rest = after;
        }
        (!segments.is_empty()).then(|| PropertyPath {
            segments,
            text: text.to_owned(),
        })
    }

    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The value at this path.
    pub fn find<'a>(&self, item: &'a Value) -> Option<&'a Value> {
        self.segments.iter().try_fold(item, |value, segment| value.get(segment))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    Hash,
    MultiHash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyVersion {
    V1,
    V2,
}

/// Where the items of a container hold their partition key, and how it is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKeyDefinition {
    paths: Vec<PropertyPath>,
    kind: KeyKind,
    version: KeyVersion,
    system_key: bool,
}

impl PartitionKeyDefinition {
    /// The caller has checked that the number of paths fits the kind.
    pub fn new(
        paths: Vec<PropertyPath>,
        kind: KeyKind,
        version: KeyVersion,
        system_key: bool,
    ) -> PartitionKeyDefinition {
        PartitionKeyDefinition {
            paths,
            kind,
            version,
            system_key,
        }
    }

    pub fn paths(&self) -> &[PropertyPath] {
        &self.paths
    }

    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    pub fn version(&self) -> KeyVersion {
        self.version
    }

    /// The key path was made up by the service for a container created without one.
    pub fn system_key(&self) -> bool {
        self.system_key
    }

    /// Bytes of every EPK in this container, when all are equally long.
    pub fn epk_bytes(&self) -> Option<usize> {
        match (self.kind, self.version) {
            (KeyKind::MultiHash, _) => Some(16 * self.paths.len()),
            (_, KeyVersion::V2) => Some(16),
            (_, KeyVersion::V1) => None,
        }
    }

    /// The partition key an item holds. A missing property is undefined, and so is one that holds an array or object, as
    /// for clients, which send no key for either.
    pub fn extract(&self, item: &Value) -> PartitionKey {
        let component = |path: &PropertyPath| {
            let found = path.find(item).and_then(KeyComponent::from_value);
            found.unwrap_or(KeyComponent::Undefined)
        };
        PartitionKey(self.paths.iter().map(component).collect())
    }

    /// Turns a key as the client sent it into the key of one item, or says why it cannot be one.
    pub fn complete<'a>(&self, key: &'a PartitionKey) -> Result<Cow<'a, PartitionKey>> {
        match key.0.len() {
            // The empty key stands for "no key" and equals an item without the properties.
            0 => Ok(Cow::Owned(PartitionKey(vec![
                KeyComponent::Undefined;
                self.paths.len()
            ]))),
            n if n == self.paths.len() => Ok(Cow::Borrowed(key)),
            n => Err(Error::new(
                Status::PARTITION_KEY_MISMATCH,
                format!(
                    "Partition key provided either doesn't correspond to definition in the collection or doesn't match \
                     partition key field values specified in the document. It has {n} components, the container's key has {}.",
                    self.paths.len()
                ),
            )),
        }
    }
}

/// One level of a partition key.
#[derive(Clone, Debug)]
pub enum KeyComponent {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    String(String),
    /// A string cut in the middle of a character, which only hashing version 1 produces.
    Bytes(Vec<u8>),
}

impl KeyComponent {
    fn from_value(value: &Value) -> Option<KeyComponent> {
        Some(match value {
            Value::Null => KeyComponent::Null,
            Value::Bool(value) => KeyComponent::Bool(*value),
            Value::Number(number) => KeyComponent::Number(number.to_f64()),
            Value::String(text) => KeyComponent::String(text.clone()),
            Value::Array(_) | Value::Object(_) => return None,
        })
    }

    fn to_value(&self) -> Option<Value> {
        Some(match self {
            KeyComponent::Undefined | KeyComponent::Bytes(_) => return None,
            KeyComponent::Null => Value::Null,
            KeyComponent::Bool(value) => Value::Bool(*value),
            KeyComponent::Number(number) => Value::Number(json::Number::from_f64(*number)),
            KeyComponent::String(text) => Value::String(text.clone()),
        })
    }
}

/// Numbers are equal when their bits are, so that equal keys are exactly those that hash alike.
impl PartialEq for KeyComponent {
    fn eq(&self, other: &KeyComponent) -> bool {
        match (self, other) {
            (KeyComponent::Undefined, KeyComponent::Undefined) | (KeyComponent::Null, KeyComponent::Null) => true,
            (KeyComponent::Bool(a), KeyComponent::Bool(b)) => a == b,
            (KeyComponent::Number(a), KeyComponent::Number(b)) => a.to_bits() == b.to_bits(),
            (KeyComponent::String(a), KeyComponent::String(b)) => a == b,
            (KeyComponent::Bytes(a), KeyComponent::Bytes(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for KeyComponent {}

/// A partition key: one component per path of the definition, or fewer for a prefix of a hierarchical key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKey(Vec<KeyComponent>);

impl PartitionKey {
    pub fn new(components: Vec<KeyComponent>) -> PartitionKey {
        PartitionKey(components)
    }

    pub fn components(&self) -> &[KeyComponent] {
        &self.0
    }

    /// Reads the JSON array clients send: `["a"]`, `[5]`, `[null]`, `[{}]` for a missing value, `[]` for no key.
    pub fn parse(text: &str) -> Result<PartitionKey> {
        if let Some(plain) = plain_string(text) {
            return Ok(PartitionKey(vec![KeyComponent::String(plain.to_owned())]));
        }
        let invalid = || {
            Error::bad_request(format!(
                "Partition key {} is invalid.",
                text.chars().take(100).collect::<String>()
            ))
        };
        let value = json::parse_value(text.as_bytes()).map_err(|_| invalid())?;
        let components = value.as_array().ok_or_else(invalid)?;
        let component = |value: &Value| match value {
            Value::Object(object) if object.is_empty() => Ok(KeyComponent::Undefined),
            other => KeyComponent::from_value(other).ok_or_else(invalid),
        };
        components
            .iter()
            .map(component)
            .collect::<Result<Vec<_>>>()
            .map(PartitionKey)
    }
}

/// The content of an array of one string without escapes: what nearly every request has.
fn plain_string(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("[\"")?.strip_suffix("\"]")?;
    let is_plain = |byte: u8| byte >= b' ' && !matches!(byte, b'"' | b'\\');
    inner.bytes().all(is_plain).then_some(inner)
}

/// The form [`PartitionKey::parse`] reads.
impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |component: &KeyComponent| {
            component
                .to_value()
                .map_or_else(|| "{}".to_owned(), |value| value.to_text())
        };
        write!(f, "[{}]", self.0.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests;
