//! A condition over changes, as readers may give one: `FROM c WHERE …`, or only what follows `WHERE`, over the change as
//! clients see it: `c.current`, `c.previous` and `c.metadata`.

use orrery_model::json::{self, Number, Object, Value};
use orrery_model::{Error, Result, Status, Timestamp};
use orrery_query::{Allowance, Condition, parse_condition};

use crate::api::{Change, ChangeKind};
use crate::query;

/// Longest text of a condition.
const TEXT_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug)]
pub struct Filter {
    condition: Condition,
}

impl Filter {
    pub fn parse(text: &str) -> Result<Filter> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::bad_request("The condition of the change feed is too long."));
        }
        let whole = text
            .trim_start()
            .get(..5)
            .is_some_and(|word| word.eq_ignore_ascii_case("from "));
        let text = if whole {
            text.to_owned()
        } else {
            format!("FROM c WHERE {text}")
        };
        let condition = parse_condition(&text, &mut Allowance::default())?;
        Ok(Filter { condition })
    }

    /// What one change may take is limited; how many a page looks at, the page decides.
    pub fn holds(&self, change: &Change, now: Timestamp) -> Result<bool> {
        let shown = shown(change)?;
        Ok(self
            .condition
            .holds(&shown, &query::context(now), &mut Allowance::default())?)
    }
}

/// The change as clients see it.
fn shown(change: &Change) -> Result<Value> {
    let item = |text: &[u8]| {
        if text.is_empty() {
            return Ok(Value::Object(Object::new()));
        }
        json::parse_value(text).map_err(|_| Error::new(Status::INTERNAL, "a stored item is malformed"))
    };
    let number = |number: u64| Value::Number(Number::from(number));
    let mut metadata = Object::new();
    metadata.insert("lsn", number(change.lsn.0));
    metadata.insert("crts", number(change.at));
    let mut shown = Object::new();
    shown.insert("current", item(&change.current)?);
    if let Some(version) = &change.version {
        metadata.insert("operationType", Value::from(kind_name(version.kind)));
        metadata.insert("previousImageLSN", number(version.previous_lsn.0));
        metadata.insert("timeToLiveExpired", Value::Bool(version.expired));
        if let Some((id, key)) = &version.deleted {
            metadata.insert("id", Value::String(id.clone()));
            metadata.insert("partitionKey", key.clone());
        }
        if version.kind != ChangeKind::Create {
            shown.insert("previous", item(&version.previous)?);
        }
    }
    shown.insert("metadata", Value::Object(metadata));
    Ok(Value::Object(shown))
}

fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Create => "create",
        ChangeKind::Replace => "replace",
        ChangeKind::Delete => "delete",
    }
}
