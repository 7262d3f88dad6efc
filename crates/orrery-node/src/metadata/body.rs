//! A resource as clients see it: its own fields, then its system properties.

use bytes::Bytes;
use orrery_model::ResourceId;
use orrery_model::json::{self, Number, Object, Value};
use orrery_model::offer::Offer;

use crate::api::ResourceKind;
use crate::catalogue::{OfferRecord, ResourceRecord};

pub fn of(rid: &ResourceId, record: &ResourceRecord) -> Bytes {
    let mut fields = match json::parse_value(&record.definition) {
        Ok(Value::Object(fields)) => fields,
        _ => Object::new(),
    };
    fields.insert("_rid", Value::String(rid.to_string()));
    fields.insert("_self", Value::String(self_link(rid, record.kind)));
    fields.insert("_etag", Value::String(record.etag.to_string()));
    for (name, link) in links(record.kind) {
        fields.insert(*name, Value::from(*link));
    }
    fields.insert("_ts", Value::Number(Number::from(record.ts.seconds())));
    Bytes::from(Value::Object(fields).to_text())
}

pub fn of_offer(rid: &ResourceId, record: &OfferRecord) -> Bytes {
    let offer = Offer {
        rid: rid.clone(),
        target_rid: record.target.clone(),
        target_self: record.target_self.clone(),
        etag: record.etag,
        ts: record.ts,
        throughput: record.throughput,
    };
    Bytes::from(offer.to_value().to_text())
}

/// `_self`: the path made of resource ids, with a slash at its end.
pub fn self_link(rid: &ResourceId, kind: ResourceKind) -> String {
    let (database, own) = (rid.database_part(), rid.owner_part());
    match kind {
        ResourceKind::Database => format!("dbs/{rid}/"),
        ResourceKind::Container => format!("dbs/{database}/colls/{rid}/"),
        ResourceKind::User => format!("dbs/{database}/users/{rid}/"),
        ResourceKind::Permission => format!("dbs/{database}/users/{own}/permissions/{rid}/"),
        ResourceKind::StoredProcedure => format!("dbs/{database}/colls/{own}/sprocs/{rid}/"),
        ResourceKind::Trigger => format!("dbs/{database}/colls/{own}/triggers/{rid}/"),
        ResourceKind::UserDefinedFunction => format!("dbs/{database}/colls/{own}/udfs/{rid}/"),
        ResourceKind::Conflict => format!("dbs/{database}/colls/{own}/conflicts/{rid}/"),
        ResourceKind::Offer => format!("offers/{rid}/"),
    }
}

fn links(kind: ResourceKind) -> &'static [(&'static str, &'static str)] {
    match kind {
        ResourceKind::Database => &[("_colls", "colls/"), ("_users", "users/")],
        ResourceKind::Container => &[
            ("_docs", "docs/"),
            ("_sprocs", "sprocs/"),
            ("_triggers", "triggers/"),
            ("_udfs", "udfs/"),
            ("_conflicts", "conflicts/"),
        ],
        ResourceKind::User => &[("_permissions", "permissions/")],
        _ => &[],
    }
}
