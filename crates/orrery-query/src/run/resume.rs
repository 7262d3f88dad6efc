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
    /// Where a client asked a sorted result to begin. It counts until there is a last row.
    pub(super) start: Option<SortStart>,
}

/// A place in a sorted result that a client chose.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SortStart {
    pub keys: Vec<Option<Value>>,
    pub ties: Ties,
}

/// Which of the rows with exactly the chosen values are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ties {
    All,
    None,
    /// Those from this rank on.
    From(u64),
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

    /// The sort values at which a sorted result goes on, and the lowest rank that may come among rows with those values.
    pub(crate) fn sort_start(&self) -> Option<(&[Option<Value>], u64)> {
        match (&self.after, &self.start) {
            (Some(after), _) => Some((&after.keys, after.rank)),
            (None, Some(start)) => Some((
                &start.keys,
                match start.ties {
                    Ties::From(rank) => rank,
                    Ties::All | Ties::None => 0,
                },
            )),
            (None, None) => None,
        }
    }

    /// Reads the `resumeFilter` of a request: `{"value": […], "rid": …, "exclude": …}`. The values are those last seen, with
    /// `[]` for undefined; `rank` tells the tie order of a resource id. `None` when the filter cannot be used: it is
    /// malformed, or sorts by arrays or objects, of which clients keep only a hash.
    pub fn from_filter(filter: &Value, rank: impl FnOnce(&str) -> Option<u64>) -> Option<Resume> {
        let keys = filter
            .get("value")?
            .as_array()?
            .iter()
            .map(filter_key)
            .collect::<Option<Vec<_>>>()?;
        let ties = match (
            filter.get("exclude").and_then(Value::as_bool).unwrap_or(false),
            filter.get("rid"),
        ) {
            (true, _) => Ties::None,
            (false, None | Some(Value::Null)) => Ties::All,
            (false, Some(rid)) => Ties::From(rank(rid.as_str()?)?),
        };
        Some(Resume {
            start: Some(SortStart { keys, ties }),
            ..Resume::default()
        })
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
            start: None,
        })
    }
}

/// One value of a resume filter: the outer `None` for what cannot be compared, the inner for undefined.
fn filter_key(value: &Value) -> Option<Option<Value>> {
    match value {
        Value::Array(items) if items.is_empty() => Some(None),
        Value::Array(_) | Value::Object(_) => None,
        scalar => Some(Some(scalar.clone())),
    }
}

fn as_count(value: &Value) -> Option<u64> {
    match value.as_number()? {
        orrery_model::Number::Int(int) => u64::try_from(int).ok(),
        orrery_model::Number::UInt(uint) => Some(uint),
        orrery_model::Number::Double(_) => None,
    }
}
