//! Batches: several item operations in one request, all or nothing or each on its own.
//!
//! Of an atomic batch one step that makes no sense refuses the whole. Of a bulk request such a step fails alone, as one
//! that the node refuses would: it is left out of the operation, and its result is put back at its place in the answer.

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json::Value;
use orrery_model::limits::{BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX};
use orrery_model::patch::Patch;
use orrery_model::{Charge, Error, IndexingDirective, PartitionKey, Result, Status};
use orrery_node::api::{
    BatchOperation, BatchStep, ContainerRef, ItemBody, ItemSelector, ItemVerb, Operation, StepResult,
};

use super::headers::names;
use super::item;
use super::request::{Call, Meaning, RejectedStep, ReplyForm, missing_partition_key};

mod json;
mod rows;

pub(super) fn decode(container: ContainerRef, call: Call<'_>) -> Result<Meaning> {
    let headers = call.headers;
    let atomic = headers.flag(&names::BATCH_ATOMIC);
    let continue_on_error = headers.flag(&names::BATCH_CONTINUE_ON_ERROR);
    let partition_key = headers.partition_key()?;
    let partition = headers.partition_id()?;
    if partition_key.is_none() && (atomic || partition.is_none()) {
        return Err(missing_partition_key());
    }
    if call.body.len() > BATCH_BYTES_MAX {
        return Err(Error::new(Status::TOO_LARGE, "Request size is too large"));
    }
    let hybrid_row = rows::recognise(&call.body);
    let raw_steps = if hybrid_row {
        rows::parse(&call.body)?
    } else {
        json::parse(&call.body)?
    };
    check_count(raw_steps.len())?;
    let sorted = if atomic {
        take_all(raw_steps, headers.prefers_minimal()?)?
    } else {
        take_valid(raw_steps, headers.prefers_minimal()?, continue_on_error)?
    };
    let steps = sorted.steps;
    let operation = Operation::Batch(BatchOperation {
        container,
        partition_key,
        partition,
        atomic,
        continue_on_error,
        steps,
    });
    let form = ReplyForm::Batch {
        minimal: sorted.minimal,
        rejected: sorted.rejected,
        hybrid_row,
    };
    Ok(Meaning {
        operation,
        form,
        name: if atomic { "batch" } else { "bulk" },
    })
}

/// The body of the answer.
pub(super) fn encode(results: Vec<StepResult>, form: &ReplyForm) -> Bytes {
    let ReplyForm::Batch {
        minimal,
        rejected,
        hybrid_row,
    } = form
    else {
        return json::encode(&results, &[]);
    };
    let results = put_back(results, rejected);
    if *hybrid_row {
        rows::encode(&results, minimal)
    } else {
        json::encode(&results, minimal)
    }
}

fn check_count(n_operations: usize) -> Result<()> {
    match n_operations {
        0 => Err(Error::bad_request("Batch request has no operations.")),
        n if n > BATCH_OPERATIONS_MAX => Err(Error::bad_request(format!(
            "Batch request has more operations than what is supported. It has {n}, at most {BATCH_OPERATIONS_MAX} are."
        ))),
        _ => Ok(()),
    }
}

/// The steps of a request, taken apart.
#[derive(Debug, Default)]
struct Sorted {
    /// What the node is asked.
    steps: Vec<BatchStep>,
    /// For every step of the request: its result comes without content.
    minimal: Vec<bool>,
    rejected: Vec<RejectedStep>,
}

impl Sorted {
    fn take(&mut self, step: Step, minimal_all: bool) {
        // Asking for nothing back is about writes; a read without its item would be pointless.
        let is_read = matches!(step.step.verb, ItemVerb::Read { .. });
        self.minimal.push((minimal_all || step.minimal) && !is_read);
        self.steps.push(step.step);
    }

    fn reject(&mut self, status: Status) {
        let index = self.minimal.len();
        self.minimal.push(false);
        self.rejected.push(RejectedStep { index, status });
    }
}

fn take_all(raw_steps: Vec<Result<RawStep>>, minimal_all: bool) -> Result<Sorted> {
    let mut sorted = Sorted::default();
    for raw in raw_steps {
        sorted.take(raw?.into_step()?, minimal_all);
    }
    Ok(sorted)
}

/// Refuses the request only if none of its steps makes sense.
fn take_valid(raw_steps: Vec<Result<RawStep>>, minimal_all: bool, continue_on_error: bool) -> Result<Sorted> {
    let mut sorted = Sorted::default();
    let mut first_error = None;
    for raw in raw_steps {
        if first_error.is_some() && !continue_on_error {
            sorted.reject(Status::FAILED_DEPENDENCY);
            continue;
        }
        match raw.and_then(RawStep::into_step) {
            Ok(step) => sorted.take(step, minimal_all),
            Err(error) => {
                sorted.reject(error.status());
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if sorted.steps.is_empty() => Err(error),
        _ => Ok(sorted),
    }
}

/// Adds the results of steps that never reached the node. They are in ascending order.
fn put_back(mut results: Vec<StepResult>, rejected: &[RejectedStep]) -> Vec<StepResult> {
    for step in rejected {
        let result = StepResult {
            status: step.status.code,
            sub_status: step.status.sub,
            charge: Charge::ZERO,
            etag: None,
            body: None,
            retry_after_ms: None,
        };
        results.insert(step.index.min(results.len()), result);
    }
    results
}

/// A step and whether its result may come without content.
#[derive(Debug)]
struct Step {
    step: BatchStep,
    minimal: bool,
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
    directive: Option<String>,
    minimal: bool,
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

#[derive(Debug)]
enum Body {
    /// Part of a larger JSON text.
    Parsed(Value),
    /// A text, or binary JSON, of its own.
    Whole(Bytes),
}

impl Body {
    fn into_item(self) -> Result<ItemBody> {
        match self {
            Body::Parsed(value) => item::item_of(value),
            Body::Whole(body) => item::parse_item(body),
        }
    }

    fn into_patch(self) -> Result<Patch> {
        match self {
            Body::Parsed(value) => Patch::parse(&value),
            Body::Whole(body) => Patch::parse(&item::parse(&body)?),
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
        let directive = self
            .directive
            .as_deref()
            .map(|name| IndexingDirective::parse(name).ok_or_else(|| invalid("an indexing directive is unknown")));
        let verb = verb(self.kind, self.id, self.body)?;
        Ok(Step {
            step: BatchStep {
                partition_key,
                precondition,
                directive: directive.transpose()?.unwrap_or_default(),
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

#[cfg(test)]
mod tests;
