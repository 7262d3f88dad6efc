//! The change feed: its requests, and the two ways in which a page shows its changes.
//!
//! Bare, a change is the item with `_lsn` at its end; enveloped, it is `{"current", "previous", "metadata"}`, which newer
//! clients ask for and which alone can tell of a delete without its item. Item texts are copied, never parsed.

use bytes::{BufMut, Bytes, BytesMut};
use orrery_model::Result;
use orrery_model::json;
use orrery_node::api::{Change, ChangeFeedRead, ChangeKind, ChangeVersion, Changes, ContainerRef, FeedMode, Operation};

use super::headers::names;
use super::request::{Call, Meaning, ReplyForm};

/// `GET …/docs` with `A-IM`.
pub(super) fn decode(container: ContainerRef, mode: FeedMode, call: Call<'_>) -> Result<Meaning> {
    let headers = &call.headers;
    let read = ChangeFeedRead {
        container,
        target: headers.feed_target()?,
        mode,
        start: headers.feed_start()?,
        newer_than: headers.feed_newer_than()?,
        n_items_max: headers.page()?.n_items_max,
        filter: headers.text(&names::FEED_FILTER)?.map(str::to_owned),
        wait_ms: headers.feed_wait_ms()?,
        from_history: headers.feed_from_history()?,
        facts_only: headers.checked_flag(&names::FEED_FACTS_ONLY)?,
        committed_only: headers.checked_flag(&names::FEED_COMMITTED)?,
        lasting_tag: false,
    };
    let enveloped = headers.text(&names::CHANGE_FEED_WIRE_FORMAT)?.is_some();
    Ok(Meaning {
        operation: Operation::ChangeFeed(read),
        form: ReplyForm::ChangeFeed { enveloped },
        name: "change_feed",
    })
}

/// `{"_rid": container, "Documents": […], "_count": n}`.
pub(super) fn page(page: &Changes, enveloped: bool) -> Bytes {
    const AROUND_BYTES: usize = 256;
    let n_bytes: usize = page.changes.iter().map(|change| size(change) + AROUND_BYTES).sum();
    let mut out = BytesMut::with_capacity(n_bytes + AROUND_BYTES);
    out.put_slice(b"{\"_rid\":\"");
    out.put_slice(page.container.to_string().as_bytes());
    out.put_slice(b"\",\"Documents\":[");
    for (index, change) in page.changes.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        if enveloped {
            put_envelope(&mut out, change);
        } else {
            put_bare(&mut out, change);
        }
    }
    out.put_slice(b"],\"_count\":");
    put_number(&mut out, page.changes.len() as u64);
    out.put_u8(b'}');
    out.freeze()
}

fn size(change: &Change) -> usize {
    change.current.len() + change.version.as_ref().map_or(0, |version| version.previous.len())
}

/// A change with its metadata around it, as server-sent events carry it.
pub(crate) fn envelope(change: &Change) -> Bytes {
    let mut out = BytesMut::with_capacity(size(change) + 256);
    put_envelope(&mut out, change);
    out.freeze()
}

fn put_envelope(out: &mut BytesMut, change: &Change) {
    out.put_slice(b"{\"current\":");
    match &change.version {
        None => put_with_lsn(out, &change.current, change),
        Some(version) if version.kind == ChangeKind::Delete => out.put_slice(b"{}"),
        Some(_) if change.current.is_empty() => out.put_slice(b"{}"),
        Some(_) => out.put_slice(&change.current),
    }
    if let Some(version) = change.version.as_ref().filter(|version| !version.previous.is_empty()) {
        out.put_slice(b",\"previous\":");
        out.put_slice(&version.previous);
    }
    out.put_slice(b",\"metadata\":");
    put_metadata(out, change);
    out.put_u8(b'}');
}

/// All versions without an envelope: the item, or what it last was, with its metadata as a member.
fn put_bare(out: &mut BytesMut, change: &Change) {
    let Some(version) = &change.version else {
        return put_with_lsn(out, &change.current, change);
    };
    let item = if version.kind == ChangeKind::Delete {
        &version.previous
    } else {
        &change.current
    };
    put_lsn(out, item, change);
    out.put_slice(b",\"_metadata\":");
    put_metadata(out, change);
    out.put_u8(b'}');
}

/// The item with its position.
fn put_with_lsn(out: &mut BytesMut, item: &[u8], change: &Change) {
    put_lsn(out, item, change);
    out.put_u8(b'}');
}

/// The same, still open at its end.
fn put_lsn(out: &mut BytesMut, item: &[u8], change: &Change) {
    match item.strip_suffix(b"}") {
        // Stored items end with their system properties, so there is a member before.
        Some(members) if members.len() > 1 => {
            out.put_slice(members);
            out.put_u8(b',');
        }
        // The item was left out.
        _ => out.put_u8(b'{'),
    }
    out.put_slice(b"\"_lsn\":");
    put_number(out, change.lsn.0);
}

fn put_metadata(out: &mut BytesMut, change: &Change) {
    out.put_slice(b"{\"lsn\":");
    put_number(out, change.lsn.0);
    out.put_slice(b",\"crts\":");
    put_number(out, change.at);
    if let Some(version) = &change.version {
        put_version(out, version);
    }
    out.put_u8(b'}');
}

fn put_version(out: &mut BytesMut, version: &ChangeVersion) {
    out.put_slice(b",\"operationType\":\"");
    out.put_slice(match version.kind {
        ChangeKind::Create => b"create",
        ChangeKind::Replace => b"replace",
        ChangeKind::Delete => b"delete",
    });
    out.put_slice(b"\",\"previousImageLSN\":");
    put_number(out, version.previous_lsn.0);
    if let Some((id, key)) = &version.deleted {
        out.put_slice(b",\"timeToLiveExpired\":");
        out.put_slice(if version.expired { b"true" } else { b"false" });
        out.put_slice(b",\"id\":");
        let mut text = Vec::new();
        json::print_string(id, &mut text);
        text.extend_from_slice(b",\"partitionKey\":");
        json::print(key, &mut text);
        out.put_slice(&text);
    }
}

fn put_number(out: &mut BytesMut, number: u64) {
    out.put_slice(number.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use orrery_model::Lsn;
    use orrery_model::json::parse_value;

    use super::*;

    fn delete() -> Change {
        Change {
            lsn: Lsn(9),
            at: 17,
            current: Bytes::new(),
            version: Some(ChangeVersion {
                kind: ChangeKind::Delete,
                expired: true,
                previous: Bytes::from_static(br#"{"id":"a","_ts":1}"#),
                previous_lsn: Lsn(4),
                deleted: Some(("a".to_owned(), parse_value(br#"{"tenant":"t","user":7}"#).unwrap())),
            }),
        }
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_delete_has_an_empty_item_and_says_what_is_gone() {
        assert_eq!(
            text(&envelope(&delete())),
            concat!(
                r#"{"current":{},"previous":{"id":"a","_ts":1},"metadata":{"lsn":9,"crts":17,"operationType":"delete","#,
                r#""previousImageLSN":4,"timeToLiveExpired":true,"id":"a","partitionKey":{"tenant":"t","user":7}}}"#
            )
        );
    }

    #[test]
    fn a_create_has_no_item_before_it() {
        let mut create = delete();
        create.current = Bytes::from_static(br#"{"id":"a","_ts":17}"#);
        create.version = Some(ChangeVersion {
            kind: ChangeKind::Create,
            expired: false,
            previous: Bytes::new(),
            previous_lsn: Lsn(0),
            deleted: None,
        });
        let metadata = r#"{"lsn":9,"crts":17,"operationType":"create","previousImageLSN":0}"#;
        assert_eq!(
            text(&envelope(&create)),
            format!(r#"{{"current":{{"id":"a","_ts":17}},"metadata":{metadata}}}"#)
        );
        let mut bare = BytesMut::new();
        put_bare(&mut bare, &create);
        assert_eq!(
            text(&bare),
            format!(r#"{{"id":"a","_ts":17,"_lsn":9,"_metadata":{metadata}}}"#)
        );
    }
}
