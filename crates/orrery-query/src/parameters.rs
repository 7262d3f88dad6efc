//! The parameters a request passes along with its query.

use std::collections::BTreeMap;

use orrery_model::Value;

use crate::error::{QueryError, Result};
use crate::parse::is_identifier;
use crate::values::size_bytes;

/// Values by name, `@` included. A parameter without a value is undefined.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    entries: BTreeMap<String, Option<Value>>,
}

impl Parameters {
    pub fn none() -> Parameters {
        Parameters::default()
    }

    /// Adds one parameter, checking its name as the service does.
    pub fn add(&mut self, name: &str, value: Option<Value>) -> Result<()> {
        if !name.strip_prefix('@').is_some_and(is_identifier) {
            return Err(QueryError::plain(format!(
                "Invalid query. Specified parameter name '{name}' is invalid. Parameter names should be in the format of \
                 symbol '@' followed by a valid identifier. E.g. @param1"
            )));
        }
        match self.entries.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(QueryError::plain(format!(
                "Invalid query. Specified duplicate parameter name '{name}'."
            ))),
        }
    }

    /// About how much memory the names and values hold.
    pub fn size_bytes(&self) -> usize {
        let entry = |(name, value): (&String, &Option<Value>)| name.len() + value.as_ref().map_or(0, size_bytes);
        self.entries.iter().map(entry).sum()
    }

    /// Reads the array of a request body: `[{"name":"@p","value":1}]`.
    pub fn from_json(list: &Value) -> Result<Parameters> {
        let malformed = || QueryError::plain("Invalid query. The parameters are not a list of names and values.");
        let mut parameters = Parameters::default();
        for entry in list.as_array().ok_or_else(malformed)? {
            let name = entry.get("name").and_then(Value::as_str).ok_or_else(malformed)?;
            parameters.add(name, entry.get("value").cloned())?;
        }
        Ok(parameters)
    }

    /// The value of a parameter; undefined when it was not passed.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.entries.get(name)?.as_ref()
    }
}
