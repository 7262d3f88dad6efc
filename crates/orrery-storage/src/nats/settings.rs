//! What can be set when a store on JetStream is opened.

use std::time::Duration;

use orrery_partition::storage::{Result, StorageError};

use crate::embedded::EmbeddedSettings;

/// Settings of a store on JetStream. The defaults suit a cluster of three servers.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// Names the store among all that use the same servers, usually after its region: lower-case letters, digits, hyphens.
    pub name: String,
    /// Servers that hold a copy of every log.
    pub replicas: usize,
    /// Streams that all logs are spread over. Fixed when the store is first made; later values are not looked at.
    pub n_streams: u16,
    /// How long an append is tried before its outcome is unknown. A new leader of a stream is found within this.
    pub patience: Duration,
    /// A snapshot of a log's view is saved, and the log behind it forgotten, whenever the log has grown by this much.
    pub save_after_bytes: u64,
    /// The view, and a copy of the recent log, in this node's directory.
    pub local: EmbeddedSettings,
}

impl NatsSettings {
    pub fn new(name: &str) -> NatsSettings {
        NatsSettings {
            name: name.to_owned(),
            replicas: 3,
            n_streams: 16,
            patience: Duration::from_secs(10),
            save_after_bytes: 64 << 20,
            local: EmbeddedSettings::default(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(is_plain) {
            let name = &self.name;
            return Err(StorageError::Unavailable(format!(
                "{name:?} cannot name a store on JetStream: use up to 64 lower-case letters, digits and hyphens"
            )));
        }
        if self.n_streams == 0 {
            return Err(StorageError::Unavailable("a store needs at least one stream".into()));
        }
        Ok(())
    }
}
