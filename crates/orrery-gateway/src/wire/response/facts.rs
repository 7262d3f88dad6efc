//! The headers that say what is true of an answer besides its content: cost, container, partition, progress.
//!
//! Most answers come from a physical partition and have the same headers with other values. Their map is copied from a
//! pattern, which spares the hashing of every name; the rest is put in one by one.

use std::fmt::Write as _;
use std::sync::LazyLock;

use bytes::BufMut as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use orrery_node::api::{ContainerFacts, Facts, PartitionFacts, Usage};

use super::values::{Values, put_number, put_time, put_visible};
use super::{N_HEADERS_USUAL, RequestMeta, diagnostics, general_headers, insert_versions};
use crate::wire::headers::names;
use crate::wire::request::ReplyForm;

/// All headers that follow from facts, and those of any answer.
pub(super) fn headers(meta: &RequestMeta, facts: &Facts) -> HeaderMap {
    let mut values = Values::new();
    let mut headers = match (&facts.container, &facts.partition) {
        (Some(container), Some(partition)) => of_partition(meta, facts, container, partition, &mut values),
        (container, _) => {
            let mut headers = general_headers(meta.activity_id);
            headers.insert(names::REQUEST_CHARGE, values.charge(facts.charge));
            if let Some(container) = container {
                let (path, rid) = owner(container, &meta.form, &mut values);
                headers.insert(names::ALT_CONTENT_PATH, path);
                headers.insert(names::CONTENT_PATH, rid);
            }
            headers
        }
    };
    insert_rare(&mut headers, facts, &meta.form, &mut values);
    headers
}

fn insert_rare(headers: &mut HeaderMap, facts: &Facts, form: &ReplyForm, values: &mut Values) {
    if let Some(head) = facts.head {
        headers.insert(names::HEAD_LSN, values.number(head.lsn.0));
        headers.insert(names::HEAD_TIME_MS, values.number(head.at_ms));
    }
    if let Some(percent) = facts.index_progress {
        headers.insert(names::INDEX_PROGRESS, values.number(percent.into()));
    }
    if let (Some(usage), ReplyForm::Container { quota: true }) = (facts.usage, form) {
        headers.insert(names::RESOURCE_QUOTA, HeaderValue::from_static(QUOTA));
        headers.insert(names::RESOURCE_USAGE, self::usage(usage, values));
    }
    diagnostics::insert(headers, facts, form);
    if let Some(units) = facts.min_throughput {
        headers.insert(names::MIN_THROUGHPUT, values.number(units.into()));
        // A change of throughput is in force as soon as it is answered.
        headers.insert(names::OFFER_REPLACE_PENDING, HeaderValue::from_static("false"));
    }
}

/// The headers whose values [`of_partition`] lists, in that order. Those of an item's LSN follow.
const OF_PARTITION: [HeaderName; N_OF_PARTITION] = [
    names::ACTIVITY_ID,
    names::REQUEST_CHARGE,
    names::ALT_CONTENT_PATH,
    names::CONTENT_PATH,
    names::PARTITION_RANGE_ID,
    names::INTERNAL_PARTITION_ID,
    names::LSN,
    names::LOCAL_LSN,
    names::QUORUM_ACKED_LSN,
    names::QUORUM_ACKED_LOCAL_LSN,
    names::SESSION_TOKEN,
    names::NUMBER_OF_READ_REGIONS,
    names::GLOBAL_COMMITTED_LSN,
    names::LAST_STATE_CHANGE,
];

const N_OF_PARTITION: usize = 14;

const OF_ITEM: [HeaderName; 2] = [names::ITEM_LSN, names::ITEM_LOCAL_LSN];

static PARTITION_PATTERN: LazyLock<HeaderMap> = LazyLock::new(|| pattern(OF_PARTITION));
static ITEM_PATTERN: LazyLock<HeaderMap> = LazyLock::new(|| pattern(OF_PARTITION.into_iter().chain(OF_ITEM)));

fn pattern(names: impl IntoIterator<Item = HeaderName>) -> HeaderMap {
    let mut pattern = HeaderMap::with_capacity(N_HEADERS_USUAL);
    for name in names {
        pattern.insert(name, HeaderValue::from_static(""));
    }
    insert_versions(&mut pattern);
    pattern
}

fn of_partition(
    meta: &RequestMeta,
    facts: &Facts,
    container: &ContainerFacts,
    partition: &PartitionFacts,
    values: &mut Values,
) -> HeaderMap {
    let (path, rid) = owner(container, &meta.form, values);
    let id = values.number(partition.partition.0.into());
    // What a partition answers is durable in its region, so all of these are one number.
    let lsn = values.number(partition.lsn.0);
    let all: [HeaderValue; N_OF_PARTITION] = [
        values.text(|out| out.put_slice(meta.activity_id.as_str().as_bytes())),
        values.charge(facts.charge),
        path,
        rid,
        id.clone(),
        id,
        lsn.clone(),
        lsn.clone(),
        lsn.clone(),
        lsn,
        session(partition, values),
        values.number(meta.n_read_regions as u64),
        committed(partition, values),
        values.text(|out| put_time(out, partition.since)),
    ];
    let item = partition.item_lsn.map(|lsn| values.number(lsn.0));
    let mut headers = match item {
        Some(_) => ITEM_PATTERN.clone(),
        None => PARTITION_PATTERN.clone(),
    };
    let of_item = item.into_iter().flat_map(|item| [item.clone(), item]);
    for (slot, value) in headers.values_mut().zip(all.into_iter().chain(of_item)) {
        *slot = value;
    }
    headers
}

fn committed(facts: &PartitionFacts, values: &mut Values) -> HeaderValue {
    match facts.committed {
        Some(lsn) => values.number(lsn.0),
        // What clients take for "not known".
        None => HeaderValue::from_static("-1"),
    }
}

fn session(facts: &PartitionFacts, values: &mut Values) -> HeaderValue {
    values.text(|out| {
        put_number(out, facts.partition.0.into());
        // Writing to memory does not fail; the version is 0 as a rule.
        let _ = match facts.session_version {
            0 => out.write_str(":0#"),
            version => write!(out, ":{version}#"),
        };
        put_number(out, facts.lsn.0);
    })
}

/// What a physical partition may hold, in KiB; the number of items is not limited.
const QUOTA: &str = "documentSize=52428800;documentsSize=52428800;documentsCount=-1;collectionSize=52428800;";

fn usage(usage: Usage, values: &mut Values) -> HeaderValue {
    let Usage { n_items, size_kib } = usage;
    let size_gib = size_kib / (1024 * 1024);
    values.text(|out| {
        let _ = write!(
            out,
            "documentSize={size_gib};documentsSize={size_kib};documentsCount={n_items};collectionSize={size_kib};"
        );
    })
}

/// The paths of what owns the answered resource, by names and by resource id: the container of items, the database of a
/// container. Java makes the container's own path out of the latter.
fn owner(container: &ContainerFacts, form: &ReplyForm, values: &mut Values) -> (HeaderValue, HeaderValue) {
    let is_container = matches!(form, ReplyForm::Container { .. });
    let path = values.text(|out| {
        out.put_slice(b"dbs/");
        put_visible(out, &container.database_name);
        if !is_container {
            out.put_slice(b"/colls/");
            put_visible(out, &container.name);
        }
    });
    let rid = values.text(|out| match is_container {
        true => {
            let _ = write!(out, "{}", container.rid.database_part());
        }
        false => out.put_slice(container.rid_text.as_bytes()),
    });
    (path, rid)
}
