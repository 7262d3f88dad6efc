//! What a client says it can do.

use orrery_model::Status;

use crate::error::{QueryError, Result};

macro_rules! features {
    ($($feature:ident),* $(,)?) => {
        /// A part of query execution that some clients can do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Feature { $($feature),* }

        impl Feature {
            pub const ALL: &'static [Feature] = &[$(Feature::$feature),*];

            /// The name clients announce it by.
            pub fn name(self) -> &'static str {
                match self { $(Feature::$feature => stringify!($feature)),* }
            }
        }
    };
}

features! {
    Aggregate, CompositeAggregate, CountIf, DCount, Distinct, GroupBy, HybridSearch, HybridSearchSkipOrderByRewrite,
    ListAndSetAggregate, MultipleAggregates, MultipleOrderBy, NonStreamingOrderBy, NonValueAggregate, OffsetAndLimit,
    OrderBy, Top, WeightedRankFusion, GenerateEmbeddings,
}

/// The features one client announces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    known: Vec<Feature>,
}

impl Features {
    /// A client that can do everything.
    pub fn all() -> Features {
        let optional = |feature: &&Feature| **feature != Feature::HybridSearchSkipOrderByRewrite;
        Features {
            known: Feature::ALL.iter().filter(optional).copied().collect(),
        }
    }

    /// Reads a comma list; words that mean nothing to us are ignored.
    pub fn parse(list: &str) -> Features {
        let feature = |word: &str| {
            Feature::ALL
                .iter()
                .find(|feature| feature.name() == word.trim())
                .copied()
        };
        Features {
            known: list.split(',').filter_map(feature).collect(),
        }
    }

    pub fn has(&self, feature: Feature) -> bool {
        self.known.contains(&feature)
    }

    /// The error for features that the query needs and the client lacks.
    pub(super) fn require(&self, needed: &[Feature]) -> Result<()> {
        if needed.contains(&Feature::NonValueAggregate) && !self.has(Feature::NonValueAggregate) {
            let message = "Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates.";
            return Err(QueryError::plain(message));
        }
        let missing: Vec<String> = needed
            .iter()
            .filter(|feature| !self.has(**feature))
            .map(|feature| {
                format!(
                    "Query contained {}, which the calling client does not support.",
                    feature.name()
                )
            })
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let head = "Query contains 1 or more unsupported features. Upgrade your SDK to a version that does support the \
                    requested features:";
        let message = format!("{head}\r\n{}", missing.join("\r\n"));
        Err(QueryError::sentence(Status::CROSS_PARTITION_QUERY, message))
    }
}
