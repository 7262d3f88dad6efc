//! Reaching an account: the SDK's client with its options, the containers, deadlines, and what a failure means.
//!
//! Connecting may take longer than a caller waits, on machines outside the cloud by seconds the first time. So it is one shared
//! attempt that callers wait for as long as they like and the next one goes on with, never begun anew because somebody lost
//! patience. Invariant: at most one attempt is under way per account.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use azure_data_cosmos::options::{
    AvailabilityStrategy, ConnectionPoolOptions, EndToEndOperationLatencyPolicy, HedgeThreshold, HedgingStrategy,
    OperationOptions, ReadConsistencyStrategy, Region,
};
use azure_data_cosmos::{AccountReference, CosmosError, CosmosRuntime, RoutingStrategy};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::AccountSettings;
use crate::error::{CallError, CallKind, Cause};
use crate::topology::{AccountEntry, normal_region};

/// Each step of connecting. Outside the cloud the SDK looks for it for some seconds first.
const DIAL_DEADLINE: Duration = Duration::from_secs(10);
/// Between two new connections of an account whose writes fail, and how long such a write waits for one.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
const RENEW_DEADLINE: Duration = Duration::from_secs(2);
/// How long an answer that nobody holds back may take, as the SDK has it, and the longest it can be told to wait.
const ANSWER_MAX: Duration = Duration::from_secs(6);
const REQUEST_MAX: Duration = Duration::from_secs(65);
/// Sub-status of a 404 that is about the container, not the item.
const OWNER_NOT_FOUND: u16 = 1003;

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

/// The SDK's connections and background work, shared by the clients of one database. The SDK's own default is shared by the
/// whole process and ends with the executor that happened to need it first.
pub type SharedRuntime = Arc<OnceCell<CosmosRuntime>>;

type Dialling = Shared<BoxFuture<'static, Result<Connected, Arc<CallError>>>>;

/// How an account is reached.
#[derive(Clone)]
pub(super) struct Dialer {
    pub entry: AccountEntry,
    /// Begins with the client's own region.
    pub preferred: Vec<String>,
    pub settings: AccountSettings,
    pub runtime: SharedRuntime,
}

/// A connection that is made when it is first needed, and made anew when its client has lost sight of the account.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<LineState>,
}

#[derive(Default)]
struct LineState {
    connected: Option<Connected>,
    dialling: Option<Dialling>,
    /// When it was last made anew, or tried to.
    renewed: Option<Instant>,
}

impl Line {
    pub async fn connected(&self, dialer: &Dialer) -> Result<Connected, CallError> {
        let dialling = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(connected) = &state.connected {
                return Ok(connected.clone());
            }
            state.dialling.get_or_insert_with(|| begin(dialer)).clone()
        };
        self.finish(dialer, dialling).await
    }

    /// Connects again, unless somebody lately did; until that succeeds the old connection serves. A client asks where its
    /// account takes writes every few minutes only, and one whose last known place does not answer would not ask before.
    pub async fn renew(&self, dialer: &Dialer) {
        let dialling = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.renewed.is_some_and(|at| at.elapsed() < RENEW_INTERVAL) {
                return;
            }
            state.renewed = Some(Instant::now());
            // With a runtime of its own: what the shared one knows of the account is what has proved wrong.
            let afresh = Dialer {
                runtime: SharedRuntime::default(),
                ..dialer.clone()
            };
            state.dialling.get_or_insert_with(|| begin(&afresh)).clone()
        };
        // Whoever waits gives up; the next one goes on with it.
        if timeout(RENEW_DEADLINE, self.finish(dialer, dialling)).await.is_err() {
            tracing::debug!(account = dialer.entry.tag, "a new connection takes its time");
        }
    }

    async fn finish(&self, dialer: &Dialer, dialling: Dialling) -> Result<Connected, CallError> {
        let result = dialling.clone().await;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The next caller tries again, unless somebody already does.
        let is_ours = state.dialling.take_if(|current| current.ptr_eq(&dialling)).is_some();
        match result {
            Ok(connected) if is_ours => Ok(state.connected.insert(connected).clone()),
            Ok(connected) => Ok(connected),
            Err(error) => Err(dialer.error(error.kind, &error.message, None)),
        }
    }
}

fn begin(dialer: &Dialer) -> Dialling {
    let dialer = dialer.clone();
    async move { dialer.connect().await.map_err(Arc::new) }.boxed().shared()
}

impl Dialer {
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
        let pool = self.pool().map_err(|error| self.classified(error))?;
        let build = || CosmosRuntime::builder().with_connection_pool(pool).build();
        let runtime = self.bounded(DIAL_DEADLINE, self.runtime.get_or_try_init(build)).await?;
        let built = CosmosClient::builder()
            .with_runtime(runtime.clone())
            .with_default_operation_options(self.default_options())
            .build(account, RoutingStrategy::PreferredRegions(regions));
        self.bounded(DIAL_DEADLINE, built).await
    }

    fn pool(&self) -> Result<ConnectionPoolOptions, CosmosError> {
        let mut pool = ConnectionPoolOptions::builder();
        if let Some(hold) = self.settings.hold {
            pool = pool.with_max_dataplane_request_timeout((hold + ANSWER_MAX).min(REQUEST_MAX));
        }
        if let Some(every) = self.settings.keep_alive {
            pool = pool
                .with_http2_keep_alive_interval(every)
                .with_tcp_keepalive_time(every);
        }
        pool.build()
    }

    fn default_options(&self) -> OperationOptions {
        let mut options = OperationOptions::default();
        let threshold = self.settings.hedge_after.and_then(HedgeThreshold::new);
        options.availability_strategy = Some(match threshold {
            Some(threshold) => AvailabilityStrategy::Hedging(HedgingStrategy::new(threshold)),
            None => AvailabilityStrategy::Disabled,
        });
        // Longer than any deadline here: it ends what the SDK goes on with after nobody waits for it.
        options.end_to_end_latency_policy =
            threshold.map(|_| EndToEndOperationLatencyPolicy::new(self.settings.write_deadline));
        // A client remembers the newest state it has heard of and asks every later read for it. Once it has written to another
        // region, or read there, the replica here would be too old for everybody until it has caught up, and for good if that
        // region is gone.
        options.read_consistency_strategy = (!self.is_at_home()).then_some(ReadConsistencyStrategy::Eventual);
        options
    }

    /// The account takes its writes in the client's own region: whoever writes there can read there what was written.
    fn is_at_home(&self) -> bool {
        let own = self.preferred.first().map(|region| normal_region(region));
        own == Some(normal_region(&self.entry.write_region))
    }

    async fn connect(&self) -> Result<Connected, CallError> {
        let client = self.client().await?;
        let database = client.database_client(self.settings.database.clone());
        let database = &database;
        let open = |name: &str| {
            let name = name.to_owned();
            async move {
                let opened = database.container_client(name, None);
                let opened = self.bounded(DIAL_DEADLINE, opened).await;
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

    pub async fn bounded<T>(
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

    pub fn silent(&self, deadline: Duration) -> CallError {
        let message = format!("no answer within {} ms", deadline.as_millis());
        self.error(CallKind::Unreachable, &message, None)
    }

    pub fn error(&self, kind: CallKind, message: &str, source: Option<Cause>) -> CallError {
        CallError {
            account: self.entry.tag.clone(),
            kind,
            message: message.to_owned(),
            source,
        }
    }

    pub fn classified(&self, error: CosmosError) -> CallError {
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
}
