//! About how much memory a value holds, for budgets.

use orrery_model::Value;

/// Bytes of a value, itself included.
pub(crate) fn size_bytes(value: &Value) -> usize {
    let own = size_of::<Value>();
    own + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size_bytes).sum(),
        Value::Object(object) => object
            .iter()
            .map(|(name, member)| name.len() + size_of::<String>() + size_bytes(member))
            .sum(),
    }
}
