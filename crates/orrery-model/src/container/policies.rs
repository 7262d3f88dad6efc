//! The smaller policies of a definition.

use super::{UniqueKey, read};
use crate::error::{Error, Result};
use crate::json::{Object, Value};
use crate::key::PropertyPath;
use crate::limits::{COMPUTED_PROPERTIES_MAX, UNIQUE_KEY_PATHS_MAX, UNIQUE_KEYS_MAX};

/// Reads the `uniqueKeyPolicy`.
pub(super) fn unique_keys(policy: &Object) -> Result<Vec<UniqueKey>> {
    let keys = read::objects(policy, "uniqueKeys")?.unwrap_or_default();
    if keys.len() > UNIQUE_KEYS_MAX {
        return Err(Error::bad_request(format!(
            "The number of unique keys cannot exceed {UNIQUE_KEYS_MAX}."
        )));
    }
    keys.into_iter().map(unique_key).collect()
}

fn unique_key(key: &Object) -> Result<UniqueKey> {
    let paths = read::list(key, "paths")?.unwrap_or_default();
    if paths.is_empty() || paths.len() > UNIQUE_KEY_PATHS_MAX {
        return Err(Error::bad_request(format!(
            "The number of paths of a unique key must be between 1 and {UNIQUE_KEY_PATHS_MAX}."
        )));
    }
    let path = |path: &Value| {
        let text = path.as_str().unwrap_or_default();
        PropertyPath::parse(text)
            .ok_or_else(|| Error::bad_request(format!("The unique key path {} is invalid.", path.to_text())))
    };
    Ok(UniqueKey {
        paths: paths.iter().map(path).collect::<Result<_>>()?,
    })
}

/// Reads `defaultTtl`: -1 or a positive number of seconds.
pub(super) fn default_ttl(definition: &Object) -> Result<Option<i32>> {
    let Some(given) = read::member(definition, "defaultTtl") else {
        return Ok(None);
    };
    let seconds = given
        .as_number()
        .and_then(|number| number.as_i64())
        .and_then(|seconds| i32::try_from(seconds).ok());
    match seconds.filter(|&seconds| seconds == -1 || seconds > 0) {
        Some(seconds) => Ok(Some(seconds)),
        None => Err(Error::bad_request(format!(
            "The input ttl '{}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '{}', \
             or -1 which means never expire.",
            given.to_text(),
            i32::MAX
        ))),
    }
}

/// The `conflictResolutionPolicy` in the service's form: the last writer wins unless the policy says otherwise.
pub(super) fn normalise_conflicts(given: Option<&Object>) -> Result<Object> {
    let given = given.map(read::present).unwrap_or_default();
    let mut policy = Object::new();
    policy.insert(
        "mode",
        Value::from(read::text(&given, "mode")?.unwrap_or("LastWriterWins")),
    );
    read::normalise_choice(&mut policy, "mode", &["LastWriterWins", "Custom"])?;
    let custom = policy.get("mode").and_then(Value::as_str) == Some("Custom");
    let path = read::text(&given, "conflictResolutionPath")?.filter(|path| !path.is_empty());
    if path.is_some_and(|path| custom || PropertyPath::parse(path).is_none()) {
        return Err(Error::bad_request(
            "The conflict resolution path is invalid for this mode.",
        ));
    }
    let procedure = read::text(&given, "conflictResolutionProcedure")?.unwrap_or_default();
    if !custom && !procedure.is_empty() {
        return Err(Error::bad_request(
            "A conflict resolution procedure needs the mode Custom.",
        ));
    }
    let default_path = if custom { "" } else { "/_ts" };
    policy.insert("conflictResolutionPath", Value::from(path.unwrap_or(default_path)));
    policy.insert("conflictResolutionProcedure", Value::from(procedure));
    for (name, value) in given.into_members() {
        if !policy.contains(&name) {
            policy.insert(name, value);
        }
    }
    Ok(policy)
}

/// The `geospatialConfig` in the service's form.
pub(super) fn normalise_geospatial(given: Option<&Object>) -> Result<Object> {
    let mut config = given.map(read::present).unwrap_or_default();
    if !config.contains("type") {
        config.insert("type", Value::from("Geography"));
    }
    read::normalise_choice(&mut config, "type", &["Geography", "Geometry"])?;
    Ok(config)
}

/// Checks the `changeFeedPolicy`: minutes that all versions of an item are kept.
pub(super) fn check_change_feed(policy: &Object) -> Result<()> {
    read::integer_within(policy, "retentionDuration", 0..=i64::from(i32::MAX)).map(drop)
}

/// Checks the shape of `computedProperties`. What their queries mean is for the query engine to say.
pub(super) fn check_computed(properties: &[Value]) -> Result<()> {
    if properties.len() > COMPUTED_PROPERTIES_MAX {
        return Err(Error::bad_request(format!(
            "The number of computed properties cannot exceed {COMPUTED_PROPERTIES_MAX}."
        )));
    }
    let mut names = Vec::new();
    for property in properties {
        let property = property
            .as_object()
            .ok_or_else(|| Error::bad_request("A computed property must be an object."))?;
        let name = read::required_text(property, "name")?;
        if name.is_empty() || name == "id" || name.starts_with("_") || names.contains(&name) {
            return Err(Error::bad_request(format!(
                "The computed property name '{name}' is invalid or repeated."
            )));
        }
        if read::required_text(property, "query")?.trim().is_empty() {
            return Err(Error::bad_request(format!(
                "The computed property '{name}' has no query."
            )));
        }
        names.push(name);
    }
    Ok(())
}

/// Checks the shape of a `clientEncryptionPolicy`, which only clients act on.
pub(super) fn check_client_encryption(policy: &Object) -> Result<()> {
    for path in read::objects(policy, "includedPaths")?.unwrap_or_default() {
        for name in ["path", "clientEncryptionKeyId", "encryptionType", "encryptionAlgorithm"] {
            read::required_text(path, name)?;
        }
    }
    read::integer_within(policy, "policyFormatVersion", 1..=2).map(drop)
}
