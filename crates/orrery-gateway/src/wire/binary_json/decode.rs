//! Values: one function per family of markers.

use orrery_model::json::Number;
use orrery_model::limits::{ENVELOPE_LEVELS_MAX, NESTING_LEVELS_MAX};
use orrery_model::{Value, json::Object};

use super::reader::Reader;
use super::{BinaryJsonError, PREAMBLE, strings};

type Decoded<T> = Result<T, BinaryJsonError>;

pub(super) fn buffer(buffer: &[u8]) -> Decoded<Value> {
    let mut reader = Reader::new(buffer);
    if reader.byte()? != PREAMBLE {
        return Err(BinaryJsonError {
            reason: "binary JSON starts with 80",
            offset: 0,
        });
    }
    let value = value(&mut reader, 0)?;
    if reader.at < reader.end {
        return Err(reader.error("bytes after the value"));
    }
    Ok(value)
}

/// `depth`: arrays and objects around this value.
fn value(reader: &mut Reader<'_>, depth: usize) -> Decoded<Value> {
    let marker = reader.byte()?;
    if strings::is_string(marker) {
        return strings::string(marker, reader).map(Value::String);
    }
    // What every value prints as at least: a character, and one between it and the next.
    reader.spend(2)?;
    match marker {
        0x00..=0x1F => Ok(Value::Number(Number::from(i64::from(marker)))),
        0xC7 | 0xC8 => wide_number(marker, reader).map(Value::Number),
        0xC9..=0xCB => signed(1 << (marker - 0xC8), reader).map(Value::Number),
        0xCC => typed_number(0xCE, reader).map(Value::Number),
        0xCD | 0xCE | 0xD7..=0xDC => typed_number(marker, reader).map(Value::Number),
        0xD0 => Ok(Value::Null),
        0xD1 => Ok(Value::Bool(false)),
        0xD2 => Ok(Value::Bool(true)),
        0xD3 => strings::guid_value(reader).map(Value::String),
        0xDD..=0xDF => strings::blob(1 << (marker - 0xDD), reader).map(Value::String),
        0xE0..=0xE7 => array(marker, reader, enter(reader, depth, 1)?).map(Value::Array),
        0xE8..=0xEF => object(marker, reader, enter(reader, depth, 1)?).map(Value::Object),
        0xF0 | 0xF1 => {
            enter(reader, depth, 1)?;
            uniform_array(usize::from(marker - 0xEF), reader)
        }
        0xF2 | 0xF3 => {
            enter(reader, depth, 2)?;
            array_of_uniform_arrays(marker, reader)
        }
        _ => Err(reader.error("a marker without meaning")),
    }
}

/// Goes `n_levels` deeper.
fn enter(reader: &Reader<'_>, depth: usize, n_levels: usize) -> Decoded<usize> {
    let depth = depth + n_levels;
    if depth > NESTING_LEVELS_MAX + ENVELOPE_LEVELS_MAX {
        return Err(reader.error("nested too deeply"));
    }
    Ok(depth)
}

fn wide_number(marker: u8, reader: &mut Reader<'_>) -> Decoded<Number> {
    match marker {
        0xC7 => reader.array().map(|bytes| Number::from(u64::from_le_bytes(bytes))),
        _ => reader.byte().map(|byte| Number::from(i64::from(byte))),
    }
}

fn signed(n_bytes: usize, reader: &mut Reader<'_>) -> Decoded<Number> {
    let int = match n_bytes {
        2 => i64::from(i16::from_le_bytes(reader.array()?)),
        4 => i64::from(i32::from_le_bytes(reader.array()?)),
        _ => i64::from_le_bytes(reader.array()?),
    };
    Ok(Number::from(int))
}

/// A number whose marker says its type; uniform arrays name the marker once.
fn typed_number(marker: u8, reader: &mut Reader<'_>) -> Decoded<Number> {
    let int = match marker {
        0xCD => return double(f64::from(f32::from_le_bytes(reader.array()?)), reader),
        0xCE => return double(f64::from_le_bytes(reader.array()?), reader),
        0xD7 => i64::from(reader.byte()?),
        0xD8 => i64::from(i8::from_le_bytes(reader.array()?)),
        0xD9 => i64::from(i16::from_le_bytes(reader.array()?)),
        0xDA => i64::from(i32::from_le_bytes(reader.array()?)),
        0xDB => i64::from_le_bytes(reader.array()?),
        0xDC => i64::from(u32::from_le_bytes(reader.array()?)),
        _ => return Err(reader.error("not the marker of a typed number")),
    };
    Ok(Number::from(int))
}

fn double(double: f64, reader: &Reader<'_>) -> Decoded<Number> {
    if !double.is_finite() {
        return Err(reader.error("a number is not finite"));
    }
    Ok(Number::from_f64(double))
}

/// How the elements of an array or the members of an object are delimited.
enum Extent {
    Count(usize),
    /// Up to this offset, and that many if it was said.
    End(usize, Option<usize>),
}

/// Reads the sizes behind a marker. `family` is the marker of the empty array or object.
fn extent(marker: u8, family: u8, reader: &mut Reader<'_>) -> Decoded<Extent> {
    let (counted, width) = match marker - family {
        0 => return Ok(Extent::Count(0)),
        1 => return Ok(Extent::Count(1)),
        form @ 2..=4 => (false, 1 << (form - 2)),
        form => (true, 1 << (form - 5)),
    };
    let n_bytes = reader.size(width)?;
    let count = if counted { Some(reader.size(width)?) } else { None };
    if n_bytes > reader.end - reader.at {
        return Err(reader.error("a length reaches beyond the bytes"));
    }
    Ok(Extent::End(reader.at + n_bytes, count))
}

/// Calls `element` as often as the extent says, and checks that it ends where it should.
fn repeat<'a>(
    extent: Extent,
    reader: &mut Reader<'a>,
    mut element: impl FnMut(&mut Reader<'a>) -> Decoded<()>,
) -> Decoded<()> {
    let (end, count) = match extent {
        Extent::Count(count) => return (0..count).try_for_each(|_| element(reader)),
        Extent::End(end, count) => (end, count),
    };
    let outer_end = std::mem::replace(&mut reader.end, end);
    let mut n_elements = 0;
    while reader.at < end {
        element(reader)?;
        n_elements += 1;
    }
    reader.end = outer_end;
    match count {
        Some(count) if count != n_elements => Err(reader.error("a count differs from what is there")),
        _ => Ok(()),
    }
}

fn array(marker: u8, reader: &mut Reader<'_>, depth: usize) -> Decoded<Vec<Value>> {
    let extent = extent(marker, 0xE0, reader)?;
    let mut items = Vec::new();
    repeat(extent, reader, |reader| {
        items.push(value(reader, depth)?);
        Ok(())
    })?;
    Ok(items)
}

fn object(marker: u8, reader: &mut Reader<'_>, depth: usize) -> Decoded<Object> {
    let extent = extent(marker, 0xE8, reader)?;
    let mut members = Vec::new();
    repeat(extent, reader, |reader| {
        let marker = reader.byte()?;
        let name = strings::string(marker, reader)?;
        members.push((name, value(reader, depth)?));
        Ok(())
    })?;
    Ok(members.into_iter().collect())
}

fn uniform_array(n_count_bytes: usize, reader: &mut Reader<'_>) -> Decoded<Value> {
    let item = reader.byte()?;
    let count = reader.size(n_count_bytes)?;
    numbers(item, count, reader)
}

fn array_of_uniform_arrays(marker: u8, reader: &mut Reader<'_>) -> Decoded<Value> {
    let inner = reader.byte()?;
    if inner != marker - 2 {
        return Err(reader.error("not the marker of a uniform array"));
    }
    let item = reader.byte()?;
    let width = usize::from(marker - 0xF1);
    let inner_count = reader.size(width)?;
    let outer_count = reader.size(width)?;
    let mut arrays = Vec::new();
    for _ in 0..outer_count {
        reader.spend(3)?;
        arrays.push(numbers(item, inner_count, reader)?);
    }
    Ok(Value::Array(arrays))
}

fn numbers(item: u8, count: usize, reader: &mut Reader<'_>) -> Decoded<Value> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        reader.spend(2)?;
        numbers.push(Value::Number(typed_number(item, reader)?));
    }
    Ok(Value::Array(numbers))
}
