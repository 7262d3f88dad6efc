//! Arithmetic and bit operators.

use orrery_model::{Number, Value};

use crate::parse::ast::BinaryOperator;

/// Applies an arithmetic, bit or concatenation operator. Wrong types give undefined.
pub(crate) fn calculate(operator: BinaryOperator, a: &Value, b: &Value) -> Option<Value> {
    if operator == BinaryOperator::Concat {
        return Some(Value::String([a.as_str()?, b.as_str()?].concat()));
    }
    let (a, b) = (a.as_number()?, b.as_number()?);
    Some(Value::Number(calculate_numbers(operator, a, b)?))
}

fn calculate_numbers(operator: BinaryOperator, a: Number, b: Number) -> Option<Number> {
    use BinaryOperator::*;
    Some(match operator {
        Add => exact_or_double(a, b, i64::checked_add, |a, b| a + b),
        Subtract => exact_or_double(a, b, i64::checked_sub, |a, b| a - b),
        Multiply => exact_or_double(a, b, i64::checked_mul, |a, b| a * b),
        Divide => Number::from_f64(a.to_f64() / b.to_f64()),
        Remainder => remainder(a, b),
        BitAnd => int(to_i32(a) & to_i32(b)),
        BitOr => int(to_i32(a) | to_i32(b)),
        BitXor => int(to_i32(a) ^ to_i32(b)),
        ShiftLeft => int(to_i32(a).wrapping_shl(to_i32(b) as u32)),
        ShiftRight => int(to_i32(a).wrapping_shr(to_i32(b) as u32)),
        ShiftRightUnsigned => Number::from(i64::from((to_i32(a) as u32).wrapping_shr(to_i32(b) as u32))),
        _ => return None,
    })
}

/// Integers stay exact while they fit 64 bits.
fn exact_or_double(
    a: Number,
    b: Number,
    exact: impl Fn(i64, i64) -> Option<i64>,
    double: impl Fn(f64, f64) -> f64,
) -> Number {
    let integers = a.as_i64().zip(b.as_i64()).and_then(|(a, b)| exact(a, b));
    integers.map_or_else(|| Number::from_f64(double(a.to_f64(), b.to_f64())), Number::from)
}

fn remainder(a: Number, b: Number) -> Number {
    let integers = a.as_i64().zip(b.as_i64()).filter(|(_, b)| *b != 0);
    integers.map_or_else(
        || Number::from_f64(a.to_f64() % b.to_f64()),
        |(a, b)| Number::from(a.wrapping_rem(b)),
    )
}

fn int(value: i32) -> Number {
    Number::from(i64::from(value))
}

fn to_i32(number: Number) -> i32 {
    match number {
        Number::Int(int) => int as i32,
        other => truncate_to_i32(other.to_f64()),
    }
}

/// The 32-bit integer JavaScript sees in a double: cut towards zero, wrapped modulo 2^32.
fn truncate_to_i32(double: f64) -> i32 {
    if !double.is_finite() {
        return 0;
    }
    const MODULUS: f64 = 4_294_967_296.0;
    double.trunc().rem_euclid(MODULUS) as u32 as i32
}

pub(crate) fn bit_not(value: &Value) -> Option<Value> {
    Some(Value::Number(int(!to_i32(value.as_number()?))))
}
