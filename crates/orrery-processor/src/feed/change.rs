//! One change as the feed tells it.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What happened to an item. Latest-version feeds do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Replace,
    Delete,
    /// A kind this library does not know.
    Unknown,
}

/// Facts about a change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeMetadata {
    /// Number of the transaction in its partition's log.
    pub lsn: Option<u64>,
    /// When it was committed, in seconds since 1970.
    pub committed_at_s: Option<u64>,
    pub operation: Option<Operation>,
    /// LSN of the state before.
    pub previous_lsn: Option<u64>,
    /// A delete because the item's time to live had passed.
    pub expired: bool,
    /// Of a deleted item.
    pub id: Option<String>,
    /// Of a deleted item, as the server wrote it.
    pub partition_key: Option<Value>,
}

/// One change: the item after it, before it where the container keeps that, and the facts.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<T = Value> {
    pub current: Option<T>,
    pub previous: Option<T>,
    pub metadata: ChangeMetadata,
}

impl Change {
    /// The id of the item that changed.
    pub fn id(&self) -> Option<&str> {
        let id = |item: &'_ Option<Value>| item.as_ref().and_then(|item| item.get("id")).is_some();
        let item = if id(&self.current) {
            &self.current
        } else {
            &self.previous
        };
        let told = self.metadata.id.as_deref();
        item.as_ref()
            .and_then(|item| item.get("id"))
            .and_then(Value::as_str)
            .or(told)
    }

    /// The item's partition key as canonical text: one JSON array with a value per path, null where there is none.
    pub fn key(&self, paths: &[String]) -> String {
        let item = self.current.as_ref().or(self.previous.as_ref());
        let values: Vec<Value> = match (item, &self.metadata.partition_key) {
            (Some(item), _) => paths.iter().map(|path| value_at(item, path)).collect(),
            // An object keyed by path name, or an array, depending on the server.
            (None, Some(Value::Array(values))) => values.clone(),
            (None, Some(object)) => paths.iter().map(|path| value_at(object, path)).collect(),
            (None, None) => Vec::new(),
        };
        Value::Array(values).to_string()
    }

    /// The same change with typed items.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<Change<T>, serde_json::Error> {
        let read = |item: &Option<Value>| item.as_ref().map(T::deserialize).transpose();
        Ok(Change {
            current: read(&self.current)?,
            previous: read(&self.previous)?,
            metadata: self.metadata.clone(),
        })
    }
}

fn value_at(item: &Value, path: &str) -> Value {
    let found = item.pointer(path).or_else(|| item.get(path.trim_start_matches('/')));
    found.cloned().unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(current: Option<Value>, metadata: ChangeMetadata) -> Change {
        Change {
            current,
            previous: None,
            metadata,
        }
    }

    #[test]
    fn a_change_knows_its_item_and_key() {
        let paths = ["/tenant/id".to_owned(), "/user".to_owned()];
        let item = json!({"id": "a", "tenant": {"id": "t"}, "user": 7});
        let change = change(Some(item), ChangeMetadata::default());
        assert_eq!((change.id(), change.key(&paths).as_str()), (Some("a"), r#"["t",7]"#));
    }

    #[test]
    fn a_delete_is_known_by_its_metadata_whatever_form_the_key_has() {
        for key in [json!({"user": "u"}), json!(["u"])] {
            let metadata = ChangeMetadata {
                id: Some("a".into()),
                partition_key: Some(key),
                ..Default::default()
            };
            let change = change(None, metadata);
            assert_eq!(
                (change.id(), change.key(&["/user".into()]).as_str()),
                (Some("a"), r#"["u"]"#)
            );
        }
    }
}
