//! Paths of an indexing policy, such as `/a/"b c"/[]/d/?`.

/// Which part of items an entry of an indexing policy speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPath {
    pub segments: Vec<IndexSegment>,
    pub reach: Reach,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexSegment {
    Name(String),
    /// `[]`: every element of an array.
    Elements,
    /// `{a, b}`: members of one element, indexed together.
    Tuple(Vec<String>),
}

/// How a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// `/?`: the scalar there.
    Scalar,
    /// `/*`: everything from there down.
    Everything,
    /// Nothing: as paths of composite, vector and full-text indexes are written.
    Exact,
}

/// Characters that only quoted names may have.
const SPECIAL: [char; 9] = ['/', '"', '\'', '*', '?', '[', ']', '{', '}'];

impl IndexPath {
    /// Reads a path, or says at which byte it stops being one.
    pub fn parse(text: &str) -> Result<IndexPath, usize> {
        let mut segments = Vec::new();
        let mut rest = text;
        let at = |rest: &str| text.len() - rest.len();
        loop {
            rest = rest.strip_prefix('/').ok_or_else(|| at(rest))?;
            match rest {
                "?" => {
                    return Ok(IndexPath {
                        segments,
                        reach: Reach::Scalar,
                    });
                }
                "*" => {
                    return Ok(IndexPath {
                        segments,
                        reach: Reach::Everything,
                    });
                }
                // An old spelling of the root.
                "" if segments.is_empty() => {
                    return Ok(IndexPath {
                        segments,
                        reach: Reach::Everything,
                    });
                }
                _ => {}
            }
            let (segment, after) = segment(rest).ok_or_else(|| at(rest))?;
            segments.push(segment);
            rest = after;
            if rest.is_empty() {
                return Ok(IndexPath {
                    segments,
                    reach: Reach::Exact,
                });
            }
        }
    }

    /// The path of the whole item.
    pub fn is_root(&self) -> bool {
        self.segments.is_empty() && self.reach == Reach::Everything
    }

    /// The names, when the path is made of nothing else.
    pub fn names(&self) -> Option<Vec<&str>> {
        let names = self.segments.iter().map(|segment| match segment {
            IndexSegment::Name(name) => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }
}

/// The first segment and what follows it.
fn segment(text: &str) -> Option<(IndexSegment, &str)> {
    if let Some(after) = text.strip_prefix("[]") {
        return Some((IndexSegment::Elements, after));
    }
    if let Some(inside) = text.strip_prefix('{') {
        let (members, after) = inside.split_once('}')?;
        let members: Vec<String> = members.split(',').map(|member| member.trim().to_owned()).collect();
        let valid = members
            .iter()
            .all(|member| !member.is_empty() && !member.starts_with('/') && !member.contains(['?', '*']));
        return valid.then_some((IndexSegment::Tuple(members), after));
    }
    if let Some(quote @ ('"' | '\'')) = text.chars().next() {
        let (name, after) = quoted(&text[1..], quote)?;
        return (!name.is_empty()).then_some((IndexSegment::Name(name), after));
    }
    let end = text.find(SPECIAL).unwrap_or(text.len());
    (end > 0).then(|| (IndexSegment::Name(text[..end].to_owned()), &text[end..]))
}

/// A quoted name: a backslash takes the next character as it is.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.push(characters.next()?.1),
            end if end == quote => return Some((name, &text[at + 1..])),
            other => name.push(other),
        }
    }
    None
}
