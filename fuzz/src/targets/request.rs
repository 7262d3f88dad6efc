//! Requests as bytes: path, headers and body, understood and executed on a node in memory.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Uri};
use orrery_gateway::auth::date;
use orrery_gateway::auth::header::Authorization;
use orrery_gateway::wire::headers::Headers;
use orrery_gateway::wire::{self, hybrid_row};
use orrery_node::api::{Consistency, MetadataVerb, Operation};

use super::account::served;

pub(super) const WORDS: &[&str] = &[
    "GET ",
    "POST ",
    "PUT ",
    "PATCH ",
    "DELETE ",
    "/dbs/db/colls/c/docs/0",
    "/pkranges",
    "/offers",
    "/users/u/permissions",
    "%2F",
    "%",
    "//",
    "?a=b",
    "\r\n",
    "\r\n\r\n",
    "x-ms-documentdb-partitionkey: [\"0\"]\r\n",
    "x-ms-documentdb-isquery: True\r\n",
    "x-ms-max-item-count: -1\r\n",
    "x-ms-continuation: ",
    "x-ms-session-token: 0:0#9,1:1#2\r\n",
    "x-ms-start-epk: 3F\r\n",
    "x-ms-end-epk: FF\r\n",
    "x-ms-documentdb-partitionkeyrangeid: 0\r\n",
    "a-im: Incremental feed\r\n",
    "if-none-match: *\r\n",
    "if-match: \"x\"\r\n",
    "x-ms-consistency-level: Strong\r\n",
    "x-ms-cosmos-is-batch-request: True\r\n",
    "x-ms-cosmos-batch-atomic: True\r\n",
    "x-ms-cosmos-is-query-plan-request: True\r\n",
    "x-ms-documentdb-is-upsert: True\r\n",
    "x-ms-offer-throughput: 400\r\n",
    "x-ms-cosmos-intended-collection-rid: AAAA\r\n",
    "if-modified-since: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
    "{\"query\":\"SELECT * FROM c\",\"parameters\":[]}",
    "{\"operations\":[{\"op\":\"incr\",\"path\":\"/n\",\"value\":1}]}",
    "\"ttl\":",
    "-1",
];

/// Headers a request has at most here; the server takes them from hyper, which has a limit of its own.
const HEADERS_MAX: usize = 64;

/// A request is refused, or executed and answered. Whatever happens, the answer can be encoded.
pub(super) fn request(bytes: &[u8]) {
    let mut storage = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut storage);
    let Ok(httparse::Status::Complete(length)) = parsed.parse(bytes) else {
        return;
    };
    let Some(head) = head(&parsed) else { return };
    credentials(&head);
    let Ok(route) = wire::route(&head.uri) else { return };
    let body = Bytes::copy_from_slice(&bytes[length..]);
    let Ok(decoded) = wire::decode(
        route,
        &head.method,
        Headers::of(&head.headers),
        body,
        Consistency::Session,
    ) else {
        return;
    };
    if !destroys(&decoded.operation) {
        let _ = served().execute(decoded);
    }
}

fn head(parsed: &httparse::Request<'_, '_>) -> Option<http::request::Parts> {
    let mut request = http::Request::new(());
    *request.method_mut() = Method::from_bytes(parsed.method?.as_bytes()).ok()?;
    *request.uri_mut() = parsed.path?.parse::<Uri>().ok()?;
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        request
            .headers_mut()
            .append(name, HeaderValue::from_bytes(header.value).ok()?);
    }
    Some(request.into_parts().0)
}

fn credentials(head: &http::request::Parts) {
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(authorization) = text("authorization") {
        let _ = Authorization::parse(authorization);
    }
    if let Some(date) = text("x-ms-date") {
        let _ = date::parse(date);
    }
}

/// The account must stay as small as it is and keep the container the corpus speaks of.
fn destroys(operation: &Operation) -> bool {
    match operation {
        Operation::Metadata(operation) => !matches!(
            operation.verb,
            MetadataVerb::Read { .. } | MetadataVerb::List { .. } | MetadataVerb::Query { .. }
        ),
        _ => false,
    }
}

/// A batch as the .NET client sends it: the bytes as a whole stream, and as one row in a stream whose checksums are right.
pub(super) fn hybrid_row(bytes: &[u8]) {
    let length = (bytes.len() as u32).to_le_bytes();
    let checksum = crc32fast::hash(bytes).to_le_bytes();
    let stream = [SEGMENT, RECORD, &length, &checksum, bytes].concat();
    for stream in [bytes.to_vec(), stream] {
        let _ = hybrid_row::decode(&Bytes::from(stream));
    }
}

/// Header of a segment without a comment, and the start of a record's header.
const SEGMENT: &[u8] = &[0x81, 0xF0, 0xD8, 0xFF, 0x7F, 0x01, 0x0A, 0, 0, 0];
const RECORD: &[u8] = &[0x81, 0xF1, 0xD8, 0xFF, 0x7F];
