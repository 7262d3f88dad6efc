//! Where a page stopped.

use orrery_model::Value;
use orrery_model::json::Object;

/// Enough to make the next page, given the same plan and a cursor over the same items.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resume {
    /// Rows skipped for OFFSET so far.
    pub(super) skipped: u64,
    /// Rows given so far.
    pub(super) emitted: u64,
    /// Rows of the item at which the cursor stands again that were given or skipped already.
    pub(super) rows_of_item: u64,
    /// The last row given, for sorted results.
    pub(super) after: Option<SortPosition>,
}

/// A row's place in a sorted result.
#[derive(Clone, Debug, PartialEq)]
pub struct SortPosition {
    /// The values sorted by; `None` is undefined.
    pub keys: Vec<Option<Value>>,
    pub rank: u64,
    /// Which of its item's rows.
    pub row: u64,
}

impl Resume {
    /// Whether the item the cursor yielded last has to be yielded again.
    pub fn repeats_item(&self) -> bool {
        self.rows_of_item > 0
    }

    /// The last row of a sorted result.
    pub fn after(&self) -> Option<&SortPosition> {
        self.after.as_ref()
    }

    /// A form that fits into a continuation.
    pub fn to_json(&self) -> Value {
        let mut object = Object::new();
        for (name, count) in [("s", self.skipped), ("e", self.emitted), ("r", self.rows_of_item)] {
            if count > 0 {
                object.insert(name, Value::from(count as i64));
            }
        }
        if let Some(after) = &self.after {
            // Undefined is the empty list, everything else a list of one.
            let keys = after.keys.iter().map(|key| Value::Array(key.iter().cloned().collect()));
            object.insert("k", Value::Array(keys.collect()));
            object.insert("i", Value::Number(after.rank.into()));
            object.insert("n", Value::Number(after.row.into()));
        }
        Value::Object(object)
    }

    /// Reads what [`Resume::to_json`] wrote.
    pub fn from_json(value: &Value) -> Option<Resume> {
        let count = |name: &str| match value.get(name) {
            None => Some(0),
            Some(count) => as_count(count),
        };
        let after = match value.get("k") {
            None => None,
            Some(keys) => Some(SortPosition {
                keys: keys
                    .as_array()?
                    .iter()
                    .map(|key| Some(key.as_array()?.first().cloned()))
                    .collect::<Option<_>>()?,
                rank: count("i")?,
                row: count("n")?,
            }),
        };
        value.as_object()?;
        Some(Resume {
            skipped: count("s")?,
            emitted: count("e")?,
            rows_of_item: count("r")?,
            after,
        })
    }
}

fn as_count(value: &Value) -> Option<u64> {
    match value.as_number()? {
        orrery_model::Number::Int(int) => u64::try_from(int).ok(),
        orrery_model::Number::UInt(uint) => Some(uint),
        orrery_model::Number::Double(_) => None,
    }
}
