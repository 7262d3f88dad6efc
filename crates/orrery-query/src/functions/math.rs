//! Mathematics: doubles, and exact 64-bit integers.

use orrery_model::{Number, Value};

use super::arguments::{Arguments, double, integer};
use super::registry::{Table, between, exactly};

pub(super) fn register(table: &mut Table) {
    register_real(table);
    register_rounding(table);
    register_integer(table);
}

fn register_real(table: &mut Table) {
    let one = exactly(1);
    table.scalar("ACOS", one, |arguments| real(arguments, f64::acos));
    table.scalar("ASIN", one, |arguments| real(arguments, f64::asin));
    table.scalar("ATAN", one, |arguments| real(arguments, f64::atan));
    table.scalar("ATN2", exactly(2), |arguments| {
        double(arguments.double(0)?.atan2(arguments.double(1)?))
    });
    table.scalar("COS", one, |arguments| real(arguments, f64::cos));
    table.scalar("COT", one, |arguments| real(arguments, |angle| 1.0 / angle.tan()));
    table.scalar("DEGREES", one, |arguments| {
        real(arguments, |angle| angle * 180.0 / std::f64::consts::PI)
    });
    table.scalar("EXP", one, |arguments| real(arguments, f64::exp));
    table.scalar("LOG", between(1, 2), log);
    table.scalar("LOG10", one, |arguments| real(arguments, f64::log10));
    table.scalar("PI", exactly(0), |_| double(std::f64::consts::PI));
    table.scalar("POWER", exactly(2), |arguments| {
        double(arguments.double(0)?.powf(arguments.double(1)?))
    });
    table.scalar("RADIANS", one, |arguments| {
        real(arguments, |angle| angle * std::f64::consts::PI / 180.0)
    });
    table.scalar("RAND", exactly(0), |arguments| double(arguments.environment.random()));
    table.scalar("SIN", one, |arguments| real(arguments, f64::sin));
    table.scalar("SQRT", one, |arguments| real(arguments, f64::sqrt));
    table.scalar("SQUARE", one, |arguments| real(arguments, |number| number * number));
    table.scalar("TAN", one, |arguments| real(arguments, f64::tan));
}

fn register_rounding(table: &mut Table) {
    let one = exactly(1);
    table.scalar("ABS", one, |arguments| exact(arguments, i64::checked_abs, f64::abs));
    table.scalar("SIGN", one, |arguments| {
        exact(arguments, |number| Some(number.signum()), sign)
    });
    table.scalar("CEILING", one, |arguments| exact(arguments, Some, f64::ceil));
    table.scalar("FLOOR", one, |arguments| exact(arguments, Some, f64::floor));
    table.scalar("ROUND", one, |arguments| exact(arguments, Some, f64::round));
    table.scalar("TRUNC", one, |arguments| exact(arguments, Some, f64::trunc));
    table.scalar("NUMBERBIN", between(1, 2), number_bin);
}

fn register_integer(table: &mut Table) {
    let two = exactly(2);
    table.scalar("INTADD", two, |arguments| {
        integers(arguments, |a, b| Some(a.wrapping_add(b)))
    });
    table.scalar("INTSUB", two, |arguments| {
        integers(arguments, |a, b| Some(a.wrapping_sub(b)))
    });
    table.scalar("INTMUL", two, |arguments| {
        integers(arguments, |a, b| Some(a.wrapping_mul(b)))
    });
    table.alias("INTMULTIPLY", "INTMUL");
    table.scalar("INTDIV", two, |arguments| {
        integers(arguments, |a, b| (b != 0).then(|| a.wrapping_div(b)))
    });
    table.scalar("INTMOD", two, |arguments| {
        integers(arguments, |a, b| (b != 0).then(|| a.wrapping_rem(b)))
    });
    table.scalar("INTBITAND", two, |arguments| integers(arguments, |a, b| Some(a & b)));
    table.scalar("INTBITOR", two, |arguments| integers(arguments, |a, b| Some(a | b)));
    table.scalar("INTBITXOR", two, |arguments| integers(arguments, |a, b| Some(a ^ b)));
    table.scalar("INTBITNOT", exactly(1), |arguments| integer(!arguments.integer(0)?));
    table.scalar("INTBITLEFTSHIFT", two, |arguments| {
        integers(arguments, |a, b| Some(a.wrapping_shl(b as u32)))
    });
    table.scalar("INTBITRIGHTSHIFT", two, |arguments| {
        integers(arguments, |a, b| Some(a.wrapping_shr(b as u32)))
    });
}

fn real(arguments: &Arguments<'_>, apply: impl Fn(f64) -> f64) -> Option<Value> {
    double(apply(arguments.double(0)?))
}

/// Integers keep all their digits.
fn exact(
    arguments: &Arguments<'_>,
    of_integer: impl Fn(i64) -> Option<i64>,
    of_double: impl Fn(f64) -> f64,
) -> Option<Value> {
    let number = arguments.number(0)?;
    match number.as_i64().and_then(of_integer) {
        Some(exact) => integer(exact),
        None => double(of_double(number.to_f64())),
    }
}

fn integers(arguments: &Arguments<'_>, apply: impl Fn(i64, i64) -> Option<i64>) -> Option<Value> {
    Some(Value::Number(Number::from(apply(
        arguments.integer(0)?,
        arguments.integer(1)?,
    )?)))
}

fn sign(number: f64) -> f64 {
    if number == 0.0 || number.is_nan() {
        number
    } else {
        number.signum()
    }
}

fn log(arguments: &Arguments<'_>) -> Option<Value> {
    let number = arguments.double(0)?;
    double(if arguments.has(1) {
        number.ln() / arguments.double(1)?.ln()
    } else {
        number.ln()
    })
}

/// The largest multiple of the size that is not above the number; a negative size looks upwards.
fn number_bin(arguments: &Arguments<'_>) -> Option<Value> {
    let number = arguments.double(0)?;
    let size = if arguments.has(1) { arguments.double(1)? } else { 1.0 };
    if size == 0.0 {
        None
    } else {
        double((number / size).floor() * size)
    }
}
