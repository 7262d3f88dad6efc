//! What stands behind the endpoint of a node in a cluster: executes what this node owns, answers reads from its own view where
//! their consistency allows it, and passes everything else on to the owner.
//!
//! While nobody owns, requests wait. A request that was surely not executed is tried again with the next owner; a write that
//! may have been executed answers 408, as the service does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use orrery_gateway::Handler;
use orrery_gateway::handler::{Answer, BoxFuture, Command, administer};
use orrery_gateway::relay::codec::{RelayedAnswer, decode_answer};
use orrery_gateway::relay::{Administration, Carried, Original, Relay};
use orrery_model::{Error, Lsn, Result, Status};
use orrery_node::account::{Account, AccountKeys};
use orrery_node::api::Operation;
use orrery_node::events::Events;
use orrery_node::meters::Measure;
use orrery_node::{Failure, Reply, Request};
use orrery_storage::nats::calls::{Caller, Silence};
use tokio::sync::watch;
use tokio::time::Instant;

use super::station::{Place, Station};

/// How long the owner may take for one request: longer than any reader of changes waits.
const ANSWER_PATIENCE: Duration = Duration::from_secs(90);
/// How long an owner that was replaced may take to answer what it was asked before.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How soon to ask again when the owner did not take a request.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long requests wait for an owner when this node is about to leave.
const HOLD_WHEN_LEAVING: Duration = Duration::from_secs(2);
/// How long an answer waits until this node knows as much of the catalogue as whoever gave it.
const CATALOGUE_WAIT: Duration = Duration::from_secs(2);

pub struct ClusterHandler {
    station: Arc<Station>,
    caller: Caller,
    /// What comes before a node's name in the subject it listens to.
    subjects: String,
    /// How long requests wait for an owner.
    hold: Duration,
}

impl fmt::Debug for ClusterHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterHandler").finish_non_exhaustive()
    }
}

/// What became of a request that was passed on.
enum Passed {
    Answered {
        response: Response<Bytes>,
        known: Lsn,
    },
    /// Surely not executed.
    NotTaken,
    /// Perhaps executed.
    Lost,
    TooLarge,
}

impl ClusterHandler {
    pub fn new(station: Arc<Station>, caller: Caller, subjects: String, hold: Duration) -> ClusterHandler {
        ClusterHandler {
            station,
            caller,
            subjects,
            hold,
        }
    }

    async fn carry_out(&self, request: Request, original: Original<'_>) -> Carried {
        let is_write = request.operation.is_write();
        let is_metadata = matches!(request.operation, Operation::Metadata(_));
        let mut request = Some(request);
        let mut waiting = Waiting::new(self);
        loop {
            match waiting.place() {
                Place::Here => {
                    let Some(request) = request.take() else {
                        return Carried::Here(Err(nobody().into()));
                    };
                    let result = self.station.node.execute(request).await;
                    if !self.is_void(&result, is_write) {
                        return Carried::Here(result);
                    }
                    if original.relayed {
                        return Carried::NotHere;
                    }
                }
                _ if original.relayed => return Carried::NotHere,
                place => {
                    if let Some(answer) = self.answer_from_view(request.as_ref()).await {
                        return Carried::Here(answer);
                    }
                    if let Place::There(owner) = place {
                        match self.pass_on(&owner, &original, &mut waiting.places).await {
                            Passed::Answered { response, known } => {
                                if is_write && is_metadata {
                                    self.learn(known).await;
                                }
                                return Carried::Elsewhere(response);
                            }
                            Passed::Lost if is_write => return Carried::Here(Err(unknown().into())),
                            Passed::TooLarge => return Carried::Here(Err(too_large().into())),
                            Passed::NotTaken | Passed::Lost => {}
                        }
                    }
                }
            }
            if !waiting.wait().await {
                return Carried::Here(Err(nobody().into()));
            }
        }
    }

    async fn administration(&self, original: Original<'_>) -> Result<Administration> {
        let is_write = original.method() != Method::GET;
        let mut waiting = Waiting::new(self);
        loop {
            match waiting.place() {
                Place::Here => return Ok(Administration::Here),
                _ if original.relayed => return Ok(Administration::NotHere),
                Place::There(owner) => match self.pass_on(&owner, &original, &mut waiting.places).await {
                    Passed::Answered { response, known } => {
                        if is_write {
                            self.learn(known).await;
                        }
                        return Ok(Administration::Elsewhere(response));
                    }
                    Passed::Lost if is_write => return Err(unknown()),
                    Passed::TooLarge => return Err(too_large()),
                    Passed::NotTaken | Passed::Lost => {}
                },
                Place::Nowhere => {}
            }
            if !waiting.wait().await {
                return Err(nobody());
            }
        }
    }

    /// Whether an answer of this node does not count, because it was the owner no longer. What was appended counts whoever owns
    /// now; what was read or refused may be out of date.
    fn is_void(&self, result: &Result<Reply, Failure>, is_write: bool) -> bool {
        if self.station.is_here() {
            // A log that was taken by another is noticed before the lease is.
            return is_write && matches!(result, Err(failure) if failure.error.status() == Status::WRITE_FORBIDDEN);
        }
        match result {
            Ok(_) => !is_write,
            // Nothing else is said of a write whose outcome is not known.
            Err(failure) => failure.error.status() != Status::REQUEST_TIMEOUT,
        }
    }

    /// Answers from this node's own view, if the request allows it.
    async fn answer_from_view(&self, request: Option<&Request>) -> Option<Result<Reply, Failure>> {
        let request = request.filter(|_| self.station.is_in_touch())?;
        let node = &self.station.node;
        let grounds = node.grounds(request)?;
        let answer = node.execute(request.clone()).await;
        node.still_stands(grounds).await.then_some(answer)
    }

    /// Passes a request on to the owner, and waits for its answer as long as it is the owner, and a moment longer.
    async fn pass_on(&self, owner: &str, original: &Original<'_>, places: &mut watch::Receiver<Place>) -> Passed {
        let subject = format!("{}.{owner}", self.subjects);
        let asked = self.caller.ask(&subject, original.encode(), ANSWER_PATIENCE);
        let replaced = async {
            let is_owner = |place: &Place| matches!(place, Place::There(name) if name == owner);
            // The sender lives as long as the station; then there is nothing to wait for.
            let _ = places.wait_for(|place| !is_owner(place)).await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        let answered = tokio::select! {
            // Both are safe to drop: a request that is forgotten is answered to nobody.
            answered = asked => answered,
            () = replaced => Err(Silence::Lost),
        };
        match answered {
            Ok(bytes) => match decode_answer(bytes) {
                Some(RelayedAnswer::Answered { response, known }) => Passed::Answered {
                    response,
                    known: Lsn(known),
                },
                Some(RelayedAnswer::NotHere) => Passed::NotTaken,
                None => Passed::Lost,
            },
            Err(Silence::NobodyThere) => Passed::NotTaken,
            Err(Silence::TooLarge) => Passed::TooLarge,
            Err(Silence::Lost) => Passed::Lost,
        }
    }

    /// Waits until this node knows what the owner knew, so that whoever changed something here finds it here.
    async fn learn(&self, known: Lsn) {
        // One that lags passes requests on; it only misses keys that are new.
        let _ = tokio::time::timeout(CATALOGUE_WAIT, self.station.node.knows_system(known)).await;
    }
}

/// A request that may have to wait for an owner.
struct Waiting<'a> {
    station: &'a Station,
    places: watch::Receiver<Place>,
    until: Instant,
}

impl<'a> Waiting<'a> {
    fn new(handler: &'a ClusterHandler) -> Waiting<'a> {
        let hold = match handler.station.is_leaving() {
            true => HOLD_WHEN_LEAVING.min(handler.hold),
            false => handler.hold,
        };
        Waiting {
            station: &handler.station,
            places: handler.station.watch(),
            until: Instant::now() + hold,
        }
    }

    /// Who executes now. A tenure that has run out counts before anybody has said so.
    fn place(&mut self) -> Place {
        let place = self.places.borrow_and_update().clone();
        match place {
            Place::Here if !self.station.holds() => Place::Nowhere,
            place => place,
        }
    }

    /// Waits until it may be worth another try. `false` when that is not worth it any more.
    async fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::select! {
            // Both are safe to drop: a change is still to be seen at the next look.
            _ = self.places.changed() => {}
            () = tokio::time::sleep(ASK_AGAIN) => {}
        }
        true
    }
}

impl Handler for ClusterHandler {
    /// What nobody passes on is answered from here: changes for those who listen to them.
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(self.station.node.execute(request))
    }

    fn administer(&self, command: Command) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(administer(&self.station.node, command))
    }

    fn relay(&self) -> Option<&dyn Relay> {
        Some(self)
    }

    fn account(&self) -> Arc<Account> {
        self.station.node.account()
    }

    fn events(&self) -> &Events {
        self.station.node.events()
    }

    fn measures(&self) -> Vec<Measure> {
        self.station.node.measures()
    }

    fn keys(&self) -> Arc<AccountKeys> {
        self.station.node.keys()
    }
}

impl Relay for ClusterHandler {
    fn execute<'a>(&'a self, request: Request, original: Original<'a>) -> BoxFuture<'a, Carried> {
        Box::pin(self.carry_out(request, original))
    }

    fn administer<'a>(&'a self, original: Original<'a>) -> BoxFuture<'a, Result<Administration>> {
        Box::pin(self.administration(original))
    }

    fn is_ready(&self) -> bool {
        self.station.is_in_touch() && !self.station.is_leaving()
    }

    fn known(&self) -> u64 {
        self.station.node.system_lsn().0
    }
}

fn nobody() -> Error {
    Error::new(Status::UNAVAILABLE, "No node owns the data just now.").with_retry_after_ms(1000)
}

fn unknown() -> Error {
    Error::new(
        Status::REQUEST_TIMEOUT,
        "The node that owns the data was lost while it executed this; the outcome is not known.",
    )
}

fn too_large() -> Error {
    Error::new(Status::TOO_LARGE, "Request size is too large")
}
