//! Paths: which resource a request is about, and the resource type and link its signature covers.
//!
//! A path is split at `/` first and each segment is decoded once, so `%2F` inside a segment is data and `+` stays a plus.
//! Empty segments are skipped: some clients end every path with a slash, some start it with two. Either all ids of a path
//! are names or all are resource ids; the database's decides.

use std::borrow::Cow;

use http::Uri;
use orrery_model::name::looks_like_database_rid;
use orrery_model::{Error, ResourceId, Result, Status};
use orrery_node::api::{ContainerRef, ResourceKind, Selector};

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    Account,
    Resource(ResourceKind),
    Items,
    PartitionRanges,
    ClientEncryptionKeys,
    /// The deletion of everything under one partition key.
    PartitionKeyDeletion,
}

/// A path that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route<'a> {
    pub kind: RouteKind,
    /// From the outside in.
    pub ancestors: Vec<Selector>,
    /// Present when the path names one resource, absent when it names the feed of all.
    pub target: Option<Selector>,
    pub signed: SignedResource<'a>,
}

/// The part of the string to sign that comes from the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignedResource<'a> {
    pub resource_type: &'static str,
    /// A part of the path itself, as a rule.
    pub link: Cow<'a, str>,
}

/// Deepest path there is: three pairs of type and id.
const SEGMENTS_MAX: usize = 6;

/// Reads the path of a request. The query string takes no part.
pub fn route(uri: &Uri) -> Result<Route<'_>> {
    let path = uri.path().trim_matches('/');
    let segments = segments(path)?;
    let is = |index: usize, word: &str| segments.get(index).is_some_and(|segment| segment == word);
    if is(0, "addresses") {
        return Err(Error::bad_request(DIRECT_MODE));
    }
    if is(0, "operations") && is(1, "dtc") {
        return Err(Error::new(Status::NOT_IMPLEMENTED, DISTRIBUTED_TRANSACTION));
    }
    if is(4, "operations") && is(5, "partitionkeydelete") {
        return partition_key_deletion(path, &segments[..4]);
    }
    resource(path, &segments)
}

const DIRECT_MODE: &str = "This server has no replica addresses to give: it is reached through its gateway only. Configure the \
     client for gateway mode (ConnectionMode.Gateway in .NET, gatewayMode() in Java).";
const DISTRIBUTED_TRANSACTION: &str = "Transactions across partitions are not supported. Use a transactional batch.";

impl Route<'_> {
    /// The container around items, ranges and scripts, and what the path names in it.
    pub(super) fn into_container(self) -> Result<(ContainerRef, Option<Selector>)> {
        let mut ancestors = self.ancestors.into_iter();
        match (ancestors.next(), ancestors.next()) {
            (Some(database), Some(container)) => Ok((ContainerRef { database, container }, self.target)),
            _ => Err(unknown()),
        }
    }
}

fn resource<'a>(path: &'a str, segments: &[Cow<'_, str>]) -> Result<Route<'a>> {
    let mut kind = RouteKind::Account;
    let mut selectors = Vec::with_capacity(SEGMENTS_MAX / 2);
    let mut by_rid = false;
    for pair in segments.chunks(2) {
        kind = child(kind, &pair[0]).ok_or_else(unknown)?;
        let Some(id) = pair.get(1) else { break };
        if kind == RouteKind::Resource(ResourceKind::Database) {
            by_rid = looks_like_database_rid(id);
        }
        let selector = match kind {
            RouteKind::Resource(ResourceKind::Offer) => offer(id),
            _ if by_rid => Selector::Rid(child_rid(selectors.last(), id)?),
            _ => Selector::Name(id.as_ref().to_owned()),
        };
        selectors.push(selector);
    }
    let is_point = segments.len().is_multiple_of(2) && !segments.is_empty();
    let signed = SignedResource {
        resource_type: resource_type(kind),
        link: link(kind, path, segments, by_rid),
    };
    let target = if is_point { selectors.pop() } else { None };
    Ok(Route {
        kind,
        ancestors: selectors,
        target,
        signed,
    })
}

fn partition_key_deletion<'a>(path: &'a str, container: &[Cow<'_, str>]) -> Result<Route<'a>> {
    let container = resource(path, container)?;
    if container.kind != RouteKind::Resource(ResourceKind::Container) {
        return Err(unknown());
    }
    let mut ancestors = container.ancestors;
    ancestors.extend(container.target);
    // Clients sign the container, not the operation.
    Ok(Route {
        kind: RouteKind::PartitionKeyDeletion,
        ancestors,
        target: None,
        signed: container.signed,
    })
}

fn unknown() -> Error {
    Error::new(
        Status::NOT_FOUND,
        "The requested resource is not available: the path names no resource of this API.",
    )
}

fn child(parent: RouteKind, segment: &str) -> Option<RouteKind> {
    use ResourceKind::{
        Conflict, Container, Database, Offer, Permission, StoredProcedure, Trigger, User, UserDefinedFunction,
    };
    Some(match (parent, segment) {
        (RouteKind::Account, "dbs") => RouteKind::Resource(Database),
        (RouteKind::Account, "offers") => RouteKind::Resource(Offer),
        (RouteKind::Resource(Database), "colls") => RouteKind::Resource(Container),
        (RouteKind::Resource(Database), "users") => RouteKind::Resource(User),
        (RouteKind::Resource(Database), "clientencryptionkeys") => RouteKind::ClientEncryptionKeys,
        (RouteKind::Resource(User), "permissions") => RouteKind::Resource(Permission),
        (RouteKind::Resource(Container), "docs") => RouteKind::Items,
        (RouteKind::Resource(Container), "pkranges") => RouteKind::PartitionRanges,
        (RouteKind::Resource(Container), "conflicts") => RouteKind::Resource(Conflict),
        (RouteKind::Resource(Container), "sprocs") => RouteKind::Resource(StoredProcedure),
        (RouteKind::Resource(Container), "triggers") => RouteKind::Resource(Trigger),
        (RouteKind::Resource(Container), "udfs") => RouteKind::Resource(UserDefinedFunction),
        _ => return None,
    })
}

fn resource_type(kind: RouteKind) -> &'static str {
    match kind {
        RouteKind::Account => "",
        RouteKind::Resource(ResourceKind::Database) => "dbs",
        RouteKind::Resource(ResourceKind::Container) | RouteKind::PartitionKeyDeletion => "colls",
        RouteKind::Resource(ResourceKind::User) => "users",
        RouteKind::Resource(ResourceKind::Permission) => "permissions",
        RouteKind::Resource(ResourceKind::Offer) => "offers",
        RouteKind::Resource(ResourceKind::StoredProcedure) => "sprocs",
        RouteKind::Resource(ResourceKind::Trigger) => "triggers",
        RouteKind::Resource(ResourceKind::UserDefinedFunction) => "udfs",
        RouteKind::Items => "docs",
        RouteKind::PartitionRanges => "pkranges",
        RouteKind::Resource(ResourceKind::Conflict) => "conflicts",
        RouteKind::ClientEncryptionKeys => "clientencryptionkeys",
    }
}

/// The link of the target, or of the parent of a feed. Names keep their case; of a path of resource ids only the last
/// one is signed, in lower case.
fn link<'a>(kind: RouteKind, path: &'a str, segments: &[Cow<'_, str>], by_rid: bool) -> Cow<'a, str> {
    let whole_pairs = &segments[..segments.len() / 2 * 2];
    let last_alone = by_rid || kind == RouteKind::Resource(ResourceKind::Offer);
    match whole_pairs.last() {
        Some(id) if last_alone => Cow::Owned(id.to_ascii_lowercase()),
        _ => joined(path, whole_pairs),
    }
}

/// The first segments of a path with one slash between them. Not copied where the path itself has it so: nothing was decoded,
/// and no slash is followed by another.
fn joined<'a>(path: &'a str, segments: &[Cow<'_, str>]) -> Cow<'a, str> {
    let mut end = 0;
    for segment in segments {
        let is_as_sent = matches!(segment, Cow::Borrowed(_)) && path[end..].starts_with(&**segment);
        if !is_as_sent {
            return Cow::Owned(segments.join("/"));
        }
        end += segment.len() + 1;
    }
    Cow::Borrowed(path.get(..end.saturating_sub(1)).unwrap_or_default())
}

fn offer(id: &str) -> Selector {
    ResourceId::parse(id).map_or_else(|| Selector::Name(id.to_owned()), Selector::Rid)
}

/// Reads the resource id of a child, which begins with its parent's.
fn child_rid(parent: Option<&Selector>, text: &str) -> Result<ResourceId> {
    let parent: &[u8] = match parent {
        Some(Selector::Rid(rid)) => rid.as_bytes(),
        _ => &[],
    };
    let length = if parent.len() < 8 { parent.len() + 4 } else { 16 };
    ResourceId::parse(text)
        .filter(|rid| rid.as_bytes().len() == length && rid.as_bytes().starts_with(parent))
        .ok_or_else(|| {
            Error::bad_request("The path mixes names and resource ids, or its resource ids do not belong together.")
        })
}

fn segments(path: &str) -> Result<Vec<Cow<'_, str>>> {
    let mut segments = Vec::with_capacity(SEGMENTS_MAX);
    let is_plain = memchr::memchr(b'%', path.as_bytes()).is_none();
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        if segments.len() == SEGMENTS_MAX {
            return Err(unknown());
        }
        segments.push(match is_plain {
            true => Cow::Borrowed(segment),
            false => decode_segment(segment)?,
        });
    }
    Ok(segments)
}

/// Undoes percent-encoding. A `%` that starts no escape stands for itself, as clients that forgot to escape it mean it.
fn decode_segment(segment: &str) -> Result<Cow<'_, str>> {
    if !segment.contains('%') {
        return Ok(Cow::Borrowed(segment));
    }
    let bytes = segment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = if byte == b'%' { escape(&bytes[at + 1..]) } else { None };
        decoded.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded)
        .map(Cow::Owned)
        .map_err(|_| Error::bad_request("The path is not UTF-8 once its escapes are undone."))
}

fn escape(digits: &[u8]) -> Option<u8> {
    let digit = |index: usize| digits.get(index).and_then(|&digit| (digit as char).to_digit(16));
    Some((digit(0)? << 4 | digit(1)?) as u8)
}

#[cfg(test)]
mod tests;
