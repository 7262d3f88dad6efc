//! Names users give to resources, and ids they give to items: which texts can be one.
//!
//! A name that passes here can be put into a path segment and found again. Ids of items need that least: each is one segment,
//! percent-encoded, and clients that cannot encode a character find the item by a query.

use crate::error::{Error, Result};
use crate::limits::{ITEM_ID_BYTES_MAX, NAME_CHARACTERS_MAX};
use crate::rid::ResourceId;

/// Characters that mean something else in a path or in the link a client signs.
const FORBIDDEN: [char; 4] = ['/', '\\', '?', '#'];

/// What a name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    Database,
    Container,
    User,
    Permission,
    /// Stored procedure, trigger or user-defined function.
    Script,
}

/// Checks the name of a database, container, user, permission or script.
pub fn validate_name(kind: NameKind, name: &str) -> Result<()> {
    let invalid = |rule: &str| Error::bad_request(format!("The input name '{}' is invalid. {rule}", shorten(name)));
    if name.is_empty() || name.chars().count() > NAME_CHARACTERS_MAX {
        return Err(invalid(
            "Ensure to provide a unique non-empty string less than '255' characters.",
        ));
    }
    if name.contains(FORBIDDEN) || name.contains(char::is_control) {
        return Err(invalid(
            "Ensure that it contains none of '/', '\\', '?', '#' and no control character.",
        ));
    }
    if name.ends_with(' ') {
        return Err(invalid("Ensure that it does not end with a space."));
    }
    if kind == NameKind::Database && looks_like_database_rid(name) {
        return Err(invalid("Ensure that it cannot be taken for a resource id."));
    }
    Ok(())
}

/// Checks the id of an item. Every character is fine, also those that mean something in a path: some clients refuse to send them,
/// the service does not.
pub fn validate_item_id(id: &str) -> Result<()> {
    if id.is_empty() || id.len() > ITEM_ID_BYTES_MAX {
        return Err(Error::bad_request(format!(
            "The input name '{}' is invalid. Ensure to provide a unique non-empty string less than '{}' characters.",
            shorten(id),
            ITEM_ID_BYTES_MAX + 1
        )));
    }
    Ok(())
}

/// A path to a database of such a name would be read as a path made of resource ids.
pub fn looks_like_database_rid(name: &str) -> bool {
    name.len() == 8 && ResourceId::parse(name).is_some_and(|rid| rid.as_bytes().len() == 4)
}

/// The beginning of a text, for messages.
fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: NameKind, name: &str) -> bool {
        validate_name(kind, name).is_err_and(|error| error.status().code == 400)
    }

    #[test]
    fn ordinary_names_pass() {
        for name in [
            "a",
            "My Db",
            "größe",
            "a%b+c",
            "日本",
            "'quoted\"",
            "AAAAAA=",
            "AAAAAAA=",
        ] {
            validate_name(NameKind::Database, name).unwrap();
        }
        validate_name(NameKind::Container, &"é".repeat(255)).unwrap();
    }

    #[test]
    fn names_that_cannot_stand_in_a_path_are_refused() {
        for name in ["", "a/b", "a\\b", "a?", "#a", "tab\t", "line\n", "end "] {
            assert!(refused(NameKind::Container, name), "{name:?}");
        }
        assert!(refused(NameKind::User, &"é".repeat(256)));
    }

    #[test]
    fn a_database_cannot_be_named_like_a_resource_id() {
        assert!(refused(NameKind::Database, "AAAAAA=="));
        assert!(refused(NameKind::Database, "Lx1BAA=="));
        validate_name(NameKind::Container, "Lx1BAA==").unwrap();
    }

    #[test]
    fn item_ids_allow_every_character() {
        for id in [
            "x",
            " lead and end ",
            "a%2Fb",
            "ключ",
            "\"q\"",
            "a\tb",
            "a/b",
            "a\\b",
            "a?b",
            "a#b",
            "a\r\nb",
        ] {
            validate_item_id(id).unwrap();
        }
        assert!(validate_item_id("").is_err());
        validate_item_id(&"x".repeat(1023)).unwrap();
        assert!(validate_item_id(&"x".repeat(1024)).is_err());
        assert!(validate_item_id(&"é".repeat(512)).is_err());
    }
}
