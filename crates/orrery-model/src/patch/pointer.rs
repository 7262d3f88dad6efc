//! JSON pointers: `/a/b~1c/0`.

use std::fmt;

/// A pointer with at least one segment; segments are unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    segments: Vec<String>,
}

impl Pointer {
    /// `None` for the empty pointer (the whole item is not patched), a missing slash, and a `~` that escapes nothing.
    pub fn parse(text: &str) -> Option<Pointer> {
        let segments = text
            .strip_prefix('/')?
            .split('/')
            .map(unescape)
            .collect::<Option<Vec<_>>>()?;
        (segments != [""]).then_some(Pointer { segments })
    }

    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// The top-level property this lies in.
    pub fn first(&self) -> &str {
        &self.segments[0]
    }

    /// The last segment and those before it.
    pub fn split_last(&self) -> (&str, &[String]) {
        let (last, parents) = self.segments.split_last().expect("a pointer has at least one segment");
        (last, parents)
    }

    /// Does `other` lie strictly below this?
    pub fn is_parent_of(&self, other: &Pointer) -> bool {
        other.segments.len() > self.segments.len() && other.segments.starts_with(&self.segments)
    }
}

fn unescape(segment: &str) -> Option<String> {
    let mut name = String::with_capacity(segment.len());
    let mut characters = segment.chars();
    while let Some(character) = characters.next() {
        name.push(match character {
            '~' => match characters.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(name)
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut segments = self.segments.iter();
        segments.try_for_each(|segment| write!(f, "/{}", segment.replace('~', "~0").replace('/', "~1")))
    }
}
