//! A container's definition with what its index is made by, read once and used for every transaction.

use std::ops::Deref;

use orrery_model::{ContainerDefinition, Result};
use orrery_query::index::Indexing;

/// A definition in every respect, which in addition knows how items are indexed.
#[derive(Clone, Debug)]
pub struct IndexedDefinition {
    definition: ContainerDefinition,
    indexing: Indexing,
}

impl IndexedDefinition {
    pub fn new(definition: ContainerDefinition) -> IndexedDefinition {
        IndexedDefinition {
            indexing: Indexing::of_container(definition.fields(), definition.index_rules()),
            definition,
        }
    }

    /// Reads what a partition has stored.
    pub fn from_stored(stored: &[u8]) -> Result<IndexedDefinition> {
        ContainerDefinition::from_stored(stored).map(IndexedDefinition::new)
    }

    pub fn indexing(&self) -> &Indexing {
        &self.indexing
    }
}

impl Deref for IndexedDefinition {
    type Target = ContainerDefinition;

    fn deref(&self) -> &ContainerDefinition {
        &self.definition
    }
}
