//! Partial updates: a list of operations on the paths of one item.
//!
//! A patch happens as a whole: if one operation cannot be applied the item stays as it was. Arithmetic on 64-bit integers
//! is exact. What this does not know is which properties make up the partition key, and what the condition means; the
//! caller checks both.

use crate::error::{Error, Result};
use crate::json::{Number, Object, Value};
use crate::limits::PATCH_OPERATIONS_MAX;

mod apply;
mod pointer;

pub use pointer::Pointer;

/// Properties that only the service writes, and the id, which names the item.
const UNPATCHABLE: [&str; 7] = ["id", "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/// A parsed patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    pub operations: Vec<PatchOperation>,
    /// A filter such as `FROM c WHERE c.n > 1` that the current item must pass.
    pub condition: Option<String>,
}

/// One step of a patch.
#[derive(Clone, Debug, PartialEq)]
pub enum PatchOperation {
    /// Creates or overwrites a member; inserts into an array.
    Add { path: Pointer, value: Value },
    /// Creates or overwrites a member; overwrites an element of an array.
    Set { path: Pointer, value: Value },
    /// Overwrites what must exist.
    Replace { path: Pointer, value: Value },
    /// Takes away what must exist.
    Remove { path: Pointer },
    /// Adds to a number, or creates it.
    Increment { path: Pointer, by: Number },
    /// Takes the value away from one place and adds it at another.
    Move { from: Pointer, path: Pointer },
}

impl PatchOperation {
    /// The paths it changes.
    pub fn paths(&self) -> impl Iterator<Item = &Pointer> {
        let (path, from) = match self {
            PatchOperation::Move { from, path } => (path, Some(from)),
            PatchOperation::Add { path, .. }
            | PatchOperation::Set { path, .. }
            | PatchOperation::Replace { path, .. }
            | PatchOperation::Remove { path }
            | PatchOperation::Increment { path, .. } => (path, None),
        };
        [path].into_iter().chain(from)
    }
}

impl Patch {
    /// Reads `{"operations":[…],"condition"?}` or a bare array of operations.
    pub fn parse(body: &Value) -> Result<Patch> {
        let (operations, condition) = match body {
            Value::Array(operations) => (operations.as_slice(), None),
            Value::Object(body) => {
                let operations = body.get("operations").and_then(Value::as_array);
                (
                    operations.ok_or_else(|| invalid("the array of operations is missing"))?,
                    condition(body)?,
                )
            }
            _ => return Err(invalid("an object with operations is expected")),
        };
        if operations.is_empty() {
            return Err(invalid("there are no operations"));
        }
        if operations.len() > PATCH_OPERATIONS_MAX {
            return Err(Error::bad_request(format!(
                "The number of patch operations can't exceed '{PATCH_OPERATIONS_MAX}'."
            )));
        }
        let operations = operations
            .iter()
            .enumerate()
            .map(|(index, operation)| operation_of(index + 1, operation));
        Ok(Patch {
            operations: operations.collect::<Result<_>>()?,
            condition,
        })
    }

    /// Applies all operations in order, or none. System properties, `id` and the partition key paths are not to be changed:
    /// the caller compares them afterwards, this refuses paths that start with a system property or `/id`.
    pub fn apply(&self, item: &mut Object) -> Result<()> {
        let patched = apply::all(&self.operations, item)?;
        *item = patched;
        Ok(())
    }
}

fn invalid(reason: &str) -> Error {
    Error::bad_request(format!("Invalid patch request: {reason}."))
}

fn condition(body: &Object) -> Result<Option<String>> {
    match body.get("condition") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(invalid("the condition must be a string")),
    }
}

fn operation_of(number: usize, operation: &Value) -> Result<PatchOperation> {
    let fault = |reason: String| invalid(&format!("operation {number} {reason}"));
    let text = |name: &str| {
        let text = operation.get(name).and_then(Value::as_str);
        text.ok_or_else(|| fault(format!("needs a string '{name}'")))
    };
    let pointer = |name: &str| {
        let text = text(name)?;
        let pointer =
            Pointer::parse(text).ok_or_else(|| fault(format!("has the invalid {name} '{}'", shorten(text))))?;
        match UNPATCHABLE.iter().find(|property| **property == pointer.first()) {
            Some(property) => Err(invalid(&format!("Cannot patch system property '{property}'"))),
            None => Ok(pointer),
        }
    };
    let value = || {
        operation
            .get("value")
            .cloned()
            .ok_or_else(|| fault("needs a value".to_owned()))
    };
    let op = text("op")?;
    Ok(match op.to_ascii_lowercase().as_str() {
        "add" => PatchOperation::Add {
            path: pointer("path")?,
            value: value()?,
        },
        "set" => PatchOperation::Set {
            path: pointer("path")?,
            value: value()?,
        },
        "replace" => PatchOperation::Replace {
            path: pointer("path")?,
            value: value()?,
        },
        "remove" => PatchOperation::Remove { path: pointer("path")? },
        "incr" | "increment" => {
            let by = value()?
                .as_number()
                .ok_or_else(|| fault("needs a number to increment by".to_owned()))?;
            PatchOperation::Increment {
                path: pointer("path")?,
                by,
            }
        }
        "move" => {
            let (from, path) = (pointer("from")?, pointer("path")?);
            if from.is_parent_of(&path) {
                return Err(fault(format!("cannot move '{from}' into its own child '{path}'")));
            }
            PatchOperation::Move { from, path }
        }
        _ => return Err(fault(format!("has the unknown op '{}'", shorten(op)))),
    })
}

fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests;
