//! Batches in HybridRow, which is all the .NET client speaks: it takes its answers only in the form of its requests.

use bytes::Bytes;
use orrery_model::Result;
use orrery_node::api::StepResult;

use super::{Body, Kind, RawStep, invalid};
use crate::wire::hybrid_row::{self, RowOperation, RowOperationType, RowResult};

/// Is this the body of a batch in HybridRow?
pub(super) fn recognise(body: &[u8]) -> bool {
    body.first() == Some(&hybrid_row::VERSION)
}

/// Reads a request body. The outer error is about the request, the inner ones about single steps.
pub(super) fn parse(body: &Bytes) -> Result<Vec<Result<RawStep>>> {
    let operations = hybrid_row::decode(body).map_err(|error| invalid(&format!("it is not HybridRow: {error}")))?;
    Ok(operations.into_iter().map(raw_step).collect())
}

fn raw_step(operation: RowOperation) -> Result<RawStep> {
    if operation.ttl_seconds.is_some() {
        return Err(invalid("an operation sets a time to live apart from its item"));
    }
    Ok(RawStep {
        kind: kind(operation.operation),
        id: operation.id,
        body: operation.body.map(Body::Whole),
        partition_key: operation.partition_key,
        if_match: operation.if_match,
        if_none_match: operation.if_none_match,
        directive: operation.indexing_directive,
        minimal: operation.minimal,
    })
}

fn kind(operation: RowOperationType) -> Kind {
    match operation {
        RowOperationType::Create => Kind::Create,
        RowOperationType::Patch => Kind::Patch,
        RowOperationType::Read => Kind::Read,
        RowOperationType::Delete => Kind::Delete,
        RowOperationType::Replace => Kind::Replace,
        RowOperationType::Upsert => Kind::Upsert,
    }
}

/// The results, one record per operation and in order. `minimal` says whose content is left out.
pub(super) fn encode(results: &[StepResult], minimal: &[bool]) -> Bytes {
    let etags: Vec<Option<String>> = results
        .iter()
        .map(|result| result.etag.map(|etag| etag.to_string()))
        .collect();
    let without_body = |index: usize| minimal.get(index).copied().unwrap_or(false);
    let rows: Vec<RowResult<'_>> = results
        .iter()
        .zip(&etags)
        .enumerate()
        .map(|(index, (result, etag))| row(result, etag.as_deref(), without_body(index)))
        .collect();
    hybrid_row::encode(&rows).into()
}

fn row<'a>(result: &'a StepResult, etag: Option<&'a str>, without_body: bool) -> RowResult<'a> {
    RowResult {
        status: result.status,
        sub_status: result.sub_status,
        etag,
        body: result.body.as_deref().filter(|_| !without_body),
        retry_after_ms: result
            .retry_after_ms
            .map(|milliseconds| u32::try_from(milliseconds).unwrap_or(u32::MAX)),
        charge: Some(result.charge.as_hundredths() as f64 / 100.0),
    }
}
