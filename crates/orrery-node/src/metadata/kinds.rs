//! What each kind of resource may say about itself: the checked definition that is stored.

use orrery_model::json::{Object, Value};
use orrery_model::name::{NameKind, validate_name};
use orrery_model::{ContainerDefinition, Error, PartitionKey, Result};

use orrery_query::check_computed_properties;

use crate::api::ResourceKind;

/// A checked definition and the name in it. `current` is what a replace changes.
pub fn check(kind: ResourceKind, body: &Value, current: Option<&[u8]>) -> Result<(String, Vec<u8>)> {
    let name = name_of(body)?;
    validate_name(name_kind(kind), name)?;
    let definition = match kind {
        ResourceKind::Container => {
            let definition = match current {
                Some(current) => ContainerDefinition::from_stored(current)?.replace(body)?,
                None => ContainerDefinition::create(body)?,
            };
            check_computed_properties(definition.fields())?;
            return Ok((name.to_owned(), definition.to_stored()));
        }
        ResourceKind::Database | ResourceKind::User => fields(body, &["id"]),
        ResourceKind::Permission => permission(body)?,
        ResourceKind::StoredProcedure | ResourceKind::UserDefinedFunction => {
            required_text(body, "body")?;
            fields(body, &["id", "body"])
        }
        ResourceKind::Trigger => trigger(body)?,
        ResourceKind::Offer => {
            return Err(Error::bad_request(
                "Offers are created with their database or container.",
            ));
        }
        ResourceKind::Conflict => return Err(Error::bad_request("Conflicts are not made by clients.")),
    };
    Ok((name.to_owned(), Value::Object(definition).to_text().into_bytes()))
}

fn name_kind(kind: ResourceKind) -> NameKind {
    match kind {
        ResourceKind::Database => NameKind::Database,
        ResourceKind::Container => NameKind::Container,
        ResourceKind::User => NameKind::User,
        ResourceKind::Permission => NameKind::Permission,
        _ => NameKind::Script,
    }
}

fn name_of(body: &Value) -> Result<&str> {
    body.get("id").and_then(Value::as_str).ok_or_else(|| {
        Error::bad_request("The input content is invalid because the required properties - 'id; ' - are missing")
    })
}

fn fields(body: &Value, names: &[&str]) -> Object {
    names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), body.get(name)?.clone())))
        .collect()
}

fn required_text<'a>(body: &'a Value, name: &str) -> Result<&'a str> {
    body.get(name).and_then(Value::as_str).ok_or_else(|| {
        Error::bad_request(format!(
            "The input content is invalid because the required properties - '{name}; ' - are missing"
        ))
    })
}

/// One of several words in any case, shown as it was sent.
fn word(body: &Value, name: &str, words: &[&str]) -> Result<Value> {
    let text = required_text(body, name)?;
    match words.iter().any(|word| word.eq_ignore_ascii_case(text)) {
        true => Ok(Value::from(text)),
        false => Err(Error::bad_request(format!(
            "The value '{text}' of '{name}' is invalid."
        ))),
    }
}

fn permission(body: &Value) -> Result<Object> {
    let mut definition = fields(body, &["id"]);
    definition.insert("permissionMode", word(body, "permissionMode", &["All", "Read"])?);
    definition.insert("resource", Value::from(required_text(body, "resource")?));
    if let Some(key) = body.get("resourcePartitionKey").filter(|key| **key != Value::Null) {
        PartitionKey::parse(&key.to_text())?;
        definition.insert("resourcePartitionKey", key.clone());
    }
    Ok(definition)
}

fn trigger(body: &Value) -> Result<Object> {
    required_text(body, "body")?;
    let mut definition = fields(body, &["id", "body"]);
    definition.insert("triggerType", word(body, "triggerType", &["Pre", "Post"])?);
    let operations = ["All", "Create", "Replace", "Update", "Delete", "Upsert"];
    definition.insert("triggerOperation", word(body, "triggerOperation", &operations)?);
    Ok(definition)
}
