//! What stands behind the endpoint of a node in a cluster: executes what is about logs this node owns, answers reads from its
//! own view where their consistency allows it, and passes everything else on to whoever owns what it is about.
//!
//! A read that is about logs of several owners is answered here as well: each owner says where its logs stand, and the view is
//! read when it has come so far. While nobody owns what a request is about, it waits. A request that was surely not
//! executed is tried again with the next owner; a write that may have been executed answers 408, as the service does.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use orrery_gateway::Handler;
use orrery_gateway::handler::{Answer, BoxFuture, Command};
use orrery_gateway::relay::codec::{RelayedAnswer, decode_answer};
use orrery_gateway::relay::{Administration, Carried, Original, Relay, session_of};
use orrery_gateway::wire::ItemWrite;
use orrery_model::{Error, LogId, Lsn, Result, Status};
use orrery_node::account::{Account, AccountKeys};
use orrery_node::api::Consistency;
use orrery_node::cluster::Reach;
use orrery_node::events::Events;
use orrery_node::meters::Measure;
use orrery_node::{Failure, Reply, Request};
use orrery_storage::nats::calls::{Caller, Silence};

use super::home;
use super::questions::{Demand, Questions};
use super::station::{Place, Scope, Station};
use super::task::{Task, Waiting};

/// How long the owner may take for one request: longer than any reader of changes waits.
const ANSWER_PATIENCE: Duration = Duration::from_secs(90);
/// How long an owner that was replaced may take to answer what it was asked before.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long an answer waits until this node knows as much of the catalogue as whoever gave it.
const CATALOGUE_WAIT: Duration = Duration::from_secs(2);
/// How long a read waits until this node's view has what the owners have.
const VIEW_WAIT: Duration = Duration::from_secs(2);

pub struct ClusterHandler {
    pub(super) station: Arc<Station>,
    caller: Arc<Caller>,
    pub(super) questions: Questions,
    /// What comes before a node's name in the subject it listens to.
    subjects: String,
    /// How long requests wait for an owner.
    pub(super) hold: Duration,
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
    pub fn new(
        station: Arc<Station>,
        caller: Arc<Caller>,
        questions: Questions,
        subjects: String,
        hold: Duration,
    ) -> ClusterHandler {
        ClusterHandler {
            station,
            caller,
            questions,
            subjects,
            hold,
        }
    }

    async fn carry_out(&self, request: Request, original: Original<'_>) -> Carried {
        let mut task = Task::new(request);
        let mut waiting = Waiting::new(&self.station, self.hold);
        loop {
            waiting.look();
            task.find(&self.station.node);
            match self.station.place(&task.reach) {
                Place::Here => {
                    if let Some(answer) = self.execute_here(&mut task).await {
                        return Carried::Here(answer);
                    }
                    if original.relayed {
                        return Carried::NotHere;
                    }
                }
                Place::Scattered if !task.is_read() && self.station.leads() => {
                    if let Some(answer) = self.execute_at_home(&mut task).await {
                        return Carried::Here(answer);
                    }
                }
                _ if original.relayed => return Carried::NotHere,
                place => {
                    if let Some(answer) = self.answer_from_view(&task, &place).await {
                        return Carried::Here(answer);
                    }
                    if let Some(carried) = self.pass_on_to(&task, place, &original).await {
                        return carried;
                    }
                }
            }
            if self.station.charge().is_none() {
                return Carried::Here(self.answer_as_reader(task).await);
            }
            if !waiting.wait().await {
                return Carried::Here(Err(nobody().into()));
            }
        }
    }

    /// Passes a write on whose body nobody has looked at. `None` when its owner is not known to be another node, or did not take it.
    async fn pass_on_unread(&self, write: &ItemWrite, original: &Original<'_>) -> Option<Carried> {
        let log = self.station.node.log_of(&write.container, &write.key)?;
        let place = self.station.place_of_log(&self.station.routes(), log);
        let is_there = matches!(place, Place::There(_));
        let task = is_there.then(|| Task::item_write(log))?;
        self.pass_on_to(&task, place, original).await
    }

    /// Another region takes writes by now: this one answers reads, and refuses what waited to be written.
    async fn answer_as_reader(&self, task: Task) -> Result<Reply, Failure> {
        match task.request {
            Some(request) => self.station.node.execute_as_reader(request).await,
            None if task.is_write => Err(write_forbidden().into()),
            None => Err(nobody().into()),
        }
    }

    /// Passes a request on to whoever executes it. `None` when it was surely not executed, or may be repeated.
    async fn pass_on_to(&self, task: &Task, place: Place, original: &Original<'_>) -> Option<Carried> {
        let owner = match place {
            Place::There(owner) => owner,
            // The coordinator brings together what it is about.
            Place::Scattered if !task.is_read() => self.station.routes().coordinator.clone()?,
            _ => return None,
        };
        let is_there = || match self.station.place(&task.reach) {
            Place::There(name) => name == owner,
            Place::Scattered => self.station.routes().coordinator.as_ref() == Some(&owner),
            _ => false,
        };
        match self.pass_on(&owner, original, is_there).await {
            Passed::Answered { response, known } => {
                if task.is_write && task.is_metadata {
                    self.learn(known).await;
                }
                if let Some(token) = session_of(&response) {
                    self.station.node.learn_told(&task.reach, &token);
                }
                Some(Carried::Elsewhere(response))
            }
            Passed::Lost if task.is_write => Some(Carried::Here(Err(unknown().into()))),
            Passed::TooLarge => Some(Carried::Here(Err(too_large().into()))),
            Passed::NotTaken | Passed::Lost => None,
        }
    }

    async fn administration(&self, original: Original<'_>) -> Result<Administration> {
        let is_write = original.method() != Method::GET;
        let mut waiting = Waiting::new(&self.station, self.hold);
        loop {
            waiting.look();
            match self.station.place(&Reach::Catalogue) {
                Place::Here => return Ok(Administration::Here),
                _ if original.relayed => return Ok(Administration::NotHere),
                Place::There(owner) => {
                    let is_there = || self.station.place(&Reach::Catalogue) == Place::There(owner.clone());
                    match self.pass_on(&owner, &original, is_there).await {
                        Passed::Answered { response, known } => {
                            if is_write {
                                self.learn(known).await;
                            }
                            return Ok(Administration::Elsewhere(response));
                        }
                        Passed::Lost if is_write => return Err(unknown()),
                        Passed::TooLarge => return Err(too_large()),
                        Passed::NotTaken | Passed::Lost => {}
                    }
                }
                Place::Nowhere | Place::Scattered => {}
            }
            if self.station.charge().is_none() && is_write {
                return Err(write_forbidden());
            }
            if !waiting.wait().await {
                return Err(nobody());
            }
        }
    }

    /// Executes a request about what this node owns. `None` when its answer does not count.
    async fn execute_here(&self, task: &mut Task) -> Option<Result<Reply, Failure>> {
        let Some(request) = task.attempt() else {
            return Some(Err(nobody().into()));
        };
        let result = self.station.node.execute(request).await;
        let result = self.standing(result, task)?;
        if task.is_write && task.is_metadata && result.is_ok() && !self.is_known_to_all().await {
            return Some(Err(unknown().into()));
        }
        Some(result)
    }

    /// The same for what several nodes own: this one, which coordinates, brings it together first.
    async fn execute_at_home(&self, task: &mut Task) -> Option<Result<Reply, Failure>> {
        let Reach::Logs { logs, .. } = &task.reach else {
            return None;
        };
        let _pin = home::bring(&self.station, Scope::Logs(logs.clone()), self.hold).await?;
        self.execute_here(task).await
    }

    /// Waits until every node knows of a change of the catalogue, so that whoever asks any of them finds it.
    pub(super) async fn is_known_to_all(&self) -> bool {
        let lsn = self.station.node.system_lsn();
        self.questions.all_caught_up(&self.station, lsn, self.hold).await
    }

    /// An answer of this node as far as it counts. What was appended counts whoever owns the log now; what was read or refused may
    /// be out of date unless this node still owned it afterwards. `None`: it does not count, and nothing was done.
    fn standing(&self, result: Result<Reply, Failure>, task: &Task) -> Option<Result<Reply, Failure>> {
        let status = result.as_ref().err().map(|failure| failure.error.status());
        if status == Some(Status::WRITE_FORBIDDEN) {
            // A log that was taken by another is noticed before anything else is.
            return None;
        }
        if self.station.place(&task.reach) == Place::Here {
            return Some(result);
        }
        match result {
            Ok(reply) => task.appended(reply).map(Ok),
            // Nothing else is said of a write whose outcome is not known.
            Err(failure) => (status == Some(Status::REQUEST_TIMEOUT)).then_some(Err(failure)),
        }
    }

    /// Answers from this node's own view, if the request allows it or the view is known to have everything.
    async fn answer_from_view(&self, task: &Task, place: &Place) -> Option<Result<Reply, Failure>> {
        let request = task.request.as_ref().filter(|_| self.station.is_in_touch())?;
        let node = &self.station.node;
        if let Some(grounds) = node.grounds(request) {
            let answer = node.execute(request.clone()).await;
            if node.still_stands(grounds).await {
                return Some(answer);
            }
        }
        match (&task.reach, place) {
            (Reach::Logs { logs, reads: true }, Place::Scattered) => {
                let level = request.options.level(node.account().consistency);
                // Among regions a strong read asks by itself, partition by partition.
                if level != Consistency::Strong || !node.promises_everywhere() {
                    self.await_view(logs, level).await?;
                }
                let grounds = node.grounds_of(logs)?;
                let answer = node.execute(request.clone()).await;
                // What it is about may have been split, merged or deleted meanwhile.
                let stands = node.still_stands(grounds).await && node.reach(request) == task.reach;
                stands.then_some(answer)
            }
            _ => None,
        }
    }

    /// Waits until this node's view has what the owners of logs have. `None` when that is not to be had.
    async fn await_view(&self, logs: &BTreeSet<LogId>, level: Consistency) -> Option<()> {
        let demand = match level {
            Consistency::Strong => Demand::Ownership,
            _ => Demand::Nothing,
        };
        let heads = self.questions.heads(&self.station, logs, demand).await?;
        let node = &self.station.node;
        let reached = heads.iter().map(|(log, lsn)| node.reaches(*log, *lsn));
        let reached = futures::future::join_all(reached);
        tokio::time::timeout(VIEW_WAIT, reached).await.ok().map(drop)
    }

    /// Passes a request on to a node, and waits for its answer as long as it is the one to ask, and a moment longer.
    async fn pass_on(&self, owner: &str, original: &Original<'_>, is_there: impl Fn() -> bool) -> Passed {
        let subject = format!("{}.{owner}", self.subjects);
        let asked = self.caller.ask(&subject, original.encode(), ANSWER_PATIENCE);
        let replaced = async {
            let mut routes = self.station.watch();
            while is_there() {
                if routes.changed().await.is_err() {
                    break;
                }
            }
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

impl Handler for ClusterHandler {
    /// What nobody passes on is answered from here: changes for those who listen to them.
    fn execute(&self, request: Request) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(self.station.node.execute(request))
    }

    fn administer(&self, command: Command) -> BoxFuture<'_, Result<Answer, Error>> {
        Box::pin(home::administer(self, command))
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
    fn execute_at_once(&self, request: &Request, relayed: bool) -> Option<Result<Reply, Failure>> {
        let station = &self.station;
        let from_view = !relayed && station.is_in_touch();
        station
            .node
            .read_at_once(request, |log| station.may_own(log), from_view)
    }

    fn execute<'a>(&'a self, request: Request, original: Original<'a>) -> BoxFuture<'a, Carried> {
        Box::pin(self.carry_out(request, original))
    }

    fn pass_on<'a>(&'a self, write: &'a ItemWrite, original: &'a Original<'a>) -> BoxFuture<'a, Option<Carried>> {
        Box::pin(self.pass_on_unread(write, original))
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

pub(super) fn write_forbidden() -> Error {
    Error::new(
        Status::WRITE_FORBIDDEN,
        "The requested operation cannot be performed at this region: another region of the account takes writes.",
    )
}

pub(super) fn nobody() -> Error {
    Error::new(Status::UNAVAILABLE, "No node owns the data just now.").with_retry_after_ms(1000)
}

pub(super) fn unknown() -> Error {
    Error::new(
        Status::REQUEST_TIMEOUT,
        "The node that owns the data was lost while it executed this; the outcome is not known.",
    )
}

fn too_large() -> Error {
    Error::new(Status::TOO_LARGE, "Request size is too large")
}
