//! The service of a region: its sockets, its tasks, and one request from its first byte to its answer.
//!
//! A request is named, counted, let in or not, given a user, and handed to its handler; the answer is named and shaped on the way
//! back. Invariant: connections, bodies, time and streams are bounded, and stopping lets what is under way finish.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use orrery_publishing::ContentPublishDatabase;
use orrery_publishing::entity::check_user;
use orrery_publishing::fanout::{Fanout, FanoutSettings, RunningFanout};
use orrery_publishing::stream::{NotificationHub, hub_poll};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer::{Answer, Failure, empty, typed_answer};
use crate::assets::Assets;
use crate::extension::Extension;
use crate::handlers;
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::patience::Patient;
use crate::route::{Route, route};
use crate::settings::PlatformSettings;
use crate::token::TokenVerifier;
use crate::{clock, cors, read};

/// After a connection could not be accepted.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// A region's service, with its fan-out role at work.
pub struct Platform {
    pub(crate) database: ContentPublishDatabase,
    pub(crate) settings: PlatformSettings,
    pub(crate) verifier: Arc<dyn TokenVerifier>,
    pub(crate) fanout: RunningFanout,
    pub(crate) hub: NotificationHub,
    pub(crate) metrics: Metrics,
    pub(crate) stopping: CancellationToken,
    is_ready: AtomicBool,
    is_closed: AtomicBool,
    /// Ends what listens when the service closes.
    closing: Mutex<CancellationToken>,
    limiter: Mutex<Limiter>,
    assets: Option<Arc<dyn Assets>>,
    extension: Option<Arc<dyn Extension>>,
}

impl std::fmt::Debug for Platform {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Platform")
            .field("region", &self.database.region())
            .finish_non_exhaustive()
    }
}

/// One request as handlers see it.
pub(crate) struct Call {
    pub parts: http::request::Parts,
    pub body: Incoming,
    pub user: Option<String>,
    pub peer: IpAddr,
}

impl Call {
    /// Whoever is asked for here must be known.
    pub fn user(&self) -> Result<&str, Failure> {
        let refused = || Failure::new(StatusCode::UNAUTHORIZED, "unauthenticated", "this needs a token");
        self.user.as_deref().ok_or_else(refused)
    }
}

impl Platform {
    /// Begins the region's roles. Requests are served by [`Platform::serve`].
    pub fn start(
        database: ContentPublishDatabase,
        settings: PlatformSettings,
        roles: FanoutSettings,
        verifier: Arc<dyn TokenVerifier>,
    ) -> Platform {
        let stopping = CancellationToken::new();
        Platform {
            fanout: Fanout::new(&database, roles).start(),
            hub: NotificationHub::start(&database, hub_poll()),
            metrics: Metrics::default(),
            is_ready: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            closing: Mutex::new(stopping.child_token()),
            stopping,
            limiter: Mutex::new(Limiter::new(settings.rate)),
            assets: None,
            extension: None,
            database,
            settings,
            verifier,
        }
    }

    /// Pages to serve beside the API.
    #[must_use]
    pub fn with_assets(self, assets: Arc<dyn Assets>) -> Platform {
        Platform {
            assets: Some(assets),
            ..self
        }
    }

    /// Further paths to answer.
    #[must_use]
    pub fn with_extension(self, extension: Arc<dyn Extension>) -> Platform {
        Platform {
            extension: Some(extension),
            ..self
        }
    }

    pub fn database(&self) -> &ContentPublishDatabase {
        &self.database
    }

    /// The region's role at work.
    pub fn fanout(&self) -> &RunningFanout {
        &self.fanout
    }

    /// Closes the service to everybody but the extension, as if the region were gone, or opens it again. Streams end with it,
    /// so that whoever listens notices and goes elsewhere.
    pub fn set_closed(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::Relaxed);
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if is_closed {
            closing.cancel();
        } else if closing.is_cancelled() {
            *closing = self.stopping.child_token();
        }
    }

    /// Cancelled when the service closes or stops.
    pub(crate) fn closing(&self) -> CancellationToken {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves until `shutdown`, then lets what is under way finish and the role save its positions.
    pub async fn serve(self: Arc<Platform>, listeners: Vec<TcpListener>, shutdown: impl Future<Output = ()>) {
        let platform = self;
        let (tasks, room) = (
            TaskTracker::new(),
            Arc::new(Semaphore::new(platform.settings.connections_max)),
        );
        for listener in listeners {
            tasks.spawn(accept(
                Arc::clone(&platform),
                listener,
                tasks.clone(),
                Arc::clone(&room),
            ));
        }
        tasks.spawn(become_ready(Arc::clone(&platform)));
        tasks.close();
        shutdown.await;
        platform.stopping.cancel();
        let within = platform.settings.stop_deadline;
        if tokio::time::timeout(within, tasks.wait()).await.is_err() {
            tracing::warn!("connections were still open when the time to stop was over");
        }
        platform.fanout.stop().await;
        platform.hub.stop().await;
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    async fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> Answer {
        let begun = Instant::now();
        let (mut parts, body) = request.into_parts();
        // The same without a body, which is left out where the answer is written.
        if parts.method == Method::HEAD {
            parts.method = Method::GET;
        }
        let request_id = read::request_id(&parts.headers).unwrap_or_else(fresh_id);
        let (headers, method, path) = (parts.headers.clone(), parts.method.clone(), parts.uri.path().to_owned());
        let handled = self.handle(parts, body, peer);
        let (name, result) = match tokio::time::timeout(self.settings.request_deadline, handled).await {
            Ok(handled) => handled,
            Err(_) => {
                let late = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "it took too long");
                ("late", Err(late.later(1)))
            }
        };
        let mut answer = result.unwrap_or_else(|failure| failure.answer(&request_id));
        cors::allow(&self.settings, &headers, answer.headers_mut());
        if let Ok(value) = HeaderValue::try_from(&request_id) {
            answer.headers_mut().insert("x-request-id", value);
        }
        let (status, took) = (answer.status().as_u16(), begun.elapsed());
        self.metrics.count(name, status, took);
        tracing::debug!(request_id, %method, path, status, took_ms = took.as_millis() as u64, "request");
        answer
    }

    async fn handle(
        &self,
        parts: http::request::Parts,
        body: Incoming,
        peer: IpAddr,
    ) -> (&'static str, Result<Answer, Failure>) {
        if parts.method == Method::OPTIONS {
            return ("options", Ok(empty(StatusCode::NO_CONTENT)));
        }
        if let Some(extension) = self
            .extension
            .as_ref()
            .filter(|extension| extension.owns(parts.uri.path()))
        {
            if parts.method != Method::GET && cors::is_foreign(&self.settings, &parts.headers) {
                let message = "pages of other origins may not change anything here";
                let foreign = Failure::new(StatusCode::FORBIDDEN, "forbidden", message);
                return ("extension", Err(foreign));
            }
            let bytes = match read::bytes(body, self.settings.body_bytes_max).await {
                Ok(bytes) => bytes,
                Err(failure) => return ("extension", Err(failure)),
            };
            return ("extension", extension.answer(&parts, bytes, peer).await.into_answer());
        }
        if self.is_closed.load(Ordering::Relaxed) {
            let closed = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "this region is stopped");
            return ("closed", Err(closed.later(1)));
        }
        let (route, name) = match route(&parts.method, parts.uri.path()) {
            Ok(found) => found,
            Err(none) => return ("none", self.asset(&parts).ok_or_else(|| none.into())),
        };
        let user = match self.user(&parts, &route).await {
            Ok(user) => user,
            // Guessing tokens is limited like every request of nobody.
            Err(failure) => return (name, Err(self.admit(&route, None, peer).err().unwrap_or(failure))),
        };
        if let Err(failure) = self.admit(&route, user.as_deref(), peer) {
            return (name, Err(failure));
        }
        let call = Call {
            parts,
            body,
            user,
            peer,
        };
        (name, handlers::dispatch(self, route, call).await)
    }

    /// Whose request it is; nobody's without a token.
    async fn user(&self, parts: &http::request::Parts, route: &Route) -> Result<Option<String>, Failure> {
        let Some(token) = read::bearer(parts, *route == Route::Stream)? else {
            return Ok(None);
        };
        let user = self.verifier.verify(&token, clock::now_ms()).await;
        let user = user.ok().filter(|user| check_user(user).is_ok());
        let refused = || Failure::new(StatusCode::UNAUTHORIZED, "unauthenticated", "the token is not valid");
        user.map(Some).ok_or_else(refused)
    }

    fn admit(&self, route: &Route, user: Option<&str>, peer: IpAddr) -> Result<(), Failure> {
        if matches!(route, Route::Health | Route::Ready | Route::Metrics) {
            return Ok(());
        }
        let sender = user.map_or_else(|| format!("address {peer}"), |user| format!("user {user}"));
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter
            .take(&sender, clock::now_ms())
            .map_err(|seconds| Failure::new(StatusCode::TOO_MANY_REQUESTS, "busy", "too many requests").later(seconds))
    }

    fn asset(&self, parts: &http::request::Parts) -> Option<Answer> {
        let is_page = parts.method == Method::GET && !parts.uri.path().starts_with("/v1/");
        let asset = self.assets.as_ref().filter(|_| is_page)?.get(parts.uri.path())?;
        let mut answer = typed_answer(StatusCode::OK, asset.content_type, asset.bytes);
        if asset.is_immutable {
            let keep = HeaderValue::from_static("public, max-age=31536000, immutable");
            answer.headers_mut().insert(http::header::CACHE_CONTROL, keep);
        }
        Some(answer)
    }
}

/// Ready once the own account answers; the others may come later.
async fn become_ready(platform: Arc<Platform>) {
    while !platform.stopping.is_cancelled() {
        match platform.database.local().connected().await {
            Ok(_) => {
                platform.is_ready.store(true, Ordering::Relaxed);
                return;
            }
            Err(error) => tracing::debug!(%error, "the own account does not answer yet"),
        }
        tokio::select! {
            () = platform.stopping.cancelled() => return,
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
        }
    }
}

async fn accept(platform: Arc<Platform>, listener: TcpListener, tasks: TaskTracker, room: Arc<Semaphore>) {
    loop {
        // Room first: while there is none, connections wait in the system's queue.
        let permit = tokio::select! {
            () = platform.stopping.cancelled() => return,
            permit = Arc::clone(&room).acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            () = platform.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Mostly for want of files: there is one again when a connection ends, and asking in a tight loop hurries nobody.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let platform = Arc::clone(&platform);
        tasks.spawn(async move {
            let _permit = permit;
            converse(&platform, stream, peer.ip()).await;
        });
    }
}

async fn converse(platform: &Arc<Platform>, stream: tokio::net::TcpStream, peer: IpAddr) {
    // Answers are small and waited for.
    let _ = stream.set_nodelay(true);
    let stream = Patient::new(stream, platform.settings.write_patience);
    let answer =
        service_fn(|request| async move { Ok::<_, std::convert::Infallible>(platform.answer(request, peer).await) });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(platform.settings.request_deadline)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = platform.stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}

fn fresh_id() -> String {
    let mut bytes = [0; 12];
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
