//! Operations on databases, containers, users, permissions, offers and scripts. All kinds have the same verbs; a table
//! says which of them a kind lacks.

use http::Method;
use orrery_model::json::Value;
use orrery_model::offer::{Migration, Throughput};
use orrery_model::{Error, Result};
use orrery_node::api::{MetadataOperation, MetadataVerb, Operation, ResourceKind, Selector};

use super::headers::{Headers, names};
use super::path::Route;
use super::request::{Call, Meaning, ReplyForm, method_not_allowed, not_implemented};
use super::{item, query};

pub(super) fn decode(kind: ResourceKind, route: Route<'_>, call: Call<'_>) -> Result<Meaning> {
    let verb = match route.target {
        Some(target) => decode_point(kind, target, &call)?,
        None => decode_feed(kind, &call)?,
    };
    let name = name(kind, &verb);
    let form = match (&verb, kind) {
        (MetadataVerb::List { .. } | MetadataVerb::Query { .. }, _) => ReplyForm::Feed,
        (_, ResourceKind::Container) => ReplyForm::Container {
            quota: call.headers.flag(&names::POPULATE_QUOTA),
        },
        _ => ReplyForm::Resource,
    };
    let operation = Operation::Metadata(MetadataOperation {
        kind,
        path: route.ancestors,
        verb,
    });
    Ok(Meaning { operation, form, name })
}

fn decode_feed(kind: ResourceKind, call: &Call<'_>) -> Result<MetadataVerb> {
    let headers = call.headers;
    match *call.method {
        Method::GET => Ok(MetadataVerb::List { page: headers.page()? }),
        Method::POST if headers.is_query() => Ok(MetadataVerb::Query {
            query: query::parse_query(&call.body)?,
            page: headers.page()?,
        }),
        Method::POST if !matches!(kind, ResourceKind::Offer | ResourceKind::Conflict) => Ok(MetadataVerb::Create {
            body: resource(&call.body)?,
            upsert: upsert(kind, headers)?,
            throughput: throughput(kind, headers)?,
            precondition: headers.write_precondition()?,
        }),
        _ => Err(method_not_allowed(call.method)),
    }
}

fn decode_point(kind: ResourceKind, target: Selector, call: &Call<'_>) -> Result<MetadataVerb> {
    let headers = call.headers;
    match *call.method {
        Method::GET => Ok(MetadataVerb::Read {
            target,
            precondition: headers.read_precondition()?,
        }),
        // A database has nothing that could be replaced, and a conflict is as it was.
        Method::PUT if !matches!(kind, ResourceKind::Database | ResourceKind::Conflict) => Ok(MetadataVerb::Replace {
            target,
            body: resource(&call.body)?,
            precondition: headers.write_precondition()?,
            migration: if kind == ResourceKind::Offer {
                headers.migration()?
            } else {
                Migration::None
            },
        }),
        // Offers come and go with their resource.
        Method::DELETE if kind != ResourceKind::Offer => Ok(MetadataVerb::Delete {
            target,
            precondition: headers.write_precondition()?,
        }),
        Method::POST if kind == ResourceKind::StoredProcedure => Err(not_implemented(
            "This server keeps stored procedures but does not execute them.",
        )),
        _ => Err(method_not_allowed(call.method)),
    }
}

fn resource(body: &[u8]) -> Result<Value> {
    match item::parse(body)? {
        object @ Value::Object(_) => Ok(object),
        _ => Err(Error::bad_request(
            "The request payload is invalid. Ensure to provide a valid request payload. A resource must be a JSON object.",
        )),
    }
}

fn upsert(kind: ResourceKind, headers: Headers<'_>) -> Result<bool> {
    let upsert = headers.flag(&names::IS_UPSERT);
    match kind {
        ResourceKind::Database | ResourceKind::Container if upsert => {
            Err(Error::bad_request("Databases and containers cannot be upserted."))
        }
        _ => Ok(upsert),
    }
}

fn throughput(kind: ResourceKind, headers: Headers<'_>) -> Result<Option<Throughput>> {
    match kind {
        ResourceKind::Database | ResourceKind::Container => headers.throughput(),
        _ => Ok(None),
    }
}

fn name(kind: ResourceKind, verb: &MetadataVerb) -> &'static str {
    let names = names_of(kind);
    match verb {
        MetadataVerb::Create { .. } => names[0],
        MetadataVerb::Read { .. } => names[1],
        MetadataVerb::Replace { .. } => names[2],
        MetadataVerb::Delete { .. } => names[3],
        MetadataVerb::List { .. } => names[4],
        MetadataVerb::Query { .. } => names[5],
    }
}

/// The names of all operations on resources.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    const KINDS: [ResourceKind; 9] = [
        ResourceKind::Database,
        ResourceKind::Container,
        ResourceKind::User,
        ResourceKind::Permission,
        ResourceKind::Offer,
        ResourceKind::StoredProcedure,
        ResourceKind::Trigger,
        ResourceKind::Conflict,
        ResourceKind::UserDefinedFunction,
    ];
    KINDS.into_iter().flat_map(names_of)
}

/// Create, read, replace, delete, list, query.
fn names_of(kind: ResourceKind) -> [&'static str; 6] {
    macro_rules! names {
        ($one:literal, $all:literal) => {
            [
                concat!("create_", $one),
                concat!("read_", $one),
                concat!("replace_", $one),
                concat!("delete_", $one),
                concat!("list_", $all),
                concat!("query_", $all),
            ]
        };
    }
    match kind {
        ResourceKind::Database => names!("database", "databases"),
        ResourceKind::Container => names!("container", "containers"),
        ResourceKind::User => names!("user", "users"),
        ResourceKind::Permission => names!("permission", "permissions"),
        ResourceKind::Offer => names!("offer", "offers"),
        ResourceKind::StoredProcedure => names!("stored_procedure", "stored_procedures"),
        ResourceKind::Trigger => names!("trigger", "triggers"),
        ResourceKind::Conflict => names!("conflict", "conflicts"),
        ResourceKind::UserDefinedFunction => names!("user_defined_function", "user_defined_functions"),
    }
}

#[cfg(test)]
mod tests;
