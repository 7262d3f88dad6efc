//! A request of the data plane: databases, containers, items and what belongs to them.

use http::{HeaderValue, Method, request};
use orrery_model::{Error, Result, Status};
use orrery_node::Request;
use orrery_node::api::{Principal, ResourceKind, Selector};
use orrery_node::events::Happening;

use super::{Answered, Incomplete, Pipeline, leave_unread};
use crate::connection::Peer;
use crate::faults::{Effect, Fault, Subject};
use crate::handler::Presence;
use crate::permissions::TokenIssue;
use crate::relay::{Carried, Original};
use crate::wire::{self, Decoded, RequestMeta, Route, RouteKind};

/// Answers a request, or says why it is refused before it reaches the handler.
pub(super) async fn answer(pipeline: &Pipeline, request: Incomplete<'_>) -> Result<Answered> {
    let Incomplete {
        peer,
        head,
        body,
        activity_id,
    } = request;
    match pipeline.parts().handler.presence() {
        Presence::Here => {}
        Presence::Hanging => return std::future::pending().await,
        Presence::Absent(error) => {
            leave_unread(peer, &body);
            return Err(error);
        }
        Presence::Retired => {
            leave_unread(peer, &body);
            return Err(retired(&head));
        }
    }
    let known = wire::route(&head.uri).and_then(|route| {
        let principal = pipeline.authenticate(&head, route.signed.resource_type, &route.signed.link)?;
        Ok((route, principal))
    });
    let (route, principal) = known.inspect_err(|_| leave_unread(peer, &body))?;
    if route.kind == RouteKind::Account && head.method == Method::GET {
        leave_unread(peer, &body);
        return Ok(Box::pin(account(pipeline, peer, &head, activity_id)).await);
    }
    // Takes up its room until the request is answered: everything that is made of it lives as long.
    let whole = pipeline.read_body(peer, body).await?;
    let body = whole.bytes.clone();
    let original = pipeline.parts().handler.relay().map(|_| Original {
        head: &head,
        body: body.clone(),
        tls: peer.tls,
        activity_id: activity_id.clone(),
        relayed: peer.relayed,
    });
    let names = Names::of(pipeline, &route);
    let account = pipeline.parts().handler.account();
    let decoded = wire::decode(route, &head, body, account.consistency)?;
    let fault = names.fault(pipeline, &head.method, decoded.name);
    execute(
        pipeline,
        peer,
        &head,
        Call {
            principal,
            decoded,
            original,
            fault,
            activity_id,
            n_read_regions: account.regions.len().saturating_sub(1),
        },
    )
    .await
}

/// Every SDK reads elsewhere when it is told that the account is not here. Some write elsewhere only when they are told that
/// writes are not taken here.
fn retired(head: &request::Parts) -> Error {
    let status = match wire::may_write(head) {
        true => Status::WRITE_FORBIDDEN,
        false => Status::ACCOUNT_NOT_HERE,
    };
    Error::new(status, "The account is not served in this region.")
}

async fn account(pipeline: &Pipeline, peer: &Peer, head: &request::Parts, activity_id: HeaderValue) -> Answered {
    const NAME: &str = "read_account";
    if let Some(fault) = Names::default().fault(pipeline, &head.method, NAME)
        && let Err(error) = suffer(pipeline, peer, fault).await
    {
        return Answered::new(NAME, wire::refuse(activity_id, error));
    }
    let account = pipeline.parts().handler.account();
    let locations = pipeline.parts().addresses.locations(&account, head, peer.tls);
    let document = wire::account::document(&account, &locations);
    Answered::new(NAME, wire::encode_account(&activity_id, document))
}

/// A request that was understood and may happen.
struct Call<'a> {
    principal: Principal,
    decoded: Decoded,
    /// As it came, where other nodes may have to execute it.
    original: Option<Original<'a>>,
    fault: Option<Fault>,
    activity_id: HeaderValue,
    /// Beside the one that takes writes.
    n_read_regions: usize,
}

async fn execute(pipeline: &Pipeline, peer: &Peer, head: &request::Parts, call: Call<'_>) -> Result<Answered> {
    let Call {
        principal,
        decoded: Decoded {
            operation,
            options,
            form,
            name,
        },
        original,
        fault,
        activity_id,
        n_read_regions,
    } = call;
    tracing::Span::current().record("operation", name);
    let tokens = TokenIssue::for_operation(&operation, &head.headers)?;
    let request = Request {
        principal,
        options,
        operation,
    };
    let carried = match fault {
        None => carry_out(pipeline, request, original).await,
        Some(fault) => Box::pin(execute_with_fault(pipeline, peer, request, original, fault)).await,
    };
    let mut answer = match carried {
        Carried::Here(answer) => answer,
        Carried::Elsewhere(response) => return Ok(Answered::new(name, response)),
        Carried::NotHere => return Ok(Answered::not_here()),
    };
    if let (Some(tokens), Ok(reply)) = (tokens, &mut answer) {
        Box::pin(tokens.put_into(pipeline, reply)).await;
    }
    let charge = answer
        .as_ref()
        .map_or_else(|failure| failure.facts.charge, |reply| reply.facts.charge);
    let meta = RequestMeta {
        activity_id,
        form,
        n_read_regions,
    };
    Ok(Answered {
        charge,
        ..Answered::new(name, wire::encode(&meta, answer))
    })
}

async fn carry_out(pipeline: &Pipeline, request: Request, original: Option<Original<'_>>) -> Carried {
    let handler = &pipeline.parts().handler;
    match (handler.relay(), original) {
        (Some(relay), Some(original)) => relay.execute(request, original).await,
        _ => Carried::Here(handler.execute(request).await),
    }
}

async fn execute_with_fault(
    pipeline: &Pipeline,
    peer: &Peer,
    request: Request,
    original: Option<Original<'_>>,
    fault: Fault,
) -> Carried {
    if fault.after && !matches!(fault.effect, Effect::None) {
        // The answer is lost on its way back; only what the operation did remains.
        let _ = carry_out(pipeline, request.clone(), original.clone()).await;
    }
    match suffer(pipeline, peer, fault).await {
        Ok(()) => carry_out(pipeline, request, original).await,
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
    fn of(pipeline: &Pipeline, route: &Route) -> Names {
        if pipeline.faults().is_empty() && tracing::Span::current().is_disabled() {
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
        let span = tracing::Span::current();
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
