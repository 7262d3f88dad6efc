//! The lease document as the .NET processor writes it.
//!
//! Invariant: a document read and written again without a change differs only in what the server owns (`_etag`, `_ts` and
//! the other underscored fields), which are never sent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FeedMode, Lease};
use crate::range::EpkRange;
use crate::token::FeedToken;

#[derive(Serialize, Deserialize)]
struct Document {
    id: String,
    #[serde(rename = "partitionKey", default, skip_serializing_if = "Option::is_none")]
    partition_key: Option<String>,
    #[serde(default)]
    version: u8,
    #[serde(rename = "_etag", default, skip_serializing)]
    etag: Option<String>,
    // Leases of the V2 library know only `PartitionId`.
    #[serde(rename = "LeaseToken", default)]
    token: Option<String>,
    #[serde(rename = "PartitionId", default, skip_serializing_if = "Option::is_none")]
    partition_id: Option<String>,
    #[serde(rename = "FeedRange", default, skip_serializing_if = "Option::is_none")]
    feed_range: Option<FeedRange>,
    #[serde(rename = "Owner", default)]
    owner: Option<String>,
    #[serde(rename = "ContinuationToken", default)]
    continuation: Option<String>,
    #[serde(default)]
    properties: Option<BTreeMap<String, String>>,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(rename = "Mode", default, skip_serializing_if = "Option::is_none")]
    mode: Option<FeedMode>,
    #[serde(rename = "_ts", default, skip_serializing)]
    written_at_s: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct FeedRange {
    #[serde(rename = "Range")]
    range: EpkRange,
}

impl Lease {
    /// Reads a stored document.
    pub fn from_document(document: &Value) -> Result<Lease, serde_json::Error> {
        let document = Document::deserialize(document)?;
        let token = document.token.or_else(|| document.partition_id.clone());
        let token = token.ok_or_else(|| serde::de::Error::missing_field("LeaseToken"))?;
        // The token says the range as well, so an EPK lease whose range was lost is not lost itself.
        let said = token.parse().ok().filter(|_| document.version >= 1);
        Ok(Lease {
            id: document.id,
            partition_key: document.partition_key,
            version: document.version,
            partition_id: document.partition_id,
            range: document.feed_range.map(|range| range.range).or(said),
            token,
            owner: document.owner,
            continuation: document
                .continuation
                .filter(|text| !text.is_empty())
                .map(FeedToken::new),
            properties: document.properties.unwrap_or_default(),
            timestamp: document.timestamp,
            mode: document.mode,
            etag: document.etag,
            written_at_s: document.written_at_s,
        })
    }

    /// The document to store.
    pub fn to_document(&self) -> Value {
        let document = Document {
            id: self.id.clone(),
            partition_key: self.partition_key.clone(),
            version: self.version,
            etag: None,
            token: Some(self.token.clone()),
            partition_id: self.partition_id.clone(),
            feed_range: self.range.clone().map(|range| FeedRange { range }),
            owner: self.owner.clone(),
            continuation: self.continuation.as_ref().map(|token| token.as_str().to_owned()),
            properties: Some(self.properties.clone()),
            timestamp: self.timestamp.clone(),
            mode: self.mode,
            written_at_s: None,
        };
        serde_json::to_value(document).expect("text, numbers and maps of text become JSON")
    }
}
