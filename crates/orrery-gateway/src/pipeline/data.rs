//! A request of the data plane: databases, containers, items and what belongs to them.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, request};
use orrery_model::limits::REQUEST_BYTES_MAX;
use orrery_model::{Error, Result, Status};
use orrery_node::Request;
use orrery_node::account::Account;
use orrery_node::api::{Principal, ResourceKind, Selector};
use orrery_node::events::Happening;
use tracing::Span;

use super::{Answered, Incomplete, Pipeline, leave_unread};
use crate::activity::ActivityId;
use crate::connection::Peer;
use crate::faults::{Effect, Fault, Subject};
use crate::handler::{Handler, Presence};
use crate::permissions::TokenIssue;
use crate::relay::{Carried, Original, Relay};
use crate::wire::headers::{Headers, names};
use crate::wire::{self, Decoded, ReplyForm, RequestMeta, Route, RouteKind};

/// Answers a request as far as whoever stands behind is there.
pub(super) async fn answer(pipeline: &Pipeline, request: Incomplete<'_>) -> Result<Answered> {
    let client = request.headers.get(&names::CLIENT).and_then(|name| name.to_str().ok());
    match pipeline.parts().handler.presence(client) {
        Presence::Hanging => std::future::pending().await,
        Presence::Closing => {
            request.peer.drop_connection.cancel();
            // The connection is dropped around this future.
            std::future::pending().await
        }
        Presence::Far(round_trip) => Box::pin(answer_from_afar(pipeline, request, round_trip / 2)).await,
        presence => answer_at_once(pipeline, presence, request).await,
    }
}

/// Takes its time on the way there, and on the way back: whoever gives up meanwhile does not know what has happened.
async fn answer_from_afar(pipeline: &Pipeline, request: Incomplete<'_>, one_way: Duration) -> Result<Answered> {
    tokio::time::sleep(one_way).await;
    let answered = answer_at_once(pipeline, Presence::Here, request).await;
    tokio::time::sleep(one_way).await;
    answered
}

/// Answers a request, or says why it is refused before it reaches the handler.
async fn answer_at_once(pipeline: &Pipeline, presence: Presence, request: Incomplete<'_>) -> Result<Answered> {
    let handler = &pipeline.parts().handler;
    let known = identify(pipeline, presence, &request);
    let (route, principal) = known.inspect_err(|_| leave_unread(request.peer, &request.body))?;
    let Incomplete {
        peer,
        head,
        headers,
        body,
        activity_id,
        span,
    } = request;
    if route.kind == RouteKind::Account && head.method == Method::GET {
        leave_unread(peer, &body);
        return Ok(Box::pin(account(pipeline, peer, head, activity_id)).await);
    }
    // Takes up its room until the request is answered: everything that is made of it lives as long.
    let whole = pipeline.read_body(peer, body).await?;
    let original = handler.relay().map(|relay| {
        let original = Original {
            head,
            body: whole.bytes.clone(),
            tls: peer.tls,
            activity_id,
            relayed: peer.relayed,
        };
        (relay, original)
    });
    if let Some((relay, original)) = &original
        && let Some(write) = passable(pipeline, &route, original, headers)
        && let Some(carried) = relay.pass_on(&write, original).await
    {
        span.record("operation", write.name);
        return Ok(carried_elsewhere(activity_id, write.name, carried));
    }
    let named = Names::of(pipeline, &route, span);
    let account = handler.account();
    let Decoded {
        operation,
        options,
        form,
        name,
    } = wire::decode(route, &head.method, headers, whole.bytes.clone(), account.consistency)?;
    let fault = named.fault(pipeline, &head.method, name);
    span.record("operation", name);
    let tokens = TokenIssue::for_operation(&operation, headers)?;
    let request = Request {
        principal,
        options,
        operation,
    };
    let carried = match (fault, original) {
        (None, None) => Carried::Here(match handler.execute_at_once(&request) {
            Some(answer) => answer,
            None => handler.execute(request).await,
        }),
        (None, Some((relay, original))) => match relay.execute_at_once(&request, original.relayed) {
            Some(answer) => Carried::Here(answer),
            None => relay.execute(request, original).await,
        },
        (Some(fault), original) => Box::pin(execute_with_fault(pipeline, peer, request, original, fault)).await,
    };
    let mut answer = match carried {
        Carried::Here(answer) => answer,
        Carried::Elsewhere(response) => return Ok(Answered::new(name, response)),
        Carried::NotHere => return Ok(Answered::not_here()),
    };
    if let (Some(tokens), Ok(reply)) = (tokens, &mut answer) {
        Box::pin(tokens.put_into(pipeline, reply)).await;
    }
    let meta = RequestMeta {
        activity_id,
        form,
        n_read_regions: account.regions.len().saturating_sub(1),
    };
    let charge = match &answer {
        Ok(reply) => reply.facts.charge,
        Err(failure) => failure.facts.charge,
    };
    Ok(Answered {
        charge,
        ..Answered::new(name, wire::encode(&meta, answer))
    })
}

/// The write of one item that may be passed on before it is understood: unless it came from another node, or a fault may be meant
/// for it.
fn passable(
    pipeline: &Pipeline,
    route: &Route<'_>,
    original: &Original<'_>,
    headers: Headers<'_>,
) -> Option<wire::ItemWrite> {
    let is_plain = !original.relayed && pipeline.faults().is_empty() && original.body.len() <= REQUEST_BYTES_MAX;
    is_plain
        .then(|| wire::item_write(route, original.method(), headers))
        .flatten()
}

/// The answer to a request that was passed on before it was understood.
fn carried_elsewhere(activity_id: ActivityId, name: &'static str, carried: Carried) -> Answered {
    match carried {
        Carried::Elsewhere(response) => Answered::new(name, response),
        Carried::NotHere => Answered::not_here(),
        Carried::Here(answer) => {
            let meta = RequestMeta {
                activity_id,
                form: ReplyForm::default(),
                n_read_regions: 0,
            };
            Answered::new(name, wire::encode(&meta, answer))
        }
    }
}

/// What a request is about, and who sent it.
fn identify<'a>(pipeline: &Pipeline, presence: Presence, request: &Incomplete<'a>) -> Result<(Route<'a>, Principal)> {
    match presence {
        Presence::Here | Presence::Far(_) | Presence::Hanging | Presence::Closing => {}
        Presence::Absent(error) => return Err(error),
        Presence::Retired => return Err(retired(request.head)),
    }
    let route = wire::route(&request.head.uri)?;
    let principal = pipeline.authenticate(request, route.signed.resource_type, &route.signed.link)?;
    Ok((route, principal))
}

/// Every SDK reads elsewhere when it is told that the account is not here. Some write elsewhere only when they are told that
/// writes are not taken here.
pub(super) fn retired(head: &request::Parts) -> Error {
    let status = match wire::may_write(head) {
        true => Status::WRITE_FORBIDDEN,
        false => Status::ACCOUNT_NOT_HERE,
    };
    Error::new(status, "The account is not served in this region.")
}

async fn account(pipeline: &Pipeline, peer: &Peer, head: &request::Parts, activity_id: ActivityId) -> Answered {
    const NAME: &str = "read_account";
    if let Some(fault) = Names::default().fault(pipeline, &head.method, NAME)
        && let Err(error) = suffer(pipeline, peer, fault).await
    {
        return Answered::new(NAME, wire::refuse(activity_id, error));
    }
    let mut account = pipeline.parts().handler.account();
    if let Some(regions) = pipeline.parts().handler.outdated_regions() {
        account = Arc::new(Account {
            regions,
            ..Account::clone(&account)
        });
    }
    let addresses = &pipeline.parts().addresses;
    let locations = addresses.locations(&account, head, peer.tls);
    let own_region = pipeline.parts().handler.own_region();
    let called_region = own_region.as_deref().filter(|_| addresses.are_named_by(head));
    let document = wire::account::document(&account, called_region, &locations);
    Answered::new(NAME, wire::encode_account(activity_id, document))
}

/// A request as it came, and whoever may pass it on.
type Relayable<'a> = (&'a dyn Relay, Original<'a>);

async fn carry_out(handler: &dyn Handler, request: Request, original: Option<Relayable<'_>>) -> Carried {
    match original {
        Some((relay, original)) => relay.execute(request, original).await,
        None => Carried::Here(handler.execute(request).await),
    }
}

async fn execute_with_fault(
    pipeline: &Pipeline,
    peer: &Peer,
    request: Request,
    original: Option<Relayable<'_>>,
    fault: Fault,
) -> Carried {
    let handler = &*pipeline.parts().handler;
    if fault.after && !matches!(fault.effect, Effect::None) {
        // The answer is lost on its way back; only what the operation did remains.
        let _ = carry_out(handler, request.clone(), original.clone()).await;
    }
    match suffer(pipeline, peer, fault).await {
        Ok(()) => carry_out(handler, request, original).await,
        Err(error) => Carried::Here(Err(error.into())),
    }
}

/// Lets a fault happen. Returns if all it does is to delay.
async fn suffer(pipeline: &Pipeline, peer: &Peer, fault: Fault) -> Result<()> {
    pipeline.metrics().fault();
    tokio::time::sleep(fault.delay).await;
    match fault.effect {
        Effect::None => Ok(()),
        Effect::Fail(error) => Err(error),
        Effect::DropConnection => {
            peer.drop_connection.cancel();
            // The connection is dropped around this future before anything could be written to it.
            std::future::pending().await
        }
    }
}

/// The names of a request's database and container, kept only while someone has use for them.
#[derive(Default)]
struct Names {
    database: Option<String>,
    container: Option<String>,
}

impl Names {
    fn of(pipeline: &Pipeline, route: &Route<'_>, span: &Span) -> Names {
        if pipeline.faults().is_empty() && span.is_disabled() {
            return Names::default();
        }
        let mut selectors = route.ancestors.iter().chain(&route.target);
        let mut name = || match selectors.next() {
            Some(Selector::Name(name)) => Some(name.clone()),
            _ => None,
        };
        let database = name();
        let container = if is_below_container(route.kind) { name() } else { None };
        let names = Names { database, container };
        span.record("database", names.database.as_deref());
        span.record("container", names.container.as_deref());
        names
    }

    fn fault(&self, pipeline: &Pipeline, method: &Method, operation: &str) -> Option<Fault> {
        let (database, container) = (self.database.as_deref(), self.container.as_deref());
        if pipeline.faults().is_empty() {
            return None;
        }
        let region = pipeline.parts().handler.answering_region();
        let fault = pipeline.faults().meet(Subject {
            operation,
            method: method.as_str(),
            region: region.as_deref(),
            database,
            container,
        })?;
        pipeline.parts().handler.events().tell(Happening::FaultApplied {
            rule: fault.rule,
            operation: operation.to_owned(),
        });
        Some(fault)
    }
}

fn is_below_container(kind: RouteKind) -> bool {
    !matches!(
        kind,
        RouteKind::Resource(ResourceKind::User | ResourceKind::Permission) | RouteKind::ClientEncryptionKeys
    )
}
