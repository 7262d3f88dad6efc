//! Several documents of one partition key at once: all of them are written or none.
//!
//! A batch always goes to the region that takes the account's writes, wherever that is by now. So a batch that only reads is
//! how to read there: clients are not told which region it is.

use azure_core::http::Etag;
use azure_data_cosmos::models::TransactionalBatch;
use azure_data_cosmos::options::{BatchReplaceOptions, Precondition};
use azure_data_cosmos::{CosmosError, PartitionKey};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{AccountClient, Seen};
use crate::entity::Entity;
use crate::error::{CallError, CallKind};

/// What a step answers when another one has failed.
const FAILED_DEPENDENCY: u16 = 424;

/// The document that is asked for when only the region is of interest.
const WHERE: &str = "where";

/// Documents of one key that are written together.
#[derive(Clone, Debug)]
pub struct Changes {
    batch: TransactionalBatch,
}

impl Changes {
    pub fn of_key(key: &str) -> Changes {
        Changes {
            batch: TransactionalBatch::new(PartitionKey::from(key.to_owned())),
        }
    }

    /// Adds a document: instead of the version that was seen, or as a new one.
    pub fn put<E: Entity>(self, entity: &E, seen: Option<&str>) -> Result<Changes, CosmosError> {
        let batch = match seen {
            Some(etag) => {
                let unchanged = Precondition::if_match(Etag::from(etag.to_owned()));
                let options = BatchReplaceOptions::default().with_precondition(unchanged);
                self.batch
                    .replace_item(entity.id().to_owned(), entity.document(), Some(options))?
            }
            None => self.batch.create_item(entity.document())?,
        };
        Ok(Changes { batch })
    }
}

impl AccountClient {
    /// Writes all of them or none. `Changed` or `Exists` when one of them is not as it was seen.
    pub async fn write_together(&self, changes: Changes) -> Result<(), CallError> {
        let connected = self.connected_within(self.dialer.settings.write_deadline).await?;
        let call = connected.content.execute_transactional_batch(changes.batch, None);
        let answer = self.written(call).await?;
        let steps = answer.into_model().map_err(|error| self.dialer.classified(error))?;
        let mut statuses = steps.results().iter().map(|step| step.status_code());
        match statuses.find(|status| *status >= 400 && *status != FAILED_DEPENDENCY) {
            Some(status) => Err(self.failed_step(status)),
            None => Ok(()),
        }
    }

    /// A document as the region has it that takes the account's writes. Asked twice: a client may learn only from its first
    /// attempt that another region takes them now.
    pub(super) async fn read_where_written<T: DeserializeOwned>(
        &self,
        key: &str,
        id: &str,
    ) -> Result<Seen<T>, CallError> {
        match self.read_where_written_once(key, id).await {
            Err(error) if error.kind == CallKind::Unreachable => self.read_where_written_once(key, id).await,
            result => result,
        }
    }

    async fn read_where_written_once<T: DeserializeOwned>(&self, key: &str, id: &str) -> Result<Seen<T>, CallError> {
        let deadline = self.dialer.settings.read_deadline;
        let connected = self.connected_within(deadline).await?;
        let batch = TransactionalBatch::new(PartitionKey::from(key.to_owned())).read_item(id.to_owned(), None);
        let call = connected.content.execute_transactional_batch(batch, None);
        let answer = self.written_within(deadline, call).await?;
        let seen = self.seen(answer.headers(), &answer.diagnostics());
        let steps = answer.into_model().map_err(|error| self.dialer.classified(error))?;
        let step = steps.results().first();
        let step = step.ok_or_else(|| self.error(CallKind::Unreachable, "an answer without its step", None))?;
        if step.status_code() >= 400 {
            return Err(self.failed_step(step.status_code()));
        }
        let text = step.resource_body().map_or("null", |body| body.get());
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let etag = step.etag().or_else(|| value["_etag"].as_str()).map(str::to_owned);
        let value = serde_json::from_value(value)
            .map_err(|error| self.error(CallKind::Unreachable, "cannot be understood", Some(error.into())))?;
        Ok(Seen {
            etag,
            ..seen.with(value)
        })
    }

    /// The region that takes the account's writes by now, asked of the account itself; nothing if its client cannot tell.
    pub async fn write_region(&self) -> Result<Option<String>, CallError> {
        let deadline = self.dialer.settings.read_deadline;
        let connected = self.connected_within(deadline).await?;
        // Of a document that need not exist: only who answers is asked for.
        let batch = TransactionalBatch::new(PartitionKey::from(WHERE.to_owned())).read_item(WHERE.to_owned(), None);
        let call = connected.content.execute_transactional_batch(batch, None);
        let answer = self.written_within(deadline, call).await?;
        Ok(self.seen(answer.headers(), &answer.diagnostics()).region)
    }

    fn failed_step(&self, status: u16) -> CallError {
        let (kind, message) = match status {
            404 => (CallKind::NotFound, "not found"),
            409 => (CallKind::Exists, "exists already"),
            412 => (CallKind::Changed, "changed meanwhile"),
            429 => (CallKind::Busy { retry_after: None }, "busy"),
            400 | 401 | 403 | 413 => (CallKind::Refused, "refused"),
            _ => (CallKind::Unreachable, "could not be reached"),
        };
        self.error(kind, message, None)
    }
}
