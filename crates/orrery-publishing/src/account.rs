//! One account as a client in one region sees it: connected when first needed, every call with a deadline, every failure by
//! what it means.
//!
//! Reads go to the client's own region first and are hedged to the next one; writes go to the account's write region,
//! wherever that is. Invariant: no call takes longer than its deadline, whatever the account does.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use azure_core::http::Etag;
use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use azure_data_cosmos::diagnostics::DiagnosticsContext;
use azure_data_cosmos::feed::{FeedScope, Query};
use azure_data_cosmos::models::ResponseHeaders;
use azure_data_cosmos::options::{
    AvailabilityStrategy, EndToEndOperationLatencyPolicy, ExcludedRegions, HedgeThreshold, HedgingStrategy,
    ItemReadOptions, ItemWriteOptions, OperationOptions, Precondition, Region,
};
use azure_data_cosmos::{AccountReference, CosmosError, PartitionKey, RoutingStrategy};
use futures::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::entity::Entity;
use crate::error::{CallError, CallKind, Cause};
use crate::topology::{AccountEntry, normal_region};

/// Sub-status of a 404 that is about the container, not the item.
const OWNER_NOT_FOUND: u16 = 1003;

/// How long to wait for whom, and where things are kept.
#[derive(Clone, Debug)]
pub struct AccountSettings {
    pub database: String,
    /// Holds all documents of the platform.
    pub content: String,
    /// Holds leases, progress, dead letters and heartbeats.
    pub coordination: String,
    pub read_deadline: Duration,
    pub write_deadline: Duration,
    /// A read that takes longer is also sent to the next region.
    pub hedge_after: Duration,
    /// How long reads of all accounts go on without one that did not answer before they ask it again.
    pub rest: Duration,
}

impl Default for AccountSettings {
    fn default() -> AccountSettings {
        AccountSettings {
            database: "publishing".into(),
            content: "contentCollection".into(),
            coordination: "coordination".into(),
            read_deadline: Duration::from_millis(1500),
            write_deadline: Duration::from_secs(5),
            hedge_after: Duration::from_millis(400),
            rest: Duration::from_secs(2),
        }
    }
}

/// An answer with where it came from.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    pub value: T,
    pub region: Option<String>,
    pub lsn: Option<u64>,
    pub session_token: Option<String>,
    pub etag: Option<String>,
}

/// Where to read.
#[derive(Clone, Copy, Debug)]
pub enum ReadAt<'a> {
    /// In the nearest region that answers.
    Near,
    /// Anywhere that has what this session token stands for.
    NotBefore(&'a str),
    /// Where the account takes its writes.
    WriteRegion,
}

/// What a query ranges over.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    Key(&'a str),
    Everything,
}

/// The parts of an account that are known once it has answered.
#[derive(Clone)]
pub struct Connected {
    pub client: CosmosClient,
    pub content: ContainerClient,
    pub coordination: ContainerClient,
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Connected").finish_non_exhaustive()
    }
}

/// A client of one account.
pub struct AccountClient {
    entry: AccountEntry,
    preferred: Vec<String>,
    settings: AccountSettings,
    connected: OnceCell<Connected>,
    resting_until: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for AccountClient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AccountClient")
            .field("tag", &self.entry.tag)
            .finish_non_exhaustive()
    }
}

impl AccountClient {
    /// Says how to reach an account; nothing is sent yet. `preferred` begins with the client's own region.
    pub fn new(entry: AccountEntry, preferred: Vec<String>, settings: AccountSettings) -> AccountClient {
        AccountClient {
            entry,
            preferred,
            settings,
            connected: OnceCell::new(),
            resting_until: Mutex::default(),
        }
    }

    pub fn tag(&self) -> &str {
        &self.entry.tag
    }

    pub fn entry(&self) -> &AccountEntry {
        &self.entry
    }

    pub fn settings(&self) -> &AccountSettings {
        &self.settings
    }

    pub fn is_write_region(&self, region: Option<&str>) -> bool {
        region.is_some_and(|region| normal_region(region) == normal_region(&self.entry.write_region))
    }

    /// The SDK's client, without its containers: they may not exist yet.
    pub async fn client(&self) -> Result<CosmosClient, CallError> {
        let endpoint = self.entry.endpoint.parse().map_err(
            |error: <azure_data_cosmos::AccountEndpoint as std::str::FromStr>::Err| {
                self.error(CallKind::Refused, "the endpoint is no URL", Some(error.into()))
            },
        )?;
        let account = AccountReference::with_authentication_key(endpoint, self.entry.key.0.clone());
        let regions = self
            .preferred
            .iter()
            .map(|region| Region::from(region.clone()))
            .collect();
        let built = CosmosClient::builder()
            .with_default_operation_options(self.default_options())
            .build(account, RoutingStrategy::PreferredRegions(regions));
        self.bounded(self.settings.write_deadline, built).await
    }

    fn default_options(&self) -> OperationOptions {
        let mut options = OperationOptions::default();
        options.end_to_end_latency_policy = Some(EndToEndOperationLatencyPolicy::new(self.settings.write_deadline));
        options.availability_strategy = HedgeThreshold::new(self.settings.hedge_after)
            .map(|threshold| AvailabilityStrategy::Hedging(HedgingStrategy::new(threshold)));
        options
    }

    /// The account's containers, asked for once.
    pub async fn connected(&self) -> Result<&Connected, CallError> {
        self.connected.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Connected, CallError> {
        let client = self.client().await?;
        let database = client.database_client(self.settings.database.clone());
        let database = &database;
        let open = |name: &str| {
            let name = name.to_owned();
            async move {
                let opened = database.container_client(name, None);
                let opened = self.bounded(self.settings.read_deadline, opened).await;
                opened.map_err(|error| match error.kind {
                    CallKind::NotFound => self.error(CallKind::Refused, "the container does not exist", error.source),
                    _ => error,
                })
            }
        };
        Ok(Connected {
            content: open(&self.settings.content).await?,
            coordination: open(&self.settings.coordination).await?,
            client,
        })
    }

    pub async fn read<T: DeserializeOwned>(&self, key: &str, id: &str, at: ReadAt<'_>) -> Result<Seen<T>, CallError> {
        let connected = self.connected_within(self.settings.read_deadline).await?;
        self.read_from(&connected.content, key, id, at).await
    }

    /// As [`AccountClient::read`], of what roles keep.
    pub async fn read_coordination<T: DeserializeOwned>(&self, id: &str) -> Result<Seen<T>, CallError> {
        let connected = self.connected_within(self.settings.read_deadline).await?;
        self.read_from(&connected.coordination, id, id, ReadAt::Near).await
    }

    async fn read_from<T: DeserializeOwned>(
        &self,
        container: &ContainerClient,
        key: &str,
        id: &str,
        at: ReadAt<'_>,
    ) -> Result<Seen<T>, CallError> {
        let options = match at {
            ReadAt::Near => ItemReadOptions::default(),
            ReadAt::NotBefore(token) => ItemReadOptions::default().with_session_token(token.to_owned()),
            ReadAt::WriteRegion => {
                let mut options = OperationOptions::default();
                let others = self
                    .entry
                    .read_regions
                    .iter()
                    .map(|region| Region::from(region.clone()));
                options.excluded_regions = Some(others.collect::<ExcludedRegions>());
                ItemReadOptions::default().with_operation_options(options)
            }
        };
        let call = container.read_item(PartitionKey::from(key.to_owned()), id, Some(options));
        let answer = self.bounded(self.settings.read_deadline, call).await?;
        let seen = seen(answer.headers(), &answer.diagnostics());
        let value = answer.into_model().map_err(|error| self.classified(error))?;
        Ok(seen.with(value))
    }

    /// Rows of a query, at most as many as its text asks for.
    pub async fn query<T: DeserializeOwned + Send + 'static>(
        &self,
        text: &str,
        parameters: &[(&'static str, Value)],
        scope: Scope<'_>,
    ) -> Result<Seen<Vec<T>>, CallError> {
        let connected = self.connected_within(self.settings.read_deadline).await?;
        let work = async {
            let mut query = Query::from(text);
            for (name, value) in parameters {
                query = query.with_parameter(*name, value)?;
            }
            let scope = match scope {
                Scope::Key(key) => FeedScope::partition(PartitionKey::from(key.to_owned())),
                Scope::Everything => FeedScope::full_container(),
            };
            let mut pages = connected
                .content
                .query_items::<T>(query, scope, None)
                .await?
                .into_pages();
            let (mut rows, mut last) = (Vec::new(), Seen::nowhere());
            while let Some(page) = pages.next().await {
                let page = page?;
                last = seen(page.headers(), &page.diagnostics());
                rows.extend(page.into_items());
            }
            Ok(last.with(rows))
        };
        self.bounded(self.settings.read_deadline, work).await
    }

    pub async fn create<E: Entity>(&self, entity: &E) -> Result<Seen<()>, CallError> {
        let connected = self.connected_within(self.settings.write_deadline).await?;
        let key = PartitionKey::from(entity.partition_key());
        let call = connected.content.create_item(key, entity.id(), entity.document(), None);
        let answer = self.bounded(self.settings.write_deadline, call).await?;
        Ok(seen(answer.headers(), &answer.diagnostics()))
    }

    pub async fn replace<E: Entity>(&self, entity: &E, etag: &str) -> Result<Seen<()>, CallError> {
        let connected = self.connected_within(self.settings.write_deadline).await?;
        let key = PartitionKey::from(entity.partition_key());
        let options =
            ItemWriteOptions::default().with_precondition(Precondition::if_match(Etag::from(etag.to_owned())));
        let call = connected
            .content
            .replace_item(key, entity.id(), entity.document(), Some(options));
        let answer = self.bounded(self.settings.write_deadline, call).await?;
        Ok(seen(answer.headers(), &answer.diagnostics()))
    }

    pub async fn delete(&self, key: &str, id: &str) -> Result<(), CallError> {
        let connected = self.connected_within(self.settings.write_deadline).await?;
        let call = connected
            .content
            .delete_item(PartitionKey::from(key.to_owned()), id, None);
        match self.bounded(self.settings.write_deadline, call).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == CallKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes a document of a role, over what is there.
    pub async fn put_coordination(&self, id: &str, document: &Value) -> Result<(), CallError> {
        let connected = self.connected_within(self.settings.write_deadline).await?;
        let key = PartitionKey::from(id.to_owned());
        let call = connected.coordination.upsert_item(key, id, document, None);
        self.bounded(self.settings.write_deadline, call).await.map(drop)
    }

    async fn connected_within(&self, deadline: Duration) -> Result<&Connected, CallError> {
        match timeout(deadline, self.connected()).await {
            Ok(connected) => connected,
            Err(_) => Err(self.silent(deadline)),
        }
    }

    async fn bounded<T>(
        &self,
        deadline: Duration,
        work: impl Future<Output = Result<T, CosmosError>>,
    ) -> Result<T, CallError> {
        match timeout(deadline, work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.classified(error)),
            Err(_) => Err(self.silent(deadline)),
        }
    }

    fn silent(&self, deadline: Duration) -> CallError {
        let message = format!("no answer within {} ms", deadline.as_millis());
        self.error(CallKind::Unreachable, &message, None)
    }

    pub(crate) fn error(&self, kind: CallKind, message: &str, source: Option<Cause>) -> CallError {
        CallError {
            account: self.entry.tag.clone(),
            kind,
            message: message.to_owned(),
            source,
        }
    }

    fn classified(&self, error: CosmosError) -> CallError {
        let status = error.status();
        let is_owner = status.sub_status().is_some_and(|code| code.value() == OWNER_NOT_FOUND);
        let (kind, message) = if status.is_read_session_not_available() {
            (CallKind::Behind, "the region is behind")
        } else if status.is_not_found() && !is_owner {
            (CallKind::NotFound, "not found")
        } else if status.is_conflict() {
            (CallKind::Exists, "exists already")
        } else if status.is_precondition_failed() {
            (CallKind::Changed, "changed meanwhile")
        } else if status.is_throttled() {
            let retry_after = error.response().and_then(|response| response.headers().retry_after_ms);
            let retry_after = retry_after.map(Duration::from_millis);
            (CallKind::Busy { retry_after }, "busy")
        } else if is_owner || status.is_bad_request() || status.is_unauthorized() || status.is_forbidden() {
            (CallKind::Refused, "refused")
        } else {
            (CallKind::Unreachable, "could not be reached")
        };
        self.error(kind, message, Some(error.into()))
    }

    /// Lately it did not answer; whoever can do without it should.
    pub fn is_resting(&self) -> bool {
        let until = *self.resting_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Remembers whether it answered.
    pub fn note<T>(&self, result: &Result<T, CallError>) {
        let is_silent = matches!(result, Err(error) if error.kind == CallKind::Unreachable);
        let until = is_silent.then(|| Instant::now() + self.settings.rest);
        *self.resting_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

impl<T> Seen<T> {
    pub fn with<U>(self, value: U) -> Seen<U> {
        Seen {
            value,
            region: self.region,
            lsn: self.lsn,
            session_token: self.session_token,
            etag: self.etag,
        }
    }
}

impl Seen<()> {
    fn nowhere() -> Seen<()> {
        Seen {
            value: (),
            region: None,
            lsn: None,
            session_token: None,
            etag: None,
        }
    }
}

fn seen(headers: &ResponseHeaders, diagnostics: &DiagnosticsContext) -> Seen<()> {
    Seen {
        value: (),
        // The last one: earlier ones failed or were overtaken.
        region: diagnostics.responded_regions().last().map(|region| region.to_string()),
        lsn: headers.lsn(),
        session_token: headers
            .session_token()
            .map(|token| AsRef::<str>::as_ref(token).to_owned()),
        etag: headers.etag().map(|etag| AsRef::<str>::as_ref(etag).to_owned()),
    }
}
