//! Requests: a route, a head and a body become one operation, or an error that says what is wrong with them.

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use orrery_model::limits::REQUEST_BYTES_MAX;
use orrery_model::{Error, PartitionKey, Result, Status};
use orrery_node::api::{Consistency, ContainerRef, FeedMode, Operation, Options};

use super::headers::{Headers, names};
use super::path::{Route, RouteKind};
use super::{batch, change_feed, item, metadata, query};

/// A request that was understood.
#[derive(Clone, Debug)]
pub struct Decoded {
    pub operation: Operation,
    pub options: Options,
    /// How the answer should look.
    pub form: ReplyForm,
    /// Name of the operation in metrics and fault rules.
    pub name: &'static str,
}

/// What shapes an answer besides the reply itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplyForm {
    #[default]
    Resource,
    /// A container, with what it holds and may hold if the client asked for that.
    Container {
        quota: bool,
    },
    /// A written item, without its content if the client has no use for it.
    ItemWrite {
        minimal: bool,
    },
    /// For every step the node was asked for: leave the content out. Steps that made no sense are answered here, each at
    /// its place. In HybridRow if the request was.
    Batch {
        minimal: Vec<bool>,
        rejected: Vec<RejectedStep>,
        hybrid_row: bool,
    },
    Feed,
    /// Rows. How the indexes used are told, if the client asked, has two forms.
    Query {
        compact_index_use: bool,
    },
    Plan,
    /// Changes, each wrapped with its metadata if the client asked for that.
    ChangeFeed {
        enveloped: bool,
    },
    PartitionKeyDeletion,
}

/// A step of a batch that never reached the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedStep {
    /// Its place in the request.
    pub index: usize,
    pub status: Status,
}

/// What one request asks for: everything of [`Decoded`] that is particular to its kind.
#[derive(Debug)]
pub(super) struct Meaning {
    pub operation: Operation,
    pub form: ReplyForm,
    pub name: &'static str,
}

/// A request whose route has been taken apart.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub method: &'a Method,
    pub headers: Headers<'a>,
    pub body: Bytes,
}

/// Understands a request. `account` is the default consistency of the account, which a request may only weaken.
pub fn decode(
    route: Route<'_>,
    method: &Method,
    headers: Headers<'_>,
    body: Bytes,
    account: Consistency,
) -> Result<Decoded> {
    if body.len() > REQUEST_BYTES_MAX {
        return Err(Error::new(Status::TOO_LARGE, "Request size is too large"));
    }
    let call = Call { method, headers, body };
    let options = call.headers.options(account)?;
    let Meaning { operation, form, name } = meaning(route, call)?;
    Ok(Decoded {
        operation,
        options,
        form,
        name,
    })
}

fn meaning(route: Route<'_>, call: Call<'_>) -> Result<Meaning> {
    match route.kind {
        RouteKind::Account => Err(method_not_allowed(call.method)),
        RouteKind::Resource(kind) => metadata::decode(kind, route, call),
        RouteKind::Items => items(route, call),
        RouteKind::PartitionRanges => partition_ranges(route, call),
        RouteKind::PartitionKeyDeletion => partition_key_deletion(route, call),
        RouteKind::ClientEncryptionKeys => Err(not_implemented("Client encryption keys are not supported.")),
    }
}

/// Whether an operation has this name, in whatever case.
pub fn is_operation(name: &str) -> bool {
    const OTHERS: [&str; 15] = [
        "read_account",
        "create_item",
        "upsert_item",
        "read_item",
        "replace_item",
        "patch_item",
        "delete_item",
        "batch",
        "bulk",
        "query_items",
        "query_plan",
        "read_items",
        "change_feed",
        "read_partition_ranges",
        "delete_partition_key",
    ];
    let is_it = |known: &str| known.eq_ignore_ascii_case(name);
    OTHERS.into_iter().any(is_it) || metadata::names().any(is_it)
}

/// Could the request change anything? Judged by its head alone, for requests that are refused unread.
pub fn may_write(head: &Parts) -> bool {
    let headers = Headers::of(&head.headers);
    match head.method {
        Method::GET | Method::HEAD | Method::OPTIONS => false,
        Method::POST if headers.marked(&names::IS_QUERY_PLAN) => false,
        Method::POST => headers.marked(&names::IS_BATCH) || !headers.is_query(),
        _ => true,
    }
}

/// A write of one item, as far as its head says what it is about.
#[derive(Clone, Debug)]
pub struct ItemWrite {
    pub container: ContainerRef,
    pub key: PartitionKey,
    /// Name of the operation in metrics.
    pub name: &'static str,
}

/// The write of one item that a request is, judged by its head alone, which may not be well-formed otherwise. `None` for anything
/// else, also for a write whose head does not say to which partition key.
pub fn item_write(route: &Route<'_>, method: &Method, headers: Headers<'_>) -> Option<ItemWrite> {
    let (RouteKind::Items, [database, container]) = (route.kind, route.ancestors.as_slice()) else {
        return None;
    };
    let is_other = || headers.marked(&names::IS_QUERY_PLAN) || headers.marked(&names::IS_BATCH) || headers.is_query();
    let name = match (*method == Method::POST, route.target.is_some()) {
        (true, false) if is_other() => return None,
        (true, false) if headers.flag(&names::IS_UPSERT) => item::UPSERT,
        (true, false) => item::CREATE,
        (false, true) => item::point_write(method)?,
        _ => return None,
    };
    Some(ItemWrite {
        container: ContainerRef {
            database: database.clone(),
            container: container.clone(),
        },
        key: headers.partition_key().ok()??,
        name,
    })
}

fn items(route: Route<'_>, call: Call<'_>) -> Result<Meaning> {
    let (container, target) = route.into_container()?;
    match (target, call.method) {
        (Some(target), _) => item::decode_point(container, target, call),
        (None, &Method::GET) => match call.headers.feed_mode()? {
            Some(mode) => change_feed::decode(container, mode, call),
            None => query::decode_read_feed(container, call),
        },
        // First match wins: some clients mark plans and batches as queries as well.
        (None, &Method::POST) => {
            if call.headers.marked(&names::IS_QUERY_PLAN) {
                query::decode_plan(container, call)
            } else if call.headers.marked(&names::IS_BATCH) {
                batch::decode(container, call)
            } else if call.headers.is_query() {
                match call.headers.feed_mode()? {
                    None => query::decode_query(container, call),
                    Some(_) => Err(not_implemented("A query over the change feed is not supported.")),
                }
            } else {
                item::decode_create(container, call)
            }
        }
        (None, method) => Err(method_not_allowed(method)),
    }
}

fn partition_ranges(route: Route<'_>, call: Call<'_>) -> Result<Meaning> {
    let (container, target) = route.into_container()?;
    if call.method != Method::GET || target.is_some() {
        return Err(method_not_allowed(call.method));
    }
    if call.headers.feed_mode()? == Some(FeedMode::AllVersions) {
        return Err(Error::bad_request("Partition key ranges have no feed of all versions."));
    }
    let operation = Operation::PartitionRanges {
        container,
        since: call.headers.since()?,
    };
    Ok(Meaning {
        operation,
        form: ReplyForm::Feed,
        name: "read_partition_ranges",
    })
}

fn partition_key_deletion(route: Route<'_>, call: Call<'_>) -> Result<Meaning> {
    if call.method != Method::POST {
        return Err(method_not_allowed(call.method));
    }
    let (container, _) = route.into_container()?;
    let partition_key = call.headers.partition_key()?.ok_or_else(missing_partition_key)?;
    let operation = Operation::DeletePartitionKey {
        container,
        partition_key,
    };
    Ok(Meaning {
        operation,
        form: ReplyForm::PartitionKeyDeletion,
        name: "delete_partition_key",
    })
}

pub(super) fn method_not_allowed(method: &Method) -> Error {
    Error::new(
        Status::METHOD_NOT_ALLOWED,
        format!("The verb {method} is not allowed on this resource."),
    )
}

pub(super) fn not_implemented(message: &str) -> Error {
    Error::new(Status::NOT_IMPLEMENTED, message)
}

pub(super) fn missing_partition_key() -> Error {
    Error::bad_request("PartitionKey value must be supplied for this operation.")
}

#[cfg(test)]
mod tests;
