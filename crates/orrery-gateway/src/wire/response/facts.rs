//! The headers that say what is true of an answer besides its content: cost, container, partition, progress.

use std::fmt::Write as _;

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderValue};
use orrery_model::{Charge, Lsn, ResourceId};
use orrery_node::api::{ContainerFacts, Facts, PartitionFacts, Usage};

use super::{diagnostics, header_text};
use crate::wire::headers::names;
use crate::wire::request::ReplyForm;

pub(super) fn insert(headers: &mut HeaderMap, facts: &Facts, form: &ReplyForm) {
    headers.insert(names::REQUEST_CHARGE, charge(facts.charge));
    if let Some(container) = &facts.container {
        insert_owner(headers, container, form);
    }
    if let Some(partition) = &facts.partition {
        insert_partition(headers, partition);
    }
    if let Some(head) = facts.head {
        headers.insert(names::HEAD_LSN, lsn(head.lsn));
        headers.insert(names::HEAD_TIME_MS, HeaderValue::from(head.at_ms));
    }
    if let Some(percent) = facts.index_progress {
        headers.insert(names::INDEX_PROGRESS, HeaderValue::from(u16::from(percent)));
    }
    if let (Some(usage), ReplyForm::Container { quota: true }) = (facts.usage, form) {
        headers.insert(names::RESOURCE_QUOTA, HeaderValue::from_static(QUOTA));
        insert_usage(headers, usage);
    }
    diagnostics::insert(headers, facts, form);
    if let Some(units) = facts.min_throughput {
        headers.insert(names::MIN_THROUGHPUT, HeaderValue::from(units));
        // A change of throughput is in force as soon as it is answered.
        headers.insert(names::OFFER_REPLACE_PENDING, HeaderValue::from_static("false"));
    }
}

/// What a physical partition may hold, in KiB; the number of items is not limited.
const QUOTA: &str = "documentSize=52428800;documentsSize=52428800;documentsCount=-1;collectionSize=52428800;";

fn insert_usage(headers: &mut HeaderMap, usage: Usage) {
    let Usage { n_items, size_kib } = usage;
    let size_gib = size_kib / (1024 * 1024);
    let mut text = BytesMut::with_capacity(96);
    let written = write!(
        text,
        "documentSize={size_gib};documentsSize={size_kib};documentsCount={n_items};collectionSize={size_kib};"
    );
    if let (Ok(()), Some(value)) = (written, header_text(text)) {
        headers.insert(names::RESOURCE_USAGE, value);
    }
}

/// The paths of what owns the answered resource: the container of items, the database of a container. Java makes the
/// container's own path out of the latter.
fn insert_owner(headers: &mut HeaderMap, container: &ContainerFacts, form: &ReplyForm) {
    const DATABASE_RID_BYTES: usize = 4;
    let is_container = matches!(form, ReplyForm::Container { .. });
    let mut path = BytesMut::with_capacity(container.database_name.len() + container.name.len() + 16);
    path.put_slice(b"dbs/");
    put_visible(&mut path, &container.database_name);
    if !is_container {
        path.put_slice(b"/colls/");
        put_visible(&mut path, &container.name);
    }
    if let Some(value) = header_text(path) {
        headers.insert(names::ALT_CONTENT_PATH, value);
    }
    let rid = match container.rid.as_bytes().get(..DATABASE_RID_BYTES) {
        Some(database) if is_container => ResourceId::from_bytes(database).to_string(),
        _ => container.rid.to_string(),
    };
    if let Ok(value) = HeaderValue::try_from(rid) {
        headers.insert(names::CONTENT_PATH, value);
    }
}

/// Copies text, with escapes for what a header cannot hold.
fn put_visible(out: &mut BytesMut, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' => out.put_u8(byte),
            _ => out.put_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
        }
    }
}

fn insert_partition(headers: &mut HeaderMap, facts: &PartitionFacts) {
    let id = HeaderValue::from(facts.partition.0);
    headers.insert(names::PARTITION_RANGE_ID, id.clone());
    headers.insert(names::INTERNAL_PARTITION_ID, id);
    let lsn = lsn(facts.lsn);
    // What a partition answers is durable in its region, so all of these are one number.
    for name in [
        names::LSN,
        names::LOCAL_LSN,
        names::QUORUM_ACKED_LSN,
        names::QUORUM_ACKED_LOCAL_LSN,
    ] {
        headers.insert(name, lsn.clone());
    }
    if let Some(item) = facts.item_lsn {
        let item = self::lsn(item);
        headers.insert(names::ITEM_LSN, item.clone());
        headers.insert(names::ITEM_LOCAL_LSN, item);
    }
    insert_session(headers, facts);
}

/// An empty token is worse than none: clients fail to parse it.
fn insert_session(headers: &mut HeaderMap, facts: &PartitionFacts) {
    if facts.session.is_empty() {
        return;
    }
    let mut text = BytesMut::with_capacity(32);
    let written = write!(text, "{}", facts.session);
    if let (Ok(()), Some(value)) = (written, header_text(text)) {
        headers.insert(names::SESSION_TOKEN, value);
    }
}

fn lsn(lsn: Lsn) -> HeaderValue {
    HeaderValue::from(lsn.0)
}

/// Most charges are whole; those print without a detour.
fn charge(charge: Charge) -> HeaderValue {
    let hundredths = charge.as_hundredths();
    if hundredths.is_multiple_of(100) {
        return HeaderValue::from(hundredths / 100);
    }
    let mut text = BytesMut::with_capacity(16);
    let written = write!(text, "{charge}");
    written
        .ok()
        .and_then(|()| header_text(text))
        .unwrap_or_else(|| HeaderValue::from(hundredths / 100))
}
