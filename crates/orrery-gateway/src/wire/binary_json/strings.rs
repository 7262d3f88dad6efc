//! All the ways a string is written.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::BinaryJsonError;
use super::reader::Reader;

/// Names and values frequent enough to have a marker of their own, from `20`.
const SYSTEM_STRINGS: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];

const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";
const UPPER_HEX: &[u8; 16] = b"0123456789ABCDEF";
const DATE_CHARACTERS: &[u8; 16] = b" 0123456789:-.TZ";

/// Is this the marker of a string, of whatever kind?
pub(super) fn is_string(marker: u8) -> bool {
    matches!(marker, 0x20..=0x67 | 0x71..=0xC6)
}

/// The string whose marker has just been read.
pub(super) fn string(marker: u8, reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    let text = match marker {
        0xC3..=0xC6 => referenced(usize::from(marker - 0xC2), reader)?,
        _ => plain(marker, reader)?,
    };
    // Its quotes and the comma or colon after it count too.
    reader.spend(text.len() + 3)?;
    Ok(text)
}

/// A string that stands earlier in the buffer, and is not itself a reference.
fn referenced(n_offset_bytes: usize, reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    let own = reader.at - 1;
    let target = reader.size(n_offset_bytes)?;
    if target == 0 || target >= own {
        return Err(reader.error("a reference must lead to an earlier string"));
    }
    let mut earlier = Reader::new(reader.buffer);
    earlier.at = target;
    earlier.end = own;
    let marker = earlier.byte()?;
    if !is_string(marker) || matches!(marker, 0xC3..=0xC6) {
        return Err(reader.error("a reference must lead to a string"));
    }
    plain(marker, &mut earlier)
}

fn plain(marker: u8, reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    match marker {
        0x20..=0x3F => Ok(SYSTEM_STRINGS[usize::from(marker - 0x20)].to_owned()),
        0x40..=0x67 => Err(reader.error("user dictionaries are not supported")),
        0x71 | 0x72 => base64_text(usize::from(marker - 0x70), false, reader),
        0x73 | 0x74 => base64_text(usize::from(marker - 0x72), true, reader),
        0x75 => guid_in_order(LOWER_HEX, reader),
        0x76 => guid_in_order(UPPER_HEX, reader),
        0x77 => guid_in_order(LOWER_HEX, reader).map(|guid| format!("\"{guid}\"")),
        0x78 => nibbles(LOWER_HEX, reader),
        0x79 => nibbles(UPPER_HEX, reader),
        0x7A => nibbles(DATE_CHARACTERS, reader),
        0x7B..=0x7D => {
            let n_characters = reader.size(1)?;
            let base = reader.byte()?;
            packed(n_characters, usize::from(marker - 0x7B) + 4, base, reader)
        }
        0x7E | 0x7F => {
            let n_characters = reader.size(usize::from(marker - 0x7D))?;
            packed(n_characters, 7, 0, reader)
        }
        0x80..=0xBF => utf8(usize::from(marker - 0x80), reader),
        0xC0..=0xC2 => {
            let n_bytes = reader.size(1 << (marker - 0xC0))?;
            utf8(n_bytes, reader)
        }
        _ => Err(reader.error("a string was expected")),
    }
}

fn utf8(n_bytes: usize, reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    let bytes = reader.bytes(n_bytes)?;
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| reader.error("a string is not UTF-8"))
}

/// Base64 text kept as the bytes it stands for. Its number of `=` is 0 to 2; a larger number is the complement of how many
/// were left out.
fn base64_text(n_count_bytes: usize, url_safe: bool, reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    let n_groups = reader.size(n_count_bytes)?;
    let padding = reader.byte()?;
    let (n_padding, padded) = if padding > 2 {
        (!padding, false)
    } else {
        (padding, true)
    };
    let n_padding = usize::from(n_padding);
    if n_padding > 2 || n_padding > n_groups * 3 {
        return Err(reader.error("a base64 string has an impossible padding"));
    }
    let bytes = reader.bytes((n_groups * 4 - n_padding) * 3 / 4)?;
    Ok(match (url_safe, padded) {
        (false, true) => STANDARD.encode(bytes),
        (false, false) => STANDARD_NO_PAD.encode(bytes),
        (true, true) => URL_SAFE.encode(bytes),
        (true, false) => URL_SAFE_NO_PAD.encode(bytes),
    })
}

fn guid_in_order(digits: &[u8; 16], reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    Ok(guid_text(digits, reader.array()?))
}

/// A GUID that is a value of its own, with its first three groups little-endian.
pub(super) fn guid_value(reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    let mut bytes: [u8; 16] = reader.array()?;
    bytes[0..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    let text = guid_text(LOWER_HEX, bytes);
    reader.spend(text.len() + 3)?;
    Ok(text)
}

fn guid_text(digits: &[u8; 16], bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if let 4 | 6 | 8 | 10 = index {
            text.push('-');
        }
        text.push(char::from(digits[usize::from(byte >> 4)]));
        text.push(char::from(digits[usize::from(byte & 0x0F)]));
    }
    text
}

/// A blob, which JSON shows as base64.
pub(super) fn blob(n_length_bytes: usize, reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    let n_bytes = reader.size(n_length_bytes)?;
    let text = STANDARD.encode(reader.bytes(n_bytes)?);
    reader.spend(text.len() + 3)?;
    Ok(text)
}

/// Characters of a table of sixteen, two in a byte, the low half first.
fn nibbles(table: &[u8; 16], reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    let n_characters = reader.size(1)?;
    let bytes = reader.bytes(n_characters.div_ceil(2))?;
    let halves = bytes.iter().flat_map(|byte| [byte & 0x0F, byte >> 4]);
    Ok(halves
        .take(n_characters)
        .map(|half| char::from(table[usize::from(half)]))
        .collect())
}

/// ASCII characters as their distance from a base, in `n_bits` bits each, the lowest bits first.
fn packed(n_characters: usize, n_bits: usize, base: u8, reader: &mut Reader<'_>) -> Result<String, BinaryJsonError> {
    let bytes = reader.bytes((n_characters * n_bits).div_ceil(8))?;
    let mut text = String::with_capacity(n_characters);
    let (mut held, mut n_held) = (0u32, 0);
    let mut bytes = bytes.iter();
    for _ in 0..n_characters {
        if n_held < n_bits {
            let byte = bytes.next().expect("as many bytes were taken as the characters need");
            held |= u32::from(*byte) << n_held;
            n_held += 8;
        }
        let distance = (held & ((1 << n_bits) - 1)) as u8;
        held >>= n_bits;
        n_held -= n_bits;
        let code = base.checked_add(distance).filter(u8::is_ascii);
        text.push(char::from(
            code.ok_or_else(|| reader.error("a packed character is not ASCII"))?,
        ));
    }
    Ok(text)
}
