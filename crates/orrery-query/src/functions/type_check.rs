//! Questions about a value's type. Their answer is never undefined.

use orrery_model::{Number, Value};

use super::arguments::{Arguments, boolean};
use super::date_time;
use super::registry::{Table, exactly};
use crate::values::is_primitive;

pub(super) fn register(table: &mut Table) {
    let one = exactly(1);
    table.scalar("IS_DEFINED", one, |arguments| test(arguments, |_| true));
    table.scalar("IS_NULL", one, |arguments| {
        test(arguments, |value| *value == Value::Null)
    });
    table.scalar("IS_BOOL", one, |arguments| {
        test(arguments, |value| matches!(value, Value::Bool(_)))
    });
    table.alias("IS_BOOLEAN", "IS_BOOL");
    table.scalar("IS_NUMBER", one, |arguments| {
        test(arguments, |value| matches!(value, Value::Number(_)))
    });
    table.scalar("IS_STRING", one, |arguments| {
        test(arguments, |value| matches!(value, Value::String(_)))
    });
    table.scalar("IS_ARRAY", one, |arguments| {
        test(arguments, |value| matches!(value, Value::Array(_)))
    });
    table.scalar("IS_OBJECT", one, |arguments| {
        test(arguments, |value| matches!(value, Value::Object(_)))
    });
    table.scalar("IS_PRIMITIVE", one, |arguments| test(arguments, is_primitive));
    table.scalar("IS_INTEGER", one, |arguments| {
        test(arguments, |value| matches!(value, Value::Number(Number::Int(_))))
    });
    table.scalar("IS_FINITE_NUMBER", one, |arguments| test(arguments, is_finite_number));
    table.scalar("IS_DATETIME", one, |arguments| {
        test(arguments, |value| {
            value.as_str().and_then(date_time::DateTime::parse).is_some()
        })
    });
}

/// False for undefined.
fn test(arguments: &Arguments<'_>, is_so: impl Fn(&Value) -> bool) -> Option<Value> {
    boolean(arguments.get(0).is_some_and(is_so))
}

fn is_finite_number(value: &Value) -> bool {
    value.as_number().is_some_and(|number| number.to_f64().is_finite())
}
