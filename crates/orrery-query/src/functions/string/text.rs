//! UTF-16 positions and case folding over UTF-8 text.

/// Number of UTF-16 units.
pub(crate) fn length(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.encode_utf16().count()
    }
}

/// The units `start..end`, clipped to the text. A cut surrogate pair leaves a replacement character.
pub(crate) fn substring(text: &str, start: usize, end: usize) -> String {
    if text.is_ascii() {
        let end = end.min(text.len());
        return text.get(start..end).unwrap_or_default().to_owned();
    }
    let units: Vec<u16> = text.encode_utf16().collect();
    let end = end.min(units.len());
    String::from_utf16_lossy(units.get(start..end).unwrap_or_default())
}

/// The UTF-16 position of a byte offset.
pub(crate) fn unit_position(text: &str, byte: usize) -> usize {
    length(&text[..byte])
}

/// The byte offset of a UTF-16 position, at the end for positions beyond it.
pub(crate) fn byte_position(text: &str, unit: usize) -> usize {
    let mut units = 0;
    for (byte, character) in text.char_indices() {
        if units >= unit {
            return byte;
        }
        units += character.len_utf16();
    }
    text.len()
}

/// One character mapped to one character, so that lengths stay as they are.
pub(crate) fn lower(text: &str) -> String {
    text.chars()
        .map(|character| single(character, character.to_lowercase()))
        .collect()
}

pub(crate) fn upper(text: &str) -> String {
    text.chars()
        .map(|character| single(character, character.to_uppercase()))
        .collect()
}

fn single(original: char, mut mapped: impl Iterator<Item = char>) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(only), None) => only,
        _ => original,
    }
}

/// Text under which strings that differ only in case are the same.
pub(crate) fn fold(text: &str) -> String {
    lower(&upper(text))
}
