//! One request, from its head to its answer, in one straight line: route, authenticate, read the body, understand,
//! execute, encode.
//!
//! Nothing is read from a sender who is not known, and nothing a request does takes the server down: a panic answers 500.

mod data;

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, header, request};
use http_body_util::Full;
use hyper::body::Incoming;
use orrery_model::{Charge, Error, Result, Status, Timestamp};
use orrery_node::api::Principal;
use orrery_node::{Clock, SystemClock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::account::Addresses;
use crate::activity::{ActivityId, ActivityIds};
use crate::admin::EventStream;
use crate::answer_body::AnswerBody;
use crate::auth::{Authenticator, Credentials, Signed};
use crate::body::{Body, Unread};
use crate::connection::Peer;
use crate::faults::Faults;
use crate::guard::RefuseHead;
use crate::handler::Handler;
use crate::metrics::{Metrics, UNKNOWN_OPERATION};
use crate::relay::Relay;
use crate::relay::codec::{self, RelayedAnswer};
use crate::settings::Settings;
use crate::wire::headers::{Headers, names};
use crate::{admin, body, cors, head_refusal, wire};

/// What a pipeline is made of.
#[derive(Debug)]
pub struct Parts {
    pub handler: Arc<dyn Handler>,
    pub settings: Settings,
    pub addresses: Addresses,
    /// Against which the dates of signatures and tokens are checked: the real one, also when the node's has been moved.
    pub clock: Arc<dyn Clock>,
    /// The node's clock where it may be moved.
    pub movable_clock: Option<Arc<SystemClock>>,
    /// The certificate authority clients may want to trust.
    pub ca_pem: Option<Bytes>,
    /// Of the account, whichever endpoint is asked.
    pub faults: Arc<Faults>,
}

impl Parts {
    /// The usual parts around a handler.
    pub fn new(handler: Arc<dyn Handler>, settings: Settings) -> Parts {
        let clock = Arc::new(SystemClock::default());
        Parts {
            handler,
            settings,
            addresses: Addresses::default(),
            clock,
            movable_clock: None,
            ca_pem: None,
            faults: Arc::default(),
        }
    }
}

/// Answers the requests of one account.
pub struct Pipeline {
    parts: Parts,
    authenticator: Authenticator,
    activity_ids: ActivityIds,
    metrics: Metrics,
    stopping: CancellationToken,
    /// Places for those who listen to events.
    listeners: Arc<Semaphore>,
    /// Room for the bodies of requests that are under way.
    bodies: body::Room,
}

/// A request whose body has not been read. What it refers to stays where it is on its way through the steps.
pub(crate) struct Incomplete<'a> {
    pub peer: &'a Peer,
    pub head: &'a request::Parts,
    pub headers: Headers<'a>,
    pub body: Unread,
    pub activity_id: ActivityId,
    /// Where what becomes known of it is recorded.
    pub span: &'a Span,
}

/// An answer, and what is counted about it.
pub(crate) struct Answered {
    pub response: Response<Bytes>,
    pub operation: &'static str,
    pub charge: Charge,
    /// What follows instead of a body.
    pub events: Option<EventStream>,
    /// Another node has passed the request on, and this is not the one to execute it.
    pub not_here: bool,
}

impl Answered {
    pub fn new(operation: &'static str, response: Response<Bytes>) -> Answered {
        Answered {
            response,
            operation,
            charge: Charge::ZERO,
            events: None,
            not_here: false,
        }
    }

    /// Nothing was done, and nobody but another node will see this.
    pub fn not_here() -> Answered {
        Answered {
            not_here: true,
            ..Answered::new(UNKNOWN_OPERATION, Response::new(Bytes::new()))
        }
    }
}

impl Pipeline {
    pub fn new(parts: Parts) -> Pipeline {
        let authenticator = Authenticator::new(parts.handler.keys());
        let bodies = body::Room::new(parts.settings.bodies_bytes_max, parts.settings.bodies_wait);
        Pipeline {
            bodies,
            parts,
            authenticator,
            activity_ids: ActivityIds::new(),
            metrics: Metrics::default(),
            stopping: CancellationToken::new(),
            listeners: Arc::new(Semaphore::new(admin::LISTENERS_MAX)),
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn faults(&self) -> &Faults {
        &self.parts.faults
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// From now on the server is not ready for new clients.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Completes when connections are refused, or taken.
    pub(crate) async fn door_is(&self, shut: bool) {
        self.parts.handler.door_is(shut).await;
    }

    /// A place to listen to events, unless all are taken.
    pub(crate) fn listening_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.listeners).try_acquire_owned().ok()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Answers one request, whatever it is.
    pub async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> Response<AnswerBody> {
        let started = Instant::now();
        let _active = self.metrics.request();
        let (head, body) = request.into_parts();
        let headers = Headers::of(&head.headers);
        let activity_id = headers.activity_id().unwrap_or_else(|| self.activity_ids.next());
        let span = tracing::debug_span!(
            "request",
            activity_id = activity_id.as_str(),
            operation = tracing::field::Empty,
            database = tracing::field::Empty,
            container = tracing::field::Empty,
        );
        let request = Incomplete {
            peer,
            head: &head,
            headers,
            body: Unread::Incoming(body),
            activity_id,
            span: &span,
        };
        let mut answered = match catch_panic(self.dispatch(request).instrument(span.clone())).await {
            Some(answered) => answered,
            None => self.after_panic(activity_id),
        };
        let took = started.elapsed();
        wire::insert_duration(answered.response.headers_mut(), took);
        if headers.get(&header::ORIGIN).is_some() {
            cors::expose(answered.response.headers_mut());
        }
        let status = answered.response.status().as_u16();
        self.metrics.record(answered.operation, status, took, answered.charge);
        span.in_scope(|| tracing::debug!(operation = answered.operation, status, "answered"));
        let Answered { response, events, .. } = answered;
        response.map(|body| match events {
            Some(events) => AnswerBody::Events(events),
            None => AnswerBody::Whole(Full::new(body)),
        })
    }

    /// Answers a request that calls a name nobody has. Clients that made the name up look elsewhere then.
    pub(crate) fn refuse_stray(&self, peer: &Peer, request: Request<Incoming>) -> Response<AnswerBody> {
        let (head, body) = request.into_parts();
        leave_unread(peer, &Unread::Incoming(body));
        let activity_id = Headers::of(&head.headers).activity_id();
        let activity_id = activity_id.unwrap_or_else(|| self.activity_ids.next());
        let answered = self.refuse(activity_id, data::retired(&head));
        answered.response.map(|body| AnswerBody::Whole(Full::new(body)))
    }

    /// Answers a request that another node has passed on. The node that the client called counts it.
    pub async fn answer_relayed(&self, message: Bytes) -> Bytes {
        let Some((request, tls)) = codec::decode_request(message) else {
            tracing::error!("another node passes on what cannot be understood here");
            return codec::encode_answer(&RelayedAnswer::NotHere);
        };
        let (head, body) = request.into_parts();
        let headers = Headers::of(&head.headers);
        let activity_id = headers.activity_id().unwrap_or_else(|| self.activity_ids.next());
        let peer = Peer::relayed(tls);
        let request = Incomplete {
            peer: &peer,
            head: &head,
            headers,
            body: Unread::Whole(body),
            activity_id,
            span: &Span::none(),
        };
        let answered = match catch_panic(self.dispatch(request)).await {
            Some(answered) => answered,
            None => self.after_panic(activity_id),
        };
        let answer = match answered.not_here || answered.events.is_some() {
            true => RelayedAnswer::NotHere,
            false => RelayedAnswer::Answered {
                response: answered.response,
                known: self.parts.handler.relay().map_or(0, Relay::known),
            },
        };
        codec::encode_answer(&answer)
    }

    async fn dispatch(&self, request: Incomplete<'_>) -> Answered {
        if request.head.method == Method::OPTIONS {
            return Answered::new("preflight", cors::preflight(&request.head.headers));
        }
        if let Err(error) = request.headers.check_agreement() {
            leave_unread(request.peer, &request.body);
            return self.refuse(request.activity_id, error);
        }
        if admin::serves(request.head.uri.path()) {
            // Boxed, like every rare path: what a request could do besides is not part of every request's state.
            return Box::pin(admin::answer(self, request)).await;
        }
        let activity_id = request.activity_id;
        data::answer(self, request)
            .await
            .unwrap_or_else(|error| self.refuse(activity_id, error))
    }

    pub(crate) fn refuse(&self, activity_id: ActivityId, error: Error) -> Answered {
        Answered::new(UNKNOWN_OPERATION, wire::refuse(activity_id, error))
    }

    fn after_panic(&self, activity_id: ActivityId) -> Answered {
        self.metrics.panic();
        tracing::error!(activity_id = activity_id.as_str(), "a request ended in a panic");
        self.refuse(
            activity_id,
            Error::new(
                Status::INTERNAL,
                "The server failed to handle this request. This is a bug.",
            ),
        )
    }

    /// Who sent this request.
    pub(crate) fn authenticate(&self, request: &Incomplete<'_>, resource_type: &str, link: &str) -> Result<Principal> {
        let text = |name| request.headers.get(name).and_then(|value| value.to_str().ok());
        let credentials = Credentials {
            authorization: text(&names::AUTHORIZATION),
            x_ms_date: text(&names::X_MS_DATE),
            date: text(&names::DATE),
        };
        let signed = Signed {
            verb: request.head.method.as_str(),
            resource_type,
            link,
        };
        self.authenticator
            .authenticate(&self.parts.handler.keys(), signed, credentials, self.now())
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    /// Reads a request's body, or says why not; the connection then knows that there is more to come.
    pub(crate) async fn read_body(&self, peer: &Peer, body: Unread) -> Result<Body> {
        let settings = self.settings();
        let read = body::read(body, settings.body_bytes_max, settings.body_timeout, &self.bodies).await;
        if read.is_err() {
            peer.traffic.refuse_body();
        }
        read
    }
}

impl RefuseHead for Pipeline {
    fn refuse_head(&self, status: u16) -> Bytes {
        let answered = self.refuse(self.activity_ids.next(), head_refusal::error(status));
        self.metrics
            .record(answered.operation, status, Duration::ZERO, Charge::ZERO);
        head_refusal::bytes(&answered.response)
    }
}

/// Notes that a request was answered without its body being read.
pub(crate) fn leave_unread(peer: &Peer, body: &Unread) {
    if !body.is_end_stream() {
        peer.traffic.refuse_body();
    }
}

/// Runs a future to its end; `None` if it panicked. What it held is dropped like after any early return.
async fn catch_panic<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    })
    .await
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}
