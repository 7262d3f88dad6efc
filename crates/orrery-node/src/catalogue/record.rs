//! Records of the system log: small JSON objects under text keys, so that a person can read them.

use std::str;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use orrery_model::id::ChainHash;
use orrery_model::json::{self, Number, Object, Value};
use orrery_model::offer::Throughput;
use orrery_model::{
    Epk, EpkRange, Epoch, Error, Etag, LogId, Lsn, PartitionId, Position, ResourceId, Result, Status, Timestamp,
};

use crate::account::{AccountKeys, Secret};
use crate::api::ResourceKind;

/// One record: what it is about, and what it says now; `None` when it is gone.
#[derive(Clone, Debug)]
pub enum Record {
    Account(AccountKeys),
    Counters(Counters),
    Resource(ResourceId, Option<ResourceRecord>),
    Offer(ResourceId, Option<OfferRecord>),
    Partition(ResourceId, PartitionId, Option<PartitionRecord>),
    /// Named by the container and the first child.
    Reshard(ResourceId, PartitionId, Option<ReshardRecord>),
    Snapshot(String, Option<SnapshotRecord>),
}

/// How many of each have ever existed, so that ids are never given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub databases: u64,
    pub containers: u64,
    pub users: u64,
    pub others: u64,
    pub offers: u64,
    pub logs: u64,
    /// Snapshots restored: each starts LSNs anew above all earlier ones.
    pub restores: u64,
    pub sequence: u64,
}

impl Counters {
    /// Past everything that a region may have made in the moment before it was lost. There is room for thousands of such losses in the
    /// narrowest of these numbers, an offer's 24 bits.
    pub fn beyond_unknown(self) -> Counters {
        const OFFERS: u64 = 1 << 12;
        const RESOURCES: u64 = 1 << 16;
        const OTHERS: u64 = 1 << 24;
        Counters {
            databases: self.databases + RESOURCES,
            containers: self.containers + RESOURCES,
            users: self.users + RESOURCES,
            others: self.others + OTHERS,
            offers: self.offers + OFFERS,
            logs: self.logs + OTHERS,
            restores: self.restores,
            sequence: self.sequence + OTHERS,
        }
    }
}

/// A database, container, user, permission or script.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceRecord {
    pub kind: ResourceKind,
    pub parent: Option<ResourceId>,
    pub name: String,
    pub etag: Etag,
    pub ts: Timestamp,
    /// Order of creation.
    pub sequence: u64,
    /// What the client sent, checked: the fields besides system properties. JSON text.
    pub definition: Bytes,
    /// Rises with every replace.
    pub version: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OfferRecord {
    pub target: ResourceId,
    pub target_self: String,
    pub throughput: Throughput,
    pub etag: Etag,
    pub ts: Timestamp,
    pub sequence: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PartitionRecord {
    pub range: EpkRange,
    pub log: LogId,
    pub parents: Vec<PartitionId>,
    pub since: Lsn,
}

/// A split or merge that has begun and is not done.
#[derive(Clone, Debug, PartialEq)]
pub struct ReshardRecord {
    pub parents: Vec<PartitionId>,
    pub children: Vec<(PartitionId, LogId, EpkRange)>,
}

/// A saved state of the account.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotRecord {
    pub saved_at: Timestamp,
    pub n_items: u64,
    /// The records of resources and offers as they were: key and value.
    pub records: Vec<(String, Bytes)>,
    pub partitions: Vec<SavedPartition>,
}

/// Where a saved partition's view lies.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedPartition {
    pub container: ResourceId,
    pub partition: PartitionId,
    pub record: PartitionRecord,
    /// The log that holds the copy.
    pub copy: LogId,
    pub position: Position,
}

impl Record {
    pub fn key(&self) -> String {
        match self {
            Record::Account(_) => "account".to_owned(),
            Record::Counters(_) => "counters".to_owned(),
            Record::Resource(rid, _) => format!("resource/{rid}"),
            Record::Offer(rid, _) => format!("offer/{rid}"),
            Record::Partition(container, partition, _) => format!("partition/{container}/{partition}"),
            Record::Reshard(container, child, _) => format!("reshard/{container}/{child}"),
            Record::Snapshot(name, _) => format!("snapshot/{name}"),
        }
    }

    pub fn value(&self) -> Option<Bytes> {
        let object = match self {
            Record::Account(keys) => Some(account_object(keys)),
            Record::Counters(counters) => Some(counters_object(counters)),
            Record::Resource(_, record) => record.as_ref().map(resource_object),
            Record::Offer(_, record) => record.as_ref().map(offer_object),
            Record::Partition(_, _, record) => record.as_ref().map(partition_object),
            Record::Reshard(_, _, record) => record.as_ref().map(reshard_object),
            Record::Snapshot(_, record) => record.as_ref().map(snapshot_object),
        };
        object.map(|object| {
            let mut text = Vec::new();
            json::print(&Value::Object(object), &mut text);
            Bytes::from(text)
        })
    }

    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Record> {
        decode(key, value).ok_or_else(|| {
            let key = String::from_utf8_lossy(key);
            Error::new(Status::INTERNAL, format!("the catalogue record '{key}' is malformed"))
        })
    }
}

fn decode(key: &[u8], value: Option<&[u8]>) -> Option<Record> {
    let key = str::from_utf8(key).ok()?;
    let value = match value {
        Some(text) => Some(Fields(json::parse_value(text).ok()?)),
        None => None,
    };
    let mut parts = key.splitn(3, '/');
    let (space, first, second) = (parts.next()?, parts.next(), parts.next());
    let rid = || ResourceId::parse(first?);
    let partition = || second?.parse().ok().map(PartitionId);
    /// A record that is gone stays gone; one that is there must be readable.
    fn read<T>(value: Option<Fields>, read: impl FnOnce(&Fields) -> Option<T>) -> Option<Option<T>> {
        match value {
            Some(fields) => read(&fields).map(Some),
            None => Some(None),
        }
    }
    Some(match space {
        "account" => Record::Account(read_account(&value?)?),
        "counters" => Record::Counters(read_counters(&value?)?),
        "resource" => Record::Resource(rid()?, read(value, read_resource)?),
        "offer" => Record::Offer(rid()?, read(value, read_offer)?),
        "partition" => Record::Partition(rid()?, partition()?, read(value, read_partition)?),
        "reshard" => Record::Reshard(rid()?, partition()?, read(value, read_reshard)?),
        "snapshot" => Record::Snapshot(key.strip_prefix("snapshot/")?.to_owned(), read(value, read_snapshot)?),
        _ => return None,
    })
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Object {
    members
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn text(text: impl ToString) -> Value {
    Value::String(text.to_string())
}

fn integer(number: u64) -> Value {
    Value::Number(Number::from(number))
}

fn list<T>(items: &[T], item: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(item).collect())
}

/// A JSON object read field by field; `None` for what is missing or of the wrong kind.
struct Fields(Value);

impl Fields {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self.0.get(name)?.as_number()? {
            Number::Int(int) => u64::try_from(int).ok(),
            Number::UInt(uint) => Some(uint),
            Number::Double(_) => None,
        }
    }

    fn rid(&self, name: &str) -> Option<ResourceId> {
        ResourceId::parse(self.text(name)?)
    }

    fn list<T>(&self, name: &str, item: impl Fn(&Fields) -> Option<T>) -> Option<Vec<T>> {
        self.0
            .get(name)?
            .as_array()?
            .iter()
            .map(|value| item(&Fields(value.clone())))
            .collect()
    }

    fn object(&self, name: &str) -> Option<Fields> {
        Some(Fields(self.0.get(name)?.clone()))
    }

    fn etag(&self) -> Option<Etag> {
        let bytes = STANDARD.decode(self.text("etag")?).ok()?;
        bytes.try_into().ok().map(Etag)
    }
}

fn etag_value(etag: Etag) -> Value {
    text(STANDARD.encode(etag.0))
}

fn account_object(keys: &AccountKeys) -> Object {
    let secret = |secret: &Secret| text(STANDARD.encode(&secret.0));
    object([
        ("primary", secret(&keys.primary)),
        ("secondary", secret(&keys.secondary)),
        ("primaryReadOnly", secret(&keys.primary_read_only)),
        ("secondaryReadOnly", secret(&keys.secondary_read_only)),
        ("internal", secret(&keys.internal)),
    ])
}

fn read_account(fields: &Fields) -> Option<AccountKeys> {
    let secret = |name| STANDARD.decode(fields.text(name)?).ok().map(Secret);
    Some(AccountKeys {
        primary: secret("primary")?,
        secondary: secret("secondary")?,
        primary_read_only: secret("primaryReadOnly")?,
        secondary_read_only: secret("secondaryReadOnly")?,
        internal: secret("internal")?,
    })
}

fn counters_object(counters: &Counters) -> Object {
    object([
        ("databases", integer(counters.databases)),
        ("containers", integer(counters.containers)),
        ("users", integer(counters.users)),
        ("others", integer(counters.others)),
        ("offers", integer(counters.offers)),
        ("logs", integer(counters.logs)),
        ("restores", integer(counters.restores)),
        ("sequence", integer(counters.sequence)),
    ])
}

fn read_counters(fields: &Fields) -> Option<Counters> {
    Some(Counters {
        databases: fields.number("databases")?,
        containers: fields.number("containers")?,
        users: fields.number("users")?,
        others: fields.number("others")?,
        offers: fields.number("offers")?,
        logs: fields.number("logs")?,
        restores: fields.number("restores")?,
        sequence: fields.number("sequence")?,
    })
}

const KINDS: [(ResourceKind, &str); 9] = [
    (ResourceKind::Database, "database"),
    (ResourceKind::Container, "container"),
    (ResourceKind::User, "user"),
    (ResourceKind::Permission, "permission"),
    (ResourceKind::Offer, "offer"),
    (ResourceKind::StoredProcedure, "storedProcedure"),
    (ResourceKind::Trigger, "trigger"),
    (ResourceKind::Conflict, "conflict"),
    (ResourceKind::UserDefinedFunction, "userDefinedFunction"),
];

fn resource_object(record: &ResourceRecord) -> Object {
    let kind = KINDS
        .iter()
        .find(|(kind, _)| *kind == record.kind)
        .map_or("", |(_, name)| name);
    let definition = json::parse_value(&record.definition).unwrap_or(Value::Null);
    let mut fields = object([
        ("kind", text(kind)),
        ("name", text(&record.name)),
        ("etag", etag_value(record.etag)),
        ("ts", integer(record.ts.0)),
        ("sequence", integer(record.sequence)),
        ("version", integer(record.version)),
        ("definition", definition),
    ]);
    if let Some(parent) = &record.parent {
        fields.insert("parent", text(parent));
    }
    fields
}

fn read_resource(fields: &Fields) -> Option<ResourceRecord> {
    let kind = fields.text("kind")?;
    Some(ResourceRecord {
        kind: KINDS.iter().find(|(_, name)| *name == kind)?.0,
        parent: fields.rid("parent"),
        name: fields.text("name")?.to_owned(),
        etag: fields.etag()?,
        ts: Timestamp(fields.number("ts")?),
        sequence: fields.number("sequence")?,
        version: fields.number("version")?,
        definition: Bytes::from(fields.0.get("definition")?.to_text()),
    })
}

fn offer_object(record: &OfferRecord) -> Object {
    let mut fields = object([
        ("target", text(&record.target)),
        ("targetSelf", text(&record.target_self)),
        ("etag", etag_value(record.etag)),
        ("ts", integer(record.ts.0)),
        ("sequence", integer(record.sequence)),
    ]);
    match record.throughput {
        Throughput::Manual(units) => fields.insert("manual", integer(units.into())),
        Throughput::Autoscale { max, increment_percent } => {
            fields.insert("autoscaleMax", integer(max.into()));
            if let Some(percent) = increment_percent {
                fields.insert("incrementPercent", integer(percent.into()));
            }
        }
    }
    fields
}

fn read_offer(fields: &Fields) -> Option<OfferRecord> {
    let small = |name| fields.number(name).and_then(|number| u32::try_from(number).ok());
    let throughput = match small("manual") {
        Some(units) => Throughput::Manual(units),
        None => Throughput::Autoscale {
            max: small("autoscaleMax")?,
            increment_percent: small("incrementPercent"),
        },
    };
    Some(OfferRecord {
        target: fields.rid("target")?,
        target_self: fields.text("targetSelf")?.to_owned(),
        throughput,
        etag: fields.etag()?,
        ts: Timestamp(fields.number("ts")?),
        sequence: fields.number("sequence")?,
    })
}

fn range_members(fields: &mut Object, range: &EpkRange) {
    fields.insert("min", text(&range.min));
    fields.insert("max", text(&range.max));
}

fn read_range(fields: &Fields) -> Option<EpkRange> {
    Some(EpkRange::new(
        Epk::parse(fields.text("min")?)?,
        Epk::parse(fields.text("max")?)?,
    ))
}

fn partition_object(record: &PartitionRecord) -> Object {
    let mut fields = object([
        ("log", integer(record.log.0)),
        ("parents", list(&record.parents, |parent| object_of_id(*parent))),
        ("since", integer(record.since.0)),
    ]);
    range_members(&mut fields, &record.range);
    fields
}

fn read_partition(fields: &Fields) -> Option<PartitionRecord> {
    Some(PartitionRecord {
        range: read_range(fields)?,
        log: LogId(fields.number("log")?),
        parents: fields.list("parents", read_id)?,
        since: Lsn(fields.number("since")?),
    })
}

fn object_of_id(partition: PartitionId) -> Value {
    Value::Object(object([("id", integer(partition.0.into()))]))
}

fn read_id(fields: &Fields) -> Option<PartitionId> {
    fields
        .number("id")
        .and_then(|id| u32::try_from(id).ok())
        .map(PartitionId)
}

fn reshard_object(record: &ReshardRecord) -> Object {
    let child = |(partition, log, range): &(PartitionId, LogId, EpkRange)| {
        let mut fields = object([("id", integer(partition.0.into())), ("log", integer(log.0))]);
        range_members(&mut fields, range);
        Value::Object(fields)
    };
    object([
        ("parents", list(&record.parents, |parent| object_of_id(*parent))),
        ("children", list(&record.children, child)),
    ])
}

fn read_reshard(fields: &Fields) -> Option<ReshardRecord> {
    let child = |fields: &Fields| Some((read_id(fields)?, LogId(fields.number("log")?), read_range(fields)?));
    Some(ReshardRecord {
        parents: fields.list("parents", read_id)?,
        children: fields.list("children", child)?,
    })
}

fn snapshot_object(record: &SnapshotRecord) -> Object {
    let saved = |saved: &SavedPartition| {
        Value::Object(object([
            ("container", text(&saved.container)),
            ("id", integer(saved.partition.0.into())),
            ("record", Value::Object(partition_object(&saved.record))),
            ("copy", integer(saved.copy.0)),
            ("epoch", integer(saved.position.epoch.0.into())),
            ("lsn", integer(saved.position.lsn.0)),
            ("hash", text(STANDARD.encode(saved.position.hash.0))),
        ]))
    };
    let entry = |(key, value): &(String, Bytes)| {
        Value::Object(object([
            ("key", text(key)),
            ("value", text(String::from_utf8_lossy(value))),
        ]))
    };
    object([
        ("savedAt", integer(record.saved_at.0)),
        ("items", integer(record.n_items)),
        ("records", list(&record.records, entry)),
        ("partitions", list(&record.partitions, saved)),
    ])
}

fn read_snapshot(fields: &Fields) -> Option<SnapshotRecord> {
    let saved = |fields: &Fields| {
        let hash = STANDARD.decode(fields.text("hash")?).ok()?;
        Some(SavedPartition {
            container: fields.rid("container")?,
            partition: read_id(fields)?,
            record: read_partition(&fields.object("record")?)?,
            copy: LogId(fields.number("copy")?),
            position: Position {
                epoch: Epoch(u32::try_from(fields.number("epoch")?).ok()?),
                lsn: Lsn(fields.number("lsn")?),
                hash: ChainHash(hash.try_into().ok()?),
            },
        })
    };
    let entry = |fields: &Fields| {
        Some((
            fields.text("key")?.to_owned(),
            Bytes::copy_from_slice(fields.text("value")?.as_bytes()),
        ))
    };
    Some(SnapshotRecord {
        saved_at: Timestamp(fields.number("savedAt")?),
        n_items: fields.number("items")?,
        records: fields.list("records", entry)?,
        partitions: fields.list("partitions", saved)?,
    })
}
