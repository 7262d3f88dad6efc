//! Operations on one item, and item bodies in both encodings.

use bytes::Bytes;
use http::Method;
use orrery_model::json::{self, Parsed, Value};
use orrery_model::limits::{ITEM_BYTES_MAX, NESTING_LEVELS_MAX};
use orrery_model::name::validate_item_id;
use orrery_model::patch::Patch;
use orrery_model::{Error, IndexingDirective, Result, Status};
use orrery_node::api::{ContainerRef, ItemBody, ItemOperation, ItemSelector, ItemVerb, Operation, Selector};

use super::binary_json;
use super::headers::{Headers, names};
use super::request::{Call, Meaning, ReplyForm, method_not_allowed, missing_partition_key};

pub(super) const CREATE: &str = "create_item";
pub(super) const UPSERT: &str = "upsert_item";
const REPLACE: &str = "replace_item";
const PATCH: &str = "patch_item";
const DELETE: &str = "delete_item";

/// The name of the write that a method means for one item.
pub(super) fn point_write(method: &Method) -> Option<&'static str> {
    match *method {
        Method::PUT => Some(REPLACE),
        Method::PATCH => Some(PATCH),
        Method::DELETE => Some(DELETE),
        _ => None,
    }
}

/// `POST …/docs`.
pub(super) fn decode_create(container: ContainerRef, call: Call<'_>) -> Result<Meaning> {
    let body = parse_item(call.body.clone())?;
    let (verb, name) = if call.headers.flag(&names::IS_UPSERT) {
        (ItemVerb::Upsert { body }, UPSERT)
    } else {
        (ItemVerb::Create { body }, CREATE)
    };
    meaning(container, verb, name, call.headers)
}

/// `…/docs/{id}`.
pub(super) fn decode_point(container: ContainerRef, target: Selector, call: Call<'_>) -> Result<Meaning> {
    let item = match target {
        Selector::Name(id) => ItemSelector::Id(id),
        Selector::Rid(rid) => ItemSelector::Rid(rid),
    };
    let (verb, name) = match *call.method {
        Method::GET => (ItemVerb::Read { item }, "read_item"),
        Method::PUT => (
            ItemVerb::Replace {
                item,
                body: parse_item(call.body)?,
            },
            REPLACE,
        ),
        Method::PATCH => (
            ItemVerb::Patch {
                item,
                patch: Patch::parse(&parse(&call.body)?)?,
            },
            PATCH,
        ),
        Method::DELETE => (ItemVerb::Delete { item }, DELETE),
        _ => return Err(method_not_allowed(call.method)),
    };
    meaning(container, verb, name, call.headers)
}

fn meaning(container: ContainerRef, verb: ItemVerb, name: &'static str, headers: Headers<'_>) -> Result<Meaning> {
    let partition_key = headers.partition_key()?;
    if partition_key.is_none() && named_by_id(&verb) {
        return Err(missing_partition_key());
    }
    let (precondition, directive, form) = match verb {
        ItemVerb::Read { .. } => (
            headers.read_precondition()?,
            IndexingDirective::Default,
            ReplyForm::Resource,
        ),
        _ => {
            refuse_triggers(headers)?;
            (
                headers.write_precondition()?,
                headers.indexing_directive()?,
                ReplyForm::ItemWrite {
                    minimal: headers.prefers_minimal()?,
                },
            )
        }
    };
    let operation = Operation::Item(ItemOperation {
        container,
        partition_key,
        precondition,
        directive,
        verb,
    });
    Ok(Meaning { operation, form, name })
}

/// An id alone does not say where its item is.
fn named_by_id(verb: &ItemVerb) -> bool {
    match verb {
        ItemVerb::Create { .. } | ItemVerb::Upsert { .. } => false,
        ItemVerb::Read { item }
        | ItemVerb::Replace { item, .. }
        | ItemVerb::Patch { item, .. }
        | ItemVerb::Delete { item } => {
            matches!(item, ItemSelector::Id(_))
        }
    }
}

/// A trigger the client relies on must not be left out in silence.
fn refuse_triggers(headers: Headers<'_>) -> Result<()> {
    for name in [&names::PRE_TRIGGER_INCLUDE, &names::POST_TRIGGER_INCLUDE] {
        if let Some(triggers) = headers.text(name)? {
            let triggers: String = triggers.chars().take(100).collect();
            return Err(Error::bad_request(format!(
                "The trigger '{triggers}' cannot run: this server does not execute triggers."
            )));
        }
    }
    Ok(())
}

/// Parses an item from a whole request body.
pub(super) fn parse_item(body: Bytes) -> Result<ItemBody> {
    if body.first() == Some(&binary_json::PREAMBLE) {
        return item_of(decode_binary(&body)?);
    }
    // As it was sent: escapes and blanks count.
    if body.len() > ITEM_BYTES_MAX {
        return Err(item_too_large());
    }
    let parsed = json::parse(&body).map_err(malformed)?;
    validate(&parsed.value)?;
    Ok(ItemBody { text: body, parsed })
}

/// An item that has no text of its own: it came in binary or inside something larger.
pub(super) fn item_of(value: Value) -> Result<ItemBody> {
    validate(&value)?;
    if value.depth() > NESTING_LEVELS_MAX {
        return Err(Error::bad_request(
            "The request payload is invalid. Ensure to provide a valid request payload. It is nested too deeply.",
        ));
    }
    let text = value.to_text();
    if text.len() > ITEM_BYTES_MAX {
        return Err(item_too_large());
    }
    Ok(ItemBody {
        text: text.into(),
        parsed: Parsed { value, canonical: true },
    })
}

/// Parses any JSON body but an item's, in either encoding.
pub(super) fn parse(body: &[u8]) -> Result<Value> {
    match body.first() {
        Some(&binary_json::PREAMBLE) => decode_binary(body),
        _ => json::parse_envelope(body).map_err(malformed),
    }
}

fn decode_binary(body: &[u8]) -> Result<Value> {
    binary_json::decode(body).map_err(|error| {
        Error::bad_request(format!(
            "The request payload is invalid. Ensure to provide a valid request payload. It is not binary JSON: {error}."
        ))
    })
}

fn malformed(error: json::JsonError) -> Error {
    Error::bad_request(format!(
        "The request payload is invalid. Ensure to provide a valid request payload. It is not JSON: {error}."
    ))
}

fn validate(item: &Value) -> Result<()> {
    let Value::Object(members) = item else {
        return Err(Error::bad_request(
            "The request payload is invalid. Ensure to provide a valid request payload. An item must be a JSON object.",
        ));
    };
    match members.get("id") {
        Some(Value::String(id)) => validate_item_id(id),
        Some(_) => Err(Error::bad_request(
            "The input content is invalid because the property 'id' is not a string.",
        )),
        None => Err(Error::bad_request(
            "The input content is invalid because the required properties - 'id; ' - are missing",
        )),
    }
}

fn item_too_large() -> Error {
    Error::new(Status::TOO_LARGE, "Request size is too large")
}

#[cfg(test)]
mod tests;
