//! The envelope of feeds: `{"_rid": parent, "Documents": […], "_count": n}`.

use bytes::{BufMut, Bytes, BytesMut};
use orrery_node::api::{Feed, FeedOf, ResourceKind};

/// Puts a page into its envelope. Entries are copied, never parsed.
pub(super) fn envelope(feed: &Feed) -> Bytes {
    let n_bytes: usize = feed.entries.iter().map(|entry| entry.len() + 1).sum();
    let mut out = BytesMut::with_capacity(n_bytes + 96);
    out.put_slice(b"{\"_rid\":\"");
    if let Some(parent) = &feed.parent {
        out.put_slice(parent.to_string().as_bytes());
    }
    out.put_slice(b"\",\"");
    out.put_slice(name(feed.of).as_bytes());
    out.put_slice(b"\":[");
    for (index, entry) in feed.entries.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        out.put_slice(entry);
    }
    out.put_slice(b"],\"_count\":");
    out.put_slice(feed.entries.len().to_string().as_bytes());
    out.put_u8(b'}');
    out.freeze()
}

fn name(of: FeedOf) -> &'static str {
    match of {
        FeedOf::Items => "Documents",
        FeedOf::PartitionRanges => "PartitionKeyRanges",
        FeedOf::Resources(kind) => match kind {
            ResourceKind::Database => "Databases",
            ResourceKind::Container => "DocumentCollections",
            ResourceKind::User => "Users",
            ResourceKind::Permission => "Permissions",
            ResourceKind::Offer => "Offers",
            ResourceKind::StoredProcedure => "StoredProcedures",
            ResourceKind::Trigger => "Triggers",
            ResourceKind::Conflict => "Conflicts",
            ResourceKind::UserDefinedFunction => "UserDefinedFunctions",
        },
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::ResourceId;

    use super::*;

    fn page(of: FeedOf, parent: Option<&str>, entries: &[&'static str]) -> String {
        let parent = parent.map(|rid| ResourceId::parse(rid).unwrap());
        let entries = entries
            .iter()
            .map(|entry| Bytes::from_static(entry.as_bytes()))
            .collect();
        let feed = Feed {
            of,
            parent,
            entries,
            continuation: None,
            etag: None,
        };
        String::from_utf8(envelope(&feed).to_vec()).unwrap()
    }

    #[test]
    fn a_page_names_its_parent_its_entries_and_their_number() {
        assert_eq!(
            page(FeedOf::Items, Some("Lx1BALxJyZ8="), &[r#"{"id":"a"}"#, "5"]),
            r#"{"_rid":"Lx1BALxJyZ8=","Documents":[{"id":"a"},5],"_count":2}"#
        );
        assert_eq!(
            page(FeedOf::Resources(ResourceKind::Database), None, &[]),
            r#"{"_rid":"","Databases":[],"_count":0}"#
        );
    }
}
