//! Queries, query plans and feeds without a query.

use std::collections::HashSet;

use orrery_model::json::{Object, Value};
use orrery_model::{Error, Result};
use orrery_node::api::{ContainerRef, Operation, QueryDiagnostics, QueryText};

use super::headers::names;
use super::item;
use super::request::{Call, Meaning, ReplyForm};

/// `GET …/docs`.
pub(super) fn decode_read_feed(container: ContainerRef, call: Call<'_>) -> Result<Meaning> {
    let operation = Operation::ReadFeed {
        container,
        target: call.headers.feed_target()?,
        page: call.headers.page()?,
    };
    Ok(Meaning {
        operation,
        form: ReplyForm::Feed,
        name: "read_items",
    })
}

/// A query over items.
pub(super) fn decode_query(container: ContainerRef, call: Call<'_>) -> Result<Meaning> {
    let operation = Operation::Query {
        container,
        target: call.headers.feed_target()?,
        query: parse_query(&call.body)?,
        page: call.headers.page()?,
        cross_partition: call.headers.flag(&names::CROSS_PARTITION),
        diagnostics: QueryDiagnostics {
            metrics: call.headers.flag(&names::POPULATE_QUERY_METRICS),
            index_use: call.headers.flag(&names::POPULATE_INDEX_METRICS)
                || call.headers.flag(&names::POPULATE_INDEX_METRICS_V2),
        },
    };
    let form = ReplyForm::Query {
        compact_index_use: call.headers.flag(&names::POPULATE_INDEX_METRICS_V2),
    };
    Ok(Meaning {
        operation,
        form,
        name: "query_items",
    })
}

/// How a client should run a query itself.
pub(super) fn decode_plan(container: ContainerRef, call: Call<'_>) -> Result<Meaning> {
    let operation = Operation::QueryPlan {
        container,
        query: parse_query(&call.body)?,
        features: call.headers.query_features()?,
        partition_key: call.headers.partition_key()?,
    };
    Ok(Meaning {
        operation,
        form: ReplyForm::Plan,
        name: "query_plan",
    })
}

/// Reads `{"query", "parameters"?, "resumeFilter"?}`; other members are ignored.
pub(super) fn parse_query(body: &[u8]) -> Result<QueryText> {
    let Value::Object(mut members) = item::parse(body)? else {
        return Err(invalid("an object with the member 'query' is expected"));
    };
    let Some(Value::String(text)) = members.remove("query") else {
        return Err(invalid("the text 'query' is missing"));
    };
    let parameters = match members.remove("parameters") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(parameters)) => parse_parameters(parameters)?,
        Some(_) => return Err(invalid("'parameters' is not an array")),
    };
    let resume_filter = members.remove("resumeFilter").filter(|filter| *filter != Value::Null);
    Ok(QueryText {
        text,
        parameters,
        resume_filter,
    })
}

fn parse_parameters(parameters: Vec<Value>) -> Result<Vec<(String, Option<Value>)>> {
    let parameters: Vec<_> = parameters.into_iter().map(parse_parameter).collect::<Result<_>>()?;
    if parameters.len() < 2 {
        return Ok(parameters);
    }
    let mut seen = HashSet::with_capacity(parameters.len());
    match parameters.iter().find(|(name, _)| !seen.insert(name.as_str())) {
        Some((name, _)) => Err(refused(&format!(
            "Invalid query. Specified duplicate parameter name '{name}'."
        ))),
        None => Ok(parameters),
    }
}

fn parse_parameter(parameter: Value) -> Result<(String, Option<Value>)> {
    let mut members = match parameter {
        Value::Object(members) => members,
        _ => Object::new(),
    };
    let Some(Value::String(name)) = members.remove("name") else {
        return Err(invalid("a parameter has no name"));
    };
    if !is_parameter_name(&name) {
        return Err(refused(&format!(
            "Invalid query. Specified parameter name '{name}' is invalid. Parameter names should be in the format of \
             symbol '@' followed by a valid identifier. E.g. @param1"
        )));
    }
    Ok((name, members.remove("value")))
}

fn is_parameter_name(name: &str) -> bool {
    name.strip_prefix('@')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_alphabetic() || first == '_'))
        && name
            .chars()
            .skip(1)
            .all(|character| character.is_alphanumeric() || character == '_')
}

fn invalid(reason: &str) -> Error {
    Error::bad_request(format!(
        "The request payload is invalid. Ensure to provide a valid request payload. In a query, {reason}."
    ))
}

/// A refusal in the form the service gives errors about queries.
fn refused(message: &str) -> Error {
    let message: String = message.chars().take(400).collect();
    Error::bad_request(format!(
        "Message: {{\"Errors\":[{}]}}",
        Value::String(message).to_text()
    ))
}

#[cfg(test)]
mod tests;
