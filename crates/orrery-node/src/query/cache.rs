//! What queries need again and again: texts parsed lately, which clients send with ever other parameters, and what planning
//! must know about each container.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orrery_model::{ContainerDefinition, ResourceId, Result};
use orrery_query::{Definition, Query};

use crate::catalogue::ContainerEntry;

/// Texts kept, and the longest that is.
const QUERIES_MAX: usize = 512;
const TEXT_BYTES_MAX: usize = 4 * 1024;
const DEFINITIONS_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub struct QueryCache {
    queries: Mutex<HashMap<String, Arc<Query>>>,
    definitions: Mutex<HashMap<ResourceId, Known>>,
}

/// A container's definition as planning sees it, and what it was made from.
#[derive(Debug)]
struct Known {
    from: Arc<ContainerDefinition>,
    definition: Arc<Definition>,
}

impl QueryCache {
    /// The query of a text, parsed now or earlier.
    pub fn query(&self, text: &str) -> Result<Arc<Query>> {
        if let Some(query) = lock(&self.queries).get(text) {
            return Ok(Arc::clone(query));
        }
        let query = Arc::new(Query::parse(text)?);
        if text.len() <= TEXT_BYTES_MAX {
            let mut queries = lock(&self.queries);
            // Starting over now and then is cheaper than keeping account of which was used last.
            if queries.len() >= QUERIES_MAX {
                queries.clear();
            }
            queries.insert(text.to_owned(), Arc::clone(&query));
        }
        Ok(query)
    }

    /// What planning must know about a container.
    pub fn definition(&self, container: &ContainerEntry) -> Arc<Definition> {
        if let Some(known) = lock(&self.definitions).get(&container.rid)
            && Arc::ptr_eq(&known.from, &container.definition)
        {
            return Arc::clone(&known.definition);
        }
        let definition = Arc::new(Definition::of_container(container.definition.fields()));
        let known = Known {
            from: Arc::clone(&container.definition),
            definition: Arc::clone(&definition),
        };
        let mut definitions = lock(&self.definitions);
        if definitions.len() >= DEFINITIONS_MAX {
            definitions.clear();
        }
        definitions.insert(container.rid.clone(), known);
        definition
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
