//! What a write says about indexing its item. It decides what the index holds, never what a query finds: items that are not
//! indexed are looked at by every query.

/// Decides together with the container's policy, at the time of each look: a policy that changes is applied to all items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexingDirective {
    /// As the policy's `automatic` says.
    #[default]
    Default,
    /// Indexed whatever the policy's `automatic` says.
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
