//! Batches: several item operations in one request, all or nothing or each on its own, in JSON and in HybridRow.

use std::io::Write as _;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json::{self, Object, Value};
use orrery_model::limits::BATCH_OPERATIONS_MAX;
use orrery_model::patch::Patch;
use orrery_model::{Error, PartitionKey, Result};
use orrery_node::api::{
    BatchOperation, BatchStep, ContainerRef, ItemBody, ItemSelector, ItemVerb, Operation, StepResult,
};

use super::headers::names;
use super::item;
use super::request::{Call, Meaning, ReplyForm, missing_partition_key};

/// A step and whether its result may come without content.
#[derive(Debug)]
struct Step {
    step: BatchStep,
    minimal: bool,
}

pub(super) fn decode(container: ContainerRef, call: Call<'_>) -> Result<Meaning> {
    let headers = call.headers;
    let atomic = headers.flag(&names::BATCH_ATOMIC);
    let partition_key = headers.partition_key()?;
    let partition = headers.partition_id()?;
    if partition_key.is_none() && (atomic || partition.is_none()) {
        return Err(missing_partition_key());
    }
    let steps = parse_json(&call.body)?;
    let minimal_all = headers.prefers_minimal()?;
    // Asking for nothing back is about writes; a read without its item would be pointless.
    let is_read = |step: &Step| matches!(step.step.verb, ItemVerb::Read { .. });
    let minimal = steps
        .iter()
        .map(|step| (minimal_all || step.minimal) && !is_read(step))
        .collect();
    let operation = Operation::Batch(BatchOperation {
        container,
        partition_key,
        partition,
        atomic,
        continue_on_error: headers.flag(&names::BATCH_CONTINUE_ON_ERROR),
        steps: steps.into_iter().map(|step| step.step).collect(),
    });
    let form = ReplyForm::Batch {
        minimal,
        hybrid_row: false,
    };
    Ok(Meaning {
        operation,
        form,
        name: if atomic { "batch" } else { "bulk" },
    })
}

fn parse_json(body: &[u8]) -> Result<Vec<Step>> {
    let Value::Array(operations) = item::parse(body)? else {
        return Err(invalid("an array of operations is expected"));
    };
    check_count(operations.len())?;
    operations.into_iter().map(parse_operation).collect()
}

fn check_count(n_operations: usize) -> Result<()> {
    match n_operations {
        0 => Err(invalid("there are no operations")),
        n if n > BATCH_OPERATIONS_MAX => Err(Error::bad_request(format!(
            "Batch request has more operations than what is supported: {n}, at most {BATCH_OPERATIONS_MAX}."
        ))),
        _ => Ok(()),
    }
}

fn parse_operation(operation: Value) -> Result<Step> {
    let Value::Object(mut members) = operation else {
        return Err(invalid("an operation is not an object"));
    };
    let kind = take_text(&mut members, "operationType")?.ok_or_else(|| invalid("an operation has no operationType"))?;
    RawStep {
        kind: Kind::parse(&kind).ok_or_else(|| invalid("an operationType is unknown"))?,
        id: take_text(&mut members, "id")?,
        body: members.remove("resourceBody").map(Body::Parsed),
        partition_key: take_text(&mut members, "partitionKey")?,
        if_match: take_text(&mut members, "ifMatch")?,
        if_none_match: take_text(&mut members, "ifNoneMatch")?,
        minimal: members
            .get("minimalReturnPreference")
            .and_then(Value::as_bool)
            .unwrap_or(false),
    }
    .into_step()
}

fn take_text(members: &mut Object, name: &str) -> Result<Option<String>> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(&format!("the member '{name}' of an operation is not a string"))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create,
    Upsert,
    Read,
    Replace,
    Patch,
    Delete,
}

impl Kind {
    fn parse(name: &str) -> Option<Kind> {
        Some(match name.to_ascii_lowercase().as_str() {
            "create" => Kind::Create,
            "upsert" => Kind::Upsert,
            "read" => Kind::Read,
            "replace" => Kind::Replace,
            "patch" => Kind::Patch,
            "delete" => Kind::Delete,
            _ => return None,
        })
    }
}

/// One operation as either encoding carries it.
#[derive(Debug)]
struct RawStep {
    kind: Kind,
    id: Option<String>,
    body: Option<Body>,
    partition_key: Option<String>,
    if_match: Option<String>,
    if_none_match: Option<String>,
    minimal: bool,
}

#[derive(Debug)]
enum Body {
    /// Part of a larger JSON text.
    Parsed(Value),
}

impl Body {
    fn into_item(self) -> Result<ItemBody> {
        match self {
            Body::Parsed(value) => item::item_of(value),
        }
    }

    fn into_patch(self) -> Result<Patch> {
        match self {
            Body::Parsed(value) => Patch::parse(&value),
        }
    }
}

impl RawStep {
    fn into_step(self) -> Result<Step> {
        let partition_key = self.partition_key.map(|text| PartitionKey::parse(&text)).transpose()?;
        let precondition = match (self.if_match, self.if_none_match) {
            (Some(tag), _) => Precondition::IfMatch(tag),
            (None, Some(tag)) => Precondition::IfNoneMatch(tag),
            (None, None) => Precondition::None,
        };
        let verb = verb(self.kind, self.id, self.body)?;
        Ok(Step {
            step: BatchStep {
                partition_key,
                precondition,
                verb,
            },
            minimal: self.minimal,
        })
    }
}

fn verb(kind: Kind, id: Option<String>, body: Option<Body>) -> Result<ItemVerb> {
    let item = || {
        id.map(ItemSelector::Id)
            .ok_or_else(|| invalid("an operation has no id"))
    };
    let body = || body.ok_or_else(|| invalid("an operation has no resourceBody"));
    Ok(match kind {
        Kind::Create => ItemVerb::Create {
            body: body()?.into_item()?,
        },
        Kind::Upsert => ItemVerb::Upsert {
            body: body()?.into_item()?,
        },
        Kind::Read => ItemVerb::Read { item: item()? },
        Kind::Replace => ItemVerb::Replace {
            item: item()?,
            body: body()?.into_item()?,
        },
        Kind::Patch => ItemVerb::Patch {
            item: item()?,
            patch: body()?.into_patch()?,
        },
        Kind::Delete => ItemVerb::Delete { item: item()? },
    })
}

fn invalid(reason: &str) -> Error {
    Error::bad_request(format!("The batch request is invalid: {reason}."))
}

/// The results in JSON, one entry per operation and in order. `minimal` says whose content is left out.
pub(super) fn encode_json(results: &[StepResult], minimal: &[bool]) -> Bytes {
    let n_bytes: usize = results
        .iter()
        .map(|result| 160 + result.body.as_ref().map_or(0, Bytes::len))
        .sum();
    let mut out = Vec::with_capacity(n_bytes + 2);
    out.push(b'[');
    for (index, result) in results.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let without_body = minimal.get(index).copied().unwrap_or(false);
        encode_result(result, without_body, &mut out);
    }
    out.push(b']');
    out.into()
}

fn encode_result(result: &StepResult, without_body: bool, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail, so the results are not looked at.
    let _ = write!(out, "{{\"statusCode\":{}", result.status);
    if result.sub_status != 0 {
        let _ = write!(out, ",\"subStatusCode\":{}", result.sub_status);
    }
    let _ = write!(out, ",\"requestCharge\":{}", result.charge);
    if let Some(etag) = &result.etag {
        out.extend_from_slice(b",\"eTag\":");
        json::print_string(&etag.to_string(), out);
    }
    if let Some(body) = result.body.as_ref().filter(|_| !without_body) {
        out.extend_from_slice(b",\"resourceBody\":");
        out.extend_from_slice(body);
    }
    if let Some(milliseconds) = result.retry_after_ms {
        let _ = write!(out, ",\"retryAfterMilliseconds\":{milliseconds}");
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
