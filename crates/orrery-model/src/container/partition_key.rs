//! The `partitionKey` of a definition.

use super::read;
use crate::error::{Error, Result};
use crate::json::{Object, Value};
use crate::key::{KeyKind, KeyVersion, PartitionKeyDefinition, PropertyPath};
use crate::limits::KEY_PATHS_MAX;

/// Properties the service writes itself, which therefore cannot route an item.
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

/// Longer paths get no exact position in the message, because looking for it takes quadratic time.
const PATH_BYTES_SEARCHED: usize = 256;

/// Reads the definition and gives it back in the service's form. The kind is always shown; version 1 only where it was given.
pub(super) fn normalise(given: &Object) -> Result<(Value, PartitionKeyDefinition)> {
    let kind = kind(given)?;
    let version = version(given, kind)?;
    let paths = paths(given)?;
    let system_key = read::boolean(given, "systemKey")?.unwrap_or(false);

    let texts = paths.iter().map(|path| Value::from(path.as_str())).collect();
    let mut shown = Object::new();
    shown.insert("paths", Value::Array(texts));
    shown.insert("kind", Value::from(kind_name(given)?));
    let given = read::present(given);
    if version == KeyVersion::V2 || given.contains("version") {
        shown.insert("version", Value::from(if version == KeyVersion::V2 { 2 } else { 1 }));
    }
    for (name, value) in given.into_members() {
        if !shown.contains(&name) {
            shown.insert(name, value);
        }
    }
    Ok((
        Value::Object(shown),
        PartitionKeyDefinition::new(paths, kind, version, system_key),
    ))
}

/// `Range` is an old name for hashed paths, shown as it was given.
fn kind_name(given: &Object) -> Result<&'static str> {
    let text = read::text(given, "kind")?.unwrap_or("Hash");
    let known = read::choice(&["Hash", "MultiHash", "Range"], text);
    known.ok_or_else(|| Error::bad_request(format!("Partition key kind '{text}' is invalid.")))
}

fn kind(given: &Object) -> Result<KeyKind> {
    Ok(match kind_name(given)? {
        "MultiHash" => KeyKind::MultiHash,
        _ => KeyKind::Hash,
    })
}

fn version(given: &Object, kind: KeyKind) -> Result<KeyVersion> {
    // The Java SDK writes the version by its name.
    let number = match given.get("version").and_then(Value::as_str) {
        Some("V1") => Some(1),
        Some("V2") => Some(2),
        _ => read::integer(given, "version")?,
    };
    match (number, kind) {
        (None | Some(2), KeyKind::MultiHash) | (Some(2), KeyKind::Hash) => Ok(KeyVersion::V2),
        (None | Some(1), KeyKind::Hash) => Ok(KeyVersion::V1),
        (Some(1), KeyKind::MultiHash) => Err(Error::bad_request(
            "Partition key kind MultiHash needs partition key version 2.",
        )),
        (Some(other), _) => Err(Error::bad_request(format!("Partition key version {other} is invalid."))),
    }
}

/// Several paths of a kind other than `MultiHash` are old: the whole key is hashed as one, and has no prefixes.
fn paths(given: &Object) -> Result<Vec<PropertyPath>> {
    let texts = read::list(given, "paths")?.unwrap_or_default();
    if texts.is_empty() {
        return Err(Error::bad_request("Partition key paths cannot be empty."));
    }
    if texts.len() > KEY_PATHS_MAX {
        return Err(Error::bad_request(format!(
            "Too many partition key paths: {}, the maximum is {KEY_PATHS_MAX}.",
            texts.len()
        )));
    }
    let paths = texts.iter().map(path).collect::<Result<Vec<_>>>()?;
    let repeated = paths.iter().enumerate().any(|(index, path)| {
        paths[..index]
            .iter()
            .any(|earlier| earlier.segments() == path.segments())
    });
    if repeated {
        Err(Error::bad_request("Partition key paths cannot repeat."))
    } else {
        Ok(paths)
    }
}

fn path(value: &Value) -> Result<PropertyPath> {
    let text = value
        .as_str()
        .ok_or_else(|| Error::bad_request("Partition key paths must be strings."))?;
    let path = PropertyPath::parse(text).ok_or_else(|| {
        Error::bad_request(format!(
            "The partition key component definition path '{text}' could not be accepted, failed near position '{}'. \
             Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.",
            failed_near(text)
        ))
    })?;
    if path.segments().len() == 1 && SYSTEM_PROPERTIES.contains(&path.segments()[0].as_str()) {
        return Err(Error::bad_request(format!(
            "The system property path '{text}' cannot be a partition key."
        )));
    }
    Ok(path)
}

/// Where a path stops being one: the first character no beginning of a path could have.
fn failed_near(text: &str) -> usize {
    if text.len() > PATH_BYTES_SEARCHED {
        return 0;
    }
    let valid = |end: &usize| PropertyPath::parse(&text[..*end]).is_some();
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.rfind(valid).unwrap_or(0)
}
