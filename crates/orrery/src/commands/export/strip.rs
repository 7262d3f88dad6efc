//! Leaves out of an item what the server put in. Values are copied as text, so numbers keep their digits.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

pub fn write_without_system_properties(item: &RawValue, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let mut reader = serde_json::Deserializer::from_str(item.get());
    reader.deserialize_map(Copier { out })
}

struct Copier<'a> {
    out: &'a mut Vec<u8>,
}

impl<'de> Visitor<'de> for Copier<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an item")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.out.push(b'{');
        let mut is_first = true;
        while let Some((name, value)) = members.next_entry::<String, &RawValue>()? {
            if SYSTEM_PROPERTIES.contains(&name.as_str()) {
                continue;
            }
            if !is_first {
                self.out.push(b',');
            }
            is_first = false;
            serde_json::to_writer(&mut *self.out, &name).map_err(serde::de::Error::custom)?;
            self.out.push(b':');
            self.out.extend_from_slice(value.get().as_bytes());
        }
        self.out.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_servers_own_properties_go_and_numbers_keep_their_text() {
        let item = r#"{"id":"a\"ü","n":1.50e300,"big":123456789012345678901234567890,"inner":{"_ts":1},"_mine":[],"_rid":"x","_ts":2}"#;
        let item: Box<RawValue> = serde_json::from_str(item).unwrap();
        let mut out = Vec::new();
        write_without_system_properties(&item, &mut out).unwrap();
        let expected =
            r#"{"id":"a\"ü","n":1.50e300,"big":123456789012345678901234567890,"inner":{"_ts":1},"_mine":[]}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
