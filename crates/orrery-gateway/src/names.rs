//! Endpoints told apart by name, all on one port: `account.suffix` is an account, `account-region.suffix` one of its regions.
//!
//! This is how the service names them, and what clients fall back to that cannot read the account document at first: they put
//! the region they prefer behind the first label of the name they were given. Each SDK spells a region in its own way, so
//! letter case, spaces, hyphens and underscores of a region do not count. An account whose own name looks like that of
//! another's region is found first.
//!
//! Requests that are addressed in another way, such as to `localhost` and a region's own port, go where they always went.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use http::uri::Authority;

use crate::pipeline::Pipeline;

/// What stands behind the last dot of all names: a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suffix(Arc<str>);

impl Suffix {
    /// `None` if this is no domain.
    pub fn new(text: &str) -> Option<Suffix> {
        let text = text.trim_matches('.').to_ascii_lowercase();
        let is_label = |label: &str| {
            let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !label.is_empty() && label.len() <= 63 && label.bytes().all(inner)
        };
        text.split('.').all(is_label).then(|| Suffix(text.into()))
    }

    /// The first label of a name that ends like this.
    fn label<'a>(&self, host: &'a str) -> Option<&'a str> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let at = host.len().checked_sub(self.0.len() + 1)?;
        let (label, rest) = host.split_at_checked(at)?;
        (rest.starts_with('.') && rest[1..].eq_ignore_ascii_case(&self.0)).then_some(label)
    }

    /// Does this name end like this?
    pub fn covers(&self, host: &str) -> bool {
        self.label(host).is_some()
    }

    /// The name of a region.
    pub fn region(&self, account: &str, region: &str) -> String {
        format!("{}.{}", region_label(account, region), self.0)
    }
}

/// What a region's endpoint of an account is called.
pub fn region_label(account: &str, region: &str) -> String {
    format!("{}-{}", account.to_ascii_lowercase(), squeezed(region))
}

/// A region's name as it stands in names of hosts.
fn squeezed(region: &str) -> String {
    let kept = region.chars().filter(|letter| !matches!(letter, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).collect()
}

/// Who is called by which name.
pub struct Directory {
    suffix: Suffix,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    accounts: HashMap<String, Arc<Pipeline>>,
    /// By account and region.
    regions: HashMap<String, Arc<Pipeline>>,
}

/// Whom a request is addressed to.
pub(crate) enum Called {
    /// Whoever listens where it arrived.
    Listener,
    Named(Arc<Pipeline>),
    /// Nobody has this name.
    Nobody,
}

impl Directory {
    pub fn new(suffix: Suffix) -> Directory {
        Directory {
            suffix,
            known: RwLock::default(),
        }
    }

    pub fn suffix(&self) -> &Suffix {
        &self.suffix
    }

    pub fn set_account(&self, account: &str, pipeline: Arc<Pipeline>) {
        self.change(|known| known.accounts.insert(account.to_ascii_lowercase(), pipeline));
    }

    pub fn set_region(&self, account: &str, region: &str, pipeline: Arc<Pipeline>) {
        self.change(|known| known.regions.insert(region_label(account, region), pipeline));
    }

    pub fn remove_region(&self, account: &str, region: &str) {
        self.change(|known| known.regions.remove(&region_label(account, region)));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn find(&self, called: &Authority) -> Called {
        let Some(label) = self.suffix.label(called.host()) else {
            return Called::Listener;
        };
        let label = label.to_ascii_lowercase();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let account = known.accounts.get(&label);
        match account.or_else(|| known.region(&label)) {
            Some(pipeline) => Called::Named(Arc::clone(pipeline)),
            None => Called::Nobody,
        }
    }
}

impl Known {
    /// A region by a label that may spell it with hyphens or underscores.
    fn region(&self, label: &str) -> Option<&Arc<Pipeline>> {
        let separators = label.match_indices('-');
        separators
            .filter_map(|(at, _)| self.regions.get(&region_label(&label[..at], &label[at + 1..])))
            .next()
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory")
            .field("suffix", &self.suffix)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_is_a_domain_in_any_letter_case() {
        assert_eq!(Suffix::new(".Orrery.TEST"), Suffix::new("orrery.test"));
        for malformed in ["", "a..b", "a b", "a/b", "a:80", &"x".repeat(64)] {
            assert_eq!(Suffix::new(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn names_end_with_the_suffix_after_a_dot() {
        let suffix = Suffix::new("orrery.test").unwrap();
        assert_eq!(suffix.label("db-WestUS.Orrery.test"), Some("db-WestUS"));
        assert_eq!(suffix.label("db.orrery.test."), Some("db"));
        for other in [
            "orrery.test",
            "dborrery.test",
            "db.orrery.test.example",
            "localhost",
            "",
        ] {
            assert!(!suffix.covers(other), "{other}");
        }
    }

    #[test]
    fn every_spelling_of_a_region_is_one_name() {
        for spelling in ["West US 2", "westus2", "WestUS2", "west-us-2", "West_US 2"] {
            assert_eq!(region_label("Db", spelling), "db-westus2");
        }
    }
}
