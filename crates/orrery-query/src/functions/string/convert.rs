//! Between strings and other types.

use orrery_model::Value;
use orrery_model::json::parse_value;

use crate::functions::arguments::{Arguments, string};
use crate::functions::registry::{Table, exactly};
use crate::values::to_string;

pub(super) fn register(table: &mut Table) {
    table.scalar("TOSTRING", exactly(1), |arguments| string(to_string(arguments.get(0)?)));
    table.alias("TO_STRING", "TOSTRING");
    table.scalar("STRINGTONUMBER", exactly(1), |arguments| {
        parsed(arguments, |value| matches!(value, Value::Number(_)))
    });
    table.alias("STRING_TO_NUMBER", "STRINGTONUMBER");
    table.scalar("STRINGTOBOOLEAN", exactly(1), |arguments| {
        parsed(arguments, |value| matches!(value, Value::Bool(_)))
    });
    table.alias("STRING_TO_BOOLEAN", "STRINGTOBOOLEAN");
    table.scalar("STRINGTONULL", exactly(1), |arguments| {
        parsed(arguments, |value| *value == Value::Null)
    });
    table.alias("STRING_TO_NULL", "STRINGTONULL");
    table.scalar("STRINGTOARRAY", exactly(1), |arguments| {
        parsed(arguments, |value| matches!(value, Value::Array(_)))
    });
    table.alias("STRING_TO_ARRAY", "STRINGTOARRAY");
    table.scalar("STRINGTOOBJECT", exactly(1), |arguments| {
        parsed(arguments, |value| matches!(value, Value::Object(_)))
    });
    table.alias("STRING_TO_OBJECT", "STRINGTOOBJECT");
}

/// The value of a JSON text, if it has the wanted type.
fn parsed(arguments: &Arguments<'_>, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
    parse_value(arguments.string(0)?.as_bytes())
        .ok()
        .filter(|value| wanted(value))
}
