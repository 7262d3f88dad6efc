//! What a write says about indexing its item. It decides what the index holds, never what a query finds: items that are not
//! indexed are looked at by every query.

/// The policy's `automatic` does not decide: it follows from the indexing mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexingDirective {
    /// As the policy says.
    #[default]
    Default,
    /// The same, said aloud.
    Include,
    /// Not indexed.
    Exclude,
}

impl IndexingDirective {
    /// By its name in any case, or by its number, which Python's SDK sends.
    pub fn parse(text: &str) -> Option<IndexingDirective> {
        const NAMES: [&str; 3] = ["default", "include", "exclude"];
        let named = NAMES.iter().position(|name| name.eq_ignore_ascii_case(text));
        let code = named.map_or_else(|| text.parse().ok(), |place| u8::try_from(place).ok())?;
        IndexingDirective::of_code(code)
    }

    /// Whether the item is in the index, if there is one.
    pub fn is_indexed(self) -> bool {
        self != IndexingDirective::Exclude
    }

    /// Its number in stored items and logs.
    pub fn code(self) -> u8 {
        match self {
            IndexingDirective::Default => 0,
            IndexingDirective::Include => 1,
            IndexingDirective::Exclude => 2,
        }
    }

    pub fn of_code(code: u8) -> Option<IndexingDirective> {
        match code {
            0 => Some(IndexingDirective::Default),
            1 => Some(IndexingDirective::Include),
            2 => Some(IndexingDirective::Exclude),
            _ => None,
        }
    }
}
