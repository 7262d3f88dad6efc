//! The change feed: its requests, and the envelope around each change that newer clients ask for.

use bytes::{BufMut, Bytes, BytesMut};
use orrery_model::json::{self, Number, Value};
use orrery_model::{Error, Result};
use orrery_node::api::{ContainerRef, Operation};

use super::headers::{FeedMode, names};
use super::request::{Call, Meaning, ReplyForm};

/// `GET …/docs` with `A-IM`.
pub(super) fn decode(container: ContainerRef, mode: FeedMode, call: Call<'_>) -> Result<Meaning> {
    if mode == FeedMode::AllVersions {
        return Err(Error::bad_request(
            "The change feed of all versions and deletes is not enabled for this container: this server keeps no history of \
             versions. Read the latest versions instead (A-IM: Incremental Feed).",
        ));
    }
    let operation = Operation::ChangeFeed {
        container,
        target: call.headers.feed_target()?,
        start: call.headers.feed_start()?,
        page: call.headers.page()?,
    };
    let enveloped = call.headers.text(&names::CHANGE_FEED_WIRE_FORMAT)?.is_some();
    Ok(Meaning {
        operation,
        form: ReplyForm::ChangeFeed { enveloped },
        name: "change_feed",
    })
}

/// Wraps an item as it comes out of the latest-version feed, with `_ts` and `_lsn`:
/// `{"current": item, "metadata": {"lsn", "crts"}}`.
pub(super) fn envelope(item: &Bytes) -> Bytes {
    let (ts, lsn) = numbers(item);
    let mut out = BytesMut::with_capacity(item.len() + 80);
    out.put_slice(b"{\"current\":");
    out.put_slice(item);
    out.put_slice(b",\"metadata\":{");
    let mut comma = false;
    for (name, number) in [("\"lsn\":", lsn), ("\"crts\":", ts)] {
        let Some(number) = number else { continue };
        if comma {
            out.put_u8(b',');
        }
        comma = true;
        out.put_slice(name.as_bytes());
        out.put_slice(number.to_string().as_bytes());
    }
    out.put_slice(b"}}");
    out.freeze()
}

/// `_ts` and `_lsn` of a change. The node appends them last, so they are usually read off the end of the text.
fn numbers(item: &[u8]) -> (Option<i64>, Option<i64>) {
    match numbers_at_end(item) {
        Some((ts, lsn)) => (Some(ts), Some(lsn)),
        None => {
            let item = json::parse_value(item).unwrap_or(Value::Null);
            let number = |name| item.get(name).and_then(Value::as_number).and_then(Number::as_i64);
            (number("_ts"), number("_lsn"))
        }
    }
}

fn numbers_at_end(item: &[u8]) -> Option<(i64, i64)> {
    let (rest, lsn) = last_member(item.strip_suffix(b"}")?, b",\"_lsn\":")?;
    let (_, ts) = last_member(rest, b",\"_ts\":")?;
    Some((ts, lsn))
}

/// Splits `…,"name":123` into what comes before and the number. Inside a string the quotes would be escaped, so a match
/// is a member.
fn last_member<'a>(text: &'a [u8], name: &[u8]) -> Option<(&'a [u8], i64)> {
    let n_digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, digits) = text.split_at(text.len() - n_digits);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((rest.strip_suffix(name)?, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enveloped(item: &'static str) -> String {
        String::from_utf8(envelope(&Bytes::from_static(item.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn an_enveloped_change_carries_its_position_and_time() {
        for item in [r#"{"id":"a","_ts":17,"_lsn":5}"#, r#"{"_lsn":5,"id":"a","_ts":17}"#] {
            assert_eq!(
                enveloped(item),
                format!(r#"{{"current":{item},"metadata":{{"lsn":5,"crts":17}}}}"#)
            );
        }
    }

    #[test]
    fn text_that_looks_like_a_position_is_not_taken_for_one() {
        let item = r#"{"_ts":17,"_lsn":5,"x":"\",\"_ts\":1,\"_lsn\":2"}"#;
        assert!(enveloped(item).ends_with(r#""metadata":{"lsn":5,"crts":17}}"#));
    }
}
