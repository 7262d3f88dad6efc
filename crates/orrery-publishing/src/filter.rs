//! What a subscription asks for: an author, a category or a tag.
//!
//! Written `author:ann`, `category:sports`, `tag:rust`. A bare value is a category, as in the original data access layer.
//! Filters order as notifications name them: author, category, tag. Invariant: the text of a filter parses to that filter.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest name in a filter: with its kind and a bucket it stays a small partition key.
pub const NAME_BYTES_MAX: usize = 256;
/// Partition keys a large filter is spread over begin with its text and this.
const BUCKET_MARK: char = '#';

/// One criterion, in the order in which a notification names its reasons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filter {
    Author(String),
    Category(String),
    Tag(String),
}

/// A text that is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a filter names an author, a category or a tag in 1 to {NAME_BYTES_MAX} bytes without control characters and `#`"
)]
pub struct FilterError;

impl Filter {
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let (kind, name): (fn(String) -> Filter, &str) = match text.split_once(':') {
            Some(("author", name)) => (Filter::Author, name),
            Some(("category", name)) => (Filter::Category, name),
            Some(("tag", name)) => (Filter::Tag, name),
            _ => (Filter::Category, text),
        };
        let name = name.trim();
        let is_fine = !name.contains(|char: char| char.is_control() || char == BUCKET_MARK);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_fine {
            return Err(FilterError);
        }
        Ok(kind(name.to_owned()))
    }

    pub fn name(&self) -> &str {
        match self {
            Filter::Author(name) | Filter::Category(name) | Filter::Tag(name) => name,
        }
    }

    /// Where subscriptions to this filter lie: under its text, and if it is large also under one key per bucket.
    pub fn partition_keys(&self, n_buckets: u32) -> Vec<String> {
        let text = self.to_string();
        let buckets = (0..n_buckets).map(|bucket| format!("{text}{BUCKET_MARK}{bucket}"));
        std::iter::once(text.clone()).chain(buckets).collect()
    }

    /// Where a new subscription of a user goes.
    pub fn partition_key(&self, user: &str, n_buckets: u32) -> String {
        if n_buckets == 0 {
            return self.to_string();
        }
        format!("{self}{BUCKET_MARK}{}", crate::ids::bucket(user, n_buckets))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Filter::Author(name) => write!(out, "author:{name}"),
            Filter::Category(name) => write!(out, "category:{name}"),
            Filter::Tag(name) => write!(out, "tag:{name}"),
        }
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Filter, D::Error> {
        let text = String::deserialize(deserializer)?;
        Filter::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bare_value_is_a_category() {
        for text in ["sports", "category:sports", " sports "] {
            assert_eq!(Filter::parse(text).unwrap(), Filter::Category("sports".into()));
        }
        assert_eq!(
            Filter::parse("news: europe").unwrap(),
            Filter::Category("news: europe".into())
        );
        assert_eq!(Filter::parse("author:a:b").unwrap(), Filter::Author("a:b".into()));
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for text in ["", "author:", "tag:  ", "a\nb", "tag:c#", &"x".repeat(257)] {
            assert_eq!(Filter::parse(text), Err(FilterError), "{text}");
        }
    }

    #[test]
    fn reasons_are_named_author_first_then_category_then_tag() {
        let mut filters = ["tag:a", "category:z", "author:z", "author:b"].map(|text| Filter::parse(text).unwrap());
        filters.sort();
        assert_eq!(
            filters.map(|filter| filter.to_string()),
            ["author:b", "author:z", "category:z", "tag:a"]
        );
    }

    #[test]
    fn a_large_filter_has_a_key_per_bucket_and_keeps_the_first() {
        let filter = Filter::parse("sports").unwrap();
        assert_eq!(filter.partition_keys(0), ["category:sports"]);
        assert_eq!(
            filter.partition_keys(2),
            ["category:sports", "category:sports#0", "category:sports#1"]
        );
        assert!(filter.partition_keys(8).contains(&filter.partition_key("ann", 8)));
        assert_eq!(filter.partition_key("ann", 0), "category:sports");
    }

    proptest! {
        #[test]
        fn printing_and_parsing_a_filter_gives_it_back(text in "(author:|category:|tag:|)[a-z: ]{1,20}") {
            if let Ok(filter) = Filter::parse(&text) {
                prop_assert_eq!(Filter::parse(&filter.to_string()), Ok(filter));
            }
        }
    }
}
