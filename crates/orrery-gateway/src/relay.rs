//! Requests that another node must execute: passed on as the client sent them, and answered as that node answered.
//!
//! What travels between nodes is the public protocol itself, in the wrapping of [`codec`]. So nodes of different versions
//! understand each other as well as any client understands them, and the node that executes checks the signature again.

pub mod codec;

use bytes::Bytes;
use http::{Method, Response, request};
use orrery_model::{Result, SessionToken};
use orrery_node::{Failure, Reply, Request};

use crate::activity::ActivityId;
use crate::handler::BoxFuture;
use crate::wire::ItemWrite;
use crate::wire::headers::names;
use codec::RelayedRequest;

/// A request as it came, whose sender is known and whose body is read.
#[derive(Clone, Debug)]
pub struct Original<'a> {
    pub(crate) head: &'a request::Parts,
    pub(crate) body: Bytes,
    pub(crate) tls: bool,
    pub(crate) activity_id: ActivityId,
    /// Another node has passed it on: it is executed here or nowhere.
    pub relayed: bool,
}

impl Original<'_> {
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    pub fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// What to send to the node that executes it.
    pub fn encode(&self) -> Bytes {
        codec::encode_request(&RelayedRequest {
            method: &self.head.method,
            uri: &self.head.uri,
            headers: &self.head.headers,
            body: &self.body,
            tls: self.tls,
            activity_id: &self.activity_id.to_value(),
        })
    }
}

/// What a client that gets this answer has seen of the partitions it is about.
pub fn session_of(answer: &Response<Bytes>) -> Option<SessionToken> {
    let token = answer.headers().get(names::SESSION_TOKEN)?;
    SessionToken::parse(token.to_str().ok()?)
}

/// What became of an operation.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most requests are executed here, and a box would cost each of them more"
)]
pub enum Carried {
    Here(Result<Reply, Failure>),
    /// As another node answered.
    Elsewhere(Response<Bytes>),
    /// It was passed on to a node that is not the one to execute it. Surely nothing was done.
    NotHere,
}

/// What becomes of an administration request.
#[derive(Debug)]
pub enum Administration {
    /// It is to be executed here.
    Here,
    Elsewhere(Response<Bytes>),
    NotHere,
}

/// Whoever knows which node executes what.
pub trait Relay: Send + Sync {
    /// Executes an operation here if it has nothing to wait for, which spares it the state of waiting. `None`: nothing was done, and
    /// [`Relay::execute`] does it. What another node has passed on is executed by its owner or not at all.
    fn execute_at_once(&self, _request: &Request, _relayed: bool) -> Option<Result<Reply, Failure>> {
        None
    }

    /// Executes an operation here, or has it executed.
    fn execute<'a>(&'a self, request: Request, original: Original<'a>) -> BoxFuture<'a, Carried>;

    /// Has a write of one item executed by the node that owns what it is about, without understanding more of it than its head.
    /// `None`: surely nothing was done, and [`Relay::execute`] does it.
    fn pass_on<'a>(&'a self, write: &'a ItemWrite, original: &'a Original<'a>) -> BoxFuture<'a, Option<Carried>>;

    /// Says where an administration request is executed, or has it executed.
    fn administer<'a>(&'a self, original: Original<'a>) -> BoxFuture<'a, Result<Administration>>;

    /// Whether this node is one that clients should be sent to.
    fn is_ready(&self) -> bool;

    /// A number that tells the other node how much of the catalogue an answer from here may rest on.
    fn known(&self) -> u64;
}
